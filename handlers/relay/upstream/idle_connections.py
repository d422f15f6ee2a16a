"""Idle connections between two requests. A connection that became readable is not reused.

An upstream may send more than the answer: a wrong Content-Length, an answer twice. Surplus bytes
would be read as the next answer, which is another user's. So an idle connection that becomes
readable, or is readable when it is taken, is closed. Surplus that arrives a little later could
still meet the next request. A new connection therefore rests before its first reuses, and each
connection to a destination that sent surplus serves only one request, for DISTRUST_S.

Belongs here: the choice of the next idle connection, and of those to close. Does not belong here:
libcurl (handle.py), running exchanges (client.py).
"""

from __future__ import annotations

import array
import fcntl
import logging
import resource
import sys
import termios
from collections import deque
from dataclasses import dataclass
from time import monotonic

from handlers.relay.upstream.handle import Destination, Handle, public_text

RESERVED_DESCRIPTORS = 64  # in a worker, for store, journal, log and name servers
CONNECTIONS_MAX = 1_000  # idle ones, checked once a second
HANDLES_MAX = 256  # kept without a connection
IDLE_S = 118  # libcurl's own limit, which it applies only at the next use
REST_S = 0.02
RESTS = 3  # for a new connection, since libcurl discards surplus that it reads with a last chunk
DISTRUST_S = 600
# A destination is distrusted from this sum on. Certain surplus adds all of it, likely surplus 1.
SURPLUS_WEIGHT_MAX = 3
# Later bytes are not surplus: upstreams that close an idle connection may send the reason (408).
SURPLUS_WITHIN_S = 2
LOG_EVERY_S = 60
TLS_NOTICE_BYTES = 31  # size of a TLS close_notify

log = logging.getLogger("sluice.relay")


