"""Bridges between the family of the client and the family of the channel.

Here: ``Pairing``, the way a channel serves the calls of a family, and ``Bridge``, the relay's view
of a streamed answer. Both are implemented here for a single family, whose bytes pass through a tap
that edits them. Sans-io. A bridge is made for one answer and accepts any cut of the stream.
Imported by the relay.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from adapters.family import Family, Operation, Peek, UpstreamAnswer, UpstreamSide, Vendor
from adapters.family.tap import Tap
from adapters.faults import Condition, Fault
from adapters.framing.array import FIRST_OBJECT, JsonArraySplitter
from adapters.framing.sse import EventSplitter, IdlePiece, RawPiece, event_fields
from adapters.json.jsonio import Spans
from adapters.json.structure import Steps
from adapters.large_answers import LARGE_BYTES, read_large
from store.values.usage import Served, Usage

PREAMBLE_LIMIT_BYTES = 4096  # comments and blank lines held before the first data event
EVENTS_AT_ONCE = 256  # limit of one ``feed``

_CR, _LF = 13, 10
_DATA_LINE = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?data:")


class Bridge(Protocol):
    """A streamed answer on its way from the channel's family to the client's.

    ``feed`` and ``close`` return the bytes to send now. Nothing is returned until the answer is
    accepted (its first data event that is no error), then the bytes held so far come first. Once
    ``ended`` is true everything is ignored.
    """

    busy: bool  # more than EVENTS_AT_ONCE are waiting: ``feed(b"")`` reads the next ones
    ended: bool  # the terminal marker was seen, or ``fault`` is set
    aligned: bool  # the next byte begins an event of an accepted stream that has not ended

    # The following are read, never set.
    accepted: bool  # the answer may be relayed; no other channel is tried from then on
    started: bool  # the client has received the start of an answer, which may affect its keep-alive
    finished: bool  # the output is complete; the usage may still follow
    whole: bool  # the upstream may end here and nothing is missing
    fault: Fault | None  # the vendor's error event, or an unreadable event; not passed on
    usage: Usage | None  # the usage reported so far, disjoint
    reported: object | None  # the usage as the vendor reported it
    served: Served  # the conditions that the vendor has reported so far
    output_units: int  # estimated output tokens so far: text, reasoning and tool arguments
    upstream_id: str | None  # the vendor's id of the answer
    last_number: int | None  # number of the last event sent, in families that number events
    empty: bool  # ``fault`` is set because the answer ended without content, and so costs nothing

    @property
    def end_seen(self) -> bool:
        """True if nothing would be missing should the upstream break off here."""
        ...  # pragma: no cover

    @property
    def at_boundary(self) -> bool:
        """True if the gateway may write its own bytes (heartbeat, error event) now."""
        ...  # pragma: no cover

    def watch(self, on_issued: Callable[[list[str]], None], *, stored: bool) -> None:
        """Call ``on_issued`` with the ids of vendor-side objects that the next bytes contain,
        other than the answer's own id. ``stored``: the vendor stores the answer and its items."""
        ...  # pragma: no cover

    def note_tier(self, word: str) -> None:
        """Note the service tier from the answer's headers. A tier in the body overrides it."""
        ...  # pragma: no cover

    def feed(self, chunk: bytes) -> bytes:
        """Read a chunk of the upstream's stream. Return the bytes of its next EVENTS_AT_ONCE
        events. While ``busy``, the chunk must be empty."""
        ...  # pragma: no cover

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        """``feed`` a chunk that is one event and differs from the last only in its text. Call only
        while ``aligned``. Return None, and read nothing, if the chunk is anything else."""
        ...  # pragma: no cover

    def close(self) -> bytes:
        """Read the end of the upstream. Return the last bytes of the answer."""
        ...  # pragma: no cover

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Encode the last bytes of a failed stream, even if nothing was fed to it."""
        ...  # pragma: no cover


class TapBridge:
    """The base of bridges: properties read from the tap on the upstream's stream."""

    __slots__ = ("_left", "_tap", "aligned", "busy", "ended")

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._left: list[bytes] = []  # events that were fed but not read yet
        self.aligned = self.busy = self.ended = False

    def note_tier(self, word: str) -> None:
        self._tap.head_tier = word

    accepted = property(attrgetter("_tap.accepted"))
    finished = property(attrgetter("_tap.finished"))
    whole = property(attrgetter("_tap.whole"))
    fault = property(attrgetter("_tap.fault"))
    usage = property(attrgetter("_tap.usage"))
    reported = property(attrgetter("_tap.reported"))
    served = property(attrgetter("_tap.served"))
    output_units = property(attrgetter("_tap.output_units"))
    upstream_id = property(attrgetter("_tap.upstream_id"))
    empty = property(attrgetter("_tap.empty"))


