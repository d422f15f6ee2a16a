"""Shared state of the Hub's handlers, one object per process: settings, the store, and threads that
are shared fairly.

Threads are shared between parties: users, and networks of clients that have not signed in. A party
can use at most half of the threads. Waiting work is served round-robin by party, so that no party
takes all threads.
"""

import asyncio
import contextvars
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from typing import Any, TypeVar

import peewee

from conf.settings import Settings
from handlers.client_address import is_within
from handlers.hub.web.throttle import SignInLog, Throttle
from handlers.hub.web.unfinished import Unfinished
from operations.client_settings import base_url
from store.admin.objects import Sealing
from store.db import nodes
from store.db.base_url import stored_base_url
from store.hub import administrators, notices
from store.values.errors import StoreUnavailable
from store.values.grants import GrantMaker

Network = IPv4Network | IPv6Network
Result = TypeVar("Result")

STORE_THREADS = 4  # each with its own connection
STORE_WAITING_MAX = 1024
STORE_WAITING_OF_PARTY_MAX = 64
BASE_URL_S = 2.0
NOTICES_S = 5.0
FIRST_RUN_S = 5.0
SENDING_THREADS = 2  # for tests of alert destinations, which take seconds
SENDING_WAITING_MAX = 16
SENDING_WAITING_OF_PARTY_MAX = 2
PASSWORD_THREADS = 2  # a hash takes 64 MiB and a tenth of a second
PASSWORDS_WAITING_MAX = 64  # a few seconds' worth
PASSWORDS_WAITING_OF_PARTY_MAX = 8

party: contextvars.ContextVar[str] = contextvars.ContextVar("party", default="")
"""The party for which the current task works."""


class Busy(Exception):
    """Too much work is waiting, in total or of this party."""


