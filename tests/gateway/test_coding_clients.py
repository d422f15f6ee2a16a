"""Codex, Claude Code and Gemini CLI: their captured requests, through a real gateway.

The requests in tests/wire/clients are from Codex CLI 0.169, Claude Code 2.1 and Gemini CLI 0.61.
tests/gateway/test_errors.py checks what each error answer looks like.
"""

import gzip
import hashlib
import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support import dialects
from tests.support.client import data_of, exchange
from tests.support.documents import UPSTREAM_KEY, channel, document

SAMPLES = Path(__file__).parents[1] / "wire/clients"
CLAUDE, CODEX, GEMINI = CLIENTS = ("claude-code", "codex", "gemini-cli")
FAMILY_OF = {CLAUDE: dialects.MESSAGES, CODEX: dialects.RESPONSES, GEMINI: dialects.GENERATE}
MODEL_OF = {CLAUDE: "claude-sonnet-4-6", CODEX: "gpt-5.3-codex", GEMINI: "gemini-3-pro-preview"}
CONVERSATION = {CLAUDE: "messages", CODEX: "input", GEMINI: "contents"}
TOOLS = {CLAUDE: 150, CODEX: 80, GEMINI: 85}  # this many give the usual size of 40 to 80 KB
MEGABYTE = {"tools": 120, "words": 110}
UPSTREAM = "demo-large"  # the vendor's name for each of them
SAME = "same-name"  # a model with the same name on both sides
SESSION = "0199f3c1-6f2a-7c31-9d3b-1f1c2f0a77aa"
SETTINGS = {
    "server.max_body_bytes": 4 << 20,
    "upstream.heartbeat_s": 0,
    "upstream.commit_after_s": 0,
}
every_client = pytest.mark.parametrize("client", CLIENTS)


# ---- requests ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A request as a client sends it; `body` as bytes, because nothing in it may change."""

    path: str
    headers: dict
    body: bytes

    def send(self, gateway, **headers):
        return exchange(gateway.port, "POST", self.path, {**self.headers, **headers}, self.body)


def request_of(
    client, model=None, *, secret=dialects.SECRET, script="ms=0", turns=(), tools=0, words=1
):
    """Return the first call of a client, or a later one with more `turns`.

    It has `tools` tools, whose descriptions repeat the usual text `words` times.
    """
    text = (SAMPLES / f"{client}.json").read_text().replace("[[demo ms=0]]", f"[[demo {script}]]")
    text = text.replace("{model}", model or MODEL_OF[client]).replace("{secret}", secret)
    sample = json.loads(text)
    body, tool = sample["body"], sample["tool"]
    tool = json.dumps({**tool, "description": tool["description"] * words})
    listed = body["tools"][0]["functionDeclarations"] if client == GEMINI else body["tools"]
    numbers = range(tools or TOOLS[client])
    listed[:0] = [json.loads(tool.replace("{n}", str(number))) for number in numbers]
    body[CONVERSATION[client]] += turns
    return Request(sample["path"], sample["headers"], compact(body))


def compact(body):
    """Encode JSON as JavaScript and Rust do: no blanks, letters not escaped."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    channels = [
        channel(client, family, vendor.url, {MODEL_OF[client]: UPSTREAM, SAME: SAME})
        for client, family in FAMILY_OF.items()
    ]
    return launch(document([SAME, *MODEL_OF.values()], channels), SETTINGS)


def arrived(vendor, body, model=None):
    """Return the one request that reached the vendor; check that its body is `body`, except for
    the model's name."""
    (entry,) = vendor.log()
    expected = body
    if model is not None:
        name = b'"model":"%b"' % model.encode()
        assert body.count(name) <= 1
        expected = body.replace(name, b'"model":"%b"' % UPSTREAM.encode())
    assert entry["sha256"] == hashlib.sha256(expected).hexdigest()
    assert entry["headers"]["content-length"] == str(len(expected))
    return entry


# ---- calls that succeed --------------------------------------------------------------------------

FORWARDED = {"host", "authorization", "content-type", "accept", "accept-encoding", "user-agent",
             "content-length"}  # fmt: skip


