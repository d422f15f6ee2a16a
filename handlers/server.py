"""The relay port: accepts connections, watches over silent ones, and drains.

Tornado's server parses and frames; here is when a connection may wait, and for how long. One sweep
a second instead of Tornado's timer for each head, which costs 15 us a request.
"""

import logging
import socket
from dataclasses import dataclass
from typing import Any

from tornado import httputil
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from conf.settings import ServerSettings
from handlers.base import Site
from handlers.routes import RelayRouter

log = logging.getLogger("sluice.http")

DRAIN_IDLE_S = 2  # an idle connection is closed so long after its last byte while draining
MAX_HEADER_BYTES = 65536
UNREAD_BODY_BYTES = 65536  # body of a request whose handler takes none
ACCEPT_BATCH = 128  # connections taken in one loop turn


@dataclass(slots=True)
class Waiting:
    """A connection that owes us a request head."""

    stream: IOStream
    since_s: int
    first: bool


class RelayServer(HTTPServer):
    """Serves the relay's router on listening sockets that somebody else has bound."""

    def initialize(self, site: Site) -> None:  # type: ignore[override]
        """Takes what `RelayServer(site)` was given."""
        router = RelayRouter(site, self._head_is_here)
        super().initialize(
            router, max_header_size=MAX_HEADER_BYTES, max_body_size=UNREAD_BODY_BYTES
        )
        # The sweep below keeps both limits; Tornado's timer would be armed for every request.
        self.conn_params.header_timeout = None
        self._site = site
        self._settings: ServerSettings = site.settings.server
        self._loop = IOLoop.current()
        self._open: dict[object, httputil.HTTPConnection] = {}
        self._waiting: dict[httputil.HTTPConnection, Waiting] = {}
        self._listeners: list[socket.socket] = []
        self._resting: list[socket.socket] = []
        self._now_s = 0
        self._drain_s: int | None = None

    def listen_on(self, listener: socket.socket) -> None:
        """Accepts connections of a bound, listening, non-blocking socket."""
        self._listeners.append(listener)
        self._loop.add_handler(listener, self._accept_some, IOLoop.READ)

    def start_request(
        self, server_conn: object, request_conn: httputil.HTTPConnection
    ) -> httputil.HTTPMessageDelegate:
        """A connection begins to wait for its next head."""
        stream = request_conn.stream  # type: ignore[attr-defined]
        first = server_conn not in self._open
        self._open[server_conn] = request_conn
        self._waiting[request_conn] = Waiting(stream, self._now_s, first)
        return super().start_request(server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        """A connection is gone."""
        super().on_close(server_conn)
        self._waiting.pop(self._open.pop(server_conn), None)

    def _head_is_here(self, request_conn: httputil.HTTPConnection) -> None:
        self._waiting.pop(request_conn, None)

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._open)

    def sweep(self, now_s: int) -> None:
        """Closes connections whose head does not come; called once a second."""
        self._now_s = now_s
        for waiting in list(self._waiting.values()):
            if now_s > waiting.since_s + self._patience_s(waiting):
                waiting.stream.close()
        while self._resting:
            self.listen_on(self._resting.pop())

    def _patience_s(self, waiting: Waiting) -> float:
        if self._drain_s is not None:
            return max(self._drain_s - waiting.since_s, 0) + DRAIN_IDLE_S - 1
        settings = self._settings
        return settings.header_timeout_s if waiting.first else settings.keepalive_timeout_s

    def drain(self) -> None:
        """Serves what the kernel has queued already, then takes no new connections."""
        self._site.draining = True
        self._drain_s = self._now_s
        self._resting.clear()
        for listener in self._listeners:
            self._loop.remove_handler(listener)
            while self._accept_one(listener):
                pass
            listener.close()
        self._listeners.clear()

    def _accept_some(self, listener: Any, events: int) -> None:
        for _ in range(ACCEPT_BATCH):
            if not self._accept_one(listener):
                return

    def _accept_one(self, listener: socket.socket) -> bool:
        try:
            connection, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as error:
            # Out of descriptors: the socket stays readable, so rest until the next sweep.
            log.error("cannot accept a connection: %s", error)
            self._loop.remove_handler(listener)
            self._listeners.remove(listener)
            self._resting.append(listener)
            return False
        self.handle_stream(IOStream(connection), address)
        return True