def max_connections() -> int:
    """Return a third of the process's descriptors that are not reserved. That is the limit for
    clients' connections; running calls and idle upstream connections have a third each."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (limit - RESERVED_DESCRIPTORS) // 3)


@dataclass(slots=True)
class _Surplus:
    """The surplus seen at a destination."""

    since_s: float
    times: int = 0
    weight: int = 0
    logged_s: float | None = None


class IdleConnections:
    """The handles of one upstream client that serve no exchange: those with an idle connection, in
    pools by destination, oldest first, and the spare ones without a connection."""

    def __init__(self) -> None:
        self._pools: dict[Destination, deque[Handle]] = {}  # bounded by the channels
        self._spare: list[Handle] = []
        self._suspected: dict[Destination, _Surplus] = {}
        self._distrusted: dict[Destination, float] = {}  # until this time
        self._tick = 0  # seconds, counted by `sweep`
        self._max_connections = max_connections()
        self.surplus = 0  # connections closed because of bytes that belong to no call

    @property
    def connections(self) -> int:
        return sum(map(len, self._pools.values()))

    @property
    def spare(self) -> int:
        return len(self._spare)

    def put(self, handle: Handle, fd: int) -> None:
        """Keep the handle of an exchange that is over, with the connection of socket `fd` (-1:
        none)."""
        # Usually False: a connection that has rested serves the next request.
        if handle.rests < RESTS or fd != handle.fd or self._distrusted:
            if fd < 0 or handle.destination in self._distrusted:
                if fd >= 0 or handle.fd >= 0:
                    handle.drop()
                self._retire(handle)
                return
            if fd != handle.fd:
                handle.watch(fd)
            handle.idle_since_s = monotonic()
        handle.idle_since_tick = self._tick
        handle.pool.append(handle)

    def take(self, destination: Destination) -> Handle | None:
        """Return a handle with a connection to the destination; None if there is none."""
        pool = self._pools.get(destination)
        while pool:
            # The most recently used one, so that the others may expire. If it is new, the oldest
            # one instead, so that new ones rest as long as possible.
            handle = pool.pop() if pool[-1].rests >= RESTS else pool.popleft()
            if not handle.ready(0):
                return handle
            self._close(handle)
            self._retire(handle)
        return None

    def take_spare(self, destination: Destination) -> Handle | None:
        """Return a handle without a connection; None if there is none."""
        # A route's options, such as a login, stay with the handle, so routes get new handles.
        return self._spare.pop() if self._spare and isinstance(destination, str) else None

    def pool_of(self, destination: Destination) -> deque[Handle]:
        return self._pools.setdefault(destination, deque())

    def remaining_rest_s(self, handle: Handle) -> float:
        """Return how long a new connection that was taken must wait before `close_if_readable`; 0
        if it has been idle for long enough."""
        handle.rests += 1
        return max(0.0, handle.idle_since_s + REST_S - monotonic())

    def close_if_readable(self, handle: Handle) -> None:
        """Close a connection whose rest is over if it is readable."""
        if handle.ready(0):
            self._close(handle)

    def close_readable(self, fd: int) -> None:
        """Close the idle connection of a socket that is readable or has ended. Does nothing for
        other sockets."""
        for pool in self._pools.values():
            for handle in pool:
                if handle.fd == fd:
                    pool.remove(handle)
                    self._close(handle)
                    self._retire(handle)
                    return

    def record_surplus(self, destination: Destination, what: str, certain: bool) -> None:
        """Count a connection that carried bytes of no call, or, if not `certain`, may have."""
        now_s = monotonic()
        seen = self._suspected.get(destination)
        if seen is None:
            seen = self._suspected[destination] = _Surplus(now_s)
        seen.times += 1
        seen.weight += SURPLUS_WEIGHT_MAX if certain else 1
        self.surplus += 1
        newly = seen.weight >= SURPLUS_WEIGHT_MAX and destination not in self._distrusted
        if seen.weight >= SURPLUS_WEIGHT_MAX:
            self._distrusted[destination] = now_s + DISTRUST_S
            pool = self._pools.get(destination)
            while pool:
                self._end(pool.popleft())
        if newly or seen.logged_s is None or now_s - seen.logged_s >= LOG_EVERY_S:
            seen.logged_s = now_s
            message = "upstream %s: %s (%d such connections so far)"
            if destination in self._distrusted:
                message += (
                    f"; each connection serves one call until {DISTRUST_S} s pass without this"
                )
            log.warning(message, public_text(destination), what, seen.times)

    def sweep(self) -> None:
        """Close connections that were idle for too long, and excess ones. Called once a second."""
        self._tick += 1
        excess = self.connections - min(CONNECTIONS_MAX, self._max_connections)
        for pool in self._pools.values():
            while pool and (excess > 0 or self._tick - pool[0].idle_since_tick > IDLE_S):
                self._end(pool.popleft())
                excess -= 1
        if self._suspected:
            self._expire(monotonic())

    def _expire(self, now_s: float) -> None:
        for destination, seen in list(self._suspected.items()):
            if destination not in self._distrusted and now_s - seen.since_s > DISTRUST_S:
                del self._suspected[destination]
            elif self._distrusted.get(destination, now_s) < now_s:
                del self._distrusted[destination], self._suspected[destination]

    def close(self) -> None:
        for handles in (*self._pools.values(), self._spare):
            for handle in handles:
                handle.close()
            handles.clear()

    def _end(self, handle: Handle) -> None:
        handle.drop()
        self._retire(handle)

    def _retire(self, handle: Handle) -> None:
        if isinstance(handle.destination, str) and len(self._spare) < HANDLES_MAX:
            self._spare.append(handle)
        else:
            handle.close()

    def _close(self, handle: Handle) -> None:
        waiting = _unread_bytes(handle.fd)
        soon = self._tick - handle.idle_since_tick <= SURPLUS_WITHIN_S
        if soon and waiting > (TLS_NOTICE_BYTES if handle.tls else 0):
            self.record_surplus(
                handle.destination, f"{waiting} bytes came behind an answer", certain=True
            )
        handle.drop()


def _unread_bytes(fd: int) -> int:
    """Return how many bytes can be read from a socket; 0 if it has ended or failed."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return 0
    return count[0]
