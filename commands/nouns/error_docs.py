"""docs/errors.md: every error that a client can meet, made from the tables of the families.

Statuses, types, codes, headers and messages are what the families encode, and upstreams are read by
the code that reads them; only the advice, the SDKs' classes and the examples stand here. Imported
by `docs`. Source of the SDKs' facts: the behaviour of the official SDKs openai 3.52, anthropic 2.11
and google-genai 3.4.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.faults import CODES, Condition, Fault, read_embedded_error, read_upstream_error
from adapters.registry import FAMILIES, FAMILY_NAMES
from handlers.relay.upstream.client import UpstreamError, UpstreamErrorKind
from handlers.relay.upstream.errors import fault_of, may_fail_over

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILY_NAMES
NOT_REACHED = "not reached yet"
_CALL_ID = "01KAJ2Z5F0000000000000000"
_MODEL = "demo-large"

# Conditions that no call can meet in this version, by family; they have their row already.
_LATER: Mapping[Condition, frozenset[str]] = {
    Condition.UNSUPPORTED: frozenset({CHAT, MESSAGES, GENERATE}),
}
# Conditions of one family alone.
_ONLY: Mapping[Condition, str] = {Condition.UPGRADE_NOT_SUPPORTED: RESPONSES}

# What can still go wrong when the head of a stream is out.
IN_STREAM = (
    Condition.CONTEXT_LENGTH,
    Condition.UPSTREAM_REFUSED,
    Condition.CONTENT_POLICY,
    Condition.CHANNEL_MISCONFIGURED,
    Condition.UPSTREAM_RATE_LIMITED,
    Condition.UPSTREAM_FAILED,
    Condition.UPSTREAM_OVERLOADED,
    Condition.UPSTREAM_TIMEOUT,
    Condition.UPSTREAM_UNREACHABLE,
    Condition.UPSTREAM_INVALID,
    Condition.ID_NOT_FOUND,
    Condition.INTERNAL,
    Condition.UNAVAILABLE,
)

_TO_DO: Mapping[Condition, str] = {
    Condition.MISSING_KEY: "Send the key in the header that the message names.",
    Condition.MALFORMED_AUTHORIZATION: "Write the header as `Authorization: Bearer KEY`, no more.",
    Condition.INVALID_KEY: "Copy the key again; it must be one of this gateway, not of a vendor.",
    Condition.KEY_DISABLED: "Ask the owner of the key or the operator, or make a new key.",
    Condition.KEY_EXPIRED: "Make a new key, or have its end set to a later day.",
    Condition.IP_NOT_ALLOWED: "Call from a network of the key, or have yours added to it.",
    Condition.ENTRY_NOT_ALLOWED: "Use another entry of the group, or a key of another group.",
    Condition.MODEL_NOT_FOUND: "Take a name from the list of models; names are case-sensitive.",
    Condition.NO_CHANNEL: "Repeat after `retry-after`.",
    Condition.MODEL_MISSING: "Name a model.",
    Condition.INVALID_JSON: "Send one JSON object in UTF-8; the message says where it breaks.",
    Condition.INVALID_FIELD: "Correct the field that the message names.",
    Condition.FIELD_MISSING: "Add the field that the message names.",
    Condition.UNSUPPORTED: "Leave the field out.",
    Condition.TOO_LARGE: "Send less; the limit is `server.max_body_bytes`.",
    Condition.CONTENT_TYPE: "Send `content-type: application/json`.",
    Condition.CONTENT_ENCODING: "Send the body as it is.",
    Condition.WALLET_EMPTY: "Add balance; a repeat does not help.",
    Condition.QUOTA_USED: "Wait for that day, or have the plan or the limit of the key changed.",
    Condition.RATE_LIMITED: "Repeat after `retry-after`; send less at once (docs/limits.md).",
    Condition.CONTEXT_LENGTH: "Shorten the conversation or take a model with a larger window.",
    Condition.UPSTREAM_REFUSED: "Correct the request as the vendor's words say.",
    Condition.CONTENT_POLICY: "Change the prompt; the vendor does not answer this one.",
    Condition.CHANNEL_MISCONFIGURED: (
        "Tell the operator: the vendor refuses the channel's key or does not know its model."
    ),
    Condition.UPSTREAM_RATE_LIMITED: "Repeat after `retry-after`.",
    Condition.UPSTREAM_FAILED: "Repeat.",
    Condition.UPSTREAM_OVERLOADED: "Repeat after `retry-after`, or take another model.",
    Condition.UPSTREAM_TIMEOUT: (
        "Repeat only if the work may be done, and paid, twice; a stream shows earlier that it runs."
    ),
    Condition.UPSTREAM_UNREACHABLE: "Repeat; if it stays, tell the operator.",
    Condition.UPSTREAM_INVALID: "Repeat; if it stays, tell the operator.",
    Condition.UNKNOWN_PATH: "Set the base URL that the message names, or leave this call out.",
    Condition.DUPLICATED_PATH: "Set the base URL that the message names.",
    Condition.METHOD_NOT_ALLOWED: "Use a method of the `allow` header.",
    Condition.ID_NOT_FOUND: "Send what the id stands for in its place.",
    Condition.BODY_TIMEOUT: "Repeat; send the body without pauses.",
    Condition.INTERNAL: "Tell the operator the request id: the log has the reason.",
    Condition.UNAVAILABLE: "Repeat after `retry-after`; if it stays, tell the operator.",
    Condition.UPGRADE_NOT_SUPPORTED: "Nothing: clients go on with POST by themselves.",
}


@dataclass(frozen=True)
class _Sdk:
    """What a family's SDK makes of a status: class by status, for other 4xx, for other 5xx."""

    name: str
    classes: Mapping[int, str]
    other_4xx: str
    other_5xx: str
    in_stream: str  # empty: as before the stream, by the code of the body
    repeats: frozenset[int]
    obeys: bool  # `x-should-retry`

    def raises(self, status: int) -> str:
        other = self.other_4xx if status < 500 else self.other_5xx
        return self.classes.get(status, other)


