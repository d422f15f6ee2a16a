"""Codex, Claude Code and Gemini CLI: their requests as measured, and what they make of answers.

The requests are built after captures of Codex CLI 0.169, Claude Code 2.1 and Gemini CLI 0.61; what
these do at an error is what was measured with them. Real gateway, scripted vendor.
"""

import gzip
import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from demo.messages import sign_thought
from tests.support.client import data_of, events, exchange
from tests.support.dialects import (
    GENERATE,
    MESSAGES,
    RESPONSES,
    SECRET,
    check_ids,
    check_refusal,
    check_stream_failure,
    check_whole_stream,
    error_of,
    text_of,
)
from tests.support.documents import CREDIT, PRICE, UPSTREAM_KEY, channel

POOR, CHATTER, NOBODY = "sk-test-poor-0123456789", "sk-test-chatter-0123456789", "sk-of-nobody-1"
CLAUDE, CODEX, GEMINI = "claude-code", "codex", "gemini-cli"
CLIENTS = (CLAUDE, CODEX, GEMINI)
FAMILY_OF = {CLAUDE: MESSAGES, CODEX: RESPONSES, GEMINI: GENERATE}
MODEL_OF = {CLAUDE: "claude-sonnet-4-6", CODEX: "gpt-5.3-codex", GEMINI: "gemini-3-pro-preview"}
UPSTREAM = "demo-large"  # what the vendor calls each of them
SAME = "same-name"  # a model that is called so on both sides
SESSION = "0199f3c1-6f2a-7c31-9d3b-1f1c2f0a77aa"

SETTINGS = {
    "server.max_body_bytes": 4 << 20,
    "server.trusted_proxies": '["127.0.0.1/32"]',  # as behind nginx: a refusal lets a body pass by
    "upstream.first_byte_timeout_s": 2,
    "upstream.heartbeat_s": 0,
    "upstream.commit_after_s": 0,
}
# condition of the vendor -> the words that make it so
SCRIPTS = {
    "refuses the request": "status=400",
    "finds the prompt too long": "status=400 code=context_length_exceeded",
    "refuses our key": "status=401",
    "does not know the model": "status=404",
    "limits the rate": "status=429 retry_after=7",
    "wants money of us": "status=429 type=insufficient_quota code=insufficient_quota",
    "fails": "status=500",
    "is overloaded": "status=529",
    "is silent": "stall_before_head",
    "sends a web page": "html200",
    "breaks off": "cut=3",
    "ends early": "clean_end=3",
}


# ---- requests ------------------------------------------------------------------------------------

SCHEMA = "http://json-schema.org/draft-07/schema#"
PROMPT = "say hi [[demo ms=0]]"
PROSE = "Use this tool to read, search or change files of the project; paths are absolute. "


