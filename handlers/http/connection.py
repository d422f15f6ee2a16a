"""One client connection: HTTP/1.1 on an asyncio transport, for Tornado's RequestHandlers.

handlers.http.request parses. This module decides the order of events: one request at a time,
answers framed in one write, back-pressure, and the end of a connection. It replaces Tornado's
IOStream and HTTP1Connection, which cost more than the rest of a call (docs/lab/figures.md, ADR
0001). Only `handlers.entries.base` and `handlers.relay.downstream` write to it.
"""

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Protocol, cast

import httptools
from tornado import httputil

from handlers.http.request import BODY, BROKEN, HEAD, Request, RequestReader, head_fault

log = logging.getLogger("sluice.http")

Header = tuple[str, str]

QUEUED_MAX_BYTES = 65536  # read ahead of the present request; beyond that reading pauses
QUEUED_PIECE_BYTES = 1024  # added for each piece, because a request head takes much memory
PARSED_AT_ONCE_BYTES = 16384  # may be a thousand requests
PARSE_SLICE_S = 0.005  # after that parsing continues in the next turn of the loop
# After an early answer the rest of the request is read and discarded, up to these limits, so that
# the client sees the answer and not a reset connection.
LINGER_MAX_BYTES = 1 << 20
LINGER_S = 2
# The same for a body that is too large: most clients send all of it before they read. Only a few
# connections may do this, because it makes the worker read so much.
LONG_LINGER_MAX_BYTES = 64 << 20
LONG_LINGER_S = 30
LONG_LINGERS_MAX = 64  # at one time in a worker; others linger briefly

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # for SO_LINGER
_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
_STATUS_LINES[529] = "HTTP/1.1 529 Overloaded\r\n"


class Delegate(Protocol):
    """The receiver of one request: its head (a returned future delays the body), body and end.

    It is not called any more after it has answered, or after `on_connection_close`.
    """

    def headers_received(self) -> "asyncio.Future[None] | None": ...

    def data_received(self, chunk: bytes) -> None: ...

    def finish(self) -> None: ...

    def on_connection_close(self) -> None: ...


class Server(Protocol):
    """The server to which a connection belongs."""

    date: str
    now_s: int
    draining: bool

    def delegate(self, request: Request) -> Delegate: ...

    def malformed(
        self, message: str, request: Request | None
    ) -> tuple[int, Sequence[Header], bytes]: ...

    def may_linger_long(self, connection: "ClientConnection") -> bool: ...

    def opened(self, connection: "ClientConnection") -> None: ...

    def closed(self, connection: "ClientConnection") -> None: ...


