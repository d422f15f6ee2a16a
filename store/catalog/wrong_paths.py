"""Paths that calls with a known key requested and that are not endpoints.

Such calls make no usage record. Their owner can see here that a client has a wrong base URL. A
worker notes them in memory and its writer brings them into the store, each path of a key once with
the number of its calls. All of it is bounded: a client that keeps requesting new paths is noted
only in part. Blocking, except `Notices.note`.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import reduce
from operator import and_

import peewee

from store.db.database import in_transaction, insert_rows, portions, select_rows, transaction
from store.db.tables.usage import WRONG_PATH, WrongPath
from store.values.ids import DAY_MS

KEPT_MS = 7 * DAY_MS
MAX_PATHS = 20  # of a key; the one requested longest ago is removed
MAX_WAITING = 1_000  # paths that wait for the writer
PER_MINUTE = 60  # paths of one key that are noted
WRITE_INTERVAL_S = 2.0
MAX_COUNTED_KEYS = 10_000
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Seen:
    """A call of a path that is not an endpoint."""

    method: str
    path: str
    at_ms: int
    address: str
    agent: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """The calls of one path with one key. Address and agent are those of the last one."""

    key_id: str
    method: str
    path: str
    calls: int
    first_ms: int
    last_ms: int
    address: str
    agent: str


_Name = tuple[str, str, str]
_KEY = ("key_id", "method", "path")


class Notices:
    """Wrong paths that a worker has seen and its writer has not written yet."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._waiting: dict[_Name, Noticed] = {}
        self._taken: dict[str, int] = {}  # paths of a key in this minute
        self._minute = 0
        self._write_at = 0.0

    def note(self, key_id: str, seen: Seen) -> None:
        """Note a call with a key. Dropped if there are too many. For the loop: does not wait."""
        name = (key_id, seen.method, seen.path[:WRONG_PATH])
        with self._lock:
            before = self._waiting.get(name)
            if before is not None:
                self._waiting[name] = replace(
                    before,
                    calls=before.calls + 1,
                    last_ms=seen.at_ms,
                    address=seen.address,
                    agent=seen.agent,
                )
            elif len(self._waiting) < MAX_WAITING and self._may_take(key_id, seen.at_ms):
                at_ms = seen.at_ms
                self._waiting[name] = Noticed(*name, 1, at_ms, at_ms, seen.address, seen.agent)

    def write(self, db: peewee.Database) -> None:
        """Write the queued paths, at most once in WRITE_INTERVAL_S. Raises StoreUnavailable; these
        paths are then dropped."""
        now_s = self._clock_s()
        if not self._waiting or now_s < self._write_at:
            return
        self._write_at = now_s + WRITE_INTERVAL_S
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        add(db, waiting.values())

    def _may_take(self, key_id: str, at_ms: int) -> bool:
        if at_ms // MINUTE_MS != self._minute or len(self._taken) >= MAX_COUNTED_KEYS:
            self._minute = at_ms // MINUTE_MS
            self._taken.clear()
        count = self._taken.get(key_id, 0)
        self._taken[key_id] = count + 1
        return count < PER_MINUTE


@in_transaction
def add(db: peewee.Database, noticed: Collection[Noticed]) -> None:
    """Add calls to the stored ones of their paths. Only the newest MAX_PATHS of a key are kept."""
    # In a fixed order, so that concurrent workers do not deadlock.
    for entry in sorted(noticed, key=lambda entry: (entry.key_id, entry.method, entry.path)):
        _add(db, entry)
    for key_id in sorted({entry.key_id for entry in noticed}):
        _keep_newest(db, key_id)


def of_keys(db: peewee.Database, key_ids: Sequence[str], since_ms: int) -> list[Noticed]:
    """Return the paths of some keys requested since `since_ms` and not dismissed, newest first."""
    columns = [getattr(WrongPath, field.name) for field in fields(Noticed)]
    not_dismissed = WrongPath.dismissed_ms.is_null() | (WrongPath.last_ms > WrongPath.dismissed_ms)
    entries: list[Noticed] = []
    for portion in portions(key_ids):
        query = WrongPath.select(*columns).where(
            WrongPath.key_id << portion, WrongPath.last_ms >= since_ms, not_dismissed
        )
        entries += [Noticed(*row) for row in select_rows(db, query)]
    return sorted(entries, key=lambda entry: (entry.last_ms, entry.path), reverse=True)


def dismiss(db: peewee.Database, key_id: str, *, dismissed: bool = True) -> None:
    """Hide the paths of a key until one is requested again, or show them again."""
    until = WrongPath.last_ms if dismissed else None
    query = WrongPath.update(dismissed_ms=until).where(WrongPath.key_id == key_id)
    transaction(db, lambda: query.execute(db))


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove paths without a request in KEPT_MS."""
    query = WrongPath.delete().where(WrongPath.last_ms < at_ms - KEPT_MS)
    transaction(db, lambda: query.execute(db))


def _add(db: peewee.Database, entry: Noticed) -> None:
    row = asdict(entry)
    own = reduce(and_, (getattr(WrongPath, name) == row[name] for name in _KEY))
    last = {name: row[name] for name in ("last_ms", "address", "agent")}
    more = WrongPath.update(calls=WrongPath.calls + entry.calls, **last)
    if not more.where(own).execute(db):
        # Another worker may have been first since. Its few calls are overwritten.
        insert_rows(db, WrongPath, [row], replace=("calls", *last))


def _keep_newest(db: peewee.Database, key_id: str) -> None:
    own = WrongPath.key_id == key_id
    query = WrongPath.select(WrongPath.method, WrongPath.path).where(own)
    newest = query.order_by(WrongPath.last_ms.desc(), WrongPath.path)
    for method, path in select_rows(db, newest)[MAX_PATHS:]:
        old = own & (WrongPath.method == method) & (WrongPath.path == path)
        WrongPath.delete().where(old).execute(db)