def words(size):
    """So many characters of instructions."""
    return (PROSE * (size // len(PROSE) + 1))[:size]


def schema(number, **more):
    properties = {
        "file_path": {
            "type": "string",
            "description": "Where é, 日本語 and \u2028 are welcome, too.",
        },
        "limit": {"type": "number", "exclusiveMinimum": 0, "maximum": 9007199254740991},
        "pattern": {"type": "string", "pattern": "^[\\w./-]+$", "default": f"*.{number}"},
    }
    fields = {"type": "object", "properties": properties, "required": ["file_path"]}
    return {**fields, "additionalProperties": False, **more}


@dataclass(frozen=True)
class Sent:
    """A request as a client sends it; `body` as bytes, for nothing may change in it."""

    path: str
    headers: dict
    body: bytes

    def to(self, gateway, **headers):
        return exchange(gateway.port, "POST", self.path, {**self.headers, **headers}, self.body)


CLAUDE_BETAS = (
    "claude-code-20250219,context-1m-2025-08-07,interleaved-thinking-2025-05-14,"
    "thinking-token-count-2026-05-13,context-management-2025-06-27,"
    "prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07,effort-2025-11-24"
)


def claude_code(model, *, secret=SECRET, prompt=PROMPT, turns=(), tools=24, tool_size=2600, **more):
    """The first call of Claude Code: 76 KB, or a later one with more `turns`."""
    cached = {"type": "ephemeral", "ttl": "1h"}
    tool_list = [
        {"name": f"Tool_{n}", "description": words(tool_size),
         "input_schema": schema(n, **{"$schema": SCHEMA})}
        for n in range(tools)
    ]  # fmt: skip
    user_id = {"device_id": "d" * 64, "account_uuid": "", "session_id": SESSION}
    reminder = {"type": "text", "text": "<system-reminder>\nAs you answer …\n</system-reminder>\n"}
    body = {
        "model": model,
        "messages": [
            {"role": "user", "content": [reminder, {"type": "text", "text": prompt,
                                                    "cache_control": cached}]},
            {"role": "system", "content": "The following skills are available: none."},
            *turns,
        ],
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=00000;"},
            {"type": "text", "text": "You are a coding assistant.", "cache_control": cached},
            {"type": "text", "text": words(9000), "cache_control": cached},
        ],
        "tools": tool_list,
        "metadata": {"user_id": json.dumps(user_id)},
        "max_tokens": 64000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
        **more,
    }  # fmt: skip
    headers = {
        "Accept": "application/json",
        "Authorization": f"Bearer {secret}",
        "Content-Type": "application/json",
        "User-Agent": "claude-cli/2.1.197 (external, sdk-cli)",
        "X-Claude-Code-Session-Id": SESSION,
        "X-Stainless-Arch": "x64",
        "X-Stainless-Lang": "js",
        "X-Stainless-OS": "Linux",
        "X-Stainless-Package-Version": "0.94.0",
        "X-Stainless-Retry-Count": "0",
        "X-Stainless-Runtime": "node",
        "X-Stainless-Runtime-Version": "v24.3.0",
        "X-Stainless-Timeout": "600",
        "anthropic-beta": CLAUDE_BETAS,
        "anthropic-dangerous-direct-browser-access": "true",
        "anthropic-version": "2023-06-01",
        "x-app": "cli",
        "Accept-Encoding": "gzip, deflate, br, zstd",
    }
    return Sent("/v1/messages?beta=true", headers, compact(body))


def codex(model, *, secret=SECRET, prompt=PROMPT, turns=(), tools=9, tool_size=1600, **more):
    """A call of Codex: developer items in place of instructions, 40 KB."""
    functions = [
        {"type": "function", "name": f"tool_{n}", "description": words(tool_size),
         "strict": False, "parameters": schema(n)}
        for n in range(tools)
    ]  # fmt: skip
    namespace = {"type": "namespace", "name": "mcp__files", "description": "Files of the project.",
                 "tools": [{"type": "function", "name": "read", "description": "Reads one.",
                            "strict": False, "parameters": schema(99)}]}  # fmt: skip

    def said(role, text):
        content = [{"type": "input_text", "text": text}]
        return {"type": "message", "role": role, "content": content}

    body = {
        "model": model,
        "input": [
            said("developer", words(17000)),
            said("user", "<environment_context>\n  <cwd>/tmp</cwd>\n</environment_context>"),
            said("user", prompt),
            *turns,
        ],
        "tools": [*functions, namespace, {"type": "web_search", "external_web_access": False}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": SESSION,
        "client_metadata": {"x-codex-installation-id": SESSION},
        **more,
    }
    headers = {
        "Accept": "text/event-stream",
        "Authorization": f"Bearer {secret}",
        "Content-Type": "application/json",
        "User-Agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64) unknown (codex_exec; 0.169.0)",
        "originator": "codex_exec",
        "session-id": SESSION,
        "thread-id": SESSION,
        "x-client-request-id": SESSION,
        "x-codex-beta-features": "terminal_resize_reflow",
        "x-codex-turn-metadata": json.dumps({"session_id": SESSION, "sandbox": "none"}),
        "x-codex-window-id": f"{SESSION}:0",
    }
    return Sent("/v1/responses", headers, compact(body))


def gemini_cli(model, *, secret=SECRET, prompt=PROMPT, turns=(), tools=14, tool_size=1800, **more):
    """A call of Gemini CLI."""
    declarations = [
        {"name": f"tool_{n}", "description": words(tool_size), "parametersJsonSchema": schema(n)}
        for n in range(tools)
    ]
    body = {
        "contents": [
            {"parts": [{"text": "<session_context>\nThis is the CLI. …\n</session_context>"}],
             "role": "user"},
            {"parts": [{"text": prompt}], "role": "user"},
            *turns,
        ],
        "systemInstruction": {"parts": [{"text": words(12000)}], "role": "user"},
        "tools": [{"functionDeclarations": declarations}],
        "generationConfig": {
            "temperature": 1,
            "topP": 0.95,
            "topK": 64,
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192},
        },
        **more,
    }  # fmt: skip
    headers = {
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
        "Accept-Language": "*",
        "Content-Type": "application/json",
        "Sec-Fetch-Mode": "cors",
        "User-Agent": f"GeminiCLI/0.61.0/{MODEL_OF[GEMINI]} (linux; x64; terminal) "
        "google-genai-sdk/1.30.0 gl-node/v22",
        "x-gemini-api-privileged-user-id": SESSION,
        "x-goog-api-client": "google-genai-sdk/1.30.0 gl-node/v22",
        "x-goog-api-key": secret,
    }
    return Sent(f"/v1beta/models/{model}:streamGenerateContent?alt=sse", headers, compact(body))


def compact(body):
    """As JavaScript and Rust write JSON: no blanks, letters as they are."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


REQUEST_OF = {CLAUDE: claude_code, CODEX: codex, GEMINI: gemini_cli}


# ---- what they make of an answer, as measured ----------------------------------------------------

SHOWS = "shows the message"
REPEATS = "asks again and again"
SOME = "asks a few times, says that the model is at capacity"
RECONNECTS = "asks five times more, then shows the message"
QUOTA = "says that the quota is used up"
BLAMES_MODEL = "asks once more without stream, then blames the model"


def reaction(client, answer):
    """What the client does at a refusal, by what it looks at: status, code, x-should-retry."""
    return {CLAUDE: claude_reaction, CODEX: codex_reaction, GEMINI: gemini_reaction}[client](answer)


def claude_reaction(answer):
    if answer.status == 404:
        return BLAMES_MODEL
    if answer.status in (401, 408, 409, 429) or answer.status >= 500:
        return SHOWS if answer.headers.get("x-should-retry") == "false" else REPEATS
    return SHOWS


def codex_reaction(answer):
    code = answer.json["error"]["code"]
    if answer.status == 400 or (answer.status, code) == (404, "model_not_found"):
        return SHOWS
    if answer.status == 429 and code == "insufficient_quota":
        return QUOTA
    if answer.status == 503 and code == "server_is_overloaded":
        return SOME
    # of 413 there is no measurement: it is taken to be as 405 and 422
    return REPEATS if answer.status in (429, *range(500, 600)) else RECONNECTS


def gemini_reaction(answer):
    return REPEATS if answer.status in (408, 429) or answer.status >= 500 else SHOWS


# ---- the gateway ---------------------------------------------------------------------------------


def scripted(client, condition):
    """A call to a vendor in this condition; of a model of its own, since a channel whose key was
    refused is put aside."""
    model = model_when(client, condition)
    return REQUEST_OF[client](model, prompt=f"say hi [[demo {SCRIPTS[condition]}]]")


def model_when(client, condition):
    return f"{client}-when-it-{condition.replace(' ', '-')}"


def content(vendor):
    models, channels = [SAME], []
    for client, family in FAMILY_OF.items():
        usual = {MODEL_OF[client]: UPSTREAM}
        models += usual
        channels.append(channel(client, family, vendor.url, {**usual, SAME: SAME}))
        for name in (model_when(client, condition) for condition in SCRIPTS):
            models.append(name)
            channels.append(channel(name, family, vendor.url, {name: UPSTREAM}))
    return {
        "model": [{"name": name, "price": PRICE} for name in models],
        "group": [{"name": "all"}, {"name": "chatters", "entries": ["chat_completions"]}],
        "channel": channels,
        "user": [{"name": "owner", "balance": CREDIT}, {"name": "pauper"}],
        "key": [
            {"user": "owner", "name": "main", "group": "all", "secret": SECRET},
            {"user": "owner", "name": "chatter", "group": "chatters", "secret": CHATTER},
            {"user": "pauper", "name": "poor", "group": "all", "secret": POOR},
        ],
    }


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    return launch(content(vendor), SETTINGS)


every_client = pytest.mark.parametrize("client", CLIENTS)


def arrived(vendor, body, model=None):
    """The one request that reached the vendor; its body is `body`, but for the model's name."""
    (entry,) = vendor.log()
    wanted = body
    if model is not None:
        said = b'"model":"%b"' % model.encode()
        assert body.count(said) <= 1
        wanted = body.replace(said, b'"model":"%b"' % UPSTREAM.encode())
    assert entry["sha256"] == hashlib.sha256(wanted).hexdigest()
    assert entry["headers"]["content-length"] == str(len(wanted))
    return entry


# ---- calls that succeed --------------------------------------------------------------------------


def test_the_requests_are_as_large_as_theirs():
    sizes = {client: len(REQUEST_OF[client](MODEL_OF[client]).body) for client in CLIENTS}
    assert 70_000 < sizes[CLAUDE] < 90_000
    assert 35_000 < sizes[CODEX] < 50_000
    assert 35_000 < sizes[GEMINI] < 60_000


@every_client
def test_the_first_call(gateway, vendor, client):
    vendor.reset()
    model = MODEL_OF[client]
    sent = REQUEST_OF[client](model)
    answer = sent.to(gateway)
    check_whole_stream(answer)
    assert text_of(FAMILY_OF[client], answer.body)
    assert UPSTREAM.encode() not in answer.body
    entry = arrived(vendor, sent.body, model)
    assert entry["stream"] and entry["family"] == FAMILY_OF[client]
    record = gateway.record(answer.call_id)
    said = (record["outcome"], record["model"], record["stream"], record["status"])
    assert said == ("ok", model, True, 200)
    assert record["user_agent"] == sent.headers["User-Agent"]
    assert record["client_request_id"] == sent.headers.get("x-client-request-id")


FORWARDED = {"host", "authorization", "content-type", "accept", "accept-encoding", "user-agent",
             "content-length"}  # fmt: skip


@every_client
def test_what_of_their_headers_reaches_the_vendor(gateway, vendor, client):
    vendor.reset()
    sent = REQUEST_OF[client](MODEL_OF[client])
    assert sent.to(gateway).status == 200
    (entry,) = vendor.log()
    headers = entry["headers"]
    own = {"anthropic-version", "anthropic-beta"} if client == CLAUDE else set()
    assert set(headers) <= FORWARDED | own, headers
    assert own <= set(headers)
    assert headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert headers["accept-encoding"] == "identity" and headers["user-agent"] == "sluice"
    assert SECRET not in json.dumps(entry)
    assert SESSION not in json.dumps(headers)
    if client == CLAUDE:
        assert headers["anthropic-beta"] == CLAUDE_BETAS
        assert headers["anthropic-version"] == "2023-06-01"


def test_the_query_of_a_call_decides_nothing_and_stays_here(gateway, vendor):
    for query in ("?beta=true", "?beta=true&x=1", "?", "?alt=sse&alt=json"):
        for client in (CLAUDE, CODEX):
            vendor.reset()
            sent = REQUEST_OF[client](MODEL_OF[client])
            path = sent.path.partition("?")[0]
            assert Sent(path + query, sent.headers, sent.body).to(gateway).status == 200
            (entry,) = vendor.log()
            assert entry["path"] == path


def test_unknown_betas_go_along_in_their_order(gateway, vendor):
    vendor.reset()
    betas = "made-up-2031-01-01," + CLAUDE_BETAS + ", another-2031-02-02"
    sent = claude_code(MODEL_OF[CLAUDE])
    assert sent.to(gateway, **{"anthropic-beta": betas}).status == 200
    (entry,) = vendor.log()
    assert entry["headers"]["anthropic-beta"] == betas.replace(", ", ",")


@every_client
def test_a_body_is_not_touched_when_the_names_are_equal(gateway, vendor, client):
    vendor.reset()
    sent = REQUEST_OF[client](SAME)
    check_whole_stream(sent.to(gateway))
    arrived(vendor, sent.body)


@every_client
def test_a_megabyte_of_tools(gateway, vendor, client):
    vendor.reset()
    model = MODEL_OF[client]
    sent = REQUEST_OF[client](model, tools=120, tool_size=8800)
    assert len(sent.body) > 1 << 20
    check_whole_stream(sent.to(gateway))
    arrived(vendor, sent.body, model)


@every_client
def test_a_gzipped_call(gateway, vendor, client):
    vendor.reset()
    model = MODEL_OF[client]
    sent = REQUEST_OF[client](model, tools=120, tool_size=8800)
    packed = Sent(sent.path, {**sent.headers, "Content-Encoding": "gzip"}, gzip.compress(sent.body))
    check_whole_stream(packed.to(gateway))
    entry = arrived(vendor, sent.body, model)
    assert "content-encoding" not in entry["headers"]


TURNS = {
    CLAUDE: [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Read it.", "signature": sign_thought("Read it.")},
            {"type": "tool_use", "id": "toolu_01A", "name": "Tool_0",
             "input": {"file_path": "/tmp/a"}},
            {"type": "tool_use", "id": "toolu_01B", "name": "Tool_1",
             "input": {"file_path": "/tmp/b"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_01A", "content": "1\tfirst line"},
            {"type": "tool_result", "tool_use_id": "toolu_01B", "is_error": True,
             "content": [{"type": "text", "text": "no such file"}],
             "cache_control": {"type": "ephemeral"}}]},
    ],
    GEMINI: [
        {"parts": [
            {"functionCall": {"name": "tool_0", "args": {"file_path": "/tmp/a"}},
             "thoughtSignature": "skip_thought_signature_validator"},
            {"functionCall": {"name": "tool_1", "args": {"file_path": "/tmp/b"}}}],
         "role": "model"},
        {"parts": [
            {"functionResponse": {"name": "tool_0", "response": {"output": "first line"}}},
            {"functionResponse": {"name": "tool_1", "response": {"error": "no such file"}}}],
         "role": "user"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("client", TURNS)
def test_a_turn_with_the_results_of_tools(gateway, vendor, client):
    vendor.reset()
    model = MODEL_OF[client]
    sent = REQUEST_OF[client](model, turns=TURNS[client])
    check_whole_stream(sent.to(gateway))
    arrived(vendor, sent.body, model)


def test_codex_brings_back_what_it_was_given(gateway, vendor):
    """Items of the answer, reasoning with what is encrypted in it, and the outputs of its calls."""
    model = MODEL_OF[CODEX]
    first = codex(model, prompt="say hi [[demo tools ms=0]]").to(gateway)
    said = [data_of(event) for event in check_whole_stream(first)]
    items = [one["item"] for one in said if one["type"] == "response.output_item.done"]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert calls and [item for item in items if item.get("encrypted_content")]
    outputs = [
        {"type": "function_call_output", "call_id": call, "output": "first line"} for call in calls
    ]
    vendor.reset()
    sent = codex(model, turns=[*items, *outputs])
    check_whole_stream(sent.to(gateway))
    arrived(vendor, sent.body, model)


def test_claude_code_repeats_a_call_without_stream(gateway, vendor):
    vendor.reset()
    model = MODEL_OF[CLAUDE]
    sent = claude_code(model, stream=False)
    answer = sent.to(gateway)
    assert (answer.status, answer.json["model"], answer.json["type"]) == (200, model, "message")
    assert not arrived(vendor, sent.body, model)["stream"]


def test_claude_code_counts_tokens(gateway, vendor):
    vendor.reset()
    model = MODEL_OF[CLAUDE]
    whole = json.loads(claude_code(model).body)
    body = compact({n: whole[n] for n in ("model", "messages", "system", "tools", "thinking")})
    sent = Sent("/v1/messages/count_tokens?beta=true", claude_code(model).headers, body)
    answer = sent.to(gateway)
    assert answer.status == 200 and answer.json["input_tokens"] > 0
    arrived(vendor, body, model)


def test_gemini_cli_counts_tokens(gateway, vendor):
    vendor.reset()
    body = compact({"contents": json.loads(gemini_cli("x").body)["contents"]})
    path = f"/v1beta/models/{MODEL_OF[GEMINI]}:countTokens"
    answer = Sent(path, gemini_cli("x").headers, body).to(gateway)
    assert answer.status == 200 and answer.json["totalTokens"] > 0
    arrived(vendor, body)


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_the_probe_of_claude_code_needs_no_key(gateway, method):
    agent = {"User-Agent": "Bun/1.3.11", "Accept": "*/*"}
    answer = exchange(gateway.port, method, "/", agent)
    assert answer.status == 200 and answer.whole
    check_ids(answer)


WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "OpenAI-Beta": "responses_websockets=2026-02-06",
}


@pytest.mark.parametrize("secret", [SECRET, NOBODY])
def test_the_websocket_probe_of_codex(gateway, vendor, secret):
    """At 426 it turns to plain HTTP at once; any other refusal costs it seven seconds."""
    vendor.reset()
    headers = {**codex("x", secret=secret).headers, **WEBSOCKET}
    answer = exchange(gateway.port, "GET", "/v1/responses", headers)
    assert (answer.status, answer.whole) == (426, True)
    assert answer.json["error"]["code"] == "upgrade_not_supported"
    check_ids(answer)
    assert vendor.log() == []
    without = {n: v for n, v in headers.items() if n not in WEBSOCKET}
    assert exchange(gateway.port, "GET", "/v1/responses", without).status == 405


# ---- refusals ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A refusal: its number in the protocol's table, and what each client does."""

    number: str
    reactions: tuple  # of Claude Code, Codex, Gemini CLI
    headers: tuple = ()

    def reaction(self, client):
        return self.reactions[CLIENTS.index(client)]


REFUSED = {
    "no key": Case("E01", (SHOWS, RECONNECTS, SHOWS)),
    "wrong key": Case("E03", (SHOWS, RECONNECTS, SHOWS)),
    "entry closed": Case("E07", (SHOWS, RECONNECTS, SHOWS)),
    "unknown model": Case("E08", (BLAMES_MODEL, SHOWS, SHOWS)),
    "wallet empty": Case("E18", (SHOWS, QUOTA, SHOWS)),
    "field wrong": Case("E13", (SHOWS, SHOWS, SHOWS)),
    "no JSON": Case("E11", (SHOWS, SHOWS, SHOWS)),
    "too large": Case("E15", (SHOWS, RECONNECTS, SHOWS)),
    "refuses the request": Case("E22", (SHOWS, SHOWS, SHOWS)),
    "finds the prompt too long": Case("E21", (SHOWS, SHOWS, SHOWS)),
    "refuses our key": Case("E24", (SHOWS, REPEATS, REPEATS)),
    "does not know the model": Case("E24", (SHOWS, REPEATS, REPEATS)),
    "limits the rate": Case("E25", (REPEATS, REPEATS, REPEATS), (("retry_after", "7"),)),
    "wants money of us": Case("E24", (SHOWS, REPEATS, REPEATS)),
    "fails": Case("E26", (REPEATS, REPEATS, REPEATS)),
    "is overloaded": Case("E27", (REPEATS, SOME, REPEATS)),
    "is silent": Case("E28", (SHOWS, REPEATS, REPEATS)),
    "sends a web page": Case("E30", (REPEATS, REPEATS, REPEATS)),
}
MISSING = {CLAUDE: "messages", CODEX: "input", GEMINI: "contents"}


def request_of(client, name):
    """The request of the client that meets a refusal of REFUSED."""
    make, model = REQUEST_OF[client], MODEL_OF[client]
    if name in SCRIPTS:
        return scripted(client, name)
    if name == "unknown model":
        return make("nobody-has-this-one")
    secret = {"wrong key": NOBODY, "entry closed": CHATTER, "wallet empty": POOR}.get(name, SECRET)
    sent = make(model, secret=secret)
    if name == "no key":
        keys = ("Authorization", "x-goog-api-key")
        return Sent(sent.path, {n: v for n, v in sent.headers.items() if n not in keys}, sent.body)
    if name == "field wrong":
        fields = json.loads(sent.body)
        del fields[MISSING[client]]
        return Sent(sent.path, sent.headers, compact(fields))
    if name == "no JSON":
        return Sent(sent.path, sent.headers, sent.body[:-1])
    if name == "too large":
        return make(model, tools=600, tool_size=9000)
    return sent


@pytest.fixture(scope="module")
def refusals(gateway):
    """(client, name) -> the answer; asked at once, for some of them take their time."""
    cases = [(client, name) for client in CLIENTS for name in REFUSED]
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda case: request_of(*case).to(gateway), cases)
        return dict(zip(cases, answers, strict=True))


@every_client
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_client_does_at_a_refusal(refusals, client, name):
    case, answer = REFUSED[name], refusals[client, name]
    message = check_refusal(answer, FAMILY_OF[client], case.number, **dict(case.headers))
    assert reaction(client, answer) == case.reaction(client)
    # It stands in a terminal: one line, a fact and a cure, nothing of the vendor's account.
    assert "\n" not in message and len(message) < 700
    for hidden in (UPSTREAM_KEY, SECRET, UPSTREAM, "127.0.0.1", "<html"):
        assert hidden not in message
    # A text that Claude Code would replace by its own, about an account that is not the user's.
    assert "credit balance is too low" not in message.lower()


def test_no_refusal_makes_a_client_wait_long(refusals):
    for answer in refusals.values():
        assert 1 <= int(answer.headers.get("retry-after", "1")) <= 60
        assert answer.status not in (409, 421, 422, 499)


# ---- streams that break --------------------------------------------------------------------------


@every_client
@pytest.mark.parametrize("name", ["breaks off", "ends early"])
def test_a_broken_stream_is_told_in_the_clients_way(gateway, client, name):
    """Claude Code asks again without stream, Codex at `response.failed`, Gemini CLI at the bare
    object behind the chunk; none of them may take half an answer for a whole one."""
    answer = scripted(client, name).to(gateway)
    message = check_stream_failure(answer, FAMILY_OF[client], "E26")
    assert message
    ending = events(answer.body)[-1]
    last = json.loads(ending) if client == GEMINI else data_of(ending)
    if client == CLAUDE:
        assert last["type"] == "error"
    elif client == CODEX:
        # these two codes alone keep it from asking again
        code = last["response"]["error"]["code"]
        assert code not in ("insufficient_quota", "context_length_exceeded")
    else:
        kind, code, _ = error_of(GENERATE, json.dumps(last).encode(), answer.call_id)
        assert isinstance(code, int) and re.fullmatch("[A-Z_]+", kind)


def test_what_only_gemini_cli_minds_is_not_in_its_stream(gateway):
    """A comment, a field other than data, or a terminator ends in "Incomplete JSON"."""
    answer = gemini_cli(MODEL_OF[GEMINI]).to(gateway)
    for event in check_whole_stream(answer):
        assert event.startswith(b"data: {") and event.endswith(b"}\r\n\r\n")
        assert event.count(b"\n") == 2 and b"\xe2\x80\xa8" not in event


def test_what_codex_needs_of_a_stream(gateway):
    """Whole items, the terminal event, usage with every count; else it asks again."""
    answer = codex(MODEL_OF[CODEX]).to(gateway)
    said = [data_of(event) for event in check_whole_stream(answer)]
    kinds = [one["type"] for one in said]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.done") == len(said[-1]["response"]["output"])
    usage = said[-1]["response"]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert "cached_tokens" in usage["input_tokens_details"]
    assert "reasoning_tokens" in usage["output_tokens_details"]
