"""The endpoints beside chat, from outside: requests, answers and records."""

import base64
import hashlib
import json
import os
import re
import struct
import subprocess
from array import array
from pathlib import Path

import pytest

from tests.support import dialects
from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import SECRET
from tests.support.documents import channel, document

OPENAI, GEMINI = dialects.CHAT, dialects.GENERATE
PRICES = {
    **{"input": "2", "output": "8", "output_image": "40", "output_audio": "12", "call": "0"},
    **{"image": "0.04", "character": "0.000015", "search_unit": "0.002", "audio_second": "0.0001"},
}
BARE = {"input": "2", "output": "8"}
MODELS = {
    "m": "up",
    "mib-50": "mib-50",
    "silent": "silent",
    "gem": "up-gem",
    "plain-silent": "silent",
}


FEW = "sk-test-of-the-few-12345"
EXPLAIN = ("explain", "--model", "m", "--json")


def channel_of_few(vendor):
    models = {"vendor": "openai-compatible", "groups": ["few"]}
    return {**channel("also-of-few", "responses", vendor.url, {"m": "up"}), **models}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    made = document(
        list(MODELS),
        [
            channel("one", "chat_completions", vendor.url, MODELS, vendor="openai-compatible"),
            channel("gemini", "generate_content", vendor.url, {"gem-embed": "up"}, vendor="gemini"),
            channel("cohere", "responses", vendor.url, {"r": "up"}, vendor="openai-compatible"),
        ],
    )
    made["model"] = [
        {"name": name, "price": BARE if name == "plain-silent" else PRICES}
        for name in (*MODELS, "gem-embed", "r")
    ]
    return launch(made)


def call(gateway, path, body, family=OPENAI):
    return exchange(gateway.port, "POST", path, dialects.credentials(family), body)


def sent(vendor, gateway, path, body, family=OPENAI):
    """Make a call; return its answer, its record, and what the vendor received."""
    before = len(vendor.log())
    answer = call(gateway, path, body, family)
    entries = vendor.log()[before:]
    return answer, gateway.record(answer.call_id), entries[-1] if entries else None


ROWS = [
    ("/v1/embeddings", {"input": ["a", "b"], "dimensions": 3}, {"input_tokens": 8}, "0.000016"),
    (
        "/v1/completions",
        {"prompt": "once", "max_tokens": 20},
        {"input_tokens": 8, "output_tokens": 4},
        "0.000048",
    ),
    ("/v1/moderations", {"input": "a"}, {}, "0"),
    ("/v1/rerank", {"query": "q", "documents": ["a", "b"]}, {"input_tokens": 8}, "0.000016"),
    (
        "/v1/images/generations",
        {"prompt": "a cat", "n": 2},
        {"input_tokens": 8, "output_image": 100},
        "0.004016",
    ),
    ("/v1/audio/speech", {"input": "hello", "voice": "alloy"}, {"character": 5}, "0.000075"),
]