_REPEATED = frozenset({408, 409, 429, *range(500, 600)})
_CLASSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
}
_OPENAI = _Sdk(
    "openai", _CLASSES, "APIStatusError", "InternalServerError", "APIError", _REPEATED, True
)
_ANTHROPIC = _Sdk(
    "anthropic",
    {
        **_CLASSES,
        402: "PaymentRequiredError",
        408: "RequestTimeoutError",
        413: "ContentTooLargeError",
        503: "ServiceUnavailableError",
        504: "GatewayTimeoutError",
        529: "OverloadedError",
    },
    "APIStatusError",
    "InternalServerError",
    "APIStatusError",
    _REPEATED,
    True,
)
_GENAI = _Sdk(
    "google-genai", {}, "ClientError", "ServerError", "",
    frozenset({408, 429, 500, 502, 503, 504}), False,
)  # fmt: skip
SDKS: Mapping[str, _Sdk] = {
    CHAT: _OPENAI,
    RESPONSES: _OPENAI,
    MESSAGES: _ANTHROPIC,
    GENERATE: _GENAI,
}
# By what the body says, when it says more than the status.
_CLASS_OF_ERROR_CODE = {"request_body_encoding_unsupported": "RequestBodyEncodingUnsupportedError"}


@dataclass(frozen=True)
class _Example:
    """What the families say in the examples: a path, a field, the right base URL."""

    path: str
    doubled: str
    base: str
    field: str
    wrong: str


_EXAMPLES = {
    CHAT: _Example("/v1/chat/completion", "/v1/chat/completions", "{base_url}/v1",
                   "messages", "messages[0].content"),
    RESPONSES: _Example("/v1/response", "/v1/responses", "{base_url}/v1", "input", "input"),
    MESSAGES: _Example("/v1/messages/batches", "/v1/messages", "{base_url}",
                       "max_tokens", "messages[0].content"),
    GENERATE: _Example("/v1beta/corpora", "/v1beta", "{base_url}", "contents", "contents"),
}  # fmt: skip

