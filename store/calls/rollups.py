"""Roll-ups: sums of usage records by the hour and by the day, exact at every moment.

usage_by_key is hour × key (and its user) × model × outcome, usage_by_channel is hour × channel ×
model × outcome, and usage_by_day the latter summed up over the hours of a day. The writer adds each
batch in the transaction that inserts its records, so a record counts once in each. Days and hours
are those of a call's id (its start, UTC). No model and no channel are empty texts; a model's name
is cut to its column. Sums stay when records are pruned. Reading them: usage_stats.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.calls.usage_queries import HOUR_MS
from store.db.database import Result, execute, executemany, is_mysql, snapshot_read, transaction
from store.db.partitions import next_day, pruned_before
from store.values.ids import ULID_CHARS, day_at, day_begin_ms, ulid, ulid_ms
from store.values.usage_record import UsageRecord

SUMS = (
    *("calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("cache_write_1h_tokens", "reasoning_tokens", "cost_nanos"),
)
MODEL_CHARS = 256
DAY_HOURS = 24
FAULTS_PER_DAY = 20

_NO_RANDOM = bytes(10)
# What stands in a roll-up for a column of usage_records.
_SOURCES = {
    "channel": "COALESCE(\"channel\", '')",
    "model": f"SUBSTR(COALESCE(\"model\", ''), 1, {MODEL_CHARS})",
}

Sums = dict[tuple[Any, ...], list[int]]


@dataclass(frozen=True, slots=True)
class _Table:
    """A roll-up and the columns that make a row's key."""

    name: str
    key: tuple[str, ...]

    def upsert(self, mysql: bool) -> str:
        """Adds sums to a row, or makes it."""
        names = (*self.key, *SUMS)
        insert = (
            f'INSERT INTO "{self.name}" ({_names(names)}) VALUES ({", ".join("?" * len(names))})'
        )
        if mysql:
            sums = ", ".join(f'"{name}" = "{name}" + VALUES("{name}")' for name in SUMS)
            return f"{insert} ON DUPLICATE KEY UPDATE {sums}"
        sums = ", ".join(f'"{name}" = "{name}" + excluded."{name}"' for name in SUMS)
        return f"{insert} ON CONFLICT ({_names(self.key)}) DO UPDATE SET {sums}"


BY_KEY = _Table("usage_by_key", ("day", "hour", "key_id", "user", "model", "outcome"))
BY_CHANNEL = _Table("usage_by_channel", ("day", "hour", "channel", "model", "outcome"))
BY_DAY = _Table("usage_by_day", ("day", "channel", "model", "outcome"))
TABLES = (BY_KEY, BY_CHANNEL, BY_DAY)


def add_records(db: peewee.Database, records: Iterable[UsageRecord]) -> None:
    """Add records to all roll-ups, inside the caller's transaction; the driver's errors pass."""
    facts = _gather(records)
    if not facts:
        return
    by_key: Sums = {}
    by_channel: Sums = {}
    by_day: Sums = {}
    for (when, key_id, user, channel, model, outcome), sums in facts.items():
        day, hour = when
        _add(by_key, (day, hour, key_id, user, model, outcome), sums)
        _add(by_channel, (day, hour, channel, model, outcome), sums)
    for (day, _, channel, model, outcome), sums in by_channel.items():
        _add(by_day, (day, channel, model, outcome), sums)
    mysql = is_mysql(db)
    # Rows in order of their key, so that two writers wait for each other instead of deadlocking.
    for table, found in ((BY_KEY, by_key), (BY_CHANNEL, by_channel), (BY_DAY, by_day)):
        executemany(db, _upsert(table, mysql), [(*key, *found[key]) for key in sorted(found)])


def _gather(records: Iterable[UsageRecord]) -> Sums:
    """Sums of records that differ in nothing a roll-up tells apart. Runs for each call: lean."""
    facts: Sums = {}
    for record in records:
        call = record.call
        key = (
            _hour_of_block(record.id[:9]),
            call.key_id,
            call.user,
            record.channel or "",
            (call.model or "")[:MODEL_CHARS],
            record.outcome,
        )
        sums = facts.get(key)
        if sums is None:
            sums = facts[key] = [0] * len(SUMS)
        sums[0] += 1
        sums[1] += record.input_tokens
        sums[2] += record.output_tokens
        sums[3] += record.cache_read_tokens
        sums[4] += record.cache_write_tokens
        sums[5] += record.cache_write_1h_tokens
        sums[6] += record.reasoning_tokens
        sums[7] += record.cost_nanos
    return facts


def _add(found: Sums, key: tuple[Any, ...], sums: list[int]) -> None:
    there = found.get(key)
    found[key] = sums if there is None else [a + b for a, b in zip(there, sums, strict=True)]


# 9 characters are blocks of 32 ms, of which an hour has 112,500: none lies across its end.
@functools.lru_cache(maxsize=4096)
def _hour_of_block(block: str) -> tuple[int, int]:
    at_ms = ulid_ms(block.ljust(ULID_CHARS, "0"))
    return day_at(at_ms), at_ms // HOUR_MS % DAY_HOURS


@functools.cache
def _upsert(table: _Table, mysql: bool) -> str:
    return table.upsert(mysql)


