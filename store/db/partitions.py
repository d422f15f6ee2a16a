"""The days of usage_records: partitions created ahead on MySQL, and the removal of old days.

On MySQL each UTC day is a partition, so that a day is removed by dropping a file. Records after the
last partitioned day go into "pmax". SQLite has no partitions; old records are deleted in batches.
For the upkeep and for commands (`prune`). Imports nothing of the gateway.
"""

import datetime
import functools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import peewee

from store.db import database
from store.db.migrations import CALLERS_SINCE
from store.db.tables.system import Version
from store.db.tables.usage import UsageByCaller, UsageByUser, UsageRow
from store.values.errors import StoreError, StoreUnavailable
from store.values.ids import day_at

log = logging.getLogger(__name__)

AHEAD_DAYS = 7
ROWS_MOVED_MAX = 50_000
"""Splitting "pmax" copies its rows and blocks writers meanwhile, so more rows than this stay
there."""

TABLE_LOCK_WAIT_S = 1
"""The time that DDL waits for running transactions. While it waits, all others wait behind it."""

DROP_ATTEMPTS = 10
DROP_PAUSE_S = 0.5
DELETE_ROWS = 4_000  # some 50 ms on SQLite, during which no other process writes
DELETE_PAUSE_S = 0.01
# For deletions on SQLite. The records of one user and day are adjacent in an index, so that
# consecutive batches change the same pages. Keeping the pages in memory and copying them from the
# log into the file once for several batches halves the cost. Pages of 4 KiB; the cache is in KiB,
# negative.
_DELETING_SQLITE = ("PRAGMA cache_size = -65536", "PRAGMA wal_autocheckpoint = 8000")

PRUNED = "usage_pruned"
"""The row of `versions` with the day before which all records have been removed."""

_DAYS = UsageRow.select(UsageRow.day)

# Raw SQL: the query builder has neither partitions nor DELETE with a LIMIT.
_LAST = "pmax"
_PARTITIONS = """SELECT partition_name, partition_description FROM information_schema.partitions
  WHERE table_schema = DATABASE() AND table_name = 'usage_records'
  AND partition_name IS NOT NULL"""
_SOME_OF_LAST = f"""SELECT COUNT(*) FROM (SELECT 1 FROM "usage_records" PARTITION ("{_LAST}")
  LIMIT ?) "some" """
