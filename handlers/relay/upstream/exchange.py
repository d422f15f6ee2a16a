"""One exchange with an upstream: takes what libcurl gives and passes it on, with back-pressure.

Belongs here: the life of one request and its answer, between the relay and the engine (client.py,
which alone knows pycurl; seen here as the `Engine` protocol). Does not belong here: sockets,
libcurl, wire families. Other folders import the names from client.py.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, IntEnum, auto
from typing import Any, Protocol

from adapters.framing.sse import BEGIN_BYTES, begins_events
from handlers.relay.upstream.packed_answer import PackedAnswer, too_large
from handlers.relay.upstream.request import (
    ANSWERED,
    AnswerHead,
    BodySource,
    Unpacker,
    UpstreamError,
    UpstreamErrorKind,
    UpstreamRequest,
    unpacker_for,
)

Sink = Callable[[bytes], bool]  # False: it is full
PassOn = Callable[[bytes], bool]  # False: it took nothing
OnEnd = Callable[[UpstreamError | None], None]

STREAM_BUFFER_BYTES = 262_144  # of one exchange in Python; then libcurl stops reading its socket
TURN_BYTES = 65_536  # of a stream that its sink gets in one turn of the loop, unpacked
LOOK_PIECES = 128  # that are passed on between two looks at the turn: in one at most twice as many
HEAD_MAX_BYTES = 65_536
_DOCUMENTS = ("application/json", "text/html")
DISCARD_MAX_BYTES = 65_536  # behind a terminal marker; more is not an end but a flood


class Engine(Protocol):
    """The client that drives exchanges, as they see it."""

    loop: asyncio.AbstractEventLoop
    tick: int  # seconds, counted coarsely
    turn: int  # of the loop, those in which sockets were read
    dirty: deque[Exchange]  # those that took something in libcurl's present turn
    hold_back: int  # `Exchange.write` returns it to be given the same piece again later

    def flush_dirty(self) -> None: ...
    def sent_bytes(self, exchange: Exchange) -> int: ...
    def set_reading(self, exchange: Exchange, reading: bool) -> None: ...
    def release(self, exchange: Exchange) -> None: ...


class Phase(IntEnum):
    """The life of an exchange; NEXT has the transitions."""

    HEAD = auto()  # the answer's head is awaited, and the first bytes of its body or its end
    WHOLE = auto()  # the answer is read as a whole
    UNPACK = auto()  # all of it is here and is unpacked
    STREAM = auto()  # the body goes to the sink as it comes
    REST = auto()  # all of it is here, the sink has to take the rest
    DISCARD = auto()  # the rest of the body is thrown away, the connection is kept
    OVER = auto()  # no callback comes any more


# Module-level names: an attribute of an enum costs a call some 50 ns at each use.
HEAD, WHOLE, UNPACK, STREAM, REST, DISCARD, OVER = Phase

NEXT: dict[Phase, tuple[Phase, ...]] = {
    HEAD: (WHOLE, STREAM, OVER),
    WHOLE: (UNPACK, OVER),
    UNPACK: (OVER,),
    STREAM: (REST, DISCARD, OVER),
    REST: (REST, OVER),  # again, when it does not unpack
    DISCARD: (OVER,),
    OVER: (OVER,),
}


class Gate(Enum):
    """The gate in front of a stream's sink."""

    OPEN = auto()
    FULL = auto()  # the sink said that it is full; `resume` opens the gate
    NEXT_TURN = auto()  # it has had its share of this turn of the loop


OPEN, FULL, NEXT_TURN = Gate


