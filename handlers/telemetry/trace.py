"""The trace that a call belongs to: W3C trace context, in and out. Independent of exporters.

Without an exporter the gateway passes on the client's context unchanged. With one, it adds a span
of its own, and starts a trace if the client has none.
"""

import os
import re
import time

from msgspec import Struct

# Version 00 exactly; of later versions the part that version 00 has (W3C Trace Context §3.2.4).
_PARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
)
_LATER = re.compile(r"-[\x20-\x7e]*")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_SAMPLED = "01"


class AttemptSpan(Struct, gc=False):
    """An attempt as a span: its index among the call's attempts, and when it began."""

    place: int
    span_id: str
    begun_ns: int


class Trace(Struct):
    """The trace of one call. `parent_id`: the client's span, "" if the trace begins here.
    `span_id`: the call's own span, "" if it is not exported."""

    trace_id: str
    parent_id: str
    flags: str
    state: str = ""
    span_id: str = ""
    attempts: list[AttemptSpan] = []

    def header_lines(self, place: int) -> list[str]:
        """Return the header lines of the attempt with this index."""
        parent_id = self.parent_id
        if self.span_id:
            parent_id = _new_id(8)
            self.attempts.append(AttemptSpan(place, parent_id, time.time_ns()))
        lines = [f"traceparent: 00-{self.trace_id}-{parent_id}-{self.flags}"]
        if self.state:
            lines.append(f"tracestate: {self.state}")
        return lines


def trace_of(parent: str | None, state: str | None, *, exporting: bool) -> Trace | None:
    """Return the trace of a call by its `traceparent` and `tracestate`; invalid ones are ignored.
    Without a valid `traceparent`: a new trace if `exporting`, else None."""
    match = _PARENT.match(parent) if parent is not None else None
    if match is None or parent is None or not _ends_well(parent, match.end()):
        if not exporting:
            return None
        return Trace(_new_id(16), "", _SAMPLED, span_id=_new_id(8))
    valid_state = state if state is not None and _STATE.fullmatch(state) else ""
    trace_id, parent_id, flags = match.groups()
    span_id = _new_id(8) if exporting and int(flags, 16) & 1 else ""
    return Trace(trace_id, parent_id, flags, valid_state, span_id)


def _ends_well(parent: str, end: int) -> bool:
    rest = parent[end:]
    return not rest or (parent[:2] != "00" and _LATER.fullmatch(rest) is not None)


def _new_id(size_bytes: int) -> str:
    """Return a random id that is never all zeros."""
    return f"{int.from_bytes(os.urandom(size_bytes)) or 1:0{2 * size_bytes}x}"
