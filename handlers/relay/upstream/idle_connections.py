"""Idle connections between two requests: one that became readable meanwhile is not used again.

An upstream may send more than the answer: a wrong Content-Length, an answer twice. Surplus bytes
would be read as the next answer, which is another user's. So an idle connection that becomes
readable, or is readable when it is taken, is closed. Surplus that comes a little later could still
meet the next request: a new connection therefore rests before its first reuses, and at a place that
was seen to send surplus each connection serves one request only, for DISTRUST_S.

Belongs here: which idle connection is used next, which are closed. Does not belong here: libcurl
(handle.py), running exchanges (client.py).
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

from handlers.relay.upstream.handle import Handle, Place, shown

RESERVED_DESCRIPTORS = 64  # of a worker, for store, journal, log and name servers
CONNECTIONS_MAX = 1_000  # idle ones, looked at once a second
HANDLES_MAX = 256  # kept without a connection
IDLE_S = 118  # libcurl's own limit, which it applies at the next use only
REST_S = 0.02
RESTS = 3  # of a new connection: libcurl throws away what it reads together with a last chunk
DISTRUST_S = 600
# So many connections where surplus is likely, not certain.
SUSPICIONS_MAX = 3
# What comes later is no surplus: upstreams that close an idle connection may say why (408).
SURPLUS_WITHIN_S = 2
TELL_EVERY_S = 60
TLS_NOTICE_BYTES = 31  # of a TLS close_notify

log = logging.getLogger("sluice.relay")


def connections_most() -> int:
    """Return a third of the process's descriptors that are not reserved: so many connections may
    clients have, and so many each their running calls and what is kept to upstreams."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (limit - RESERVED_DESCRIPTORS) // 3)


@dataclass(slots=True)
class _Suspicion:
    """Surplus seen at a place."""

    since_s: float
    times: int = 0
    weight: int = 0
    told_s: float | None = None


class ParkedHandles:
    """The handles of one upstream client that serve no exchange: those with an idle connection at
    their home, oldest first, and those without one."""

    def __init__(self) -> None:
        self._homes: dict[Place, deque[Handle]] = {}  # as many as channels lead to
        self._spare: list[Handle] = []
        self._suspected: dict[Place, _Suspicion] = {}
        self._caught: dict[Place, float] = {}  # until when
        self._tick = 0  # seconds, counted by `sweep`
        self._most = connections_most()
        self.surplus = 0  # connections closed for bytes that belong to no call

    @property
    def connections(self) -> int:
        return sum(map(len, self._homes.values()))

    @property
    def spare(self) -> int:
        return len(self._spare)

    def put(self, handle: Handle, fd: int) -> None:
        """An exchange is over: keeps its handle, with the connection whose socket this is, -1 for
        none."""
        # False for nearly all: a connection that has rested serves the next request.
        if handle.rests < RESTS or fd != handle.fd or self._caught:
            if fd < 0 or handle.place in self._caught:
                if fd >= 0 or handle.fd >= 0:
                    handle.drop()
                self._retire(handle)
                return
            if fd != handle.fd:
                handle.watch(fd)
            handle.parked_at = monotonic()
        handle.parked_tick = self._tick
        handle.home.append(handle)

    def take(self, place: Place) -> Handle | None:
        """A handle with a connection for the next request there; None: there is none."""
        home = self._homes.get(place)
        while home:
            # The last one used, so that the others may end; a new one rests for as long as it can.
            handle = home.pop() if home[-1].rests >= RESTS else home.popleft()
            if not handle.ready(0):
                return handle
            self._close(handle)
            self._retire(handle)
        return None

    def take_spare(self, place: Place) -> Handle | None:
        """A handle without a connection, for any place; None: there is none."""
        # What a route sets, a login for one, stays with the handle.
        return self._spare.pop() if self._spare and isinstance(place, str) else None

    def home_of(self, place: Place) -> deque[Handle]:
        return self._homes.setdefault(place, deque())

    def rest_left_s(self, handle: Handle) -> float:
        """How long a new connection that was taken has to wait, then to be asked by `still_quiet`:
        not at all when it has been idle for so long."""
        handle.rests += 1
        return max(0.0, handle.parked_at + REST_S - monotonic())

    def still_quiet(self, handle: Handle) -> None:
        """A rest is over: closes the connection if it is readable."""
        if handle.ready(0):
            self._close(handle)

    def close_readable(self, fd: int) -> None:
        """An idle socket is readable or has ended; nothing when it is not parked."""
        for home in self._homes.values():
            for handle in home:
                if handle.fd == fd:
                    home.remove(handle)
                    self._close(handle)
                    self._retire(handle)
                    return

    def note(self, place: Place, what: str, certain: bool) -> None:
        """A connection there has carried bytes that belong to no call, or may have."""
        now_s = monotonic()
        seen = self._suspected.get(place)
        if seen is None:
            seen = self._suspected[place] = _Suspicion(now_s)
        seen.times += 1
        seen.weight += SUSPICIONS_MAX if certain else 1
        self.surplus += 1
        newly = seen.weight >= SUSPICIONS_MAX and place not in self._caught
        if seen.weight >= SUSPICIONS_MAX:
            self._caught[place] = now_s + DISTRUST_S
            home = self._homes.get(place)
            while home:
                self._end(home.popleft())
        if newly or seen.told_s is None or now_s - seen.told_s >= TELL_EVERY_S:
            seen.told_s = now_s
            told = "upstream %s: %s (%d such connections so far)"
            if place in self._caught:
                told += f"; each connection serves one call until {DISTRUST_S} s pass without this"
            log.warning(told, shown(place), what, seen.times)

    def sweep(self) -> None:
        """Once a second: closes what has been idle for too long, or is too much."""
        self._tick += 1
        excess = self.connections - min(CONNECTIONS_MAX, self._most)
        for home in self._homes.values():
            while home and (excess > 0 or self._tick - home[0].parked_tick > IDLE_S):
                self._end(home.popleft())
                excess -= 1
        if self._suspected:
            self._forgive(monotonic())

    def _forgive(self, now_s: float) -> None:
        for place, seen in list(self._suspected.items()):
            if place not in self._caught and now_s - seen.since_s > DISTRUST_S:
                del self._suspected[place]
            elif self._caught.get(place, now_s) < now_s:
                del self._caught[place], self._suspected[place]

    def close(self) -> None:
        for handles in (*self._homes.values(), self._spare):
            for handle in handles:
                handle.close()
            handles.clear()

    def _end(self, handle: Handle) -> None:
        handle.drop()
        self._retire(handle)

    def _retire(self, handle: Handle) -> None:
        if isinstance(handle.place, str) and len(self._spare) < HANDLES_MAX:
            self._spare.append(handle)
        else:
            handle.close()

    def _close(self, handle: Handle) -> None:
        waiting = _waiting_bytes(handle.fd)
        soon = self._tick - handle.parked_tick <= SURPLUS_WITHIN_S
        if soon and waiting > (TLS_NOTICE_BYTES if handle.tls else 0):
            self.note(handle.place, f"{waiting} bytes came behind an answer", certain=True)
        handle.drop()


def _waiting_bytes(fd: int) -> int:
    """What can be read from a socket; 0 for one that has ended or failed."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return 0
    return count[0]
