"""Roll-ups: sums of usage records by the hour and by the day, always exact.

usage_by_key is by hour, key (its user and group), model, outcome, endpoint and error code.
usage_by_channel has the channel in place of the key. The daily ones: usage_by_day is
usage_by_channel by day; usage_by_user is usage_by_key without model, endpoint and error code;
usage_by_group is it without key and user. usage_by_caller is usage_by_user without the outcome, for
which it has a column for each of OUTCOME_COUNTS, and without FIRST_BYTE. Endpoint and code add few
rows: a key uses one or two endpoints, and nearly all calls of an outcome other than ok have one
code.

The writer adds each batch in the transaction that inserts its records, so a record counts once in
each roll-up. Days and hours are those of a call's id (its start, UTC). A missing value is an empty
text; names are truncated to their columns. Besides SUMS there is a histogram of the first bytes of
streams, FIRST_BYTE. Sums remain when records are pruned. usage_stats reads them. usage_by_rate, of
another kind, is in rate_sums.
"""

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Any

import peewee
from peewee import SQL, Case, fn

from store.calls import rate_sums
from store.db import database, partitions
from store.db.database import Result, insert_sums, is_mysql, raw_rows, snapshot_read, transaction
from store.db.migrations import CALLERS_SINCE
from store.db.partitions import days_after, pruned_before
from store.db.tables import usage as tables
from store.db.tables.channels import BOUNDS_MS, FIRST_BYTE
from store.db.tables.system import Version
from store.db.tables.usage import OUTCOME_COUNTS, UsageRow
from store.values.ids import HOUR_MS, ULID_CHARS, day_at, day_begin_ms, first_ulid, ulid_ms
from store.values.usage import TOKEN_COUNTS
from store.values.usage_record import UsageRecord

SUMS = ("calls", *TOKEN_COUNTS, "cost_nanos", "upstream_nanos", "upstream_known_nanos")
COLUMNS = (*SUMS, *FIRST_BYTE)
MODEL_CHARS = 256
ENDPOINT_CHARS = 128
DAY_HOURS = 24
FAULTS_PER_DAY = 20

_COST, _UPSTREAM, _UPSTREAM_KNOWN = range(1 + len(TOKEN_COUNTS), len(SUMS))
_FIRST_BUCKET = len(SUMS)

Sums = dict[tuple[Any, ...], list[int]]


TABLES = tables.ROLLUPS
DAILY: tuple[tuple[Any, Any], ...] = (
    *(
        (tables.UsageByDay, tables.UsageByChannel),
        (tables.UsageByUser, tables.UsageByKey),
        (tables.UsageByGroup, tables.UsageByKey),
        (tables.UsageByCaller, tables.UsageByUser),
    ),
)
"""Roll-ups of days, each with the one that it is made from, in the order in which they are made."""


def add_records(db: peewee.Database, records: Sequence[UsageRecord]) -> None:
    """Add records to all roll-ups, inside the caller's transaction. Driver errors propagate."""
    facts = _gather(records)
    if not facts:
        return
    by_key: Sums = {}
    by_channel: Sums = {}
    by_day: Sums = {}
    by_user: Sums = {}
    by_group: Sums = {}
    by_caller: Sums = {}
    for (when, key_id, user, group, channel, *what), sums in facts.items():
        day, hour = when
        _add(by_key, (day, hour, key_id, user, *what, group), sums)
        _add(by_channel, (day, hour, channel, *what), sums)
    for (day, _, *names), sums in by_channel.items():
        _add(by_day, (day, *names), sums)
    for (day, _, key_id, user, model, outcome, *what, group), sums in by_key.items():
        _add(by_user, (day, user, key_id, group, outcome), sums)
        _add(by_group, (day, group, model, outcome, *what), sums)
    for (day, user, key_id, group, outcome), sums in by_user.items():
        counts = [sums[0] if outcome == name else 0 for name in OUTCOME_COUNTS]
        _add(by_caller, (day, user, key_id, group), sums[:_FIRST_BUCKET] + counts)
    # Rows in order of their key, so that concurrent writers wait for each other instead of
    # deadlocking.
    of_tables = (by_key, by_channel, by_day, by_user, by_group, by_caller)
    for table, keyed in zip(TABLES, of_tables, strict=True):
        insert_sums(db, _upsert(table)[is_mysql(db)], [(key, keyed[key]) for key in sorted(keyed)])
    rate_sums.add_records(db, records)


def _gather(records: Iterable[UsageRecord]) -> Sums:
    """Return the sums of records that no roll-up distinguishes. Runs for each call, so keep it
    fast."""
    facts: Sums = {}
    for record in records:
        call = record.call
        key = (
            _hour_of_block(record.id[:9]),
            call.key_id,
            call.user,
            call.group,
            record.channel or "",
            (call.model or "")[:MODEL_CHARS],
            record.outcome,
            call.endpoint[:ENDPOINT_CHARS],
            record.error_code or "",
        )
        sums = facts.get(key)
        if sums is None:
            sums = facts[key] = [0] * len(COLUMNS)
        sums[0] += 1
        sums[1:_COST] = map(add, sums[1:_COST], record.usage.summed)
        sums[_COST] += record.cost_nanos
        if record.upstream_nanos is not None:
            sums[_UPSTREAM] += record.upstream_nanos
            sums[_UPSTREAM_KNOWN] += record.cost_nanos
        if call.stream and record.ttft_ms is not None:
            sums[_FIRST_BUCKET + bisect_left(BOUNDS_MS, record.ttft_ms)] += 1
    return facts


