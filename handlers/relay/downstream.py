"""The client's side of one call: head, bytes, end, and how full its buffer is.

The only module of the relay that touches Tornado's connection. Handlers and the pump see this
object alone, so that the connection below can be exchanged without touching them.
"""

import asyncio
from collections.abc import Callable, Sequence

from tornado.web import RequestHandler

Header = tuple[str, str]


class Downstream:
    """Writes one answer to one client.

    `write` says whether there is room for more; after a False `on_drained` is called once when
    the client has taken everything. Nothing raises when the client is gone.
    """

    __slots__ = ("_chunked", "_handler", "_limit_bytes", "_pending_bytes", "_stream", "blocked",
                 "head_sent", "on_drained")  # fmt: skip

    def __init__(self, handler: RequestHandler, limit_bytes: int) -> None:
        connection = handler.request.connection
        assert connection is not None
        self._handler = handler
        self._stream = connection.stream  # type: ignore[attr-defined]
        self._chunked = handler.request.version == "HTTP/1.1"
        self._limit_bytes = limit_bytes
        self._pending_bytes = 0
        self.head_sent = False
        self.blocked = False
        self.on_drained: Callable[[], None] | None = None

    @property
    def gone(self) -> bool:
        """The connection is closed."""
        return bool(self._stream.closed())

    def start(self, status: int, headers: Sequence[Header], first: bytes) -> bool:
        """Sends the head of a stream and its first bytes in one write."""
        self.head_sent = True
        handler = self._handler
        handler.set_status(status)
        for name, value in headers:
            handler.set_header(name, value)
        if not self._stream.closed():
            # Nagle's algorithm would hold small events back on a real network.
            self._stream.set_nodelay(True)
        handler.write(first)
        handler.flush()
        return self._has_room(len(first), None)

    def write(self, data: bytes) -> bool:
        """Sends more of a started stream; False: the buffer is full, wait for `on_drained`."""
        stream = self._stream
        if stream.closed():
            return True
        # Framed here: RequestHandler.flush costs 9 us an event more for the same bytes.
        framed = b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
        future = stream.write(framed)
        if not stream.writing():
            self._pending_bytes = 0
            return True
        return self._has_room(len(data), future)

    def finish(self, data: bytes) -> None:
        """Sends the last bytes and ends the body properly."""
        if not self._stream.closed():
            self._handler.finish(data or None)

    def drop(self) -> None:
        """Closes the connection without the end of the body, so that nobody takes it for whole."""
        self._stream.close()

    def send(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Sends a whole answer."""
        if self._stream.closed():
            return
        handler = self._handler
        handler.set_status(status)
        for name, value in headers:
            handler.set_header(name, value)
        handler.finish(body)

    def _has_room(self, size: int, future: "asyncio.Future[None] | None") -> bool:
        self._pending_bytes += size
        if self._pending_bytes < self._limit_bytes:
            return True
        if not self._stream.writing():
            self._pending_bytes = 0
            return True
        self.blocked = True
        waiting = future if future is not None else self._stream.write(b"")
        waiting.add_done_callback(self._drained)
        return False

    def _drained(self, future: "asyncio.Future[None]") -> None:
        self._pending_bytes = 0
        self.blocked = False
        if future.exception() is None and self.on_drained is not None:
            self.on_drained()
