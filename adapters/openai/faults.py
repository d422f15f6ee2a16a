"""The table of errors that chat completions and responses have in common: status, type, body.

The SDK's exception class comes from the status alone; type, code and param are copied from the
body. Source: the types and behaviour of the official OpenAI SDKs. Imported by the ``fault``
modules of the two families.
"""

from adapters.family import Envelope
from adapters.family.headers import refusal_headers
from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps

INVALID_REQUEST = "invalid_request_error"
PERMISSION = "permission_error"
QUOTA = "insufficient_quota"
RATE_LIMIT = "rate_limit_error"
SERVER = "server_error"

# HTTP status and error type.
_TABLE: dict[Condition, tuple[int, str]] = {
    Condition.MISSING_KEY: (401, INVALID_REQUEST),
    Condition.MALFORMED_AUTHORIZATION: (401, INVALID_REQUEST),
    Condition.INVALID_KEY: (401, INVALID_REQUEST),
    Condition.KEY_DISABLED: (401, INVALID_REQUEST),
    Condition.KEY_EXPIRED: (401, INVALID_REQUEST),
    Condition.IP_NOT_ALLOWED: (403, PERMISSION),
    Condition.ENTRY_NOT_ALLOWED: (403, PERMISSION),
    Condition.MODEL_NOT_FOUND: (404, INVALID_REQUEST),
    Condition.NO_CHANNEL: (503, SERVER),
    Condition.MODEL_MISSING: (400, INVALID_REQUEST),
    Condition.INVALID_JSON: (400, INVALID_REQUEST),
    Condition.INVALID_FIELD: (400, INVALID_REQUEST),
    Condition.FIELD_MISSING: (400, INVALID_REQUEST),
    Condition.UNSUPPORTED: (400, INVALID_REQUEST),
    Condition.TOO_LARGE: (413, INVALID_REQUEST),
    Condition.CONTENT_TYPE: (415, INVALID_REQUEST),
    Condition.CONTENT_ENCODING: (415, INVALID_REQUEST),
    Condition.WALLET_EMPTY: (429, QUOTA),
    Condition.QUOTA_USED: (429, QUOTA),
    Condition.RATE_LIMITED: (429, RATE_LIMIT),
    Condition.CONTEXT_LENGTH: (400, INVALID_REQUEST),
    Condition.UPSTREAM_REFUSED: (400, INVALID_REQUEST),
    Condition.CONTENT_POLICY: (400, INVALID_REQUEST),
    Condition.CHANNEL_MISCONFIGURED: (502, SERVER),
    Condition.UPSTREAM_RATE_LIMITED: (429, RATE_LIMIT),
    Condition.UPSTREAM_FAILED: (502, SERVER),
    Condition.UPSTREAM_OVERLOADED: (503, SERVER),
    Condition.UPSTREAM_TIMEOUT: (504, SERVER),
    Condition.UPSTREAM_UNREACHABLE: (502, SERVER),
    Condition.UPSTREAM_INVALID: (502, SERVER),
    Condition.UNKNOWN_PATH: (404, INVALID_REQUEST),
    Condition.DUPLICATED_PATH: (404, INVALID_REQUEST),
    Condition.METHOD_NOT_ALLOWED: (405, INVALID_REQUEST),
    Condition.ID_NOT_FOUND: (404, INVALID_REQUEST),
    Condition.BODY_TIMEOUT: (408, INVALID_REQUEST),
    Condition.INTERNAL: (500, SERVER),
    Condition.UNAVAILABLE: (503, SERVER),
    Condition.UPGRADE_NOT_SUPPORTED: (426, INVALID_REQUEST),
}


def envelope(fault: Fault, error: dict[str, str | None]) -> Envelope:
    """The whole answer to a call that is refused or failed; ``error`` is that of ``error_of``."""
    status, _ = _TABLE[fault.condition]
    return Envelope(status, refusal_headers(fault), dumps({"error": error}))


def error_of(fault: Fault) -> dict[str, str | None]:
    """The error object: message, type, param and code."""
    _, kind = _TABLE[fault.condition]
    return {"message": fault.message, "type": kind, "param": fault.param, "code": fault.code}
