"""One exchange with an upstream: takes bytes from libcurl and passes them on, with back-pressure.

Belongs here: the life of one request and its answer, between the relay and the engine (client.py,
seen here as the `Engine` protocol). Does not belong here: sockets, libcurl, wire families. Other
folders import the names from client.py.
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
TURN_BYTES = 65_536  # unpacked bytes of a stream that its sink gets in one turn of the loop
LOOK_PIECES = 128  # passed on between two checks of the turn, so at most twice as many in a turn
HEAD_MAX_BYTES = 65_536
_DOCUMENTS = ("application/json", "text/html")
DISCARD_MAX_BYTES = 65_536  # after a terminal marker; more than that is a flood


class Engine(Protocol):
    """The client that drives exchanges, as seen by them."""

    loop: asyncio.AbstractEventLoop
    tick: int  # seconds, counted coarsely
    turn: int  # number of loop turns in which sockets were read
    dirty: deque[Exchange]  # exchanges that took bytes in libcurl's current turn
    hold_back: int  # returned by `Exchange.write` to get the same bytes again later

    def flush_dirty(self) -> None: ...
    def sent_bytes(self, exchange: Exchange) -> int: ...
    def set_reading(self, exchange: Exchange, reading: bool) -> None: ...
    def release(self, exchange: Exchange) -> None: ...


class Phase(IntEnum):
    """The phases of an exchange. NEXT has the transitions."""

    HEAD = auto()  # the answer's head is awaited, and its body's first bytes or end
    WHOLE = auto()  # the answer is read as a whole
    UNPACK = auto()  # all of it has arrived and is being unpacked
    STREAM = auto()  # the body goes to the sink as it arrives
    REST = auto()  # all of it has arrived, and the sink has yet to take the rest
    DISCARD = auto()  # the rest of the body is discarded, the connection is kept
    OVER = auto()  # there are no more callbacks


# Module-level names, since an enum attribute costs some 50 ns at each use.
HEAD, WHOLE, UNPACK, STREAM, REST, DISCARD, OVER = Phase

NEXT: dict[Phase, tuple[Phase, ...]] = {
    HEAD: (WHOLE, STREAM, OVER),
    WHOLE: (UNPACK, OVER),
    UNPACK: (OVER,),
    STREAM: (REST, DISCARD, OVER),
    REST: (REST, OVER),  # again, if unpacking fails
    DISCARD: (OVER,),
    OVER: (OVER,),
}


class Gate(Enum):
    """The gate in front of a stream's sink."""

    OPEN = auto()
    FULL = auto()  # the sink is full; `resume` opens the gate
    NEXT_TURN = auto()  # the sink has had its share of this turn of the loop


OPEN, FULL, NEXT_TURN = Gate