def _add(found: Sums, key: tuple[Any, ...], sums: list[int]) -> None:
    sums_row = found.get(key)
    found[key] = sums if sums_row is None else list(map(add, sums_row, sums))


# 9 characters of an id cover 32 ms. An hour has exactly 112,500 of these blocks, so none crosses
# its end.
@functools.lru_cache(maxsize=4096)
def _hour_of_block(block: str) -> tuple[int, int]:
    at_ms = ulid_ms(block.ljust(ULID_CHARS, "0"))
    return day_at(at_ms), at_ms // HOUR_MS % DAY_HOURS


@functools.cache
def _upsert(table: Any) -> dict[bool, str]:
    """Return the SQL that adds sums to a row, or inserts it. Raw, for the writer."""
    key, columns = _key(table), columns_of(table)
    sums = {name: f'"{name}" + {{{name}}}' for name in columns}
    return database.upsert_texts(table._meta.table_name, (*key, *columns), key, sums)


def columns_of(table: Any) -> tuple[str, ...]:
    """Return the names of the columns that a roll-up sums up."""
    return (*SUMS, *OUTCOME_COUNTS) if table is tables.UsageByCaller else COLUMNS


def _key(table: Any) -> tuple[str, ...]:
    """Return the columns that make a row's key."""
    names: tuple[str, ...] = table._meta.primary_key.field_names
    return names


def _names_beside_time(table: Any) -> tuple[str, ...]:
    return tuple(name for name in _key(table) if name not in ("day", "hour"))


def rebuild(db: peewee.Database) -> Iterator[int]:
    """Rebuild the roll-ups from the records, day by day. Yield each day (yyyymmdd) when it is done.

    Days without records and pruned days keep their sums. Gateways may write meanwhile: each step
    locks the rows of one hour (MySQL) or the file (SQLite). Idempotent.
    """
    for day in days_after(db, pruned_before(db) - 1):
        for hour in range(DAY_HOURS):
            _locking(db, functools.partial(_rebuild_hour, db, day, hour))
        for table, source in DAILY:
            _locking(db, functools.partial(_rebuild_day, db, day, table, source))
        _locking(db, functools.partial(rate_sums.rebuild_day, db, day))
        yield day
    transaction(db, functools.partial(rate_sums.note_rebuilt, db))
    complete_callers(db)


def complete_callers(db: peewee.Database, pause: Callable[[], None] = lambda: None) -> None:
    """Add to usage_by_caller the days from before the table was added, from usage_by_user, and note
    that it is complete. Calls `pause` after each day."""
    since, table = partitions.callers_since(db), tables.UsageByUser
    days = raw_rows(db, table.select(table.day).where(table.day < since).distinct())
    for (day,) in days:
        work = functools.partial(_rebuild_day, db, day, tables.UsageByCaller, table)
        _locking(db, work)
        pause()
    row = Version.delete().where(Version.name == CALLERS_SINCE)
    transaction(db, functools.partial(row.execute, db))


def _locking(db: peewee.Database, work: Callable[[], Result]) -> Result:
    # On MySQL, only REPEATABLE READ locks the gaps between the rows that a DELETE reads, so that no
    # writer adds a row to what is being rebuilt. The first plain SELECT, after the DELETE, sees
    # everything that was committed by then. Writers that wait for these locks add their sums later.
    return (snapshot_read if is_mysql(db) else transaction)(db, work)


def _rebuild_hour(db: peewee.Database, day: int, hour: int) -> None:
    at_ms = day_begin_ms(day) + hour * HOUR_MS
    first, end = first_ulid(at_ms), first_ulid(at_ms + HOUR_MS)
    begun = (UsageRow.day == day) & (UsageRow.id >= first) & (UsageRow.id < end)
    hourly: tuple[Any, ...] = TABLES[:2]  # in the order of the writers
    for table in hourly:
        table.delete().where(table.day == day, table.hour == hour).execute(db)
    for table in hourly:
        sums_rows = _sums(db, UsageRow, table, begun)
        _insert(db, table, (day, hour), sums_rows)


def _rebuild_day(db: peewee.Database, day: int, table: Any, source: Any) -> None:
    table.delete().where(table.day == day).execute(db)
    sums_rows = _sums(db, source, table, source.day == day)
    _insert(db, table, (day,), sums_rows)


def _insert(db: peewee.Database, table: Any, when: tuple[int, ...], found: "_Found") -> None:
    if found:
        rows = [((*when, *names), sums) for names, sums in found.items()]
        insert_sums(db, _upsert(table)[is_mysql(db)], rows)