class NativeBridge(TapBridge):
    """A bridge within one family: bytes pass in the framing's units, edited by the tap."""

    __slots__ = (
        *("_held", "_max_event_bytes", "_of_events", "_splitter", "_unaccepted_bytes"),
        "feed_repeat",
    )
    started = property(attrgetter("_tap.started"))
    last_number = property(attrgetter("_tap.last_number"))

    def __init__(self, tap: Tap, max_event_bytes: int) -> None:
        super().__init__(tap)
        self._of_events = tap.framing == "sse"  # else one JSON array
        self._splitter: EventSplitter | JsonArraySplitter = (
            EventSplitter(max_event_bytes)
            if self._of_events
            else JsonArraySplitter(max_event_bytes)
        )
        self._max_event_bytes = max_event_bytes
        self._held = b""
        self._unaccepted_bytes = 0  # bytes that came before the answer was accepted
        # Bound directly to the tap's method: saves a call per event.
        self.feed_repeat: Callable[[bytes], bytes | None] = tap.feed_repeat

    @property
    def end_seen(self) -> bool:
        """See ``Bridge``. Nothing is missing after the closing bracket of an array."""
        return self.ended or (not self._of_events and self._tap.whole)

    @property
    def at_boundary(self) -> bool:
        return not self._splitter.oversized

    def watch(self, on_issued: Callable[[list[str]], None], *, stored: bool) -> None:
        self._tap.on_issued, self._tap.stored = on_issued, stored

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        return self._tap.encode_fault(fault, request_id)

    def feed(self, chunk: bytes) -> bytes:
        """See ``Bridge``. The tap edits what passes."""
        if self.ended:
            return b""
        if self.aligned:
            # Most chunks are exactly one event and need not go through the splitter.
            size = len(chunk)
            if 4 < size <= self._max_event_bytes and (
                (chunk.find(b"\n\n") == size - 2 and chunk[0] != _LF and _CR not in chunk)
                # The same for lines that end in CR LF.
                or (
                    chunk.find(b"\r") == size - 4
                    and chunk.find(b"\n") == size - 3
                    and chunk.endswith(b"\r\n\r\n")
                )
            ):
                tap = self._tap
                out = tap.feed(chunk)
                if tap.ended:
                    self.ended, self.aligned = True, False
                return out or b""
        return self._feed_any(chunk)

    def close(self) -> bytes:
        """See ``Bridge``. Pass on a last event that lacks only its blank line, if it is readable,
        and judge the end of a stream that has no end marker."""
        last = self._close_rest()
        if not self.ended and self._of_events and self._tap.whole:
            self.ended = not self._tap.judge_end()
        return last

    def _close_rest(self) -> bytes:
        tap = self._tap
        if self.ended or self._splitter.oversized or not self._of_events:
            return b""  # an array element is complete only with its bracket
        rest = self._splitter.rest
        if event_fields(rest)[1] is None:
            return b""
        last = self._pass(rest)
        if tap.fault is not None and tap.fault.condition is Condition.UPSTREAM_INVALID:
            # Half an event is a truncated stream, not garbage: ``whole`` decides about the end.
            tap.fault, tap.ended = None, False
            return b""
        self.ended = tap.ended
        if last and not tap.whole:
            # The gateway's error event must not join this one. A CR may be half of a line ending.
            last += b"\n" if rest.endswith((b"\n", b"\n\r")) else b"\n\n"
        return last

    def _feed_any(self, chunk: bytes) -> bytes:
        sent: list[bytes] = []
        tap = self._tap
        events = self._left if self.busy else self._splitter.feed(chunk)
        if self.busy or len(events) > EVENTS_AT_ONCE:
            events, self._left = events[:EVENTS_AT_ONCE], events[EVENTS_AT_ONCE:]
            self.busy = bool(self._left)
        for event in events:
            if tap.accepted and type(event) is bytes:
                sent.append(tap.feed(event) or b"")
            else:
                sent.append(self._pass(event))
            if tap.ended:
                self.ended, self.busy, self.aligned = True, False, False
                return b"".join(sent)
        self.aligned = self._of_events and tap.accepted and not self.busy and self._splitter.empty
        return b"".join(sent)

    def _pass(self, event: bytes) -> bytes:
        """Feed one event to the tap; return the bytes that may be sent now."""
        tap = self._tap
        if type(event) is RawPiece:
            if not tap.accepted:
                self._accept_unread(event)
            tap.has_content = True
            passed: bytes | None = event
        else:
            passed = event if type(event) is IdlePiece else tap.feed(event)
        if tap.accepted:
            held, self._held = self._held, b""
            return held + (passed or b"")
        if not tap.ended:
            self._held += passed or b""
            self._unaccepted_bytes += len(event)
            if self._unaccepted_bytes > PREAMBLE_LIMIT_BYTES:
                self._fail()
        return b""

    def _accept_unread(self, piece: bytes) -> None:
        """Accept an oversized event, which is not read, if it has data. Fail otherwise."""
        if (_DATA_LINE if self._of_events else FIRST_OBJECT).search(piece):
            self._tap.accepted = True
        else:
            self._fail()

    def _fail(self) -> None:
        self._tap.fault = Fault(Condition.UPSTREAM_INVALID)
        self._tap.ended = True


