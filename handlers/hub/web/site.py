"""What every page and API endpoint of the Hub needs; one object a process."""

import contextvars
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from typing import Any, TypeVar

import peewee

from conf.settings import Settings
from handlers.hub.web.places import Places, party
from handlers.hub.web.sign_ins import SignIns
from handlers.hub.web.throttle import Throttle
from handlers.relay.admit import is_within
from operations.client_settings import base_url
from store.admin.objects import Sealing
from store.db.base_url import kept_base_url
from store.hub import administrators, notices
from store.values.errors import StoreUnavailable

Network = IPv4Network | IPv6Network
Result = TypeVar("Result")

STORE_THREADS = 4  # each with a connection of its own
STORE_WAITING_MAX = 1024
STORE_WAITING_OF_PARTY_MAX = 64
BASE_URL_S = 2.0
NOTICES_S = 5.0
FIRST_RUN_S = 5.0
PASSWORD_THREADS = 2  # a hash takes 64 MiB and a tenth of a second
PASSWORDS_WAITING_MAX = 64  # a few seconds' worth
PASSWORDS_WAITING_OF_PARTY_MAX = 8


@dataclass(slots=True)
class Site:
    """Settings, store and threads of the Hub."""

    settings: Settings
    db: peewee.Database
    sealing: Sealing
    trusted: tuple[Network, ...]  # proxies whose X-Forwarded-For is believed
    cookie_secrets: Sequence[str]  # the first makes tokens of forms, each verifies them
    origins: Mapping[str, str] = field(default_factory=dict)  # of settings, by section.key
    version: str = ""
    started_s: float = field(default_factory=time.monotonic)
    tries: Throttle = field(default_factory=Throttle)  # of passwords
    one_time: Throttle = field(default_factory=Throttle)  # of one-time codes, by user
    codes: Throttle = field(default_factory=lambda: Throttle(forgives=False))  # to redeem
    sign_ins: SignIns = field(default_factory=SignIns)
    provider: object = None  # of OpenID, made when it is first needed
    _kept_base_url: str = ""
    _base_url_due_s: float = 0.0
    warnings: tuple[str, ...] = ()  # notices that every page shows
    _warnings_due_s: float = 0.0
    first_run_open: bool = False  # no administrator can sign in
    _first_run_due_s: float = 0.0
    _store: Places = field(
        default_factory=lambda: Places(
            STORE_THREADS, "store", STORE_WAITING_MAX, STORE_WAITING_OF_PARTY_MAX
        )
    )
    _passwords: Places = field(
        default_factory=lambda: Places(
            PASSWORD_THREADS, "password", PASSWORDS_WAITING_MAX, PASSWORDS_WAITING_OF_PARTY_MAX
        )
    )

    @property
    def base_url(self) -> str:
        """{base_url}: where clients reach the relay."""
        return base_url(self.settings.server, self._kept_base_url)

    async def read_base_url(self, now_s: float, *, at_once: bool = False) -> None:
        """Looks, not more often than each BASE_URL_S, whether {base_url} was set anew."""
        if self.settings.server.public_url or (now_s < self._base_url_due_s and not at_once):
            return
        self._base_url_due_s = now_s + BASE_URL_S
        try:
            self._kept_base_url = await self.store(kept_base_url)
        except StoreUnavailable:
            return  # what was read last holds; whatever needs the store says that it is away

    async def read_warnings(self, now_s: float) -> None:
        """Looks, not more often than each NOTICES_S, of what administrators warn everybody."""
        if now_s < self._warnings_due_s:
            return
        self._warnings_due_s = now_s + NOTICES_S
        try:
            told = await self.store(notices.current)
        except StoreUnavailable:
            return  # what was read last holds
        self.warnings = tuple(one.text for one in told if one.level == notices.WARNING)

    async def read_first_run(self, now_s: float) -> None:
        """Looks, not more often than each FIRST_RUN_S, whether an administrator can sign in."""
        if now_s < self._first_run_due_s:
            return
        self._first_run_due_s = now_s + FIRST_RUN_S
        try:
            self.first_run_open = not await self.store(administrators.exist)
        except StoreUnavailable:
            return  # what was read last holds

    @property
    def secure(self) -> bool:
        """Whether browsers reach the Hub by TLS, so that cookies must not go any other way."""
        return self.settings.hub.public_url.startswith("https://")

    def trusts(self, peer: str) -> bool:
        """Return whether a peer is a proxy whose X-Forwarded-For is believed."""
        return bool(self.trusted) and is_within(peer, self.trusted)

    async def store(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """`work(db, …)` in a thread of the store. Raises StoreError, and Busy when too much waits
        for whoever asks."""
        return await self._in(self._store, party.get(), partial(work, self.db, *args, **named))

    async def store_for(
        self, whose: str, work: Callable[..., Result], *args: Any, **named: Any
    ) -> Result:
        """The same for a party that no handler has said yet."""
        return await self._in(self._store, whose, partial(work, self.db, *args, **named))

    async def password(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """The same where passwords are hashed: no more than PASSWORD_THREADS at a time, half of
        them for one party."""
        return await self._in(self._passwords, party.get(), partial(work, self.db, *args, **named))

    async def _in(self, places: Places, whose: str, work: Callable[[], Result]) -> Result:
        told = contextvars.copy_context()  # who asks, for the audit log
        return await places.run(whose, partial(told.run, work))

    def close(self) -> None:
        """Lets the threads end after what they are doing."""
        for places in (self._store, self._passwords):
            places.close()
