"""Refusals and failures in the shape of the responses family.

Bodies are those of chat completions but for one code; a stream ends with two events, since some
clients read the first and some the second. Imported by this folder's ``stream`` and
``client``.
"""

from typing import Any

from adapters.family import Envelope
from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps
from adapters.openai import faults

# Codex asks five times for this code, and twenty-five times for any other that comes with 503.
_OVERLOADED = "server_is_overloaded"
_OVERLOADED_CONDITIONS = frozenset({Condition.NO_CHANNEL, Condition.UPSTREAM_OVERLOADED})

# response.error.code by the type of the error: what clients know, and repeat or do not repeat.
_RESPONSE_CODES = {
    faults.INVALID_REQUEST: "invalid_prompt",
    faults.PERMISSION: "invalid_prompt",
    faults.QUOTA: "insufficient_quota",
    faults.RATE_LIMIT: "rate_limit_exceeded",
    faults.SERVER: "server_error",
}


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """The whole answer to a call that is refused or failed; its id travels in headers only."""
    return faults.envelope(fault, _error_of(fault))


def encode_stream_fault(fault: Fault, response: dict[str, Any], number: int) -> bytes:
    """The last events of a stream that failed: ``error`` and ``response.failed``.

    ``response`` is the response object as the client knows it, ``number`` the sequence number of
    the first of the two. Raises OverflowError when ``response`` holds what JSON cannot say.
    """
    error = _error_of(fault)
    kind = error.pop("type")
    # Flat, as the types have it, and nested, which is what the SDKs raise an exception for.
    said = {"type": "error", "sequence_number": number, **error, "error": {"type": kind, **error}}
    failed = {
        **response,
        "status": "failed",
        "error": {"code": _response_code(fault, kind), "message": fault.message},
        "output": [],
    }
    last = {"type": "response.failed", "sequence_number": number + 1, "response": failed}
    return b"event: error\ndata: %b\n\nevent: response.failed\ndata: %b\n\n" % (
        dumps(said),
        dumps(last),
    )


def _error_of(fault: Fault) -> dict[str, str | None]:
    error = faults.error_of(fault)
    if fault.condition in _OVERLOADED_CONDITIONS:
        error["code"] = _OVERLOADED
    return error


def _response_code(fault: Fault, kind: str | None) -> str:
    if fault.condition is Condition.CONTEXT_LENGTH:
        return fault.code
    return _RESPONSE_CODES[kind or faults.SERVER]