def rebuild(db: peewee.Database) -> Iterator[int]:
    """Make the roll-ups anew from the records, day by day; each day (yyyymmdd) when it is done.

    Days without records and days that were pruned keep their sums. Gateways may write meanwhile:
    each step locks the rows of one hour (MySQL) or the file (SQLite). Idempotent.
    """
    day: int | None = pruned_before(db) - 1
    while day is not None and (day := next_day(db, day)) is not None:
        for hour in range(DAY_HOURS):
            _locking(db, functools.partial(_rebuild_hour, db, day, hour))
        _locking(db, functools.partial(_rebuild_day, db, day))
        yield day


def _locking(db: peewee.Database, work: Callable[[], Result]) -> Result:
    # On MySQL only REPEATABLE READ locks the gaps between the rows that a DELETE goes through, so
    # that no writer adds a row to what is being made anew; and the first plain SELECT, after the
    # DELETE, sees all that was committed by then. Writers that wait for us add their sums later.
    return (snapshot_read if is_mysql(db) else transaction)(db, work)


def _rebuild_hour(db: peewee.Database, day: int, hour: int) -> None:
    at_ms = day_begin_ms(day) + hour * HOUR_MS
    bounds = (day, ulid(at_ms, _NO_RANDOM), ulid(at_ms + HOUR_MS, _NO_RANDOM))
    where = 'WHERE "day" = ? AND "id" >= ? AND "id" < ?'
    # In the order of the writers.
    for table in (BY_KEY, BY_CHANNEL):
        execute(db, f'DELETE FROM "{table.name}" WHERE "day" = ? AND "hour" = ?', (day, hour))
    for table in (BY_KEY, BY_CHANNEL):
        names = table.key[2:]
        columns = [_SOURCES.get(name, f'"{name}"') for name in names]
        query = (
            f'SELECT {", ".join(columns)}, COUNT(*), {_totals(SUMS[1:])} FROM "usage_records"'
            f" {where} GROUP BY {', '.join(columns)}"
        )
        _insert(db, table, (day, hour), execute(db, query, bounds).fetchall())


def _rebuild_day(db: peewee.Database, day: int) -> None:
    execute(db, 'DELETE FROM "usage_by_day" WHERE "day" = ?', (day,))
    names = _names(BY_DAY.key[1:])
    query = (
        f'SELECT {names}, {_totals(SUMS)} FROM "usage_by_channel" WHERE "day" = ? GROUP BY {names}'
    )
    _insert(db, BY_DAY, (day,), execute(db, query, (day,)).fetchall())


def _insert(
    db: peewee.Database, table: _Table, when: tuple[int, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    if rows:
        values = [(*when, *row[: -len(SUMS)], *map(int, row[-len(SUMS) :])) for row in rows]
        executemany(db, _upsert(table, is_mysql(db)), values)


def verify(db: peewee.Database) -> Iterator[str]:
    """What differs between roll-ups and the records of each day that has not been pruned.

    A sentence each, at most FAULTS_PER_DAY a day and roll-up. Each day is read in one snapshot,
    so a running gateway does not disturb it. Memory: the sums of one day.
    """
    day: int | None = pruned_before(db) - 1
    while day is not None and (day := next_day(db, day)) is not None:
        yield from snapshot_read(db, functools.partial(_day_faults, db, day))


def _day_faults(db: peewee.Database, day: int) -> list[str]:
    faults = []
    rights: dict[str, dict[tuple[str, ...], tuple[int, ...]]] = {}
    for table in TABLES:
        names = [name for name in table.key if name not in ("day", "hour")]
        sources = ", ".join(_SOURCES.get(name, f'"{name}"') for name in names)
        if sources not in rights:  # two tables tell the same things apart
            rights[sources] = _day_sums(db, "usage_records", sources, "COUNT(*)", day)
        right = rights[sources]
        said = _day_sums(db, table.name, _names(names), 'SUM("calls")', day)
        wrong = sorted(key for key in right.keys() | said.keys() if right.get(key) != said.get(key))
        faults += [
            f"{table.name} of {day}, {' '.join(key)}: {_difference(right.get(key), said.get(key))}"
            for key in wrong[:FAULTS_PER_DAY]
        ]
    return faults


def _day_sums(
    db: peewee.Database, table: str, grouped: str, calls: str, day: int
) -> dict[tuple[str, ...], tuple[int, ...]]:
    query = (
        f'SELECT {grouped}, {calls}, {_totals(SUMS[1:])} FROM "{table}"'
        f' WHERE "day" = ? GROUP BY {grouped}'
    )
    return _by_key(execute(db, query, (day,)).fetchall())


def _by_key(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[str, ...], tuple[int, ...]]:
    width = len(SUMS)
    return {tuple(row[:-width]): tuple(map(int, row[-width:])) for row in rows}


def _difference(right: tuple[int, ...] | None, said: tuple[int, ...] | None) -> str:
    nothing = (0,) * len(SUMS)
    pairs = zip(SUMS, said or nothing, right or nothing, strict=True)
    return ", ".join(f"{name} {a}, by the records {b}" for name, a, b in pairs if a != b)


def _totals(names: Iterable[str]) -> str:
    return ", ".join(f'SUM("{name}")' for name in names)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
