"""Refusals and failures in the shape of the chat completions family.

Imported by this folder's ``client`` and ``stream``.
"""

from adapters.family import Envelope
from adapters.faults import Fault
from adapters.json.jsonio import dumps
from adapters.openai import faults


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """The whole answer to a call that is refused or failed; its id travels in headers only."""
    return faults.envelope(fault, faults.error_of(fault))


def encode_stream_fault(fault: Fault) -> bytes:
    """The last event of a stream that failed; neither a finish reason nor [DONE] follows."""
    return b"data: " + dumps({"error": faults.error_of(fault)}) + b"\n\n"