@pytest.mark.parametrize(("path", "body", "usage", "cost"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row(gateway, vendor, path, body, usage, cost):
    """Bytes pass unchanged except for the model's name; the record has path, family and charge."""
    text = json.dumps({"model": "m", **body}, indent=1)
    answer, record, entry = sent(vendor, gateway, path, text.encode())
    assert answer.status == 200, answer.body
    assert entry["body"] == text.replace('"m"', '"up"')
    assert (entry["path"], record["endpoint"]) == (path, path)
    assert (record["family"], record["outcome"], record["model"]) == (OPENAI, "ok", "m")
    assert record["cost"] == cost, record
    for name, count in usage.items():
        assert {**record, **(record.get("meters") or {})}[name] == count, record
    if answer.headers["content-type"] == "application/json" and "model" in answer.json:
        assert answer.json["model"] == "m"


SILENT = [
    ("/v1/embeddings", {"input": "a b c d"}, "input_tokens", None),
    ("/v1/completions", {"prompt": "once", "max_tokens": 20}, "output_tokens", None),
    ("/v1/rerank", {"query": "q", "documents": ["a"]}, "search_unit", "0.002"),
    ("/v1/images/generations", {"prompt": "a cat", "n": 2}, "image", "0.08"),
]


@pytest.mark.parametrize(("path", "body", "meter", "cost"), SILENT, ids=[r[0] for r in SILENT])
def test_nothing_reported(gateway, vendor, path, body, meter, cost):
    _, record, _ = sent(vendor, gateway, path, {"model": "silent", **body})
    assert record["usage_source"] == "estimated"
    assert cost is None or record["cost"] == cost
    assert {**record, **(record.get("meters") or {})}[meter] > 0, record


def test_streams(gateway, vendor):
    for path, body, last in (
        ("/v1/completions", {"prompt": "once"}, b"data: [DONE]"),
        ("/v1/images/generations", {"prompt": "cat"}, b"image_generation.completed"),
        ("/v1/audio/speech", {"input": "a", "voice": "x", "stream_format": "sse"}, b"audio.done"),
    ):
        answer, record, _ = sent(vendor, gateway, path, {"model": "m", "stream": True, **body})
        if path.endswith("speech"):
            body = {"model": "m", **body}
            answer, record, _ = sent(vendor, gateway, path, body)
        assert answer.whole and last in answer.body, answer.body
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert (record["usage_source"], record["stream"]) == ("reported", True), record


def test_embeddings_of_the_other_family(gateway, vendor):
    texts = {"input": ["a", "b"], "dimensions": 3, "encoding_format": "base64", "user": "u"}
    answer, record, entry = sent(vendor, gateway, "/v1/embeddings", {"model": "gem-embed", **texts})
    assert entry["path"] == "/v1beta/models/up:batchEmbedContents"
    rows = answer.json["data"]
    vectors = [array("f", base64.b64decode(row["embedding"])).tolist() for row in rows]
    assert vectors[0] == [0, 0.125, 0.25] and vectors[1][0] == 0.125
    assert (record["usage_source"], answer.json["model"]) == ("estimated", "gem-embed")

    path = "/v1beta/models/m:batchEmbedContents"
    content = {"parts": [{"text": "a"}]}
    one = {"model": "models/m", "content": content, "outputDimensionality": 3}
    requests = [{**one, "taskType": "RETRIEVAL_QUERY"}, one]
    answer, record, entry = sent(vendor, gateway, path, {"requests": requests}, GEMINI)
    assert json.loads(entry["body"]) == {"model": "up", "input": ["a", "a"], "dimensions": 3}
    assert answer.json["embeddings"][0]["values"] == [0, 0.125, 0.25]
    assert answer.headers["x-sluice-dropped"] == "requests[0].taskType"
    assert (record["family"], record["usage_source"]) == (GEMINI, "reported")

    path = "/v1beta/models/gem-embed:embedContent"
    answer, record, entry = sent(vendor, gateway, path, {"content": content}, GEMINI)
    assert answer.json == {"embedding": {"values": [0, 0.125, 0.25, 0.375]}}
    assert entry["path"] == "/v1beta/models/up:embedContent"


def test_refusals(gateway, vendor):
    for path, body, number in (
        ("/v1/embeddings", {"model": "no", "input": "a"}, "E08"),
        ("/v1/images/generations", {"model": "gem-embed", "prompt": "a"}, "E08"),
        ("/v1/embeddings", {"model": "m"}, "E13"),
        ("/v1/embeddings", {"input": "a"}, "E10"),
    ):
        answer = call(gateway, path, body)
        dialects.check_refusal(answer, OPENAI, number)


def test_entries_and_explain(gateway, vendor):
    """A group's entries decide which endpoints its keys may use; `explain` shows where a call
    would go."""
    few = {"name": "few", "entries": ["chat_completions", "embeddings"]}
    one = channel("of-few", "chat_completions", vendor.url, {"m": "up"}, vendor="groq")
    gateway.apply({
        "group": [few],
        "channel": [{**one, "groups": ["few"]}, channel_of_few(vendor)],
        "key": [{"user": "owner", "name": "few", "group": "few", "secret": FEW}],
    })  # fmt: skip
    headers = {"authorization": f"Bearer {FEW}"}
    speech = {"model": "m", "input": "a", "voice": "b"}
    assert wait_until(
        lambda: exchange(gateway.port, "GET", "/v1/models", headers).status == 200, 10
    )
    answer = exchange(gateway.port, "POST", "/v1/audio/speech", headers, speech)
    dialects.check_refusal(answer, OPENAI, "E07")
    body = {"model": "m", "input": "a"}
    assert exchange(gateway.port, "POST", "/v1/embeddings", headers, body).status == 200
    for path, first in (("/v1/embeddings", ["also-of-few"]), ("/v1/audio/speech", [])):
        found = json.loads(gateway.run(*EXPLAIN, "--endpoint", path, "--key-id", "owner/few"))
        assert found.get("first", []) == first, found
        states = {row["name"]: row["reason"] for row in found["channels"]}
        assert states["of-few"] == (None if not first else "has_no_such_endpoint")


def test_fail_over_and_errors(gateway, vendor):
    answer, record, _ = sent(
        vendor, gateway, "/v1/embeddings", {"model": "m", "input": "[[demo status=400]]"}
    )
    assert (answer.status, record["cost"]) == (400, "0")
    answer, record, _ = sent(
        vendor,
        gateway,
        "/v1/audio/speech",
        {"model": "m", "voice": "a", "input": "[[demo html200]]"},
    )
    assert (answer.status, record["outcome"]) == (502, "upstream_error"), answer.body


def test_the_lists_of_models(gateway):
    headers = dialects.credentials(OPENAI)
    models = exchange(gateway.port, "GET", "/v1/models", headers).json["data"]
    paths = {model["id"]: model["endpoints"] for model in models}
    assert paths["gem-embed"] == ["/v1/embeddings"]
    assert paths["m"] == ["/v1/chat/completions", "/v1/responses", "/v1/completions"]
    models = exchange(gateway.port, "GET", "/v1beta/models", dialects.credentials(GEMINI)).json
    methods = {row["displayName"]: row["supportedGenerationMethods"] for row in models["models"]}
    assert methods["gem-embed"] == ["embedContent", "batchEmbedContents"]
    assert methods["m"] == ["generateContent", "countTokens"]


BOUNDARY = "a-b-c"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


def form(fields, files):
    """Return a multipart body; the keys of `files` are field names."""
    lines = []
    for name, value in fields.items():
        lines += [
            f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        ]
    parts = ["".join(lines).encode()]
    for name, (filename, data) in files.items():
        head = f'content-disposition: form-data; name="{name}"; filename="{filename}"'
        parts += [f"--{BOUNDARY}\r\n{head}\r\ncontent-type: x/y\r\n\r\n".encode(), data, b"\r\n"]
    return b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def wave(seconds):
    """Return a sound file with 8,000 bytes a second."""
    data = bytes(8000 * seconds)
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVE"
        + fmt
        + b"data"
        + struct.pack("<I", len(data))
        + data
    )


UPLOADS = [
    ("/v1/audio/transcriptions", {}, "file", {"input_audio": 10, "output_tokens": 45}, "reported"),
    ("/v1/audio/transcriptions", {"stream": "true"}, "file", {"input_tokens": 4}, "reported"),
    ("/v1/audio/translations", {}, "file", {"audio_second": 3000}, "estimated"),
    (
        "/v1/audio/transcriptions",
        {"response_format": "srt"},
        "file",
        {"audio_second": 3000},
        "estimated",
    ),
    (
        *("/v1/audio/transcriptions", {"response_format": "verbose_json"}, "file"),
        *({"audio_second": 2500}, "reported"),
    ),
    ("/v1/images/edits", {"prompt": "hat"}, "image[]", {"output_image": 100}, "reported"),
]


@pytest.mark.parametrize("large", [False, True], ids=["in memory", "on the disk"])
@pytest.mark.parametrize(("path", "fields", "name", "usage", "source"), UPLOADS)
def test_forms(gateway, vendor, path, fields, name, usage, source, large):
    """A form passes unchanged except for the model's name, from memory or from the disk."""
    data = wave(3) + (bytes(2 << 20) if large else b"")
    files = {name: ("a.wav", data)}
    body = form({"model": "m", **fields}, files)
    before = len(vendor.log())
    headers = {**dialects.credentials(OPENAI), **FORM}
    answer = exchange(gateway.port, "POST", path, headers, body)
    assert answer.status == 200, answer.body
    record, entry = gateway.record(answer.call_id), vendor.log()[before]
    expected = form({"model": "up", **fields}, files)
    assert entry["sha256"] == hashlib.sha256(expected).hexdigest()
    assert (record["usage_source"], record["endpoint"]) == (source, path)
    for meter, count in usage.items():
        assert {**record, **(record.get("meters") or {})}[meter] == count, record


PAGE = Path(__file__).resolve().parents[2] / "docs" / "wire" / "endpoints.md"
CURLS = re.findall(r"^    (curl (?:.*\\\n)*.*)$", PAGE.read_text(), re.MULTILINE)
OF_PAGE = re.findall(r"model(?:\": \"|=)([\w.-]+)|models/([\w-]+):", "".join(CURLS))


@pytest.fixture(scope="module")
def page_gateway(launch, vendor):
    """Return a gateway with the models of the page."""
    models = {name: "up" for pair in OF_PAGE for name in pair if name}
    models["omni-moderation-latest"] = "up"
    made = document(list(models), [
        channel("all", "chat_completions", vendor.url, models, vendor="openai-compatible"),
        channel("gemini", "generate_content", vendor.url, models, vendor="gemini"),
    ])  # fmt: skip
    return launch(made)


@pytest.mark.parametrize("line", CURLS, ids=[re.search('v1.*?[ "]', c)[0][:-1] for c in CURLS])
def test_the_lines_of_the_page(page_gateway, tmp_path, line):
    assert len(CURLS) == 9
    for name in ("pot.png", "tea.mp3"):
        (tmp_path / name).write_bytes(bytes(1000))
    environment = {**os.environ, "BASE": f"http://127.0.0.1:{page_gateway.port}", "KEY": SECRET}
    command = line.replace("curl -s", "curl --fail-with-body -s", 1)
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout or (tmp_path / "tea.mp3").stat().st_size > 1000


def test_a_client_that_leaves(gateway, vendor):
    """Speech that has started is charged; an incomplete form is not."""
    headers = dialects.credentials(OPENAI)
    body = {"model": "mib-50", "input": "hello", "voice": "b"}
    with Connection(gateway.port) as connection:
        connection.request("POST", "/v1/audio/speech", headers, body)
        answer = connection.read_head()
        connection.reset()
    record = gateway.record(answer.call_id)
    assert (record["outcome"], record["usage_source"]) == ("client_gone", "estimated")
    assert record["cost"] == "0.000075"
    begun = {**headers, **FORM, "content-length": "5000000", "x-client-request-id": "left-early"}
    with Connection(gateway.port) as connection:
        connection.request("POST", "/v1/audio/transcriptions", begun, b"x" * 3_000_000)
        connection.reset()
    assert wait_until(lambda: left_early(gateway), 10)
    assert left_early(gateway)[0]["cost"] == "0"


def left_early(gateway):
    records = gateway.usage()
    return [record for record in records if record["client_request_id"] == "left-early"]


def peak_kib(pid):
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(lines["VmHWM"].split()[0])


def test_large_bodies_stay_off_the_heap(launch_own, vendor):
    """One worker relays 90 MB up and 50 MB down at the same time."""
    made = document(["m", "mib-50"], [
        channel("dead", "chat_completions", vendor.url, {"m": "script.status=500"}, priority=1,
                vendor="openai-compatible"),
        channel("one", "chat_completions", vendor.url, {"m": "up", "mib-50": "mib-50"},
                vendor="openai-compatible"),
    ])  # fmt: skip
    early = {"upstream.commit_after_s": 1, "upstream.heartbeat_s": 1}
    gateway = launch_own(made, early, shared=False)
    headers = dialects.credentials(OPENAI)
    speech = {"model": "mib-50", "input": "a", "voice": "b"}

    def upload(size):
        body = form({"model": "m"}, {"file": ("a.wav", wave(1) + bytes(size))})
        path = "/v1/audio/transcriptions"
        return exchange(gateway.port, "POST", path, {**headers, **FORM}, body, patience_s=90)

    assert upload(2 << 20).status == 200
    assert exchange(gateway.port, "POST", "/v1/audio/speech", headers, speech).status == 200
    late = {**speech, "input": "[[demo first_ms=2500]]"}
    answer = exchange(gateway.port, "POST", "/v1/audio/speech", headers, late)
    assert answer.body.startswith(b"ID3") and answer.headers["content-type"] == "audio/mpeg"
    before = {pid: peak_kib(pid) for pid in gateway.worker_pids()}
    answer = upload(90_000_000)
    assert answer.json["text"].endswith(f"{len(wave(1)) + 90_000_000} bytes")
    record = gateway.record(answer.call_id)
    assert [attempt["channel"] for attempt in record["attempts"]] == ["dead", "one"]
    answer = exchange(gateway.port, "POST", "/v1/audio/speech", headers, speech)
    assert len(answer.body) > 50 << 20
    after = {pid: peak_kib(pid) for pid in before}
    assert all(after[pid] - before[pid] < 16_000 for pid in before), (before, after)

    spool = gateway.folder / "journal" / "spool"
    spool.rmdir()  # nothing is left in it
    spool.write_bytes(b"")
    dialects.check_refusal(upload(2 << 20), OPENAI, "E38")
    assert wait_until(lambda: "cannot spool a body" in gateway.log())  # written by a thread


def test_what_is_no_form_or_too_large_a_one(gateway):
    headers = dialects.credentials(OPENAI)
    path = "/v1/audio/transcriptions"
    with Connection(gateway.port) as connection:
        connection.request("POST", path, {**headers, **FORM, "content-length": "104857601"})
        answer = connection.read()
    dialects.check_refusal(answer, OPENAI, "E15")
    whole = form({"model": "m"}, {"file": ("a.wav", wave(1))})
    for body, fields, number in (
        (whole[:-9], FORM, "E12"),
        (whole.replace(b'; name="model"', b""), FORM, "E12"),
        (form({"model": "m"}, {}), FORM, "E13"),
        (form({}, {"file": ("a", b"")}), FORM, "E10"),
        (b"{}", {}, "E16"),
        (whole, {"content-type": "multipart/form-data"}, "E16"),
    ):
        answer = exchange(gateway.port, "POST", path, {**headers, **fields}, body)
        dialects.check_refusal(answer, OPENAI, number)