def verify(db: peewee.Database, since_day: int = 0) -> Iterator[str]:
    """Yield the differences between the roll-ups and the records of each day that has not been
    pruned, from `since_day` (yyyymmdd) on.

    One sentence each, at most FAULTS_PER_DAY a day and roll-up. Each day is read in one snapshot,
    so a running gateway does not disturb it. Memory: the sums of one day.
    """
    for day in days_after(db, max(pruned_before(db), since_day) - 1):
        yield from snapshot_read(db, functools.partial(_day_faults, db, day))


def _day_faults(db: peewee.Database, day: int) -> list[str]:
    faults = []
    rights: dict[tuple[str, ...], _Found] = {}
    incomplete = day < partitions.callers_since(db)
    for table in TABLES:
        names, name = _names_beside_time(table), table._meta.table_name
        if table is tables.UsageByCaller and incomplete:
            continue
        if names not in rights:  # two tables have the same key
            rights[names] = _sums(db, UsageRow, table, UsageRow.day == day)
        right, columns = rights[names], columns_of(table)
        stored_sums = _sums(db, table, table, table.day == day)
        wrong = sorted(
            key
            for key in right.keys() | stored_sums.keys()
            if right.get(key) != stored_sums.get(key)
        )
        faults += [
            f"{name} of {day}, {' '.join(key)}: "
            + _difference(columns, right.get(key), stored_sums.get(key))
            for key in wrong[:FAULTS_PER_DAY]
        ]
    if day >= rate_sums.exact_since(db):
        faults += rate_sums.day_faults(db, day, FAULTS_PER_DAY)
    return faults


_Found = dict[tuple[str, ...], tuple[int, ...]]


def _sums(db: peewee.Database, table: Any, of: Any, where: Any) -> _Found:
    """Return the sums of the roll-up `of`, computed from another roll-up or from the records."""
    names = _names_beside_time(of)
    by = [record_column(table, name).alias(f"by_{name}") for name in names]
    calls = fn.COUNT(SQL("*")) if table is UsageRow else fn.SUM(table.calls)
    totals = [calls, *(fn.SUM(summed_column(table, name)) for name in SUMS[1:])]
    if of is tables.UsageByCaller:
        totals += [fn.SUM(outcome_calls(table, name)) for name in OUTCOME_COUNTS]
    else:
        totals += first_byte_sums(table)
    query = table.select(*by, *totals).where(where).group_by(*(SQL(f"by_{name}") for name in names))
    width = len(names)
    return {row[:width]: tuple(map(int, row[width:])) for row in raw_rows(db, query)}


def outcome_calls(table: Any, outcome: str) -> Any:
    """Return the number of calls of one of OUTCOME_COUNTS, from a roll-up or the records."""
    if table is tables.UsageByCaller:
        return getattr(table, outcome)
    calls = peewee.Value(1) if table is UsageRow else table.calls
    return Case(None, [(table.outcome == outcome, calls)], 0)


def first_byte_sums(table: Any) -> list[Any]:
    """Return the summed buckets of FIRST_BYTE, of a roll-up or of the records."""
    if table is not UsageRow:
        return [fn.SUM(table._meta.fields[name]) for name in FIRST_BYTE]
    begun, sums = table.ttft_ms, []
    for low_ms, high_ms in zip((None, *BOUNDS_MS), (*BOUNDS_MS, None), strict=True):
        within = table.stream == True  # noqa: E712 - a column
        within &= begun.is_null(False) if low_ms is None else begun > low_ms
        within &= begun.is_null(False) if high_ms is None else begun <= high_ms
        sums.append(fn.SUM(Case(None, [(within, 1)], 0)))
    return sums


def summed_column(table: Any, name: str) -> Any:
    """Return the column that is summed up. For records, tokens of other modalities are added to
    their direction, and calls whose cost to the operator is unknown count as 0."""
    if table is not UsageRow:
        return getattr(table, name)
    if name == "upstream_nanos":
        return fn.COALESCE(table.upstream_nanos, 0)
    if name == "upstream_known_nanos":
        return Case(None, [(table.upstream_nanos.is_null(), 0)], table.cost_nanos)
    column, more = getattr(table, name), getattr(table, f"more_{name}", None)
    return column if more is None else column + more


def record_column(table: Any, name: str) -> Any:
    """Return a column as a roll-up has it, with empty texts for missing values of records."""
    column = getattr(table, name)
    if table is UsageRow and name in ("channel", "error_code"):
        return fn.COALESCE(column, "")
    if table is UsageRow and name == "endpoint":
        return fn.SUBSTR(column, 1, ENDPOINT_CHARS)
    if table is UsageRow and name == "model":
        return fn.SUBSTR(fn.COALESCE(column, ""), 1, MODEL_CHARS)
    return column


def _difference(
    columns: Sequence[str], right: tuple[int, ...] | None, said: tuple[int, ...] | None
) -> str:
    nothing = (0,) * len(columns)
    pairs = zip(columns, said or nothing, right or nothing, strict=True)
    return ", ".join(f"{name} {a}, by the records {b}" for name, a, b in pairs if a != b)
