"""A connection of the relay's server with the interface that Tornado's handlers expect.

Written bytes wait in the connection's buffer. A handler that flushes waits until the buffer has
room.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, runtime_checkable

from tornado import httputil
from tornado.iostream import StreamClosedError

from handlers.http.connection import ClientConnection, Server

# The connection writes these itself.
_OWN_FIELDS = frozenset({"Content-Length", "Transfer-Encoding", "Connection", "Date", "Server"})
SEND_PATIENCE_S = 60  # for a client that reads nothing of its answer
_WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


@runtime_checkable
class Expiring(Protocol):
    """A delegate that is waiting for a body."""

    def expire(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """The facts about the peer that Tornado needs."""

    remote_ip: str
    protocol: str = "http"


class HubConnection(ClientConnection):
    """A connection of the Hub. `holder`: the address that it is counted for."""

    SERVER_FIELD = ""

    def __init__(self, server: Server, buffer_bytes: int) -> None:
        super().__init__(server, buffer_bytes)
        self.holder = ""
        self.body_began_s: int | None = None  # while a body is being received
        self.authenticated = False  # the body's sender has a session or a token
        self._full_since_s: int | None = None
        self._on_close: Callable[[], None] | None = None
        self._flushing: asyncio.Future[None] | None = None

    @property
    def context(self) -> Context:
        """Return the context for Tornado's requests."""
        return Context(self.peer)

    @property
    def idle_since_s(self) -> int | None:
        """Return since when the connection has been waiting for an unauthenticated client. None: a
        request is being answered, or the client is authenticated."""
        if self.waits_for_head or self.lingers:
            return self.since_s
        return None if self.authenticated else self.body_began_s

    def sweep(self, now_s: int, body_s: int) -> None:
        """Refuse a body that takes longer than `body_s`, and drop a client that reads nothing of
        its answer."""
        delegate: object = self._delegate
        if self.body_began_s is not None and now_s > self.body_began_s + body_s:
            assert isinstance(delegate, Expiring)
            delegate.expire()
        elif self._full_since_s is not None and now_s > self._full_since_s + SEND_PATIENCE_S:
            self.drop()

    def drop(self) -> None:
        """Close at once. A handler that is sending an answer is notified."""
        delegate = self._delegate
        super().drop()
        self._delegate = delegate

    # ---- for Tornado's handlers ------------------------------------------------------------------

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Set the function to call when the client disconnects."""
        self._on_close = callback

    def left(self) -> None:
        """Call the function that was set for a disconnected client, once."""
        callback, self._on_close = self._on_close, None
        if callback is not None:
            callback()

    def write_headers(
        self,
        start_line: httputil.RequestStartLine | httputil.ResponseStartLine,
        headers: httputil.HTTPHeaders,
        chunk: bytes | None = None,
    ) -> "asyncio.Future[None]":
        """Send an answer's head and its first bytes."""
        assert isinstance(start_line, httputil.ResponseStartLine)
        request, status, length = self._request, start_line.code, headers.get("Content-Length")
        if self.closed or request is None:
            return self._flushed()
        fields = [field for field in headers.get_all() if field[0] not in _OWN_FIELDS]
        self._chunked = False
        framing, last = "", not self._whole
        if length is not None:
            framing = f"Content-Length: {length}\r\n"
        elif status not in _WITHOUT_BODY:
            self._chunked = request.version == "HTTP/1.1"
            framing = "Transfer-Encoding: chunked\r\n" if self._chunked else ""
            last = last or not self._chunked
        head = self._head(status, fields, framing, last=last)
        if request.method == "HEAD":
            self._chunked, chunk = False, None
        self._write(head + self._framed(chunk) if chunk else head)
        return self._flushed()

    def write(self, chunk: bytes) -> "asyncio.Future[None]":
        """Send more of the answer."""
        request = self._request
        if not self.closed and request is not None and request.method != "HEAD" and chunk:
            self._write(self._framed(chunk))
        return self._flushed()

    # ---- asyncio's protocol ----------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._full_since_s = self._server.now_s

    def resume_writing(self) -> None:
        self._full_since_s = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_flush()

    def _end_answer(self) -> None:
        self._on_close = None
        delegate = self._delegate
        super()._end_answer()
        if delegate is not None:
            delegate.on_connection_close()
        self._end_flush()

    def _flushed(self) -> "asyncio.Future[None]":
        """Return a future that is done when the buffer has room, and fails if the client has
        disconnected."""
        future = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            future.set_exception(StreamClosedError())
            future.exception()  # marks it as retrieved: handlers need not await it
        elif self.full:
            self._end_flush()
            self._flushing, self.on_drained = future, self._end_flush
        else:
            future.set_result(None)
        return future

    def _end_flush(self) -> None:
        future, self._flushing = self._flushing, None
        self.on_drained = None
        if future is None or future.done():
            return
        if self._transport is None:
            future.set_exception(StreamClosedError())
            future.exception()
        else:
            future.set_result(None)