_HEAD = """\
# Errors

Made by `make docs` from the tables of the families; do not edit.

Every error is JSON in the shape of the family whose endpoint was called, also on wrong paths, and
carries the id of the call in `x-request-id` and `request-id`: the usage record has the same id and
the code of the condition. Find your family, then the status, then the code or the message. Names
and numbers in the messages are examples.

- **repeats**: whether the SDK calls again by itself (openai and anthropic twice unless told
  otherwise; google-genai only with `retry_options`). `x-should-retry: false` stops openai and
  anthropic.
- `retry-after` is whole seconds, 1 to 60: the vendor's own wait when it names one, else the number
  shown. `connection: close` comes with 413 and 408 when the body was not read to its end.
- A usage record is written for every refused or failed call of a known key; so not for E01 to E03,
  E31 to E33 and E39.
- A condition marked *not reached yet* has its place and shape, but nothing in this version leads
  to it. E34 is not used.
"""

_STREAM_HEAD = """\
## Failures inside a stream

When the head of a stream is out there is no status any more: the failure is its last event, and the
body ends properly behind it, without `[DONE]`, `message_stop`, `response.completed` or a finish
reason. When an event has gone out in part the connection is dropped instead. Another channel is
asked only as long as nothing was sent. What was delivered is charged.

- chat_completions: `data: {"error":{…}}`; openai raises `APIError` with `type` and `code`.
- responses: `event: error`, then `event: response.failed`; openai raises `APIError`. The last code
  is the one of `response.error`, which Codex reads.
- messages: `event: error`; anthropic raises `APIStatusError` with `status_code` 200 and the type.
- generate_content: `data: {"error":{…}}`, then the same object bare on a line of its own, for some
  clients look at the one and some at the other; in a JSON array it is the last element, and the
  bracket follows. google-genai raises what it raises for the status of that number.
"""

_READING_HEAD = """\
## How upstream errors are read

An upstream's status is never the client's: its 401 is about the key of the channel. Its words come
through only where they are about the request (and in streams, where there is no status): one line
of at most 500 characters, with keys, addresses, e-mail addresses and ids of accounts masked; pages
of HTML never do. They are found in the shapes of all families, in a list of one of them, and in
`message`, `msg`, `detail` and `error` as plain text. When no channel is left the client is told the
condition of the last one; a channel of E24 is named in the log.
"""


def page() -> str:
    """The text of docs/errors.md."""
    parts = [_HEAD, *map(_family_part, FAMILY_NAMES), _stream_part(), _reading_part()]
    return "\n".join(parts)


# ---- before the first byte -----------------------------------------------------------------------


def _family_part(name: str) -> str:
    sdk = SDKS[name]
    head = (
        "status",
        "type",
        "code",
        "raises",
        "repeats",
        "headers",
        "message",
        "what to do",
        "No.",
    )
    if name == GENERATE:
        head = ("status", "`status`", "code of the record", *head[3:])
    elif name == MESSAGES:
        head = (*head[:2], "code of the record", *head[3:])
    own = [c for c in Condition if _ONLY.get(c, name) == name]
    rows = sorted((_row(name, condition) for condition in own), key=lambda row: (row[0], row[2]))
    return "\n".join([f"## {name} (SDK {sdk.name})", "", *_table(head, rows)])


def _row(name: str, condition: Condition) -> tuple[str, ...]:
    sdk = SDKS[name]
    envelope = FAMILIES[name].encode_fault(_example(name, condition), _CALL_ID)
    status = envelope.status
    error = json.loads(envelope.body)["error"]
    raised = _CLASS_OF_ERROR_CODE.get(_error_code(error)) or sdk.raises(status)
    headers = {n: v for n, v in envelope.headers.items() if n != "content-type"}
    stopped = sdk.obeys and headers.get("x-should-retry") == "false"
    number = condition.value
    if name in _LATER.get(condition, ()):
        number += f" *{NOT_REACHED}*"
    return (
        str(status),
        f"`{error['status' if name == GENERATE else 'type']}`",
        _code_cell(name, condition, error),
        f"`{raised}`",
        "yes" if status in sdk.repeats and not stopped else "no",
        ", ".join(f"`{n}: {v}`" for n, v in headers.items()) or "–",
        error["message"],
        _TO_DO[condition],
        number,
    )


def _error_code(error: Mapping[str, Any]) -> str:
    """The code in the details of an error of messages, from which its SDK takes the class."""
    details = error.get("details")
    return str(details.get("error_code")) if isinstance(details, dict) else ""


