"""The API keys that a worker has cached: looked up in threads, invalidated by the change log.

Belongs to one event loop. A cached key costs one hash and one dictionary look-up, by a mark: a
keyed hash that is worthless outside this process. The store's own digest, which is slower, is used
for look-ups there, and at the first use of a key that was read at start. Unknown keys are cached
for a second and separately, so that guesses evict no customer. While the store is unavailable,
cached keys stay valid, even if a change to one was noticed but could not be read. No database
access here: `load` is passed in.
"""

import asyncio
import enum
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from store.catalog.keys import KeyEntry
from store.db.changes import KEYS, Changes
from store.values.errors import StoreUnavailable
from store.values.ids import now_ms
from store.values.key_secrets import GIVEN_SECRET, checksum_ok, digests

KNOWN_LIMIT = 50_000
UNKNOWN_LIMIT = 10_000
UNKNOWN_FOR_MS = 1_000
FLIGHTS_LIMIT = 1_000
LOAD_WAIT_S = 0.8  # a call with an unknown key is answered within a second
STALE_WAIT_S = 0.5
STALE_RETRY_MS = 1_000


class Miss(enum.Enum):
    """The result of `peek` if only the store has the answer."""

    MISS = enum.auto()


MISS = Miss.MISS


@dataclass(slots=True)
class _Known:
    entry: KeyEntry
    stale: bool = False
    retry_at_ms: int = 0


