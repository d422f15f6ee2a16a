"""Refusals and failures in the shape of the messages family.

The SDK's exception class comes from the status; the path of a field stands in the message,
written with points. Imported by this folder's ``client``.
"""

import re

from adapters.family import Envelope
from adapters.family.headers import refusal_headers
from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps

_INVALID = "invalid_request_error"
_API = "api_error"
_OVERLOADED = "overloaded_error"

# HTTP status and error type.
_TABLE: dict[Condition, tuple[int, str]] = {
    Condition.MISSING_KEY: (401, "authentication_error"),
    Condition.MALFORMED_AUTHORIZATION: (401, "authentication_error"),
    Condition.INVALID_KEY: (401, "authentication_error"),
    Condition.KEY_DISABLED: (401, "authentication_error"),
    Condition.KEY_EXPIRED: (401, "authentication_error"),
    Condition.IP_NOT_ALLOWED: (403, "permission_error"),
    Condition.ENTRY_NOT_ALLOWED: (403, "permission_error"),
    Condition.MODEL_NOT_FOUND: (404, "not_found_error"),
    Condition.NO_CHANNEL: (529, _OVERLOADED),
    Condition.MODEL_MISSING: (400, _INVALID),
    Condition.INVALID_JSON: (400, _INVALID),
    Condition.INVALID_FIELD: (400, _INVALID),
    Condition.FIELD_MISSING: (400, _INVALID),
    Condition.UNSUPPORTED: (400, _INVALID),
    Condition.TOO_LARGE: (413, "request_too_large"),
    Condition.CONTENT_TYPE: (415, _INVALID),
    Condition.CONTENT_ENCODING: (400, _INVALID),
    Condition.WALLET_EMPTY: (402, "billing_error"),
    Condition.QUOTA_USED: (402, "billing_error"),
    Condition.RATE_LIMITED: (429, "rate_limit_error"),
    Condition.CONTEXT_LENGTH: (400, _INVALID),
    Condition.UPSTREAM_REFUSED: (400, _INVALID),
    Condition.CONTENT_POLICY: (400, _INVALID),
    Condition.CHANNEL_MISCONFIGURED: (502, _API),
    Condition.UPSTREAM_RATE_LIMITED: (429, "rate_limit_error"),
    Condition.UPSTREAM_FAILED: (502, _API),
    Condition.UPSTREAM_OVERLOADED: (529, _OVERLOADED),
    Condition.UPSTREAM_TIMEOUT: (504, "timeout_error"),
    Condition.UPSTREAM_UNREACHABLE: (502, _API),
    Condition.UPSTREAM_INVALID: (502, _API),
    Condition.UNKNOWN_PATH: (404, "not_found_error"),
    Condition.DUPLICATED_PATH: (404, "not_found_error"),
    Condition.METHOD_NOT_ALLOWED: (405, _INVALID),
    Condition.ID_NOT_FOUND: (404, "not_found_error"),
    Condition.BODY_TIMEOUT: (408, "timeout_error"),
    Condition.INTERNAL: (500, _API),
    Condition.UNAVAILABLE: (503, _API),
    Condition.UPGRADE_NOT_SUPPORTED: (426, _INVALID),
}

# In a stream there is no status, and a failed channel reads best as a passing overload.
_IN_STREAM = {
    Condition.UPSTREAM_FAILED: _OVERLOADED,
    Condition.UPSTREAM_UNREACHABLE: _OVERLOADED,
}

_INDEX = re.compile(r"\[(\d+)\]")


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """The whole answer to a call that is refused or failed."""
    status, kind = _TABLE[fault.condition]
    return Envelope(status, refusal_headers(fault), _body(fault, kind, request_id))


def encode_stream_fault(fault: Fault, request_id: str) -> bytes:
    """The last event of a stream that failed; no message_stop follows."""
    kind = _IN_STREAM.get(fault.condition, _TABLE[fault.condition][1])
    return b"event: error\ndata: " + _body(fault, kind, request_id) + b"\n\n"


def _body(fault: Fault, kind: str, request_id: str) -> bytes:
    error: dict[str, object] = {"type": kind, "message": _message(fault)}
    if fault.condition is Condition.CONTENT_ENCODING:
        error["details"] = {"error_code": "request_body_encoding_unsupported"}
    elif fault.details is not None:
        error["details"] = fault.details
    return dumps({"type": "error", "error": error, "request_id": request_id})


def _message(fault: Fault) -> str:
    """The family's own wording where it has one; a message that was given stands otherwise."""
    condition = fault.condition
    path = _INDEX.sub(r".\1", fault.param or "")
    if condition in {Condition.MODEL_MISSING, Condition.FIELD_MISSING}:
        return f"{path}: field required"
    if condition is Condition.INVALID_FIELD and fault.detail:
        return f"{path}: {fault.detail}"
    if condition is Condition.ID_NOT_FOUND and path and fault.detail:
        return f"{path}: {fault.message}"
    if fault.given_message is not None:
        return fault.given_message
    if condition is Condition.MISSING_KEY:
        return (
            "No API key was sent. Use the header 'Authorization: Bearer <API_KEY>' "
            "or 'x-api-key: <API_KEY>'."
        )
    if condition is Condition.INVALID_KEY:
        return "invalid x-api-key"  # in whichever header it came: clients know these words
    if condition is Condition.CONTEXT_LENGTH:
        # Coding clients look for the first words to shorten the conversation by themselves.
        return f"prompt is too long: {fault.message}"
    if condition is Condition.ENTRY_NOT_ALLOWED:
        group = f"The group '{fault.detail}'" if fault.detail else "The group"
        return f"{group} of this API key does not support the messages entry point."
    if condition is Condition.MODEL_NOT_FOUND and fault.given_message is None:
        return (
            f"model: {fault.model or 'this model'} is not available to this API key. "
            "Check the name and the channel status."
        )
    return fault.message
