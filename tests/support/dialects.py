"""The families' dialects for tests: requests, and every refusal that the protocol lists."""

import json
import re
from dataclasses import dataclass

from tests.support.client import data_of, events

CHAT, RESPONSES, MESSAGES = "chat_completions", "responses", "messages"
GENERATE = "generate_content"
BOTH = (CHAT, MESSAGES)
ALL = (CHAT, RESPONSES, MESSAGES, GENERATE)
# endpoints as records show them
PATHS = {
    CHAT: "/v1/chat/completions",
    RESPONSES: "/v1/responses",
    MESSAGES: "/v1/messages",
    GENERATE: "/v1beta/models/{model}:generateContent",
}
SECRET = "sk-test-of-the-owner-0123456789"
MAX_TOKENS = 300
CALL_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
NO = {"x-should-retry": "false"}
BEARER = {**NO, "www-authenticate": "Bearer"}


@dataclass(frozen=True)
class Refusal:
    """A row of the protocol's table: code, (status, type) for each family, extra headers."""

    code: str
    chat: tuple[int, str]
    messages: tuple[int, str]
    headers: dict[str, str]
    generate: tuple[int, str]

    def of(self, family):
        return {MESSAGES: self.messages, GENERATE: self.generate}.get(family, self.chat)

    def code_of(self, family):
        """Return the code in the body; the responses family has its own code for an overload."""
        overloaded = family == RESPONSES and self.code in OVERLOADED
        return "server_is_overloaded" if overloaded else self.code


_INVALID = "invalid_request_error"
_INVALID_400 = (400, _INVALID)
_AUTH = ((401, _INVALID), (401, "authentication_error"))
_MISSING = "missing_required_parameter"


OVERLOADED = ("no_channel_available", "upstream_overloaded")
_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    426: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    502: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_GENERATE = {"insufficient_quota": (402, "FAILED_PRECONDITION"),
             "subscription_quota_exceeded": (402, "FAILED_PRECONDITION"),
             "upstream_unreachable": (502, "UNAVAILABLE")}  # fmt: skip


def _rows():
    def row(code, chat, messages=None, headers=None):
        generate = _GENERATE.get(code) or (chat[0], _STATUS_NAMES[chat[0]])
        return Refusal(code, chat, messages or chat, headers or {}, generate)

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
        "E14": row("unsupported_parameter", _INVALID_400),
        "E15": row("request_too_large", (413, _INVALID), (413, "request_too_large")),
        "E16": row("unsupported_content_type", (415, _INVALID)),
        "E17": row("unsupported_content_encoding", (415, _INVALID), _INVALID_400),
        "E18": row("insufficient_quota", (429, "insufficient_quota"), (402, "billing_error"), NO),
        "E19": row("subscription_quota_exceeded", (429, "insufficient_quota"),
                   (402, "billing_error"), NO),
        "E20": row("rate_limit_exceeded", (429, "rate_limit_error"), None, {"retry-after": "3"}),
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
        "E39": row("upgrade_not_supported", (426, _INVALID)),
        "E40": row("feature_not_allowed", (403, "permission_error"), None, NO),
        "E41": row("feature_unpriced", (403, "permission_error"), None, NO),
    }  # fmt: skip


REFUSALS = _rows()
SPECIAL_HEADERS = ("retry-after", "x-should-retry", "www-authenticate", "allow")
FROM_VENDORS = ("openai-organization", "anthropic-organization-id", "set-cookie",
                "x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit")  # fmt: skip


def credentials(family=CHAT, secret=SECRET):
    """Return the headers that a client of the family sends."""
    if family == GENERATE:
        return {"x-goog-api-key": secret}
    headers = {"Authorization": f"Bearer {secret}"}
    if family == MESSAGES:
        headers["anthropic-version"] = "2023-06-01"
    return headers


def path_of(family, model, stream=False, array=False):
    """Return the path of a call of the family; `array`: a stream as one JSON array."""
    if family != GENERATE:
        return PATHS[family]
    if not stream:
        return f"/v1beta/models/{model}:generateContent"
    return f"/v1beta/models/{model}:streamGenerateContent" + ("" if array else "?alt=sse")


