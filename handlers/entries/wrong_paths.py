"""Calls of unknown paths, noted for the owner of the key.

They make no usage record, so otherwise a wrong base URL would leave no trace. Only unknown paths
reach this code, so calls of endpoints do not pay for it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from adapters.family import Family
from adapters.faults import Fault, clean_message
from adapters.registry import FAMILIES
from handlers.http.request import Request
from handlers.relay import admit
from store.catalog.key_cache import KeyCache, Miss
from store.catalog.keys import KeyEntry
from store.catalog.wrong_paths import Notices, Seen
from store.values.errors import StoreUnavailable
from store.values.ids import now_ms

PATH_CLEANED_CHARS = 2000  # cleaned before it is cut: half a key is still a secret
AGENT_CHARS = 255
METHOD_CHARS = 16
LOOKUPS = 20  # concurrent look-ups of keys that are not in memory


class WrongPathRequest(Protocol):
    """A request for an unknown path."""

    request: Request

    @property
    def dialect(self) -> Family: ...

    def credential_field(self, source: str) -> str | None: ...

    def client_ip(self) -> str: ...


class WrongPaths:
    """The notes of calls of unknown paths, for the owners of their keys. Answers do not wait for
    them."""

    def __init__(self, keys: KeyCache, notices: Notices, clock: Callable[[], int] = now_ms) -> None:
        self._keys, self._notices, self._clock = keys, notices, clock
        self._lookups: set[asyncio.Task[None]] = set()

    def note(self, handler: WrongPathRequest) -> None:
        """Note the path of a request with a known key. Requests with other keys are not stored."""
        secret = _secret_of(handler)
        if secret is None:
            return
        request = handler.request
        sighting = Seen(
            method=(request.method or "")[:METHOD_CHARS],
            path=_cleaned(request.path, secret),
            at_ms=self._clock(),
            address=handler.client_ip(),
            agent=(request.headers.get("user-agent") or "")[:AGENT_CHARS],
        )
        entry = self._keys.peek(secret)
        if isinstance(entry, Miss):
            self._look_up(secret, sighting)
        elif entry is not None:
            self._add(entry, sighting)

    def _look_up(self, secret: str, sighting: Seen) -> None:
        if len(self._lookups) < LOOKUPS:
            task = asyncio.create_task(self._later(secret, sighting))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)

    async def _later(self, secret: str, sighting: Seen) -> None:
        try:
            entry = await self._keys.get(secret)
        except StoreUnavailable:
            return  # the client has its answer already; the note is lost
        if entry is not None:
            self._add(entry, sighting)

    def _add(self, entry: KeyEntry, sighting: Seen) -> None:
        if not entry.revoked:
            self._notices.note(entry.id, sighting)


def _secret_of(handler: WrongPathRequest) -> str | None:
    """Return the secret of a request: as the family of its path sends it, else as any other
    does."""
    for family in (handler.dialect, *FAMILIES.values()):
        try:
            return admit.credential(handler.credential_field, family.client.credentials)
        except Fault:
            continue
    return None


def _cleaned(path: str, secret: str) -> str:
    """Return the path with everything masked that looks like a secret. The store limits its
    length."""
    parts = path[:PATH_CLEANED_CHARS].split("/")
    return "/".join(clean_message(part, (secret,)) for part in parts)
