"""Refusals and failures in the shape of the chat completions family.

The SDK's exception class comes from the status alone; type, code and param are copied from the
body. Imported by this folder's ``__init__``.
"""

from adapters.family import Envelope
from adapters.faults import Condition, Fault
from adapters.headers import refusal_headers
from adapters.jsonio import dumps

_INVALID = "invalid_request_error"
_SERVER = "server_error"

# HTTP status and error type.
_TABLE: dict[Condition, tuple[int, str]] = {
    Condition.MISSING_KEY: (401, _INVALID),
    Condition.MALFORMED_AUTHORIZATION: (401, _INVALID),
    Condition.INVALID_KEY: (401, _INVALID),
    Condition.KEY_DISABLED: (401, _INVALID),
    Condition.KEY_EXPIRED: (401, _INVALID),
    Condition.IP_NOT_ALLOWED: (403, "permission_error"),
    Condition.ENTRY_NOT_ALLOWED: (403, "permission_error"),
    Condition.MODEL_NOT_FOUND: (404, _INVALID),
    Condition.NO_CHANNEL: (503, _SERVER),
    Condition.MODEL_MISSING: (400, _INVALID),
    Condition.INVALID_JSON: (400, _INVALID),
    Condition.INVALID_FIELD: (400, _INVALID),
    Condition.FIELD_MISSING: (400, _INVALID),
    Condition.UNSUPPORTED: (400, _INVALID),
    Condition.TOO_LARGE: (413, _INVALID),
    Condition.CONTENT_TYPE: (415, _INVALID),
    Condition.CONTENT_ENCODING: (415, _INVALID),
    Condition.WALLET_EMPTY: (429, "insufficient_quota"),
    Condition.QUOTA_USED: (429, "insufficient_quota"),
    Condition.RATE_LIMITED: (429, "rate_limit_error"),
    Condition.CONTEXT_LENGTH: (400, _INVALID),
    Condition.UPSTREAM_REFUSED: (400, _INVALID),
    Condition.CONTENT_POLICY: (400, _INVALID),
    Condition.CHANNEL_MISCONFIGURED: (502, _SERVER),
    Condition.UPSTREAM_RATE_LIMITED: (429, "rate_limit_error"),
    Condition.UPSTREAM_FAILED: (502, _SERVER),
    Condition.UPSTREAM_OVERLOADED: (503, _SERVER),
    Condition.UPSTREAM_TIMEOUT: (504, _SERVER),
    Condition.UPSTREAM_UNREACHABLE: (502, _SERVER),
    Condition.UPSTREAM_INVALID: (502, _SERVER),
    Condition.UNKNOWN_PATH: (404, _INVALID),
    Condition.DUPLICATED_PATH: (404, _INVALID),
    Condition.METHOD_NOT_ALLOWED: (405, _INVALID),
    Condition.ID_NOT_FOUND: (404, _INVALID),
    Condition.BODY_TIMEOUT: (408, _INVALID),
    Condition.INTERNAL: (500, _SERVER),
    Condition.UNAVAILABLE: (503, _SERVER),
    Condition.UPGRADE_NOT_SUPPORTED: (426, _INVALID),
}


def encode_fault(fault: Fault) -> Envelope:
    """The whole answer to a call that is refused or failed."""
    status, _ = _TABLE[fault.condition]
    return Envelope(status, refusal_headers(fault), _body(fault))


def encode_stream_fault(fault: Fault) -> bytes:
    """The last event of a stream that failed; neither a finish reason nor [DONE] follows."""
    return b"data: " + _body(fault) + b"\n\n"


def _body(fault: Fault) -> bytes:
    _, kind = _TABLE[fault.condition]
    error = {
        "message": fault.message,
        "type": kind,
        "param": fault.param,
        "code": fault.code,
    }
    return dumps({"error": error})