@dataclass(frozen=True, slots=True)
class Pairing:
    """The native way for a channel to serve calls of a family. ``translate.Translation``, which is
    made for one attempt, has the same functions for other families.

    Each function gets the client's operation. ``peek``: the fields that were read of its request.
    """

    upstream: UpstreamSide
    # Return the upstream's operation for the client's (operation, whether the answer is streamed).
    operation: Callable[[Operation, bool], Operation]
    # Return the body for the upstream (fields, peek, operation, upstream's model, vendor). Raises
    # Fault.
    request_body: Callable[[Spans, Peek, Operation, str, Vendor], bytes]
    # Return a whole answer for the client (body, public name, upstream's name of the model,
    # operation). Raises Fault UPSTREAM_INVALID, or the condition of an error inside the answer.
    read_answer: Callable[[bytes, str, str, Operation], UpstreamAnswer]
    # Open the bridge of a streamed answer (public name, upstream's name of the model, whether the
    # client did not ask for usage, operation, limit of an event's bytes).
    open_bridge: Callable[[str, str, bool, Operation, int], Bridge]
    # True: answers have the content type of the client's family. False: the upstream's own.
    translated: bool = False
    dropped: tuple[str, ...] = ()  # paths in the client's body that are not carried
    sealed: bool = False  # the request has opaque state; it may be retried without it
    at_once_bytes: int = LARGE_BYTES  # a larger answer is for ``read_large_answer``

    def read_large_answer(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> Steps[UpstreamAnswer]:
        """Read a large answer, in steps (see ``read_answer``)."""
        return read_large(
            body,
            lambda short: self.read_answer(short, public, upstream_model, operation),
            self.upstream.long_marks,
        )

    def free_body(self) -> None:
        """Free the request once an answer is accepted. Nothing is stored here."""


def native(family: Family) -> Pairing:
    """Return the pairing of a family with itself."""
    upstream = family.upstream

    def open_bridge(
        public: str, upstream_model: str, drop_usage: bool, operation: Operation, max_bytes: int
    ) -> NativeBridge:
        tap = upstream.stream_tap(public, upstream_model, drop_usage, operation)
        return NativeBridge(tap, max_bytes)

    return Pairing(
        upstream,
        operation=lambda operation, stream: operation,
        request_body=upstream.edit_request,
        read_answer=upstream.read_answer,
        open_bridge=open_bridge,
    )