class KeyCache:
    """A cache of secret -> KeyEntry, or None for a key that does not exist."""

    def __init__(
        self,
        load: Callable[[list[bytes]], KeyEntry | None],
        executor: Executor,
        peppers: Sequence[str],
        clock: Callable[[], int] = now_ms,
        limit: int = KNOWN_LIMIT,
    ) -> None:
        self._load = load
        self._executor = executor
        self._peppers = list(peppers)
        self._marking = hashlib.blake2s(key=os.urandom(hashlib.blake2s.MAX_KEY_SIZE))
        self._marking.update(b"\0")  # hashes the key once
        self._clock = clock
        self._limit = limit
        # By mark, or by digest if not used yet. The least recently used first.
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._unused: set[bytes] = set()  # digests among them
        self._unknown: OrderedDict[bytes, int] = OrderedDict()
        self._by_ref: dict[str, set[bytes]] = {}
        self._flights: dict[bytes, asyncio.Task[KeyEntry | None]] = {}
        self.generation = 0  # of what `load` reads; counts the changes

    def peek(self, secret: str) -> KeyEntry | Miss | None:
        """Return the key without waiting, None if there is no such key, or MISS."""
        return self._peek(secret, self._mark(secret))

    async def get(self, secret: str) -> KeyEntry | None:
        """Return the key, or None if there is no such key. Raises StoreUnavailable."""
        mark = self._mark(secret)
        entry = self._peek(secret, mark)
        if not isinstance(entry, Miss):
            return entry
        cached = self._known.get(mark)
        flight = self._flights.get(mark) or self._start(secret, mark)
        # asyncio.wait does not cancel the flight if this caller is cancelled or times out.
        await asyncio.wait({flight}, timeout=LOAD_WAIT_S if cached is None else STALE_WAIT_S)
        try:
            if flight.done():
                return self._in_time(flight.result())
            raise StoreUnavailable("the store does not answer")
        except StoreUnavailable:
            if cached is None:
                raise
            cached.retry_at_ms = self._clock() + STALE_RETRY_MS
            return self._in_time(cached.entry)

    def fill(self, keys: Sequence[tuple[bytes, KeyEntry]], generation: int) -> bool:
        """Add keys with their digests, the last used first, as they were read in a generation.
        Return False if there is no room for more. They are evicted before all keys used here."""
        for digest, entry in keys:
            if len(self._known) >= self._limit:
                return False
            if digest not in self._known:
                self._keep(digest, _Known(entry, stale=generation != self.generation))
                self._known.move_to_end(digest, last=False)
                self._unused.add(digest)
        return True

    def apply_changes(self, changes: Changes) -> None:
        """Apply the change log, on the loop. An incomplete log makes all entries stale."""
        refs = {change.ref for change in changes.changes if change.kind == KEYS}
        if changes.complete and not refs:
            return
        self.generation += 1
        self._unknown.clear()
        if not changes.complete:
            for cached in self._known.values():
                cached.stale, cached.retry_at_ms = True, 0
            return
        for ref in refs:
            for mark in self._by_ref.get(ref, ()):
                cached = self._known[mark]
                cached.stale, cached.retry_at_ms = True, 0

    def _mark(self, secret: str) -> bytes:
        marking = self._marking.copy()  # a third of the time that hashing the key takes
        marking.update(secret.encode("utf-8", "surrogatepass"))
        return marking.digest()

    def _peek(self, secret: str, mark: bytes) -> KeyEntry | Miss | None:
        cached = self._known.get(mark)
        if cached is not None:
            if cached.stale and self._clock() >= cached.retry_at_ms:
                return MISS
            self._known.move_to_end(mark)
            entry = cached.entry
            return entry if entry is None or entry.valid_until_ms is None else self._in_time(entry)
        if not GIVEN_SECRET.fullmatch(secret) or not checksum_ok(secret):
            return None
        since_ms = self._unknown.get(mark)
        if since_ms is not None and 0 <= self._clock() - since_ms < UNKNOWN_FOR_MS:
            return None
        if self._unused and self._use(mark, digests(secret, self._peppers)):
            return self._peek(secret, mark)
        return MISS

    def _use(self, mark: bytes, key_digests: list[bytes]) -> bool:
        """Return whether a key that was read at start has one of these digests. From now on it is
        found by its mark. If the digest has an older pepper, the key is also looked up, which moves
        it to the newest."""
        for digest in key_digests:
            if digest in self._unused:
                cached = self._known[digest]
                self._forget(digest)
                cached.stale = cached.stale or digest != key_digests[0]
                self._keep(mark, cached)
                return True
        return False

    def _in_time(self, entry: KeyEntry | None) -> KeyEntry | None:
        """Return the entry, or None if its secret was rotated and the overlap has ended."""
        if entry is None or entry.valid_until_ms is None:
            return entry
        return entry if self._clock() < entry.valid_until_ms else None

    def _start(self, secret: str, mark: bytes) -> asyncio.Task[KeyEntry | None]:
        if len(self._flights) >= FLIGHTS_LIMIT:
            raise StoreUnavailable("too many keys are being looked up")
        flight = asyncio.create_task(self._fly(mark, digests(secret, self._peppers)))
        self._flights[mark] = flight
        flight.add_done_callback(lambda done: self._load_ended(mark, done))
        return flight

    def _load_ended(self, mark: bytes, flight: asyncio.Task[KeyEntry | None]) -> None:
        del self._flights[mark]
        if not flight.cancelled():
            # Retrieved, so that a failure without a waiter is not reported as never retrieved.
            flight.exception()

    async def _fly(self, mark: bytes, key_digests: list[bytes]) -> KeyEntry | None:
        generation = self.generation
        loop = asyncio.get_running_loop()
        entry = await loop.run_in_executor(self._executor, self._load, key_digests)
        # A change applied meanwhile may be newer than what was read, so do not cache it.
        if generation == self.generation:
            self._remember(mark, key_digests, entry)
        return entry

    def _remember(self, mark: bytes, key_digests: list[bytes], entry: KeyEntry | None) -> None:
        """Cache the key with these digests, or that there is none."""
        self._forget(mark)
        if entry is None:
            self._unknown[mark] = self._clock()
            self._unknown.move_to_end(mark)
            if len(self._unknown) > UNKNOWN_LIMIT:
                self._unknown.popitem(last=False)
            return
        for digest in key_digests:
            self._forget(digest)
        self._keep(mark, _Known(entry))
        if len(self._known) > self._limit:
            self._forget(next(iter(self._known)))

    def _keep(self, mark: bytes, cached: _Known) -> None:
        self._known[mark] = cached
        for ref in (cached.entry.id, cached.entry.user_id):
            self._by_ref.setdefault(ref, set()).add(mark)

    def _forget(self, mark: bytes) -> None:
        cached = self._known.pop(mark, None)
        if cached is None:
            return
        self._unused.discard(mark)
        for ref in (cached.entry.id, cached.entry.user_id):
            marks = self._by_ref[ref]
            marks.discard(mark)
            if not marks:
                del self._by_ref[ref]