def ask(family, model, prompt="Say something.", stream=False, **more):
    """Return the body of a usual call. For generate_content it contains neither model nor
    stream."""
    if family == GENERATE:
        contents = [{"role": "user", "parts": [{"text": prompt}]}]
        config = {"maxOutputTokens": MAX_TOKENS}
        return {"contents": contents, "generationConfig": config, **more}
    if family == RESPONSES:
        body = {"model": model, "max_output_tokens": MAX_TOKENS, "input": prompt}
    else:
        messages = [{"role": "user", "content": prompt}]
        body = {"model": model, "max_tokens": MAX_TOKENS, "messages": messages}
    if stream:
        body["stream"] = True
    return {**body, **more}


def check_ids(answer):
    assert CALL_ID.fullmatch(answer.headers["x-request-id"]), answer.head
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    for name in FROM_VENDORS:
        assert name not in answer.headers, answer.head


def error_of(family, body, call_id):
    """Return (type, code or None, message) of an error, and check that it has the family's
    shape."""
    said = json.loads(body)
    if family == GENERATE:
        assert list(said) == ["error"], said
        error = said["error"]
        assert list(error)[:3] == ["code", "message", "status"], said
        assert set(error) <= {"code", "message", "status", "details"}, said
        return error["status"], error["code"], error["message"]
    if family in (CHAT, RESPONSES):
        assert list(said) == ["error"], said
        error = said["error"]
        assert set(error) == {"message", "type", "param", "code"}, said
        return error["type"], error["code"], error["message"]
    assert set(said) == {"type", "error", "request_id"} and said["type"] == "error", said
    assert said["request_id"] == call_id
    assert set(said["error"]) - {"details"} == {"type", "message"}, said
    return said["error"]["type"], None, said["error"]["message"]