class FairThreads:
    """A pool of threads that parties share. Call its methods only on the event loop's thread."""

    def __init__(self, threads: int, name: str, waiting_max: int, of_party_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._free = threads
        self._of_party = max(1, threads // 2)
        self._waiting_max, self._waiting_of_party_max = waiting_max, of_party_max
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, owner: str, work: Callable[[], Result]) -> Result:
        """Return the result of `work`, run in a thread when it is the turn of `owner`. Raises
        Busy."""
        if self._free and self._running[owner] < self._of_party:
            self._take(owner)
        else:
            await self._wait_turn(owner)
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # A thread cannot be cancelled: it keeps running when the caller stops waiting.
        future.add_done_callback(lambda done: self._release(owner))
        return await asyncio.shield(future)

    def close(self) -> None:
        """Let the threads end after their current work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_turn(self, owner: str) -> None:
        waiting = self._waiting.setdefault(owner, deque())
        total = sum(map(len, self._waiting.values()))
        if len(waiting) >= self._waiting_of_party_max or total >= self._waiting_max:
            if not waiting:
                del self._waiting[owner]
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(owner)
            raise

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._running[owner] += 1

    def _release(self, owner: str) -> None:
        self._free += 1
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        for other in list(self._waiting):
            if not self._free:
                return
            if self._running[other] < self._of_party:
                self._start_next(other)

    def _start_next(self, owner: str) -> None:
        """Give a thread to the oldest waiting work of a party, and move the party to the end of the
        queue."""
        waiting = self._waiting.pop(owner)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                self._take(owner)
                turn.set_result(None)
                break
        if waiting:
            self._waiting[owner] = waiting


def _warnings(db: peewee.Database) -> tuple[list[notices.Notice], list[tuple[str, int]]]:
    return notices.current(db), nodes.hanging(db)


@dataclass(slots=True)
class Site:
    """The settings, the store and the threads of the Hub."""

    settings: Settings
    db: peewee.Database
    sealing: Sealing
    trusted: tuple[Network, ...]  # proxies whose X-Forwarded-For is trusted
    cookie_secrets: Sequence[str]  # the first signs form tokens, any of them verifies
    origins: Mapping[str, str] = field(default_factory=dict)  # sources of settings, by section.key
    grants: GrantMaker | None = None  # None: without a relay
    relay_calls: Counter[str] = field(default_factory=Counter)  # running calls by user
    version: str = ""
    started_s: float = field(default_factory=time.monotonic)
    tries: Throttle = field(default_factory=Throttle)  # at passwords
    one_time: Throttle = field(default_factory=Throttle)  # at one-time codes, by user
    codes: Throttle = field(default_factory=lambda: Throttle(forgives=False))  # to redeem
    sign_ins: SignInLog = field(default_factory=SignInLog)
    unfinished: Unfinished = field(default_factory=Unfinished)
    provider: object = None  # of OpenID, created at its first use
    _stored_base_url: str = ""
    warnings: tuple[str, ...] = ()  # notices that every page shows
    hanging: Sequence[tuple[str, int]] = ()  # nodes with hanging workers, and how many
    first_run_open: bool = False  # no administrator can sign in
    _due_s: dict[str, float] = field(default_factory=dict)  # the next time to read each value
    _store: FairThreads = field(
        default_factory=lambda: FairThreads(
            STORE_THREADS, "store", STORE_WAITING_MAX, STORE_WAITING_OF_PARTY_MAX
        )
    )
    _passwords: FairThreads = field(
        default_factory=lambda: FairThreads(
            PASSWORD_THREADS, "password", PASSWORDS_WAITING_MAX, PASSWORDS_WAITING_OF_PARTY_MAX
        )
    )

    _sending: FairThreads = field(
        default_factory=lambda: FairThreads(
            SENDING_THREADS, "sending", SENDING_WAITING_MAX, SENDING_WAITING_OF_PARTY_MAX
        )
    )

    @property
    def base_url(self) -> str:
        """Return {base_url}, the address at which clients reach the relay."""
        return base_url(self.settings.server, self._stored_base_url)

    @property
    def has_base_url(self) -> bool:
        """Return whether {base_url} was set, rather than guessed."""
        return bool(self.settings.server.public_url or self._stored_base_url)

    async def read_base_url(self, now_s: float, *, at_once: bool = False) -> None:
        """Read {base_url} from the store, at most once per BASE_URL_S."""
        if self.settings.server.public_url:
            return
        if at_once:
            self._due_s.pop("base_url", None)
        url = await self._when_due("base_url", now_s, BASE_URL_S, stored_base_url)
        if url is not None:
            self._stored_base_url = url

    async def read_warnings(self, now_s: float) -> None:
        """Read the administrators' warnings and the number of hanging workers, at most once per
        NOTICES_S."""
        read = await self._when_due("warnings", now_s, NOTICES_S, _warnings)
        if read is not None:
            current, self.hanging = read
            self.warnings = tuple(row.text for row in current if row.level == notices.WARNING)

    async def read_first_run(self, now_s: float) -> None:
        """Read whether any administrator can sign in, at most once per FIRST_RUN_S."""
        exist = await self._when_due("first_run", now_s, FIRST_RUN_S, administrators.exist)
        if exist is not None:
            self.first_run_open = not exist

    async def _when_due(
        self, name: str, now_s: float, every_s: float, work: Callable[[peewee.Database], Result]
    ) -> Result | None:
        """Return what `work` reads from the store, at most once per `every_s`. None: keep the last
        value, because it is too early or the store is unreachable. The latter is reported by the
        requests that need the store."""
        if now_s < self._due_s.get(name, 0.0):
            return None
        self._due_s[name] = now_s + every_s
        try:
            return await self.store(work)
        except StoreUnavailable:
            return None

    @property
    def secure(self) -> bool:
        """Return whether browsers reach the Hub over TLS, so that cookies need the Secure
        attribute."""
        return self.settings.hub.public_url.startswith("https://")

    def trusts(self, peer: str) -> bool:
        """Return whether a peer is a proxy whose X-Forwarded-For is trusted."""
        return bool(self.trusted) and is_within(peer, self.trusted)

    async def store(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Return `work(db, …)`, run in a store thread. Raises StoreError, and Busy if too much work
        is waiting."""
        return await self._run(self._store, party.get(), partial(work, self.db, *args, **named))

    async def store_for(
        self, owner: str, work: Callable[..., Result], *args: Any, **named: Any
    ) -> Result:
        """Return the same as `store` for a given party, before a handler has set it."""
        return await self._run(self._store, owner, partial(work, self.db, *args, **named))

    async def password(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Return the same as `store`, for work that hashes passwords."""
        return await self._run(self._passwords, party.get(), partial(work, self.db, *args, **named))

    async def sending(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Return the same as `store`, for work that sends a message and waits for the receiver."""
        return await self._run(self._sending, party.get(), partial(work, self.db, *args, **named))

    async def _run(self, threads: FairThreads, owner: str, work: Callable[[], Result]) -> Result:
        context = contextvars.copy_context()  # the caller's address, for the audit log
        return await threads.run(owner, partial(context.run, work))

    def close(self) -> None:
        """Let the threads end after their current work."""
        for threads in (self._store, self._passwords, self._sending):
            threads.close()
