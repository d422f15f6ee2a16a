"""What the page of calls shows: one page of them, the sums of all by hour or day, errors by kind.

Two questions to the roll-ups and one to the records, whatever their number. Filters that no
roll-up knows are summed up in the records, if no more than READ_AT_MOST are gone through.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from handlers.hub.usage.asked import ERROR_CODES, Asked
from store.calls.reading.sums import CallSums
from store.calls.usage_queries import Filters, Row, conditions, page, rows_where, with_user
from store.calls.usage_stats import Order, calls_to_read, stats
from store.db.tables.usage import UsageRow
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms

PAGE_ROWS, MORE_ROWS = 50, 100
HOURS_AT_MOST = 3 * 24  # beyond them a bar is a day
BARS_AT_MOST = 400
KINDS_SHOWN = 6
KIND_BARS = 12
READ_AT_MOST = 100_000  # records gone through for sums
SORTS: Mapping[str, Any] = {"cost": UsageRow.cost_nanos, "duration": UsageRow.duration_ms}
SORTED_AT_MOST = 20_000  # calls; of more the greatest are not looked for
SEARCH_S = 0.15  # for calls of one page; the script goes on with what is left


@dataclass(slots=True)
class Bar(CallSums):
    """Calls of an hour or a day."""

    at_ms: int = 0


@dataclass(slots=True)
class Kind:
    """Errors of one code: how many, of which models, when."""

    code: str
    outcome: str
    calls: int = 0
    models: set[str] = field(default_factory=set)
    bars: list[int] = field(default_factory=lambda: [0] * KIND_BARS)


@dataclass(frozen=True, slots=True)
class View:
    """What the page shows; `bars` None: not summed up for so long a time with these filters."""

    rows: list[Row]
    next: str | None
    bars: list[Bar] | None
    total: CallSums
    kinds: list[Kind]
    unit_ms: int
    last_ms: int | None = None  # of no calls in the span: when the last one before it began
    sort: str | None = None  # what the rows are sorted by, the greatest first; None: by time

    @property
    def sortable(self) -> bool:
        """Whether the greatest calls are told among so many."""
        return self.bars is not None and self.total.calls <= SORTED_AT_MOST


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of the calls is shown."""

    limit: int
    after: str | None = None
    sort: str | None = None


def load(db: peewee.Database, asked: Asked, at_ms: int, part: Part) -> View:
    """The page of these filters; of pages after the first one only the calls."""
    filters = asked.filters
    if part.after is not None:
        found = page(db, filters, part.limit, part.after, SEARCH_S)
        return View(found.rows, found.next, None, CallSums(), [], HOUR_MS)
    view = _summed_up(db, filters, at_ms)
    column = SORTS.get(part.sort or "")
    if column is not None and view.sortable:
        order = (column.desc(), UsageRow.id.desc())
        rows = rows_where(db, conditions(with_user(db, filters)), order, part.limit)
        return replace(view, rows=rows, sort=part.sort)
    found = page(db, filters, part.limit, None, SEARCH_S)
    last_ms = None if found.rows or found.next else _last_before(db, filters, at_ms)
    return replace(view, rows=found.rows, next=found.next, last_ms=last_ms)


def _summed_up(db: peewee.Database, filters: Filters, at_ms: int) -> View:
    """The sums of the page, without its calls."""
    since_ms = filters.since_ms if filters.since_ms is not None else at_ms - 30 * DAY_MS
    until_ms = min(filters.until_ms or at_ms, at_ms)
    span_ms = max(until_ms - since_ms, 1)
    unit_ms = HOUR_MS if span_ms <= HOURS_AT_MOST * HOUR_MS else DAY_MS
    name = "hour" if unit_ms == HOUR_MS else "day"
    bars, total, kinds = None, CallSums(), list[Kind]()
    if calls_to_read(db, (name,), filters) <= READ_AT_MOST:
        begins = range(since_ms - since_ms % unit_ms, max(until_ms, since_ms + 1), unit_ms)
        bars = [Bar(at_ms=at) for at in begins[-BARS_AT_MOST:]]
        total = _sum_up(stats(db, (name,), filters, Order(first_bytes=True)), name, bars)
        if total.calls > total.ok + total.client_gone:
            kinds = _kinds(db, filters, name, bars)
    return View([], None, bars, total, kinds, unit_ms)


def _sum_up(rows: Sequence[Mapping[str, Any]], name: str, bars: Sequence[Bar]) -> CallSums:
    total, places = CallSums(), {one.at_ms: one for one in bars}
    for row in rows:
        total.add(row)
        if bar := places.get(_begin_ms(row[name])):
            bar.add(row)
    return total


def _begin_ms(text: str) -> int:
    """The beginning of an hour or a day as `stats` names it."""
    if len(text) == 10:
        return day_begin_ms(int(text.replace("-", "")))
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def _kinds(db: peewee.Database, filters: Filters, name: str, bars: Sequence[Bar]) -> list[Kind]:
    """Errors by code, those with the most calls first; calls whose client left are no errors."""
    if filters.error_code is None:
        filters = replace(filters, error_code=ERROR_CODES)
    places = {one.at_ms: number for number, one in enumerate(bars)}
    kinds: dict[str, Kind] = {}
    for row in stats(db, ("error_code", "outcome", "model", name), filters):
        if row["outcome"] == "client_gone":
            continue
        kind = kinds.setdefault(row["error_code"], Kind(row["error_code"], row["outcome"]))
        kind.calls += row["calls"]
        kind.models.add(row["model"] or "")
        if (place := places.get(_begin_ms(row[name]))) is not None:
            kind.bars[place * KIND_BARS // len(bars)] += row["calls"]
    return sorted(kinds.values(), key=lambda kind: -kind.calls)


def _last_before(db: peewee.Database, filters: Filters, at_ms: int) -> int | None:
    """When the last call began before the span of nothing."""
    user = Filters(user=filters.user, until_ms=filters.since_ms or at_ms)
    rows = page(db, user, 1).rows
    return int(rows[0]["started_ms"]) if rows else None