def _code_cell(name: str, condition: Condition, error: Mapping[str, Any]) -> str:
    recorded = CODES[condition]
    shown = error["code"] if name in (CHAT, RESPONSES) else recorded
    return f"`{shown}`" if shown == recorded else f"`{shown}` (record: `{recorded}`)"


def _example(name: str, condition: Condition) -> Fault:
    """A fault as the gateway makes it, filled in with examples."""
    example = _EXAMPLES[name]
    messages = {
        Condition.INVALID_JSON: "The body is not valid JSON (line 1, column 17).",
        Condition.TOO_LARGE: "The body is larger than 32 MiB.",
        Condition.QUOTA_USED: "The subscription quota is used up until 2026-12-01.",
        Condition.RATE_LIMITED: "Rate limit reached: 60 requests per minute. Try again in 3s.",
        Condition.UPSTREAM_REFUSED: "The upstream refused the request: {what it said, cleaned}",
        Condition.CONTEXT_LENGTH: "{what the vendor said, cleaned}",
        Condition.CONTENT_POLICY: "{what the vendor said, cleaned}",
        Condition.UPSTREAM_FAILED: "The upstream failed with status 500.",
        Condition.UNKNOWN_PATH: f"No such endpoint: POST {example.path}.",
        Condition.DUPLICATED_PATH: (
            f"No such endpoint: the base URL already contains {example.doubled}; "
            f"set it to {example.base}."
        ),
    }
    params = {
        Condition.INVALID_FIELD: example.wrong,
        Condition.FIELD_MISSING: example.field,
        Condition.UNSUPPORTED: "background" if name == RESPONSES else "n",
    }
    details = {
        Condition.INVALID_FIELD: "expected an array",
        Condition.ENTRY_NOT_ALLOWED: "basic",
        Condition.ID_NOT_FOUND: "resp_x",
        Condition.INVALID_KEY: "sk-slc-…wxyz",
    }
    return Fault(
        condition,
        messages.get(condition),
        param=params.get(condition),
        model=_MODEL,
        detail=details.get(condition),
    )


# ---- inside a stream -----------------------------------------------------------------------------


def _stream_part() -> str:
    head = ("No.", *FAMILY_NAMES, "what to do")
    rows = [_stream_row(condition) for condition in IN_STREAM]
    return "\n".join([_STREAM_HEAD, *_table(head, rows)])


def _stream_row(condition: Condition) -> tuple[str, ...]:
    said = {name: _stream_errors(name, condition) for name in FAMILY_NAMES}
    chat, generate = said[CHAT][0]["error"], said[GENERATE][0]["error"]
    error, failed = said[RESPONSES]
    responses = (error["error"]["type"], error["code"], failed["response"]["error"]["code"])
    return (
        condition.value,
        f"`{chat['type']}` `{chat['code']}`",
        "`{}` `{}`, then `{}`".format(*responses),
        f"`{said[MESSAGES][0]['error']['type']}`",
        f"{generate['code']} `{generate['status']}` (`{_GENAI.raises(generate['code'])}`)",
        _TO_DO[condition].replace(" after `retry-after`", " later"),
    )


def _stream_errors(name: str, condition: Condition) -> list[dict[str, Any]]:
    """The decoded events with which a stream of the family ends."""
    family = FAMILIES[name]
    operation = next(
        o for o in family.operations.values() if o.endpoint.endswith(_STREAM_END[name])
    )
    tap = family.stream_tap(_MODEL, _MODEL, drop_usage=False, operation=operation)
    events = tap.encode_fault(_example(name, condition), _CALL_ID).decode()
    return [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]


_STREAM_END = {
    CHAT: "/completions",
    RESPONSES: "/responses",
    MESSAGES: "/messages",
    GENERATE: ":streamGenerateContent",
}


# ---- reading upstreams ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reading:
    """What an upstream may answer: its statuses (empty: 200), an example of the error object."""

    words: str
    statuses: Sequence[int] = ()
    error: Mapping[str, Any] = field(default_factory=dict)


