"""Sums of usage by day, model, user and so on, from the smallest roll-up that has the answer.

Queries that no roll-up answers (a status, a duration, a text, a user together with a channel, times
within an hour) are summed up from the records. The time for that grows with their number, and
pruned days are missing. For commands and the Hub.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

import peewee
from peewee import SQL, fn

from store.calls.rollups import DAY_HOURS, SUMS, first_byte_sums, outcome_calls, summed_column
from store.calls.usage_queries import IDS, Filters, conditions, matching, with_user
from store.db.database import dialect_text, is_mysql, portions, raw_rows
from store.db.partitions import callers_since
from store.db.tables import usage as tables
from store.db.tables.channels import FIRST_BYTE
from store.db.tables.usage import OUTCOME_COUNTS, UsageRow
from store.values.errors import Refused
from store.values.ids import DAY_MS, HOUR_MS, day_at, day_begin_ms
from store.values.pricing import format_money

DIMENSIONS = (
    *("hour", "day", "user", "key_id", "model", "channel", "outcome", "endpoint", "status"),
    *("group", "error_code"),
)
"""The dimensions of sums."""

CLASSES = ("ok", "refused", "client_gone", "failed")
"""Classes of outcomes whose calls are counted. `failed` is every outcome except the other three."""

MARGIN = ("upstream_cost", "cost_known", "margin")
"""The fields of the margin, over calls whose cost to the operator is known: that cost, what they
were charged, and the remaining part of the charges with 4 decimals (None: nothing was charged)."""

SORTS = ("cost", "calls")
"""The possible sort orders of rows, the greatest first."""

ROWS_MAX = 100_000

_TIMES = frozenset({"hour", "day", "since_ms", "until_ms"})
# peewee has no remainder operator.
_RECORD_HOUR = '(("started_ms" % 86400000) - ("started_ms" % 3600000)) / 3600000'
# The indexes in _sums of each of SORTS.
_COUNTED = OUTCOME_COUNTS  # the rest of the calls failed
_SUM_PLACES = {"calls": 0, "cost": len(_COUNTED) + SUMS.index("cost_nanos")}


@dataclass(frozen=True, slots=True)
class _Source:
    """A table with sums: the dimensions of its rows besides time, and the unit of its time."""

    table: Any
    names: frozenset[str]
    unit_ms: int


_CALLED = frozenset({"model", "outcome", "endpoint", "error_code"})
_SOURCES = (
    _Source(tables.UsageByDay, _CALLED | {"channel"}, DAY_MS),
    _Source(tables.UsageByGroup, _CALLED | {"group"}, DAY_MS),
    _Source(tables.UsageByCaller, frozenset({"user", "key_id", "group"}), DAY_MS),
    _Source(tables.UsageByUser, frozenset({"user", "key_id", "group", "outcome"}), DAY_MS),
    _Source(tables.UsageByChannel, _CALLED | {"channel"}, HOUR_MS),
    _Source(tables.UsageByKey, _CALLED | {"key_id", "user", "group"}, HOUR_MS),
)
_BY_USER = next(source for source in _SOURCES if source.table is tables.UsageByUser)
_RECORDS = _Source(UsageRow, frozenset(), 1)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of rows (of SORTS; None: by dimensions), and their number (None: all).
    `first_bytes` adds the histogram of the first bytes of streams, for `figures.percentile`.
    `margin` adds the operator's cost, which only administrators may see."""

    sort: str | None = None
    top: int | None = None
    first_bytes: bool = False
    margin: bool = False


