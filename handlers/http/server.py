"""A server of HTTP/1.1: it accepts connections, closes idle ones, and drains.

It has one sweep a second instead of a timer for each connection, which would cost a request 15 us.
"""

import asyncio
import errno
import logging
import math
import socket
import sys
from collections.abc import Callable, Sequence
from email.utils import formatdate

from conf.settings import ServerSettings
from handlers.http.connection import LINGER_S, LONG_LINGERS_MAX, ClientConnection, Delegate, Header
from handlers.http.request import Request

log = logging.getLogger("sluice.http")

DRAIN_IDLE_S = 2  # while draining, an idle connection is closed this long after its last byte
ACCEPT_BATCH = 128  # connections accepted in one turn of the loop
CLOSED_PAUSE_S = 0.1  # before another try of a listening socket that the supervisor has closed


class Server:
    """The connections of listening sockets that the supervisor has bound. `delegate` finds the
    delegate of a request. Beyond `connections_max` new connections wait in the socket's queue."""

    def __init__(
        self,
        settings: ServerSettings,
        delegate: Callable[[Request], Delegate],
        connections_max: int = sys.maxsize,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self.delegate = delegate
        self._connections: set[ClientConnection] = set()
        self._lingering_long: set[ClientConnection] = set()
        self._listeners: list[socket.socket] = []
        self._resting: list[socket.socket] = []
        self._accepting: set[asyncio.Task[object]] = set()
        self._drain_s = 0
        self._connections_max = connections_max
        self.date = formatdate(usegmt=True)
        # Not 0: connections before the first sweep have not waited since the clock's start.
        self.now_s = int(self._loop.time())
        self.draining = False

    def listen_on(self, listener: socket.socket) -> None:
        """Accept connections of a bound, listening, non-blocking socket."""
        self._listeners.append(listener)
        self._loop.add_reader(listener, self._accept_some, listener)

    def malformed(
        self, message: str, request: Request | None
    ) -> tuple[int, Sequence[Header], bytes]:
        """Return the answer to a malformed request; `request`: set if its head was read."""
        raise NotImplementedError

    def connect(self) -> ClientConnection:
        """Create a connection that does not have its transport yet."""
        return ClientConnection(self, self._settings.stream_buffer_bytes)

    def may_linger_long(self, connection: ClientConnection) -> bool:
        """Return whether a connection may linger long. Only LONG_LINGERS_MAX may at one time."""
        if len(self._lingering_long) >= LONG_LINGERS_MAX:
            return False
        self._lingering_long.add(connection)
        return True

    def opened(self, connection: ClientConnection) -> None:
        self._connections.add(connection)

    def closed(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        self._lingering_long.discard(connection)

    @property
    def connections(self) -> int:
        """Return the number of open connections, including those that do not have their transport
        yet."""
        return len(self._connections) + len(self._accepting)

    def sweep(self, now_s: int) -> None:
        """Close connections that wait too long. Called once a second with the loop's time."""
        self.now_s = now_s
        self.date = formatdate(usegmt=True)
        keep_s = self._settings.keepalive_timeout_s
        for connection in list(self._connections):
            stuck = connection.drop_stuck(now_s, keep_s)
            if not stuck and now_s > self._patience_ends_s(connection):
                connection.close()
        self._resume()

    def _resume(self) -> None:
        while self._resting and not self.draining:
            self.listen_on(self._resting.pop())

    def _patience_ends_s(self, connection: ClientConnection) -> float:
        if connection.lingers:
            return connection.since_s + (LINGER_S if self.draining else connection.linger_s)
        if not connection.waits_for_head:
            return math.inf
        if self.draining:
            return max(self._drain_s, connection.since_s) + DRAIN_IDLE_S
        server = self._settings
        first = connection.served == 0
        patience_s = server.header_timeout_s if first else server.keepalive_timeout_s
        return connection.since_s + patience_s

    def drain(self) -> None:
        """Accept the connections in the kernel's queue, then no new ones."""
        self.draining = True
        self._drain_s = self.now_s
        for listener in (*self._listeners, *self._resting):
            self._loop.remove_reader(listener)
            while self._accept_one(listener):
                pass
            listener.close()
        self._listeners.clear()
        self._resting.clear()

    def _accept_some(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            if not self._accept_one(listener):
                return

    def _accept_one(self, listener: socket.socket) -> bool:
        if self.connections >= self._connections_max and not self.draining:
            log.error(
                "cannot accept a connection: %d are open, all that the limit of descriptors allows",
                self.connections,
            )
            self._rest(listener)
            return False
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno == errno.EINVAL:
                # This loop was silent, so the supervisor has closed the socket. It will open it
                # again.
                self._loop.call_later(CLOSED_PAUSE_S, self._resume)
            else:
                # Out of descriptors. The socket stays readable, so accepting pauses until the next
                # sweep.
                log.error("cannot accept a connection: %s", error)
            if not self.draining:
                self._rest(listener)
            return False
        accepted.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self.connect, accepted))
        self._accepting.add(task)
        task.add_done_callback(self._accepted)
        return True

    def _rest(self, listener: socket.socket) -> None:
        self._loop.remove_reader(listener)
        self._listeners.remove(listener)
        self._resting.append(listener)

    def _accepted(self, task: "asyncio.Task[object]") -> None:
        self._accepting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a connection failed at its start: %s", task.exception())
