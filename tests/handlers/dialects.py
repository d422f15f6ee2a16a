"""What the two families say, for tests: requests, and every refusal as the protocol lists it."""

import json
import re
from dataclasses import dataclass

from tests.handlers.client import data_of, events

CHAT, MESSAGES = "chat_completions", "messages"
BOTH = (CHAT, MESSAGES)
PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages"}
SECRET = "sk-test-of-the-owner-0123456789"
MAX_TOKENS = 300
CALL_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
NO = {"x-should-retry": "false"}
BEARER = {**NO, "www-authenticate": "Bearer"}


@dataclass(frozen=True)
class Refusal:
    """A row of the protocol's table: code, (status, type) of each family, extra headers."""

    code: str
    chat: tuple[int, str]
    messages: tuple[int, str]
    headers: dict[str, str]

    def of(self, family):
        return self.chat if family == CHAT else self.messages


_INVALID = "invalid_request_error"
_INVALID_400 = (400, _INVALID)
_AUTH = ((401, _INVALID), (401, "authentication_error"))
_MISSING = "missing_required_parameter"


def _rows():
    def row(code, chat, messages=None, headers=None):
        return Refusal(code, chat, messages or chat, headers or {})

    return {
        "E01": row("missing_api_key", *_AUTH, BEARER),
        "E02": row("malformed_authorization", *_AUTH, BEARER),
        "E03": row("invalid_api_key", *_AUTH, NO),
        "E04": row("api_key_disabled", *_AUTH, NO),
        "E05": row("api_key_expired", *_AUTH, NO),
        "E06": row("ip_not_allowed", (403, "permission_error"), None, NO),
        "E07": row("entry_point_not_allowed", (403, "permission_error"), None, NO),
        "E08": row("model_not_found", (404, _INVALID), (404, "not_found_error"), NO),
        "E09": row("no_channel_available", (503, "server_error"), (529, "overloaded_error"),
                   {"retry-after": "2"}),
        "E10": row(_MISSING, _INVALID_400),
        "E11": row("invalid_json", _INVALID_400),
        "E12": row("invalid_type", _INVALID_400),
        "E13": row(_MISSING, _INVALID_400),
        "E15": row("request_too_large", (413, _INVALID), (413, "request_too_large")),
        "E16": row("unsupported_content_type", (415, _INVALID)),
        "E17": row("unsupported_content_encoding", (415, _INVALID), _INVALID_400),
        "E18": row("insufficient_quota", (429, "insufficient_quota"), (402, "billing_error"), NO),
        "E21": row("context_length_exceeded", _INVALID_400),
        "E22": row("upstream_invalid_request", _INVALID_400),
        "E23": row("content_policy_violation", _INVALID_400),
        "E24": row("channel_misconfigured", (502, "server_error"), (502, "api_error"), NO),
        "E25": row("upstream_rate_limited", (429, "rate_limit_error"), None,
                   {"retry-after": "5"}),
        "E26": row("upstream_error", (502, "server_error"), (502, "api_error")),
        "E27": row("upstream_overloaded", (503, "server_error"), (529, "overloaded_error"),
                   {"retry-after": "2"}),
        "E28": row("upstream_timeout", (504, "server_error"), (504, "timeout_error"), NO),
        "E29": row("upstream_unreachable", (502, "server_error"), (502, "api_error")),
        "E30": row("upstream_invalid_response", (502, "server_error"), (502, "api_error")),
        "E31": row("unknown_path", (404, _INVALID), (404, "not_found_error")),
        "E32": row("duplicated_path", (404, _INVALID), (404, "not_found_error")),
        "E33": row("method_not_allowed", (405, _INVALID), None, {"allow": "POST"}),
        "E35": row("not_found", (404, _INVALID), (404, "not_found_error")),
        "E36": row("request_timeout", (408, _INVALID), (408, "timeout_error")),
        "E37": row("internal_error", (500, "server_error"), (500, "api_error")),
        "E38": row("unavailable", (503, "server_error"), (503, "api_error"), {"retry-after": "1"}),
    }  # fmt: skip


REFUSALS = _rows()
SPECIAL_HEADERS = ("retry-after", "x-should-retry", "www-authenticate", "allow")
FROM_VENDORS = ("openai-organization", "anthropic-organization-id", "set-cookie",
                "x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit")  # fmt: skip


def credentials(family=CHAT, secret=SECRET):
    """Headers as a client of the family sends them."""
    headers = {"Authorization": f"Bearer {secret}"}
    if family == MESSAGES:
        headers["anthropic-version"] = "2023-06-01"
    return headers