_DELETE_MYSQL = 'DELETE FROM "usage_records" WHERE "day" < ? ORDER BY "day", "id" LIMIT ?'
_DELETE_SQLITE = """DELETE FROM "usage_records" WHERE rowid IN
  (SELECT rowid FROM "usage_records" WHERE "day" < ? ORDER BY "day", "id" LIMIT ?)"""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of `prune`: days dropped as partitions, records deleted one by one."""

    partitions: int
    records: int


def keep_ahead(db: peewee.Database) -> None:
    """Create the partitions of the coming days if they are missing. On MySQL only.

    Never raises StoreError: without partitions, records go into "pmax" and only pruning is slower,
    so the next try is early enough. Any number of processes may do it at once.
    """
    if not database.is_mysql(db):
        return
    try:
        make_days(db, day_at(database.database_ms(db)), AHEAD_DAYS)
    except StoreError as error:
        log.warning("the partitions of the coming days cannot be made now: %s", error)


def make_days(
    db: peewee.Database, first: int, ahead: int, rows_max: int = ROWS_MOVED_MAX
) -> list[int]:
    """Create the partitions of a UTC day (yyyymmdd) and the `ahead` days after it. Return the days
    created now.

    MySQL only. Creates none while "pmax" holds more than `rows_max` records. Idempotent. Raises
    StoreUnavailable if the table was busy for longer than TABLE_LOCK_WAIT_S.
    """
    limits = _limits(db)
    if _LAST not in limits or limits.pop(_LAST) is not None:
        raise StoreError('usage_records has no partition "pmax" for all later days')
    last_made = max((limit for limit in limits.values() if limit is not None), default=0)
    days = [day for day in _days(first, ahead + 1) if following_day(day) > last_made]
    if not days:
        return []
    held = int(_fetch(db, _SOME_OF_LAST, (rows_max + 1,))[0][0])
    if held > rows_max:
        log.warning("the newest partition of usage_records is too large to be split by day")
        return []
    parts = [f'PARTITION "p{day}" VALUES LESS THAN ({following_day(day)})' for day in days]
    parts.append(f'PARTITION "{_LAST}" VALUES LESS THAN MAXVALUE')
    split = f'ALTER TABLE "usage_records" REORGANIZE PARTITION "{_LAST}" INTO ({", ".join(parts)})'
    try:
        _alter(db, split)
    except StoreError:
        # Another process was faster.
        if not {f"p{day}" for day in days} <= set(_limits(db)):
            raise
        return []
    return days


def short_pause() -> None:
    """Give other writers a chance."""
    time.sleep(DELETE_PAUSE_S)


def count_before(db: peewee.Database, before: int) -> int:
    """Return the number of records that `prune` would remove. Raises StoreUnavailable."""
    query = UsageRow.select(peewee.fn.COUNT(UsageRow.id)).where(UsageRow.day < before)
    return int((database.first_row(db, query) or (0,))[0])


def prune(db: peewee.Database, before: int, pause: Callable[[], None] = short_pause) -> Pruned:
    """Remove the records of all UTC days before `before` (yyyymmdd). Roll-ups and ledger stay.

    Safe while gateways write. A record that arrives late for such a day is booked as usual and
    removed by the next pruning. `pause` is called after each batch, so that other writers get a
    chance; an exception from it ends the pruning. Raises StoreUnavailable; repeat it then, since
    finished batches stay removed.
    """
    database.transaction(db, lambda: _note_pruned(db, before))
    if database.is_mysql(db):
        dropped = _drop_before(db, before)
        return Pruned(dropped, _delete_before(db, before, pause))
    try:
        for statement in _DELETING_SQLITE:
            database.snapshot_read(db, functools.partial(database.execute, db, statement))
        return Pruned(0, _delete_before(db, before, pause))
    finally:
        database.discard(db)  # along with its connection's settings


def pruned_before(db: peewee.Database) -> int:
    """Return the UTC day (yyyymmdd) before which records may be missing, 0 if none were removed
    yet."""
    row = database.first_row(db, Version.select(Version.version).where(Version.name == PRUNED))
    return int(row[0]) if row else 0


def callers_since(db: peewee.Database) -> int:
    """Return the UTC day (yyyymmdd) since which usage_by_caller is complete, 0 if it all is."""
    query = Version.select(Version.version).where(Version.name == CALLERS_SINCE)
    row = database.first_row(db, query)
    return int(row[0]) if row else 0


def sums_of_callers(db: peewee.Database, since_day: int) -> Any:
    """Return the smallest roll-up with all days of users, keys and groups since a UTC day."""
    return UsageByCaller if since_day >= callers_since(db) else UsageByUser


def next_day(db: peewee.Database, after: int) -> int | None:
    """Return the first UTC day (yyyymmdd) with records after `after`, or None."""
    row = database.first_row(db, _DAYS.where(UsageRow.day > after).order_by(UsageRow.day))
    return int(row[0]) if row else None


def days_after(db: peewee.Database, day: int) -> Iterator[int]:
    """Yield the UTC days (yyyymmdd) with records after `day`, in order."""
    while (following := next_day(db, day)) is not None:
        yield following
        day = following


def previous_day(db: peewee.Database, last: int) -> int | None:
    """Return the last UTC day (yyyymmdd) with records, not after `last`, or None."""
    row = database.first_row(db, _DAYS.where(UsageRow.day <= last).order_by(UsageRow.day.desc()))
    return int(row[0]) if row else None


def following_day(day: int) -> int:
    """Return the next UTC day, both as yyyymmdd."""
    return _days(day, 2)[1]


def _days(first: int, count: int) -> list[int]:
    date = datetime.date(first // 10_000, first // 100 % 100, first % 100)
    dates = [date + datetime.timedelta(days=number) for number in range(count)]
    return [date.year * 10_000 + date.month * 100 + date.day for date in dates]


def _limits(db: peewee.Database) -> dict[str, int | None]:
    """Return the day before which each partition ends, by name. None: it has no end."""
    rows = _fetch(db, _PARTITIONS)
    return {name: None if limit == "MAXVALUE" else int(limit) for name, limit in rows}


def _drop_before(db: peewee.Database, before: int) -> int:
    for attempt in range(DROP_ATTEMPTS):
        old = [name for name, limit in _limits(db).items() if limit is not None and limit <= before]
        if not old:
            return 0
        try:
            names = ", ".join(f'"{name}"' for name in old)
            _alter(db, f'ALTER TABLE "usage_records" DROP PARTITION {names}')
            return len(old)
        except StoreUnavailable:
            if attempt == DROP_ATTEMPTS - 1:
                raise
        time.sleep(DROP_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _delete_before(db: peewee.Database, before: int, pause: Callable[[], None]) -> int:
    records = count = database.transaction(db, lambda: _delete_some(db, before))
    while count == DELETE_ROWS:  # fewer: only late records could be left
        pause()
        count = database.transaction(db, lambda: _delete_some(db, before))
        records += count
    return records


def _delete_some(db: peewee.Database, before: int) -> int:
    delete = _DELETE_MYSQL if database.is_mysql(db) else _DELETE_SQLITE
    return int(database.execute(db, delete, (before, DELETE_ROWS)).rowcount)


def _note_pruned(db: peewee.Database, before: int) -> None:
    earlier = (Version.name == PRUNED) & (Version.version < before)
    Version.update(version=before).where(earlier).execute(db)


def _fetch(db: peewee.Database, query: str, values: tuple[Any, ...] = ()) -> Any:
    return database.snapshot_read(db, lambda: database.execute(db, query, values).fetchall())


def _alter(db: peewee.Database, statement: str) -> None:
    # Not by `transaction`, which would retry at once: waiting DDL blocks all writers.
    try:
        database.execute(db, f"SET SESSION lock_wait_timeout = {TABLE_LOCK_WAIT_S}")
        database.execute(db, statement)
    except database.DRIVER_ERRORS as error:
        raise database.classify(error, where=database.place(db)) from error
    finally:
        database.discard(db)  # along with its session's setting