@every_client
def test_the_first_call(gateway, vendor, client):
    vendor.reset()
    model, request = MODEL_OF[client], request_of(client)
    assert 35_000 < len(request.body) < 90_000
    answer = request.send(gateway)
    events = dialects.check_whole_stream(answer)
    assert dialects.text_of(FAMILY_OF[client], answer.body) and UPSTREAM.encode() not in answer.body
    entry = arrived(vendor, request.body, model)
    assert entry["stream"] and entry["family"] == FAMILY_OF[client]
    record = gateway.record(answer.call_id)
    assert {name: record[name] for name in ("outcome", "model", "stream", "status")} == {
        "outcome": "ok", "model": model, "stream": True, "status": 200
    }  # fmt: skip
    assert record["user_agent"] == request.headers["User-Agent"]
    assert record["client_request_id"] == request.headers.get("x-client-request-id")
    check_headers(client, entry, request)
    {CLAUDE: list, CODEX: check_codex_stream, GEMINI: check_gemini_stream}[client](events)


def check_headers(client, entry, request):
    headers = entry["headers"]
    betas = {"anthropic-version", "anthropic-beta"} if client == CLAUDE else set()
    assert betas <= set(headers) <= FORWARDED | betas
    assert {name: headers[name] for name in betas} == {n: request.headers[n] for n in betas}
    assert headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert headers["accept-encoding"] == "identity" and headers["user-agent"] == "sluice"
    assert dialects.SECRET not in json.dumps(entry) and SESSION not in json.dumps(headers)


def check_gemini_stream(events):
    """Check a stream for Gemini CLI, where a comment, a field other than data, or a terminator
    fails with "Incomplete JSON"."""
    for event in events:
        assert event.startswith(b"data: {") and event.endswith(b"}\r\n\r\n")
        assert event.count(b"\n") == 2 and b"\xe2\x80\xa8" not in event


def check_codex_stream(events):
    """Check a stream for Codex: whole items, the terminal event, usage with every count; otherwise
    Codex retries."""
    data = [data_of(event) for event in events]
    kinds, response = [one["type"] for one in data], data[-1]["response"]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert kinds.count("response.output_item.done") == len(response["output"])
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert "cached_tokens" in usage["input_tokens_details"]
    assert "reasoning_tokens" in usage["output_tokens_details"]


def zstd_of_raw_blocks(body, block_bytes=100_000):
    """Return a zstd frame like those of Codex's larger bodies, without compressing (RFC 8878
    §3.1.1)."""
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b1010_0000]) + len(body).to_bytes(4, "little")
    for start in range(0, len(body), block_bytes):
        block, last = body[start : start + block_bytes], start + block_bytes >= len(body)
        frame += (len(block) << 3 | last).to_bytes(3, "little") + block
    return frame


@pytest.mark.parametrize(("client", "coding", "pack"), [
    (CLAUDE, None, bytes), (CODEX, "gzip", gzip.compress), (CODEX, "zstd", zstd_of_raw_blocks),
    (GEMINI, "deflate", zlib.compress),
])  # fmt: skip
def test_a_megabyte_of_tools(gateway, vendor, client, coding, pack):
    """The bytes do not change if the names are equal."""
    vendor.reset()
    request = request_of(client, SAME, **MEGABYTE)
    assert len(request.body) > 1 << 20
    headers = {} if coding is None else {"Content-Encoding": coding}
    packed = replace(request, body=pack(request.body))
    dialects.check_whole_stream(packed.send(gateway, **headers))
    assert "content-encoding" not in arrived(vendor, request.body)["headers"]


def test_codex_brings_back_what_it_was_given(gateway, vendor):
    """Items of the answer, reasoning with its encrypted content, and the outputs of its calls are
    accepted."""
    first = request_of(CODEX, script="tools ms=0").send(gateway)
    data = [data_of(event) for event in dialects.check_whole_stream(first)]
    items = [one["item"] for one in data if one["type"] == "response.output_item.done"]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert calls and [item for item in items if item.get("encrypted_content")]
    outputs = [
        {"type": "function_call_output", "call_id": call, "output": "first line"} for call in calls
    ]
    vendor.reset()
    request = request_of(CODEX, turns=[*items, *outputs])
    dialects.check_whole_stream(request.send(gateway))
    arrived(vendor, request.body, MODEL_OF[CODEX])


WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "OpenAI-Beta": "responses_websockets=2026-02-06",
}


def test_the_websocket_probe_of_codex(gateway, vendor):
    """After a 426, Codex uses plain HTTP at once; any other refusal costs it seven seconds."""
    vendor.reset()
    headers = request_of(CODEX, secret="sk-of-nobody-1").headers
    answer = exchange(gateway.port, "GET", "/v1/responses", {**headers, **WEBSOCKET})
    assert (answer.status, answer.whole) == (426, True)
    assert answer.json["error"]["code"] == "upgrade_not_supported"
    dialects.check_ids(answer)
    assert vendor.log() == []
    assert exchange(gateway.port, "GET", "/v1/responses", headers).status == 405