def ask(family, model, prompt="Say something.", stream=False, **more):
    """The body of a usual call."""
    body = {
        "model": model,
        "max_tokens": MAX_TOKENS,
        "messages": [{"role": "user", "content": prompt}],
    }
    if stream:
        body["stream"] = True
    return {**body, **more}


def check_ids(answer):
    assert CALL_ID.fullmatch(answer.headers["x-request-id"]), answer.head
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    for name in FROM_VENDORS:
        assert name not in answer.headers, answer.head


def error_of(family, body, call_id):
    """(type, code or None, message) of an error in the family's shape, which is checked."""
    said = json.loads(body)
    if family == CHAT:
        assert list(said) == ["error"], said
        error = said["error"]
        assert set(error) == {"message", "type", "param", "code"}, said
        return error["type"], error["code"], error["message"]
    assert set(said) == {"type", "error", "request_id"} and said["type"] == "error", said
    assert said["request_id"] == call_id
    assert set(said["error"]) - {"details"} == {"type", "message"}, said
    return said["error"]["type"], None, said["error"]["message"]


def check_refusal(answer, family, number, **headers):
    """The answer is the row of the table, in every part; its message."""
    row = REFUSALS[number]
    status, kind = row.of(family)
    assert (answer.status, answer.whole) == (status, True), (number, answer.head, answer.body)
    assert answer.headers["content-type"] == "application/json"
    check_ids(answer)
    wanted = {**row.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
    shown = {name: answer.headers[name] for name in SPECIAL_HEADERS if name in answer.headers}
    assert shown == wanted, number
    said_kind, code, message = error_of(family, answer.body, answer.call_id)
    assert said_kind == kind
    if family == CHAT:
        assert code == row.code
    elif number == "E17":
        details = answer.json["error"]["details"]
        assert details == {"error_code": "request_body_encoding_unsupported"}
    assert message and "Traceback" not in message and 'File "' not in message
    return message


# In a stream the messages family names a failed channel an overload: there is no status to tell.
_STREAM_TYPES = {"E26": "overloaded_error", "E29": "overloaded_error"}


def check_stream_failure(answer, family, number):
    """One error event of the family at the very end, and a proper end of the body behind it."""
    assert answer.status == 200, (answer.head, answer.body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    check_ids(answer)
    assert answer.whole, "the body did not end properly"
    found = events(answer.body)
    failed = [event for event in found if is_error(event)]
    assert len(failed) == 1 and found[-1] == failed[0], found[-3:]
    assert not any(is_terminal(event) for event in found), found[-3:]
    last, data = found[-1], json.dumps(data_of(found[-1])).encode()
    kind, code, message = error_of(family, data, answer.call_id)
    row = REFUSALS[number]
    if family == CHAT:
        assert last.startswith(b"data: {") and last.endswith(b"}\n\n")
        assert (kind, code) == (row.chat[1], row.code)
    else:
        assert last.startswith(b"event: error\ndata: {") and last.endswith(b"}\n\n")
        assert kind == _STREAM_TYPES.get(number, row.messages[1])
    return message


def is_error(event):
    data = data_of(event)
    return b"event: error" in event or (isinstance(data, dict) and bool(data.get("error")))


def is_terminal(event):
    data = data_of(event)
    return data == "[DONE]" or (isinstance(data, dict) and data.get("type") == "message_stop")


def is_heartbeat(family, event, started):
    """The gateway's own keep-alive: a comment; inside a message a ping."""
    if family == MESSAGES and started:
        return event.startswith(b"event: ping\n") and data_of(event) == {"type": "ping"}
    return event.startswith(b":") and data_of(event) is None


def check_whole_stream(answer):
    """A stream that ended as it should; its events."""
    assert answer.status == 200, (answer.head, answer.body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    check_ids(answer)
    assert answer.whole
    found = events(answer.body)
    assert is_terminal(found[-1]), found[-2:]
    assert sum(map(is_terminal, found)) == 1 and not any(map(is_error, found))
    return found


def text_of(family, body):
    """The text of a whole answer, plain or streamed."""
    if body.startswith(b"{"):
        said = json.loads(body)
        if family == CHAT:
            return said["choices"][0]["message"]["content"]
        return "".join(block.get("text", "") for block in said["content"])
    parts = []
    for event in events(body):
        data = data_of(event)
        if not isinstance(data, dict):
            continue
        if family == CHAT:
            parts += [choice["delta"].get("content") or "" for choice in data.get("choices", ())]
        elif data.get("type") == "content_block_delta":
            parts.append(data["delta"].get("text", ""))
    return "".join(parts)