def stats(
    db: peewee.Database, by: Sequence[str], filters: Filters, order: Order = Order()
) -> list[dict[str, Any]]:
    """Return sums of all matching calls, a row for each value of `by` (of DIMENSIONS), in its
    order.

    A row has the names of `by` (day as 2026-11-22, hour as RFC 3339, None if the calls have no
    value), calls, the CLASSES, the token counts and cost (decimal text), and MARGIN if requested.
    Raises Refused if there are more than ROWS_MAX rows and `order.top` does not limit them.
    """
    source = _complete_source(db, by, filters, histogram=order.first_bytes)
    if source is _RECORDS:
        filters = with_user(db, filters)
    columns, sums = _columns(db, source, by), _sums(db, source)
    if order.first_bytes:
        sums += first_byte_sums(source.table)
    terms = _conditions(source, filters)
    if _by_days(source, by):
        query, sums = _of_days(source.table, columns, sums, terms)
    else:
        query = source.table.select(*columns, *sums)
        query = query.where(*terms) if terms else query
    query = query.limit(min(order.top or ROWS_MAX + 1, ROWS_MAX + 1))
    if columns:
        greatest = [sums[_SUM_PLACES[order.sort]].desc()] if order.sort else []
        # By their aliases, since expressions with parameters would not be recognized as the
        # selected ones.
        groups = [SQL(column._alias) for column in columns]
        query = query.group_by(*groups).order_by(*greatest, *groups)
    rows = raw_rows(db, query)
    if len(rows) > ROWS_MAX:
        raise Refused([f"more than {ROWS_MAX} sums; choose fewer calls or group them by less"])
    return [_row(by, row, margin=order.margin) for row in rows if row[len(columns)]]