def check_refusal(answer, family, number, **headers):
    """Check that the answer matches the table's row in every part; return its message.

    `headers`: those that differ from the row; None: not sent.
    """
    row = REFUSALS[number]
    status, kind = row.of(family)
    assert (answer.status, answer.whole) == (status, True), (number, answer.head, answer.body)
    assert answer.headers["content-type"] == "application/json"
    check_ids(answer)
    wanted = {**row.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    shown = {name: answer.headers[name] for name in SPECIAL_HEADERS if name in answer.headers}
    assert shown == wanted, number
    said_kind, code, message = error_of(family, answer.body, answer.call_id)
    assert said_kind == kind
    if family == GENERATE:
        assert code == status
    elif family != MESSAGES:
        assert code == row.code_of(family)
    elif number == "E17":
        details = answer.json["error"]["details"]
        assert details == {"error_code": "request_body_encoding_unsupported"}
    assert message and "Traceback" not in message and 'File "' not in message
    return message


# In a stream there is no status, and the messages family reports a failed channel as an overload.
_STREAM_TYPES = {"E26": "overloaded_error", "E29": "overloaded_error"}
# (status, code) in a stream of generate_content, which has no status line.
_STREAM_STATUSES = {"E26": ("UNAVAILABLE", 503), "E29": ("UNAVAILABLE", 503),
                    "E30": ("INTERNAL", 500), "E24": ("INTERNAL", 500)}  # fmt: skip


def check_stream_failure(answer, family, number):
    """Check that a stream ends with exactly one error of the family and that its body is
    complete."""
    assert answer.status == 200, (answer.head, answer.body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    check_ids(answer)
    assert answer.whole, "the body did not end properly"
    found = events(answer.body)
    if family == GENERATE:
        # The error is repeated without framing: the bytes after the end of the last event.
        bare = found.pop()
        assert found[-1].lstrip(b"\r\n") == b"data: %b\r\n\r\n" % bare.removesuffix(b"\n"), bare
    size = 2 if family == RESPONSES else 1
    failed = [event for event in found if is_error(event)]
    assert len(failed) == size and found[-size:] == failed, found[-3:]
    assert not any(is_terminal(event) for event in found[:-size]), found[-3:]
    last, said = failed[0], data_of(failed[0])
    row = REFUSALS[number]
    if family == RESPONSES:
        return _check_failed_response(failed, row)
    kind, code, message = error_of(family, json.dumps(said).encode(), answer.call_id)
    if family == GENERATE:
        last = last.lstrip(b"\r\n")  # heartbeats
        assert last.startswith(b'data: {"error":{"code":') and last.endswith(b"}\r\n\r\n")
        assert (kind, code) == _STREAM_STATUSES.get(number, (row.generate[1], row.generate[0]))
    elif family == CHAT:
        assert last.startswith(b"data: {") and last.endswith(b"}\n\n")
        assert (kind, code) == (row.chat[1], row.code)
    else:
        assert last.startswith(b"event: error\ndata: {") and last.endswith(b"}\n\n")
        assert kind == _STREAM_TYPES.get(number, row.messages[1])
    return message


def _check_failed_response(failed, row):
    """Check `error` in both spellings, then `response.failed`, with consecutive numbers; return
    the message."""
    error, last = map(data_of, failed)
    assert failed[0].startswith(b"event: error\ndata: {") and error["type"] == "error"
    assert failed[1].startswith(b"event: response.failed\ndata: {")
    assert last["type"] == "response.failed"
    assert last["sequence_number"] == error["sequence_number"] + 1
    nested = error["error"]
    assert (nested["type"], nested["code"]) == (row.chat[1], row.code_of(RESPONSES))
    assert (error["code"], error["message"]) == (nested["code"], nested["message"])
    response = last["response"]
    assert response["status"] == "failed" and response["error"]["message"] == error["message"]
    return error["message"]


def is_error(event):
    data = data_of(event)
    if b"event: error" in event or b"event: response.failed" in event:
        return True
    return isinstance(data, dict) and bool(data.get("error"))


_TERMINAL = ("message_stop", "response.completed", "response.incomplete", "response.failed")


def is_terminal(event):
    """Return True if an event ends a stream; for generate_content, if it has the finish reason."""
    data = data_of(event)
    if not isinstance(data, dict):
        return data == "[DONE]"
    finished = any(c.get("finishReason") for c in data.get("candidates", ()))
    return finished or data.get("type") in _TERMINAL


def is_heartbeat(family, event, started):
    """Return True if the event is the gateway's own keep-alive: a comment; within a message a
    ping; within a response at times an event; in generate_content a blank line."""
    if family == GENERATE:
        return event.strip(b"\r\n") == b""
    if family == MESSAGES and started:
        return event.startswith(b"event: ping\n") and data_of(event) == {"type": "ping"}
    if family == RESPONSES and event.startswith(b"event: keepalive\n"):
        return True
    return event.startswith(b":") and data_of(event) is None


def check_whole_stream(answer):
    """Check that a stream ended as it should; return its events."""
    assert answer.status == 200, (answer.head, answer.body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    check_ids(answer)
    assert answer.whole
    found = events(answer.body)
    assert is_terminal(found[-1]), found[-2:]
    assert sum(map(is_terminal, found)) == 1 and not any(map(is_error, found))
    return found


def text_of(family, body):
    """Return the text of a whole answer, plain or streamed."""
    if body.startswith((b"{", b"[")):
        return "".join(_plain_text(family, json.loads(body)))
    data = (data_of(event) for event in events(body))
    return "".join(t for said in data if isinstance(said, dict) for t in _delta_text(family, said))


def _plain_text(family, said):
    if family == CHAT:
        yield said["choices"][0]["message"]["content"]
    elif family == MESSAGES:
        yield from (block.get("text", "") for block in said["content"])
    elif family == GENERATE:
        for part in said if isinstance(said, list) else [said]:
            yield from _delta_text(family, part)
    else:
        for item in said["output"]:
            yield from (part.get("text", "") for part in item.get("content") or ())


def _delta_text(family, said):
    if family == CHAT:
        yield from (choice["delta"].get("content") or "" for choice in said.get("choices", ()))
    elif family == GENERATE:
        for candidate in said.get("candidates", ()):
            parts = candidate.get("content", {}).get("parts", ())
            yield from (part.get("text", "") for part in parts if not part.get("thought"))
    elif said.get("type") == "content_block_delta":
        yield said["delta"].get("text", "")
    elif said.get("type") == "response.output_text.delta":
        yield said["delta"]