_READINGS = (
    _Reading("400, 413, 422 and other 4xx", (400, 413, 415, 422)),
    _Reading("the same, with words on the length of the prompt (`context_length_exceeded`, "
             "`prompt is too long`)", (400, 413), {"code": "context_length_exceeded"}),
    _Reading("the same, with words on a policy (`content_policy_violation`, `content_filter`)",
             (400,), {"code": "content_policy_violation"}),
    _Reading("the same, with words on the key or the account (`API_KEY_INVALID`, `credit balance "
             "is too low`, `insufficient …`)", (400,), {"message": "API key not valid"}),
    _Reading("the same, with `previous_response_not_found`", (400, 404),
             {"code": "previous_response_not_found"}),
    _Reading("401, 402, 403; 405, 407, 410, 421", (401, 402, 403, 405, 407, 410, 421)),
    _Reading("404", (404,)),
    _Reading("404 with the id of a file, a response, a conversation", (404,),
             {"message": "No such file: file-abc123"}),
    _Reading("429", (429,)),
    _Reading("429 with words on quota or billing (`insufficient_quota`), but not "
             "`RESOURCE_EXHAUSTED`", (429,), {"code": "insufficient_quota"}),
    _Reading("408, 409, 425, 499; 500, 502, 520 to 526 and other 5xx",
             (408, 409, 425, 499, 500, 501, 502, 520, 526)),
    _Reading("503, 529; any 5xx with `overloaded_error` or `UNAVAILABLE`", (503, 529)),
    _Reading("504; any 5xx with `DEADLINE_EXCEEDED`", (504,)),
    _Reading("a redirect (never followed)", (301, 302, 307, 308)),
    _Reading("200 with an error inside, plain or as the first event of a stream, by its type, code "
             "or status: here `overloaded_error`", (), {"type": "overloaded_error"}),
    _Reading("200 with HTML, an empty body, other JSON, or an error that says nothing"),
)  # fmt: skip
_CONNECTION: tuple[tuple[str, UpstreamErrorKind], ...] = (
    ("no connection: name, refusal, TLS, the proxy, `upstream.connect_timeout_s`", "connect"),
    ("the channel's `ca_file` cannot be read", "ca_file"),
    ("closed or reset before the head", "reset_before_head"),
    ("nothing for `upstream.first_byte_timeout_s`", "timeout_first_byte"),
    ("silent for `upstream.idle_timeout_s` within the answer", "timeout_idle"),
    ("cut within the answer", "truncated"),
    ("larger than `upstream.max_answer_bytes`", "too_large"),
    ("no HTTP", "protocol"),
)
_AGAIN = """
A 400 or 422 that speaks of `stream_options`, which the gateway adds to streams of
chat_completions, or of the `anthropic-beta` header is not told yet: the same channel is asked once
more without it. `routing.retry_timeouts` lets another channel be asked after the gateway's own
time-outs, too. A vendor's wait is read from `retry-after-ms`, `retry-after` and Google's
`RetryInfo`.
"""


def _reading_part() -> str:
    head = ("the upstream", "is told as", "another channel is asked")
    rows = [_reading_row(reading) for reading in _READINGS]
    for words, kind in _CONNECTION:
        error = UpstreamError(kind, words)
        asked = may_fail_over(error, retry_timeouts=False)
        rows.append((words, _told(fault_of(error)), "yes" if asked else "no"))
    return "\n".join([_READING_HEAD, *_table(head, rows)]).rstrip("\n") + "\n" + _AGAIN


def _reading_row(reading: _Reading) -> tuple[str, ...]:
    """All statuses of a reading mean the same. Raises ValueError when they do not."""
    body = json.dumps({"error": reading.error}).encode()
    read = [read_upstream_error(status, {}, body) for status in reading.statuses]
    read = read or [read_embedded_error({"error": reading.error})]
    rows = {(_told(one.fault), "yes" if one.fail_over else "no") for one in read}
    if len(rows) != 1:
        raise ValueError(f"{reading.words}: {sorted(rows)}")
    return (reading.words, *rows.pop())


def _told(fault: Fault) -> str:
    return f"{fault.condition.value} `{fault.code}`"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(head), "|" + "---|" * len(head), *map(_line, rows), ""]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