def series(
    db: peewee.Database, by: Sequence[str], filters: Filters, names: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return only the sums `names` (of SUMS and FIRST_BYTE), as tuples after the values of `by`. A
    day is yyyymmdd; an hour is the day and the hour of the day; no value is an empty text. In no
    particular order."""
    source = _complete_source(db, by, filters, histogram=not set(names).isdisjoint(FIRST_BYTE))
    if source is _RECORDS:
        filters = with_user(db, filters)
    columns, terms = _columns(db, source, by), _conditions(source, filters)
    histogram = {}
    if source.table is not tables.UsageByCaller:
        histogram = dict(zip(FIRST_BYTE, first_byte_sums(source.table), strict=True))
    sums = [
        histogram[name] if name in histogram else _sum(db, name, _summed(source, name))
        for name in names
    ]
    if _by_days(source, by):
        query, _ = _of_days(source.table, columns, sums, terms)
    else:
        query = source.table.select(*columns, *sums)
        query = query.where(*terms) if terms else query
    rows = raw_rows(db, query.group_by(*(SQL(column._alias) for column in columns)))
    kinds = len(columns)
    return [(*row[:kinds], *(int(value or 0) for value in row[kinds:])) for row in rows]


def rows_to_sum(db: peewee.Database, by: Sequence[str], filters: Filters, most: int) -> int:
    """Return the number of roll-up rows that these sums read, at most `most` + 1. Records are not
    counted; the result is then `most` + 1."""
    source = _complete_source(db, by, filters)
    if source is _RECORDS:
        return most + 1
    terms = _conditions(source, filters)
    query = source.table.select(SQL("1 AS one_row"))
    query = (query.where(*terms) if terms else query).limit(most + 1)
    [(rows,)] = raw_rows(db, peewee.Select([query.alias("r")], [fn.COUNT(SQL("*"))]))
    return int(rows)


def _summed(source: _Source, name: str) -> Any:
    if name == "calls" and source is _RECORDS:
        return peewee.Value(1)
    return summed_column(source.table, name)


def _by_days(source: _Source, by: Sequence[str]) -> bool:
    """Return whether the query sums up the sums of each day."""
    of_users = source.table is tables.UsageByUser
    return of_users and "day" not in by and bool({"user", "key_id"} & {*by[:1]})


def _of_days(
    table: Any, columns: Sequence[Any], sums: Sequence[Any], terms: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """Return the sums of the sums of each day. These come in the order of the table's key, which
    saves MariaDB a third of the time, since it looks up a group once a day and not for each row."""
    names = [column._alias for column in columns]
    parts = [column.alias(f"sum_{place}") for place, column in enumerate(sums)]
    days = table.select(*columns, *parts).group_by(table.day, table.user, *map(SQL, names))
    inner = (days.where(*terms) if terms else days).alias("days")
    outer = [fn.SUM(getattr(inner.c, part._alias)) for part in parts]
    chosen = [getattr(inner.c, name).alias(name) for name in names]
    return peewee.Select([inner], [*chosen, *outer]), outer


def hours_of(
    db: peewee.Database, by: Sequence[str], filters: Filters
) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return the starts of the first and the last hour with matching calls (ms), by the values of
    `by` (no value is an empty text). Needs `answerable_from_rollups(("hour", *by), filters)`."""
    daily, hourly = _complete_source(db, by, filters), _source_of(("hour", *by), filters)
    days = _ends(db, daily, by, filters, daily.table.day)
    border_days = {day for ends in days.values() for day in ends}
    hours: dict[tuple[str, ...], list[int]] = {}
    for portion in portions(sorted(border_days)):
        within = hourly.table.day << portion
        for kind, ends in _ends(
            db, hourly, ("day", *by), filters, hourly.table.hour, within
        ).items():
            begin_ms = day_begin_ms(int(kind[0]))
            hours.setdefault(kind[1:], []).extend(begin_ms + hour * HOUR_MS for hour in ends)
    return {kind: (min(begins), max(begins)) for kind, begins in hours.items()}


def _ends(
    db: peewee.Database, source: _Source, by: Sequence[str], filters: Filters, *more: Any
) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Return the least and the greatest value of a column, by the values of `by`."""
    column, *within = more
    columns = _columns(db, source, by)
    query = source.table.select(*columns, fn.MIN(column), fn.MAX(column))
    query = query.where(source.table.calls > 0, *_conditions(source, filters), *within)
    query = query.group_by(*(SQL(column._alias) for column in columns))
    return {tuple(kind): (first, last) for *kind, first, last in raw_rows(db, query)}


def answerable_from_rollups(by: Sequence[str], filters: Filters) -> bool:
    """Return whether roll-ups answer this query, however many calls there are."""
    return _source_of(by, filters) is not _RECORDS


def calls_to_read(db: peewee.Database, by: Sequence[str], filters: Filters) -> int:
    """Return the maximum number of records to read for these sums, or 0 if roll-ups or an index
    answer."""
    if answerable_from_rollups(by, filters) or any(
        getattr(filters, name) is not None for name in IDS
    ):
        return 0
    since_ms, until_ms = filters.since_ms, filters.until_ms
    indexed = Filters(
        user=with_user(db, filters).user,
        since_ms=None if since_ms is None else since_ms - since_ms % HOUR_MS,
        until_ms=None if until_ms is None else until_ms + -until_ms % HOUR_MS,
    )
    return sum(row["calls"] for row in stats(db, (), indexed))


def _complete_source(
    db: peewee.Database, by: Sequence[str], filters: Filters, *, histogram: bool = False
) -> _Source:
    """Return the smallest table that can answer this query and has all days of its span.
    `histogram`: it must have the first bytes, too."""
    source = _source_of(by, filters)
    if source.table is tables.UsageByCaller and (
        histogram or day_at(filters.since_ms or 0) < callers_since(db)
    ):
        return _BY_USER
    return source


def _source_of(by: Sequence[str], filters: Filters) -> _Source:
    set_filters = {
        field.name for field in fields(filters) if getattr(filters, field.name) is not None
    }
    needed = (set(by) | set_filters) - _TIMES
    finest = HOUR_MS if "hour" in by else DAY_MS
    key_alone = filters.key_id is not None and filters.user is None
    for source in _SOURCES:
        if source.table in (tables.UsageByCaller, tables.UsageByUser) and key_alone:
            continue  # these tables find a key only with its user
        bounds = (filters.since_ms or 0, filters.until_ms or 0)
        whole = all(at_ms % source.unit_ms == 0 for at_ms in bounds)
        if needed <= source.names and source.unit_ms <= finest and whole:
            return source
    return _RECORDS


def _conditions(source: _Source, filters: Filters) -> list[Any]:
    if source is _RECORDS:
        return conditions(filters)
    table = source.table
    chosen = [(name, getattr(filters, name)) for name in sorted(source.names)]
    terms = [matching(getattr(table, name), value) for name, value in chosen if value is not None]
    whole_days = source.unit_ms == DAY_MS
    # For hours, the second condition alone would be correct. The first is for the index.
    if (at_ms := filters.since_ms) is not None:
        day, hour = day_at(at_ms), at_ms // HOUR_MS % DAY_HOURS
        terms.append(table.day >= day)
        if not whole_days:
            terms.append((table.day > day) | (table.hour >= hour))
    if (at_ms := filters.until_ms) is not None:
        day, hour = day_at(at_ms), at_ms // HOUR_MS % DAY_HOURS
        terms.append(table.day < day if whole_days else table.day <= day)
        if not whole_days:
            terms.append((table.day < day) | (table.hour < hour))
    return terms


def _columns(db: peewee.Database, source: _Source, by: Sequence[str]) -> list[Any]:
    table = source.table
    columns: list[Any] = []
    for name in by:
        if name == "hour":
            columns += [
                table.day,
                SQL(dialect_text(db, _RECORD_HOUR)) if source is _RECORDS else table.hour,
            ]
        elif name in ("model", "channel", "error_code") and source is _RECORDS:
            columns.append(fn.COALESCE(getattr(table, name), ""))
        else:
            columns.append(getattr(table, name))
    return [column.alias(f"by_{place}") for place, column in enumerate(columns)]


def _sums(db: peewee.Database, source: _Source) -> list[Any]:
    table = source.table
    calls = peewee.Value(1) if source is _RECORDS else table.calls
    return [
        _sum(db, "calls", calls),
        *(_sum(db, name, outcome_calls(table, name)) for name in _COUNTED),
        *(_sum(db, name, summed_column(table, name)) for name in SUMS[1:]),
    ]


def _sum(db: peewee.Database, name: str, column: Any) -> Any:
    """Sum up a column. MySQL sums up integers as decimals. As floating-point numbers, which are
    exact up to 2**53, they take half the time, but money may exceed that."""
    if is_mysql(db) and not name.endswith("_nanos"):
        column = peewee.NodeList((column, SQL("+ 0e0")))
    return fn.SUM(column)


def _row(by: Sequence[str], row: Sequence[Any], *, margin: bool) -> dict[str, Any]:
    fields_: dict[str, Any] = {}
    values = iter(row)
    for name in by:
        value = next(values)
        if name == "day":
            fields_[name] = _date(value)
        elif name == "hour":
            fields_[name] = f"{_date(value)}T{int(next(values)):02d}:00:00.000Z"
        else:
            fields_[name] = None if value == "" else value
    for name in ("calls", *_COUNTED):
        fields_[name] = int(next(values))
    fields_["failed"] = fields_["calls"] - sum(fields_[name] for name in _COUNTED)
    for name in SUMS[1:]:
        fields_[name] = int(next(values))
    if buckets := [int(value) for value in values]:
        fields_["first_bytes"] = buckets
    fields_["cost"] = format_money(fields_.pop("cost_nanos"))
    upstream, charged = fields_.pop("upstream_nanos"), fields_.pop("upstream_known_nanos")
    if margin:
        fields_["upstream_cost"], fields_["cost_known"] = map(format_money, (upstream, charged))
        fields_["margin"] = f"{Decimal(charged - upstream) / charged:.4f}" if charged else None
    return fields_


def _date(day: int) -> str:
    return f"{day // 10_000}-{day // 100 % 100:02d}-{day % 100:02d}"
