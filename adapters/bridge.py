"""Joins the family of the client with the family of the channel.

Here: ``NativeStream``, for the same family on both sides: bytes pass, a tap reads and edits.
Sans-io, made for one answer; it takes any cut of the stream. Imported by the relay's pump.
"""

import re

from adapters.family import StreamTap
from adapters.faults import Condition, Fault
from adapters.json_array import FIRST_OBJECT, JsonArraySplitter
from adapters.sse import EventSplitter, RawPiece, event_fields

PREAMBLE_LIMIT_BYTES = 4096  # comments and blank lines held before the first data event

_CR, _LF = 13, 10
_DATA_LINE = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?data:")


class NativeStream:
    """A streamed answer on its way from upstream to client, cut by the framing of its tap.

    ``feed`` and ``close`` return the bytes to send now. Nothing is returned until the answer is
    accepted (its first data event that is no error), then what was held comes first. After the
    terminal marker or a fault (``tap.fault``) everything is ignored.
    """

    __slots__ = ("_at_start", "_held", "_max_event_bytes", "_of_events", "_splitter", "tap")

    def __init__(self, tap: StreamTap, max_event_bytes: int) -> None:
        self.tap = tap
        self._of_events = tap.framing == "sse"  # else one JSON array
        self._splitter: EventSplitter | JsonArraySplitter = (
            EventSplitter(max_event_bytes)
            if self._of_events
            else JsonArraySplitter(max_event_bytes)
        )
        self._max_event_bytes = max_event_bytes
        self._held = b""
        self._at_start = False  # the next byte begins an event of an accepted stream

    @property
    def accepted(self) -> bool:
        """Whether the answer may be relayed; no other channel is asked from then on."""
        return self.tap.accepted

    @property
    def whole(self) -> bool:
        """Whether the stream may end here: terminal marker seen, or finished by the family's
        rule."""
        return self.tap.whole

    @property
    def at_boundary(self) -> bool:
        """Whether something of our own (heartbeat, error event) may be written now."""
        return not self._splitter.oversized

    def feed(self, chunk: bytes) -> bytes:
        """Take a piece of the upstream's stream; return all that is complete in it, edited."""
        tap = self.tap
        if tap.ended:
            return b""
        # Most chunks are exactly one event; those need not go through the splitter.
        repeat = self.feed_repeat(chunk)
        if repeat is not None:
            return repeat
        size = len(chunk)
        if (
            self._at_start
            and 2 < size <= self._max_event_bytes
            and chunk.find(b"\n\n") == size - 2
            and chunk[0] != _LF
            and _CR not in chunk
        ):
            return tap.feed(chunk) or b""
        # The same of those vendors that end their lines with CR LF.
        if (
            self._at_start
            and 4 < size <= self._max_event_bytes
            and chunk.find(b"\r") == size - 4
            and chunk.find(b"\n") == size - 3
            and chunk.endswith(b"\r\n\r\n")
        ):
            return tap.feed(chunk) or b""
        return self._feed_any(chunk)

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        """``feed`` for a piece that is one event like the last but for its text; None, and nothing
        is read, when it is anything else."""
        tap = self.tap
        return tap.feed_repeat(chunk) if self._at_start and not tap.ended else None

    def close(self) -> bytes:
        """The upstream ended: return a last event that lacks only its blank line, if it can be
        read."""
        tap = self.tap
        if tap.ended or self._splitter.oversized or not self._of_events:
            return b""  # an element of an array is complete with its bracket: no rest is
        rest = self._splitter.rest
        if event_fields(rest)[1] is None:
            return b""
        last = self._pass(rest)
        if tap.fault is not None and tap.fault.condition is Condition.UPSTREAM_INVALID:
            # Half an event is a cut, not garbage: the end of the stream is judged by ``whole``.
            tap.fault, tap.ended = None, False
            return b""
        if last and not tap.whole:
            # Our error event will follow and must not run into this one. A CR may be half of the
            # line's own end.
            last += b"\n" if rest.endswith((b"\n", b"\n\r")) else b"\n\n"
        return last

    def _feed_any(self, chunk: bytes) -> bytes:
        sent: list[bytes] = []
        tap = self.tap
        for event in self._splitter.feed(chunk):
            if tap.accepted and type(event) is not RawPiece:
                sent.append(tap.feed(event) or b"")
            else:
                sent.append(self._pass(event))
            if tap.ended:
                break
        self._at_start = self._of_events and tap.accepted and self._splitter.empty
        return b"".join(sent)

    def _pass(self, event: bytes) -> bytes:
        """Show one event to the tap; return what may go down now."""
        tap = self.tap
        if type(event) is RawPiece:
            if not tap.accepted:
                self._accept_unread(event)
            passed: bytes | None = event
        else:
            passed = tap.feed(event)
        if tap.accepted:
            held, self._held = self._held, b""
            return held + (passed or b"")
        if not tap.ended:
            self._held += passed or b""
            if len(self._held) > PREAMBLE_LIMIT_BYTES:
                self._fail()
        return b""

    def _accept_unread(self, piece: bytes) -> None:
        """An event over the limit is not read; one with data is an answer, anything else is
        garbage."""
        if (_DATA_LINE if self._of_events else FIRST_OBJECT).search(piece):
            self.tap.accepted = True
        else:
            self._fail()

    def _fail(self) -> None:
        self.tap.fault = Fault(Condition.UPSTREAM_INVALID)
        self.tap.ended = True