class _Outgoing(asyncio.Protocol):
    """The sending half of a connection: its transport, and whether its buffer is full."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.full = False  # the client reads too slowly: do not send before `on_drained`
        self._left = (-1, 0)  # unsent bytes of a closing connection, and when they last changed
        self.on_drained: Callable[[], None] | None = None

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes in the transport's buffer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def drop_stuck(self, now_s: int, patience_s: int) -> bool:
        """Return whether the connection is closing. Drop it if the client accepts none of the last
        bytes."""
        transport = self._transport
        if transport is None or not transport.is_closing():
            return False
        left_bytes = transport.get_write_buffer_size()
        if left_bytes != self._left[0]:
            self._left = left_bytes, now_s
        elif now_s > self._left[1] + patience_s:
            self.drop()
        return True

    def close(self) -> None:
        """Close after sending the buffer."""
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """Close at once and discard the buffer."""
        self.on_drained = None
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self.on_drained is not None:
            self.on_drained()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


class ClientConnection(_Outgoing, httputil.HTTPConnection):
    """One connection, from accept to close.

    A handler starts when the request head is complete (`prepare`). Body and end follow when
    `prepare` is done. The next request waits for the end of the answer.
    """

    SERVER_FIELD = "Server: sluice\r\n"

    def __init__(self, server: Server, buffer_bytes: int) -> None:
        super().__init__()
        self._server = server
        self._buffer_bytes = buffer_bytes
        self._reader = RequestReader(self)
        self._queue: deque[tuple[int, Any]] = deque()
        self._queued_bytes = 0
        self._reading = True
        self._unparsed: bytes | memoryview = b""
        self._request: Request | None = None
        self._delegate: Delegate | None = None
        self._preparing = False
        self._whole = False  # the end of the request was received
        self._deaf = False  # further bytes are ignored
        self._keep_alive = True
        self._chunked = False
        self.head_sent = False  # an answer to the present request has begun
        self._linger_bytes: int | None = None
        self._linger_max_bytes, self.linger_s = LINGER_MAX_BYTES, LINGER_S
        self.peer = ""
        self.served = 0
        self.since_s = server.now_s  # when it started to wait for a request head, or to linger

    # ---- for handlers ----------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Return whether nothing can be sent any more."""
        transport = self._transport
        return self._linger_bytes is not None or transport is None or transport.is_closing()

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a whole answer and end the request."""
        if self.closed:
            return
        head = self._head(status, headers, f"Content-Length: {len(body)}\r\n", last=not self._whole)
        request = self._request
        self._write(head if request is not None and request.method == "HEAD" else head + body)
        self._end_answer()

    def read_body(self, reading: bool) -> None:
        """Resume or pause reading: a handler that has too much to do pauses it, and gets only a few
        more chunks."""
        if reading:
            self._go_on()
        elif self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def linger_long(self) -> None:
        """Linger longer after the next answer, an early one, unless too many connections do so."""
        if self._server.may_linger_long(self):
            self._linger_max_bytes, self.linger_s = LONG_LINGER_MAX_BYTES, LONG_LINGER_S

    def start(self, status: int, headers: Sequence[Header], first: bytes) -> bool:
        """Send the head of an answer of unknown length and its first bytes. Return False if the
        buffer is full."""
        if self.closed:
            return True
        self._chunked = self._request is not None and self._request.version == "HTTP/1.1"
        framing = "Transfer-Encoding: chunked\r\n" if self._chunked else ""
        head = self._head(status, headers, framing, last=not self._chunked)
        self._write(head + self._framed(first))
        return not self.full

    def send(self, data: bytes) -> bool:
        """Send more of a started answer. Return False if the buffer is full: wait for
        `on_drained`."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return True
        # An empty chunk would be the last one.
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data)
        return not self.full

    def finish(self, data: bytes = b"") -> None:
        """Send the last bytes of a started answer and end it properly."""
        if self.closed:
            return
        end = b"0\r\n\r\n" if self._chunked else b""
        if data or end:
            self._write(self._framed(data) + end)
        self._end_answer()

    def drop(self) -> None:
        """Close at once without the end of the answer, so that the client sees it truncated."""
        if self._transport is not None and not self._chunked:
            # An answer to HTTP/1.0 ends with the connection, so only a reset shows the truncation.
            peer = self._transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        if self._whole:
            self._delegate = None  # it sends the answer, so it knows
        super().drop()

    # ---- for the server --------------------------------------------------------------------------

    @property
    def waits_for_head(self) -> bool:
        """Return whether it is idle: no request is in progress, and the next one is not
        complete."""
        return self._request is None and self._linger_bytes is None

    @property
    def lingers(self) -> bool:
        """Return whether the answer was sent before the end of the body, whose rest is
        discarded."""
        return self._linger_bytes is not None

    # ---- asyncio's protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        transport.set_write_buffer_limits(self._buffer_bytes, self._buffer_bytes // 4)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._queue.clear()
        self._server.closed(self)
        self.on_drained = None
        if self._delegate is not None:
            self._delegate.on_connection_close()
        self._delegate = self._request = None

    def data_received(self, data: bytes) -> None:
        if self._linger_bytes is not None:
            self._linger_bytes += len(data)
            if self._linger_bytes > self._linger_max_bytes:
                self.close()
        elif not self._deaf:
            self._unparsed = data
            self._parse()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._request is None:
            self._go_on()

    # ---- one request after the other -------------------------------------------------------------

    def _parse(self) -> None:
        """Parse the received bytes, as far as reading ahead is allowed."""
        began_s = 0.0
        while self._unparsed and self._reading and not self._deaf:
            data = self._unparsed
            self._unparsed = b""
            if len(data) > PARSED_AT_ONCE_BYTES:
                now_s = time.monotonic()
                began_s = began_s or now_s
                if now_s - began_s > PARSE_SLICE_S:
                    self._unparsed = data
                    self._parse_on_later()
                    return
                view = memoryview(data)
                data, self._unparsed = view[:PARSED_AT_ONCE_BYTES], view[PARSED_AT_ONCE_BYTES:]
            try:
                self._reader.feed(data)
            except httptools.HttpParserCallbackError:
                log.exception("request parser failed")
                self._deaf = True
                self.drop()

    def _parse_on_later(self) -> None:
        """Continue parsing in the next turn: a byte of small chunks can cost as much as 1 KiB of
        others."""
        if self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def take(self, kind: int, value: Any) -> None:
        """Handle a piece of a request, or queue it. Called by the reader."""
        if self._deaf:
            return
        if kind == BROKEN:
            self._deaf = True
        if not self._queue and self._work_on(kind, value):
            return
        self._queue.append((kind, value))
        self._queued_bytes += QUEUED_PIECE_BYTES + (len(value) if kind == BODY else 0)
        if self._queued_bytes > QUEUED_MAX_BYTES and self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _work_on(self, kind: int, value: Any) -> bool:
        """Handle a piece. Return False if it has to wait."""
        if kind == HEAD:
            # Answers that the client does not read must not accumulate.
            if self._request is not None or self.full:
                return False
            self._begin(value)
        elif kind == BROKEN:
            waits = self._request is not None if self._whole else self._preparing
            if waits:
                return False
            self._refuse(value, self._request)
        elif self._preparing:
            return False
        elif self._delegate is not None:
            if kind == BODY:
                self._delegate.data_received(value)
            else:
                self._whole = True
                self._delegate.finish()
        return True

    def _begin(self, request: Request) -> None:
        fault = head_fault(request)
        if fault:
            self._refuse(fault, request)
            return
        self.served += 1
        self._request, self._keep_alive = request, request.keep_alive and self._keep_alive
        self._whole = self.head_sent = self._chunked = False
        self._delegate = self._server.delegate(request)
        prepared = self._delegate.headers_received()
        if prepared is not None:
            self._preparing = True
            prepared.add_done_callback(self._prepared)
        elif request.expects_continue():
            self._continue()

    def _prepared(self, future: "asyncio.Future[None]") -> None:
        self._preparing = False
        if self._request is not None and self._request.expects_continue():
            self._continue()
        self._go_on()

    def _continue(self) -> None:
        """Send 100 Continue, unless the answer has begun."""
        if not self.head_sent and not self.closed:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _go_on(self) -> None:
        """Handle queued pieces, as far as possible."""
        queue = self._queue
        while queue:
            piece = queue.popleft()
            if not self._work_on(*piece):
                queue.appendleft(piece)
                break
        if not queue:
            self._read_on()

    def _read_on(self) -> None:
        self._queued_bytes = 0
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()
            self._parse()

    # ---- the answer ------------------------------------------------------------------------------

    def _head(self, status: int, headers: Sequence[Header], framing: str, last: bool) -> bytes:
        """Return the head of an answer. `last`: the connection ends with the answer."""
        if last or (self._request is not None and self._request.version != "HTTP/1.1"):
            self._keep_alive = False
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers])
        if fields.count("\n") != len(headers) or fields.count("\r") != len(headers):
            # A value with line breaks would start additional header lines.
            fields = "".join([f"{name}: {' '.join(value.split())}\r\n" for name, value in headers])
        # While draining, answers ask the client to close; if it does not, the sweep closes 2 s
        # later. Closing at once would make a proxy that has just sent the next request here answer
        # 502.
        keep = self._keep_alive and not self._server.draining
        end = "" if keep else "Connection: close\r\n"
        begin = f"{_STATUS_LINES[status]}{self.SERVER_FIELD}Date: {self._server.date}\r\n"
        self.head_sent = True
        return f"{begin}{fields}{framing}{end}\r\n".encode("latin-1", "replace")

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data

    def _end_answer(self) -> None:
        self.on_drained = None
        self.since_s = self._server.now_s
        delegate, self._delegate, self._request = self._delegate, None, None
        if not self._whole:
            self._linger()
            if delegate is not None:
                # The handler must not wait for a body that is discarded.
                delegate.on_connection_close()
        elif not self._keep_alive:
            self._queue.clear()
            self.close()
        elif self._queue:
            # In a separate turn, so that pipelined requests do not recurse.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _linger(self) -> None:
        """Discard the rest of an answered request for a while. Closing with unread bytes would
        reset the connection, and the client might not see the answer."""
        self._deaf = True
        self._linger_bytes = 0
        self._unparsed = b""
        self._queue.clear()
        self._read_on()
        if self._transport is not None:
            with contextlib.suppress(OSError):  # reset just now
                self._transport.write_eof()

    def _refuse(self, message: str, request: Request | None) -> None:
        """Answer a malformed request and stop reading. `request`: the request, if its head was
        read."""
        self._deaf = True
        if self._request is not None and self.head_sent:
            self.drop()
            return
        self._keep_alive = self._whole = False
        self.answer(*self._server.malformed(message, request))