class Exchange:
    """One request and its answer, made by `UpstreamClient.start`.

    `head` resolves when the kind of answer is known. For an event stream (requested, status < 400,
    recognized by its first bytes, else by its content type) that is when its first bytes arrive;
    `streaming` is then True, and `pipe` gives the body. For any other answer it is when the body is
    complete, in `body`. The result of `head` is the time, of time.monotonic_ns. It raises
    UpstreamError, and `cancel` cancels it. Once it has resolved, `status`, `content_type`, `header`
    and `first_byte_ms` are valid. Sinks and end callbacks must not raise.

    A sink gets at most TURN_BYTES in a turn of the loop, the rest in the next ones. A sink that has
    not finished with the bytes it got sets `unread`, and gets b"" in the next turn.
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
        self.handle: Any = handle  # the engine's; None once libcurl is done with it
        self.head_lines: list[bytes] = handle.head_lines  # this exchange's until it is released
        self.head_lines.clear()
        # Only the request's body is kept, and it can be freed early, since streams last long.
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
        self._counting: PackedAnswer | None = None  # for a packed answer that is read whole
        self._buffer: list[bytes] = []
        self._size = 0
        # Until the head is read the smaller bound applies to both kinds of answers.
        self._limit_bytes = STREAM_BUFFER_BYTES
        self._in_dirty = False
        self._paused = False  # libcurl does not read, because of this buffer's bound or the sink's
        self._gate = OPEN
        self._error: UpstreamError | None = None
        self._sink: Sink | None = None
        self._pass_on: PassOn | None = None
        self._direct: PassOn | None = None  # the same, while no bytes are buffered before its chunk
        self._unlooked = LOOK_PIECES  # chunks that it may take until the next check of the turn
        self._swept = LOOK_PIECES  # value of _unlooked at the last sweep
        self._looked_turn = -1
        self.unread = False
        self._on_end: OnEnd | None = None

    @property
    def streaming(self) -> bool:
        """Return whether the answer is an event stream, for `pipe`."""
        return self.phase is STREAM or self.phase is REST

    @property
    def raw_head(self) -> bytes:
        """Return all lines that libcurl took as header lines. Invalid once the handle serves
        another exchange."""
        return b"".join(self.head_lines)

    # For the relay.

    @property
    def handed_over(self) -> bool:
        """Return whether the whole request was sent to the vendor and no failure was reported.
        Whole means that libcurl has written the last byte of the body to the connection; bytes that
        wait in its buffer do not count. To be read before `cancel`."""
        if self.handle is None:  # the source was released, though unpacking may still be going on
            return self._error is None and 0 < self.status < 300 and not self.head.cancelled()
        source = self.source
        if source is None or not source.taken:
            return False
        return self._engine.sent_bytes(self) >= source.nbytes and self._read_head().status < 300

    def header(self, name: str) -> str | None:
        """Return a header of the answer; None if it is absent or `head` has not resolved."""
        return None if self._head is None else self._head.get(name)

    def pipe(self, sink: Sink, on_end: OnEnd, pass_on: PassOn | None = None) -> None:
        """Give a streaming body to `sink`, starting with the bytes that have arrived, then call
        `on_end` once.

        The sink takes all bytes it is given. It returns False if it is full, and `resume()` must
        follow after it has returned. The end waits for that, too. Both may be called before `pipe`
        returns. `pass_on` is called first, within libcurl's turn, where it must not use this
        object. It returns False if it took nothing.
        """
        self._sink = sink
        self._on_end = on_end
        if self._unpacker is None:
            self._pass_on = pass_on
        self._deliver()
        self._engine.flush_dirty()

    def resume(self) -> None:
        """Give the sink more, since it has room again."""
        if self._gate is FULL:
            self._gate = OPEN
            self._tick = self._engine.tick
            self._deliver()
            self._engine.flush_dirty()

    def accept(self) -> None:
        """Free the request's body, since the answer is accepted and there is no other attempt. If
        the upstream answered before it had the whole body, that is freed at the end instead."""
        if self.source is not None and self.source.taken:
            self.source.close()
            self.source = None

    def cancel(self) -> None:
        """End now, in any phase. An unfinished connection is closed, and there are no more
        callbacks."""
        if not self.head.done():
            self.head.cancel()
        self._give_up()

    def finish_within(self, seconds: float) -> None:
        """Discard the rest of an answer that lacks only its formal end. Keep the connection if the
        end comes in time, else drop it. There are no more callbacks."""
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
        """Start again, since the bytes did not answer this request, which is sent once more. None
        of them were read yet, and the exchange must not be in the engine's `dirty`."""
        self.repeated = True
        self.head_lines.clear()
        self._buffer.clear()
        self._size = 0
        self._paused = self._in_dirty = False
        if self.source is not None:
            self.source.send_again()

    @property
    def answered(self) -> bool:
        """Return whether an answer has started: its head is complete, or bytes follow it."""
        return self._head is not None or self._size > 0 or AnswerHead(self.raw_head).complete

    def write(self, data: bytes) -> int | None:
        """Serve as WRITEFUNCTION. At the limit libcurl keeps the bytes and stops reading its
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
        """Process the bytes that `write` took, after libcurl's turn."""
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
        """End the exchange. libcurl is done with it, its handle is released, its bytes were
        flushed."""
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
        """Stop the transfer and end with the gateway's own error."""
        self._engine.release(self)
        self._buffer.clear()
        self._end(UpstreamError(kind, detail))

    def sweep(self, tick: int) -> None:
        """Check the deadlines, once a second. A stream that waits for its client is not idle."""
        phase = self.phase
        waits = self._gate is not OPEN or (self._paused and phase is STREAM)
        if waits or self._unlooked != self._swept:  # a chunk was passed on
            self._tick, self._swept = tick, self._unlooked
        elif phase is HEAD and self.head_lines:
            raw = self.raw_head
            if len(raw) > HEAD_MAX_BYTES:
                self.fail("protocol", f"no head within {HEAD_MAX_BYTES} bytes")
                return
            first = self._timeout_kind == "timeout_first_byte"
            if first and self._stream_type is None and AnswerHead(raw).complete:
                # The head counts as the first byte of a whole answer. For a stream it is the
                # body's first byte.
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
        """Enter another phase. Forget sink and bytes if they are no longer needed."""
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
        """Drop the connection of an answer that is no longer needed."""
        self._enter(OVER)
        self._engine.release(self)

    def _read_head(self) -> AnswerHead:
        return self._head or AnswerHead(self.raw_head)

    def _begin(self, *, ended: bool) -> None:
        """Read the head and decide on the kind of answer. Called when the first bytes of the body
        are here, or its end."""
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
        if not head.status:  # libcurl accepts the connection's end within the head
            self.fail("reset_before_head", "the connection ended within the head")
            return
        try:
            self._unpacker = unpacker_for(head)
        except UpstreamError as error:
            self.fail(error.kind, error.detail)
            return
        streamed = self._stream_type is not None and self.status < 400 and self._is_streamed()
        if streamed is None and not (ended or self._paused):
            return  # the next bytes decide
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
        """Return whether the body has the framing of the requested stream. Its first bytes decide,
        since they are more reliable than its content type; None while they are too few. For a
        packed body the content type decides."""
        stream_type, content_type = self._stream_type or "", self.content_type.lower()
        if not stream_type:  # bytes of any type except documents, which are errors
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
        """Count the unpacked bytes of the answer as it arrives."""
        counting = PackedAnswer(
            self._engine.loop, unpacker, self._buffer, self._max_answer_bytes, self._end_packed
        )
        self._counting = counting
        counting.go_on_soon()

    def _wait_for_more(self) -> None:
        self._timeout_kind = "timeout_idle"
        self._timeout_s = self._idle_s

    def _look_at_turn(self) -> None:
        """Limit the chunks passed on in a turn, which neither libcurl nor the vendor limits."""
        engine = self._engine
        self._unlooked, self._tick = LOOK_PIECES, engine.tick
        if engine.turn == self._looked_turn:
            self._go_on_later()
        self._looked_turn = engine.turn

    def _deliver(self, *, again: bool = False) -> None:
        """Give the sink its share of this turn if it has room. Then let more arrive, or end.
        `again`: it had a share in the turn before. It then gets no more in this turn, whatever
        libcurl has."""
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
                if self._sink is None:  # the sink cancelled, or the exchange failed in between
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
            self._go_on_later()  # for the bytes that libcurl holds, and gives now
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
        """End a stream whose sink has taken all bytes."""
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
        """End the upstream's part. The sink may still have to take the rest."""
        self._error = error
        if self.phase is STREAM or self.phase is REST:
            self._enter(REST)
            self._deliver()
        elif self.head.done():
            self._enter(OVER)
        elif error is not None:
            self._enter(OVER)
            self.head.set_exception(error)
            self.head.exception()  # marks it as retrieved: it is fine if nobody waits any more
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
