"""Refusals and failures in the shape of the generate-content family.

The SDK's exception class comes from the status; ``code`` and ``status`` are copied from the body.
In streams clients find an error only when ``error`` is the first key and ``code`` an integer.
Imported by this folder's ``client`` and ``stream``.
"""

from adapters.family import Envelope
from adapters.family.headers import refusal_headers
from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps

_INVALID = "INVALID_ARGUMENT"
_UNAUTHENTICATED = "UNAUTHENTICATED"
_DENIED = "PERMISSION_DENIED"
_EXHAUSTED = "RESOURCE_EXHAUSTED"
_DEADLINE = "DEADLINE_EXCEEDED"
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"

# HTTP status and its name.
_TABLE: dict[Condition, tuple[int, str]] = {
    Condition.MISSING_KEY: (401, _UNAUTHENTICATED),
    Condition.MALFORMED_AUTHORIZATION: (401, _UNAUTHENTICATED),
    Condition.INVALID_KEY: (401, _UNAUTHENTICATED),
    Condition.KEY_DISABLED: (401, _UNAUTHENTICATED),
    Condition.KEY_EXPIRED: (401, _UNAUTHENTICATED),
    Condition.IP_NOT_ALLOWED: (403, _DENIED),
    Condition.ENTRY_NOT_ALLOWED: (403, _DENIED),
    Condition.MODEL_NOT_FOUND: (404, "NOT_FOUND"),
    Condition.NO_CHANNEL: (503, "UNAVAILABLE"),
    Condition.MODEL_MISSING: (400, _INVALID),
    Condition.INVALID_JSON: (400, _INVALID),
    Condition.INVALID_FIELD: (400, _INVALID),
    Condition.FIELD_MISSING: (400, _INVALID),
    Condition.UNSUPPORTED: (400, _INVALID),
    Condition.TOO_LARGE: (413, _INVALID),
    Condition.CONTENT_TYPE: (415, _INVALID),
    Condition.CONTENT_ENCODING: (415, _INVALID),
    # Not 429: command line clients repeat every 429, whatever its headers say.
    Condition.WALLET_EMPTY: (402, "FAILED_PRECONDITION"),
    Condition.QUOTA_USED: (402, "FAILED_PRECONDITION"),
    Condition.RATE_LIMITED: (429, _EXHAUSTED),
    Condition.CONTEXT_LENGTH: (400, _INVALID),
    Condition.UPSTREAM_REFUSED: (400, _INVALID),
    Condition.CONTENT_POLICY: (400, _INVALID),
    Condition.CHANNEL_MISCONFIGURED: (502, "INTERNAL"),
    Condition.UPSTREAM_RATE_LIMITED: (429, _EXHAUSTED),
    Condition.UPSTREAM_FAILED: (502, "INTERNAL"),
    Condition.UPSTREAM_OVERLOADED: (503, "UNAVAILABLE"),
    Condition.UPSTREAM_TIMEOUT: (504, _DEADLINE),
    Condition.UPSTREAM_UNREACHABLE: (502, "UNAVAILABLE"),
    Condition.UPSTREAM_INVALID: (502, "INTERNAL"),
    Condition.UNKNOWN_PATH: (404, "NOT_FOUND"),
    Condition.DUPLICATED_PATH: (404, "NOT_FOUND"),
    Condition.METHOD_NOT_ALLOWED: (405, "UNIMPLEMENTED"),
    Condition.ID_NOT_FOUND: (404, "NOT_FOUND"),
    Condition.BODY_TIMEOUT: (408, _DEADLINE),
    Condition.INTERNAL: (500, "INTERNAL"),
    Condition.UNAVAILABLE: (503, "UNAVAILABLE"),
    Condition.UPGRADE_NOT_SUPPORTED: (426, "UNIMPLEMENTED"),
}

# In a stream there is no HTTP status to keep to: the number that belongs to the name is told.
_IN_STREAM: dict[Condition, tuple[int, str]] = {
    Condition.CHANNEL_MISCONFIGURED: (500, "INTERNAL"),
    Condition.UPSTREAM_FAILED: (503, "UNAVAILABLE"),
    Condition.UPSTREAM_UNREACHABLE: (503, "UNAVAILABLE"),
    Condition.UPSTREAM_INVALID: (500, "INTERNAL"),
}


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """The whole answer to a call that is refused or failed; its id travels in headers only."""
    code, status = _TABLE[fault.condition]
    error: dict[str, object] = {"code": code, "message": _message(fault), "status": status}
    if fault.wait_s is not None:
        error["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{fault.wait_s}s"}]
    return Envelope(code, refusal_headers(fault), dumps({"error": error}))


def encode_stream_fault(fault: Fault) -> bytes:
    """The error object that ends a stream, not framed."""
    code, status = _IN_STREAM.get(fault.condition, _TABLE[fault.condition])
    return dumps({"error": {"code": code, "message": _message(fault), "status": status}})


def _message(fault: Fault) -> str:
    """The family's own wording where it has one; a message that was given stands otherwise."""
    if fault.given_message is not None:
        return fault.given_message
    if fault.condition is Condition.ID_NOT_FOUND and fault.param:
        return f"{fault.param}: {fault.message}"
    if fault.condition is Condition.MISSING_KEY:
        return (
            "No API key was sent. Use the header 'x-goog-api-key: <API_KEY>' "
            "or 'Authorization: Bearer <API_KEY>'."
        )
    if fault.condition is Condition.INVALID_KEY:
        return "API key not valid. Please pass a valid API key."
    if fault.condition is Condition.MODEL_MISSING:
        return "The path must name a model: models/{model}:generateContent."
    if fault.condition is Condition.MODEL_NOT_FOUND and fault.given_message is None:
        model = f"models/{fault.model}" if fault.model else "This model"
        return f"{model} is not available to this API key. Check the name and the channel status."
    return fault.message