class Exchange:
    """One request and its answer; made by `UpstreamClient.start`.

    `head` resolves when it is known what the answer is. An event stream (asked for, and status
    < 400; its first bytes show it, else its content type): with these; `streaming` is True and
    `pipe` gives the body. Anything else: when the body is complete, in `body`. It gives the moment,
    of time.monotonic_ns; it raises UpstreamError; `cancel` cancels it. From then on `status`,
    `content_type`, `header` and `first_byte_ms` say what is known. Sinks and end callbacks must not
    raise.

    A sink gets at most TURN_BYTES in a turn of the loop, the rest in the next ones. While it has
    not worked off what it was given it sets `unread`, and gets b"" in the next turn.
    """

    __slots__ = ("_buffer", "_counting", "_direct", "_engine", "_error", "_gate", "_head",
                 "_idle_s", "_in_dirty", "_limit_bytes", "_looked_turn", "_max_answer_bytes",
                 "_on_end", "_pass_on", "_paused", "_sink", "_size", "_started_at", "_stream_type",
                 "_swept", "_tick", "_timeout_kind", "_timeout_s", "_unlooked", "_unpacker", "body",
                 "content_type", "first_byte_ms", "handle", "head", "head_lines", "phase",
                 "repeated", "source", "status", "unread")  # fmt: skip

    def __init__(self, engine: Engine, handle: Any, request: UpstreamRequest) -> None:
        self.head: asyncio.Future[int] = engine.loop.create_future()
        self.status = 0
        self.content_type = ""
        self.phase = HEAD
        self.body = b""
        self.first_byte_ms: int | None = None
        self._engine = engine
        self.handle: Any = handle  # the engine's; None as soon as libcurl is done with it
        self.head_lines: list[bytes] = handle.head_lines  # of this exchange until it is released
        self.head_lines.clear()
        # Only the body is kept of the request, and it can be freed early: streams last long.
        self.repeated = False
        self.source: BodySource | None = None if request.body is None else handle.body
        self._stream_type = request.stream_type if request.stream else None
        self._max_answer_bytes = request.max_answer_bytes
        self._started_at = engine.loop.time()
        self._tick = engine.tick
        self._timeout_kind: UpstreamErrorKind = "timeout_first_byte"
        self._timeout_s = request.first_byte_timeout_s
        self._idle_s = request.idle_timeout_s
        self._head: AnswerHead | None = None
        self._unpacker: Unpacker | None = None
        self._counting: PackedAnswer | None = None  # of a packed answer that is read whole
        self._buffer: list[bytes] = []
        self._size = 0
        # Until the head is read the smaller bound holds for both kinds of answers.
        self._limit_bytes = STREAM_BUFFER_BYTES
        self._in_dirty = False
        self._paused = False  # libcurl does not read: our bound or the sink's
        self._gate = OPEN
        self._error: UpstreamError | None = None
        self._sink: Sink | None = None
        self._pass_on: PassOn | None = None
        self._direct: PassOn | None = None  # the same, while nothing is to come before its piece
        self._unlooked = LOOK_PIECES  # that it may take until the next look at the turn
        self._swept = LOOK_PIECES  # the same at the last sweep
        self._looked_turn = -1
        self.unread = False
        self._on_end: OnEnd | None = None

    @property
    def streaming(self) -> bool:
        """Return whether the answer is an event stream, for `pipe`."""
        return self.phase is STREAM or self.phase is REST

    @property
    def raw_head(self) -> bytes:
        """Return all lines that libcurl took for a head's; of no use once the handle serves
        another."""
        return b"".join(self.head_lines)

    # For the relay.

    @property
    def handed_over(self) -> bool:
        """Return whether the vendor was given the whole request and has not reported a failure.
        Whole: libcurl has written the last byte of the body into the connection; what only waits in
        its buffer does not count. To be read before `cancel`."""
        if self.handle is None:  # the body went with it, while the answer may still be unpacked
            return self._error is None and 0 < self.status < 300 and not self.head.cancelled()
        source = self.source
        if source is None or not source.taken:
            return False
        return self._engine.sent_bytes(self) >= source.nbytes and self._read_head().status < 300

    def header(self, name: str) -> str | None:
        """Return a field of the answer's head; None when absent or while `head` has not
        resolved."""
        return None if self._head is None else self._head.get(name)

    def pipe(self, sink: Sink, on_end: OnEnd, pass_on: PassOn | None = None) -> None:
        """Give a streaming body to `sink`, what has arrived at once, then call `on_end` once.

        The sink takes all it is given; False says that it is full and promises a `resume()` after
        it has returned. The end waits for that too. Both may be called before `pipe` returns.
        `pass_on` is asked first, within libcurl's turn, where nothing may be asked of this object;
        False says that it took nothing.
        """
        self._sink = sink
        self._on_end = on_end
        if self._unpacker is None:
            self._pass_on = pass_on
        self._deliver()
        self._engine.flush_dirty()

    def resume(self) -> None:
        """Give the sink more: it has room again."""
        if self._gate is FULL:
            self._gate = OPEN
            self._tick = self._engine.tick
            self._deliver()
            self._engine.flush_dirty()

    def accept(self) -> None:
        """Free the request's body: the answer is good, there will be no other attempt. When the
        upstream answered before it had all of it, it is freed at the end instead."""
        if self.source is not None and self.source.taken:
            self.source.close()
            self.source = None

    def cancel(self) -> None:
        """End now, in any phase: an unfinished connection is closed, no callback comes any more."""
        if not self.head.done():
            self.head.cancel()
        self._give_up()

    def finish_within(self, seconds: float) -> None:
        """Throw away what comes of an answer whose formal end alone is missing: give the connection
        back if the end comes in time, else drop it. No callback comes any more."""
        if self.phase is not STREAM:
            self._enter(OVER)
            return
        self._enter(DISCARD)
        self._size = 0
        self._tick = self._engine.tick
        self._timeout_s = max(0.0, seconds - 1)
        if self._paused:
            self._unpause()
            self._engine.flush_dirty()

    # For the engine.

    def restart(self) -> None:
        """Begin again: the bytes were no answer to this request, which is sent once more.
        Nothing of them was read yet, and nothing must be left in the engine's `dirty`."""
        self.repeated = True
        self.head_lines.clear()
        self._buffer.clear()
        self._size = 0
        self._paused = self._in_dirty = False
        if self.source is not None:
            self.source.send_again()

    @property
    def answered(self) -> bool:
        """Return whether an answer has begun: its head is whole, or bytes follow it."""
        return self._head is not None or self._size > 0 or AnswerHead(self.raw_head).complete

    def write(self, data: bytes) -> int | None:
        """Serve as WRITEFUNCTION. At the limit libcurl keeps the piece and stops reading its
        socket."""
        if self._direct is not None and self._direct(data):
            self._unlooked = left = self._unlooked - 1
            if not left:
                self._look_at_turn()
            return None
        self._direct = None
        if not self._in_dirty:
            self._in_dirty = True
            self._engine.dirty.append(self)
        size = self._size + len(data)
        if size > self._limit_bytes:
            self._paused = True
            return self._engine.hold_back
        self._size = size
        self._buffer.append(data)
        return None

    def flush(self) -> None:
        """Process what `write` took, after libcurl's turn."""
        self._in_dirty = False
        phase = self.phase
        if phase is DISCARD or phase is OVER:
            self._buffer.clear()
            if self._size > DISCARD_MAX_BYTES:
                self._give_up()
            return
        self._tick = self._engine.tick
        if phase is STREAM:
            self._deliver()
        elif phase is HEAD:
            self._begin(ended=False)
        elif self._paused:
            self._fail_too_large()
        elif self._counting is not None:
            self._counting.go_on_soon()

    def complete(self, error: UpstreamError | None) -> None:
        """End: libcurl is done with it, the handle released, and its bytes were flushed before."""
        if self.phase is DISCARD:
            self._enter(OVER)
            return
        if error is not None:
            self.status = self._read_head().status
        elif self.phase is HEAD:
            self._begin(ended=True)
        if self.phase is not OVER:
            self._end(error)

    def fail(self, kind: UpstreamErrorKind, detail: str) -> None:
        """Stop the transfer and end, by our own verdict."""
        self._engine.release(self)
        self._buffer.clear()
        self._end(UpstreamError(kind, detail))

    def sweep(self, tick: int) -> None:
        """Check the deadlines, once a second. A stream that waits for its client is not idle."""
        phase = self.phase
        waits = self._gate is not OPEN or (self._paused and phase is STREAM)
        if waits or self._unlooked != self._swept:  # a piece was passed on
            self._tick, self._swept = tick, self._unlooked
        elif phase is HEAD and self.head_lines:
            raw = self.raw_head
            if len(raw) > HEAD_MAX_BYTES:
                self.fail("protocol", f"no head within {HEAD_MAX_BYTES} bytes")
                return
            first = self._timeout_kind == "timeout_first_byte"
            if first and self._stream_type is None and AnswerHead(raw).complete:
                # The head is the first byte of a whole answer; of a stream it is the body's.
                self._tick = tick
                self._wait_for_more()
        if tick - self._tick < self._timeout_s + 1:  # the first tick may have come at once
            return
        if phase is DISCARD:
            self._give_up()
        else:
            self.fail(self._timeout_kind, f"nothing came for {math.ceil(self._timeout_s)} s")

    # Inside.

    def _enter(self, phase: Phase) -> None:
        """Go on to another phase; forget sink and bytes when nobody wants them any more."""
        assert phase in NEXT[self.phase]
        self.phase = phase
        if phase is OVER or phase is DISCARD:
            self._sink = self._pass_on = self._direct = self._on_end = None
            if self._counting is not None:
                self._counting.stop()
                self._counting = None
            self._gate = OPEN
            self._buffer.clear()

    def _give_up(self) -> None:
        """Drop the connection of an answer that nobody wants any more."""
        self._enter(OVER)
        self._engine.release(self)

    def _read_head(self) -> AnswerHead:
        return self._head or AnswerHead(self.raw_head)

    def _begin(self, *, ended: bool) -> None:
        """Read the head and decide: the first bytes of the body are here, or its end."""
        raw = self.raw_head
        head = self._head = AnswerHead(raw)
        if self.first_byte_ms is None and (self._size or self._paused):
            self.first_byte_ms = int((self._engine.loop.time() - self._started_at) * 1000)
        self._wait_for_more()
        self.status = head.status
        self.content_type = head.get("content-type") or ""
        if len(raw) > HEAD_MAX_BYTES:
            self.fail("protocol", f"no head within {HEAD_MAX_BYTES} bytes")
            return
        if not head.status:  # libcurl takes a connection's end within the head for a good one
            self.fail("reset_before_head", "the connection ended within the head")
            return
        try:
            self._unpacker = unpacker_for(head)
        except UpstreamError as error:
            self.fail(error.kind, error.detail)
            return
        streamed = self._stream_type is not None and self.status < 400 and self._is_streamed()
        if streamed is None and not (ended or self._paused):
            return  # the next bytes say it
        if streamed:
            self._enter(STREAM)
            if not self.head.done():
                self.head.set_result(time.monotonic_ns())
            return
        self._enter(WHOLE)
        self._limit_bytes = self._max_answer_bytes
        if self._size > self._limit_bytes:
            self._fail_too_large()
            return
        if self._unpacker is not None:
            self._count_packed(self._unpacker)
        if self._paused:
            self._unpause()

    def _is_streamed(self) -> bool | None:
        """Return whether the body has the framing of the stream that was asked for: by its first
        bytes, which say more than its content type; None while they are too few. Of a packed one
        the type has to do."""
        stream_type, content_type = self._stream_type or "", self.content_type.lower()
        if not stream_type:  # bytes of any type but documents, which are errors there
            return self.status in ANSWERED and not content_type.startswith(_DOCUMENTS)
        by_type = content_type.startswith(stream_type)
        if self._unpacker is not None:
            return by_type
        first = b"".join(self._buffer)[:BEGIN_BYTES] if self._buffer else b""
        mark = first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if stream_type == "text/event-stream":
            return mark not in (b"{", b"[") if by_type else begins_events(first)
        if not mark and not by_type:
            return None
        return mark == b"[" or (by_type and mark != b"{" and not begins_events(first))

    def _count_packed(self, unpacker: Unpacker) -> None:
        """Count what the answer unpacks to, as it comes."""
        counting = PackedAnswer(
            self._engine.loop, unpacker, self._buffer, self._max_answer_bytes, self._end_packed
        )
        self._counting = counting
        counting.go_on_soon()

    def _wait_for_more(self) -> None:
        self._timeout_kind = "timeout_idle"
        self._timeout_s = self._idle_s

    def _look_at_turn(self) -> None:
        """Bound what is passed on in a turn, which neither libcurl nor the vendor's chunks do."""
        engine = self._engine
        self._unlooked, self._tick = LOOK_PIECES, engine.tick
        if engine.turn == self._looked_turn:
            self._go_on_later()
        self._looked_turn = engine.turn

    def _deliver(self, *, again: bool = False) -> None:
        """Give the sink its share of this turn while it has room; then let more come, or end.
        `again`: it had some in the turn before. Then it gets no more in this one, whatever libcurl
        has."""
        sink = self._sink
        if sink is None or self._gate is not OPEN:
            return
        has_room, delivered, buffer = True, False, self._buffer
        if self.unread or buffer or self._unpacker is not None:
            if self._size <= TURN_BYTES and self._unpacker is None and not self.unread:
                data = buffer[0] if len(buffer) == 1 else b"".join(buffer)
                buffer.clear()
                self._size = 0
            else:
                try:
                    data = b"" if self.unread else self._share()
                except UpstreamError as error:
                    self._unpacker = None
                    self.fail(error.kind, error.detail)
                    return
            if data or self.unread:
                self.unread, delivered = False, True
                has_room = sink(data)
                if self._sink is None:  # the sink has cancelled, or it was failed in between
                    return
        if not has_room:
            self._gate = FULL
            if not self._paused:
                self._paused = True
                self._engine.set_reading(self, False)
        elif (
            self.unread
            or buffer
            or (delivered and (again or self._paused))
            or (self._unpacker is not None and self._unpacker.more)
        ):
            self._go_on_later()
        elif self.phase is REST:
            self._end_stream()
        elif self._paused:
            self._go_on_later()  # with what libcurl holds, and gives now
            self._unpause()
        else:
            self._direct = self._pass_on

    def _share(self) -> bytes:
        """Return the next bytes for the sink, at most TURN_BYTES."""
        unpacker = self._unpacker
        if unpacker is not None:
            if not unpacker.more:
                unpacker.feed(self._take())
            return unpacker.piece() if unpacker.more else b""
        data = self._take()
        if len(data) > TURN_BYTES:
            self._buffer.append(data[TURN_BYTES:])
            self._size = len(data) - TURN_BYTES
            data = data[:TURN_BYTES]
        return data

    def _go_on_later(self) -> None:
        self._direct, self._gate = None, NEXT_TURN
        self._engine.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._gate is NEXT_TURN:
            self._gate = OPEN
        self._deliver(again=True)
        self._engine.flush_dirty()

    def _end_stream(self) -> None:
        """End a stream whose sink has all that came."""
        if self._unpacker is not None and self._error is None:
            try:
                self._unpacker.close()
            except UpstreamError as error:
                self._error = error
        on_end = self._on_end
        self._enter(OVER)
        if on_end is not None:
            on_end(self._error)

    def _take(self) -> bytes:
        buffer = self._buffer
        data = buffer[0] if len(buffer) == 1 else b"".join(buffer)
        buffer.clear()
        self._size = 0
        return data

    def _unpause(self) -> None:
        self._paused = False
        self._engine.set_reading(self, True)  # may call `write` at once

    def _fail_too_large(self) -> None:
        error = too_large(self._max_answer_bytes)
        self.fail(error.kind, error.detail)

    def _end(self, error: UpstreamError | None) -> None:
        """Nothing more comes from upstream; the sink may still have to take the rest."""
        self._error = error
        if self.phase is STREAM or self.phase is REST:
            self._enter(REST)
            self._deliver()
        elif self.head.done():
            self._enter(OVER)
        elif error is not None:
            self._enter(OVER)
            self.head.set_exception(error)
            self.head.exception()  # marks it as seen: that nobody waits any more is no fault
        elif self._counting is not None:
            self._enter(UNPACK)
            self._counting.finish()
        else:
            self._end_whole(self._take())

    def _end_whole(self, body: bytes) -> None:
        self._enter(OVER)
        self.body = body
        self.head.set_result(time.monotonic_ns())

    def _end_packed(self, answer: bytes | UpstreamError) -> None:
        if isinstance(answer, bytes):
            self._end_whole(answer)
        else:
            self.fail(answer.kind, answer.detail)
