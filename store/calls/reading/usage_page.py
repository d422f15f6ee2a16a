"""The page of calls for the Hub: some calls, the sums of all by hour or day, errors by code.

Two queries to the roll-ups and one to the records, whatever their number. Filters that no roll-up
knows are summed up from the records, if no more than READ_AT_MOST have to be read.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from store.calls.reading.sums import CallSums, SumsBar
from store.calls.usage_queries import Filters, Row, conditions, page, rows_where, with_user
from store.calls.usage_stats import Order, calls_to_read, stats
from store.db.tables.usage import UsageRow
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms

HOURS_AT_MOST = 3 * 24  # beyond them a bar is a day
BARS_AT_MOST = 400
KIND_BARS = 12
READ_AT_MOST = 100_000  # records read for sums
SORTS: Mapping[str, Any] = {"cost": UsageRow.cost_nanos, "duration": UsageRow.duration_ms}
SORTED_AT_MOST = 20_000  # calls; more are not sorted
SEARCH_S = 0.15  # for calls of one page; the script goes on with the following ones


@dataclass(slots=True)
class ErrorKind:
    """Errors of one code: their number, models and times."""

    code: str
    outcome: str
    calls: int = 0
    models: set[str] = field(default_factory=set)
    bars: list[int] = field(default_factory=lambda: [0] * KIND_BARS)


@dataclass(frozen=True, slots=True)
class UsagePart:
    """The part of the calls on a page: at most `limit`, before the call `after`; of the first page
    also the order, one of SORTS."""

    limit: int
    after: str | None = None
    sort: str | None = None


@dataclass(frozen=True, slots=True)
class UsageView:
    """Some calls, and the sums of all; `bars` None: not summed up for so long a time with these
    filters. `last_ms`: the begin of the last call before a span without any. `sort`: the order of
    the rows, the greatest first; None: by time."""

    rows: list[Row]
    next: str | None
    bars: list[SumsBar] | None
    total: CallSums
    kinds: list[ErrorKind]
    unit_ms: int
    last_ms: int | None = None
    sort: str | None = None

    @property
    def sortable(self) -> bool:
        """Tell whether the calls are few enough to be sorted."""
        return self.bars is not None and self.total.calls <= SORTED_AT_MOST


def load_usage(
    db: peewee.Database, filters: Filters, at_ms: int, part: UsagePart, error_codes: Sequence[str]
) -> UsageView:
    """Read the page of these filters; of pages after the first one only the calls. `error_codes`:
    all codes, of which errors are counted."""
    if part.after is not None:
        following = page(db, filters, part.limit, part.after, SEARCH_S)
        return UsageView(following.rows, following.next, None, CallSums(), [], HOUR_MS)
    view = _sums(db, filters, at_ms, error_codes)
    column = SORTS.get(part.sort or "")
    if column is not None and view.sortable:
        order = (column.desc(), UsageRow.id.desc())
        rows = rows_where(db, conditions(with_user(db, filters)), order, part.limit)
        return replace(view, rows=rows, sort=part.sort)
    first = page(db, filters, part.limit, None, SEARCH_S)
    last_ms = None if first.rows or first.next else _last_before(db, filters, at_ms)
    return replace(view, rows=first.rows, next=first.next, last_ms=last_ms)


def _sums(
    db: peewee.Database, filters: Filters, at_ms: int, error_codes: Sequence[str]
) -> UsageView:
    """Read the sums of the page, without its calls."""
    since_ms = filters.since_ms if filters.since_ms is not None else at_ms - 30 * DAY_MS
    until_ms = min(filters.until_ms or at_ms, at_ms)
    span_ms = max(until_ms - since_ms, 1)
    unit_ms = HOUR_MS if span_ms <= HOURS_AT_MOST * HOUR_MS else DAY_MS
    unit = "hour" if unit_ms == HOUR_MS else "day"
    bars, total, kinds = None, CallSums(), list[ErrorKind]()
    if calls_to_read(db, (unit,), filters) <= READ_AT_MOST:
        begins = range(since_ms - since_ms % unit_ms, max(until_ms, since_ms + 1), unit_ms)
        bars = [SumsBar(at_ms=begin_ms) for begin_ms in begins[-BARS_AT_MOST:]]
        total = _sum_up(stats(db, (unit,), filters, Order(first_bytes=True)), unit, bars)
        if total.calls > total.ok + total.client_gone:
            if filters.error_code is None:
                filters = replace(filters, error_code=tuple(error_codes))
            kinds = _kinds(db, filters, unit, bars)
    return UsageView([], None, bars, total, kinds, unit_ms)


def _sum_up(rows: Sequence[Mapping[str, Any]], unit: str, bars: Sequence[SumsBar]) -> CallSums:
    total, by_begin = CallSums(), {bar.at_ms: bar for bar in bars}
    for row in rows:
        total.add(row)
        if bar := by_begin.get(_begin_ms(row[unit])):
            bar.add(row)
    return total


def _begin_ms(text: str) -> int:
    """Return the begin of an hour or a day as `stats` names it."""
    if len(text) == 10:
        return day_begin_ms(int(text.replace("-", "")))
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def _kinds(
    db: peewee.Database, filters: Filters, unit: str, bars: Sequence[SumsBar]
) -> list[ErrorKind]:
    """Return errors by code, those with the most calls first; calls whose client left are none."""
    numbers = {bar.at_ms: number for number, bar in enumerate(bars)}
    kinds: dict[str, ErrorKind] = {}
    for row in stats(db, ("error_code", "outcome", "model", unit), filters):
        if row["outcome"] == "client_gone":
            continue
        kind = kinds.setdefault(row["error_code"], ErrorKind(row["error_code"], row["outcome"]))
        kind.calls += row["calls"]
        kind.models.add(row["model"] or "")
        if (number := numbers.get(_begin_ms(row[unit]))) is not None:
            kind.bars[number * KIND_BARS // len(bars)] += row["calls"]
    return sorted(kinds.values(), key=lambda kind: -kind.calls)


def _last_before(db: peewee.Database, filters: Filters, at_ms: int) -> int | None:
    """Return the begin of the last call before the span of the filters."""
    before = Filters(user=filters.user, until_ms=filters.since_ms or at_ms)
    rows = page(db, before, 1).rows
    return int(rows[0]["started_ms"]) if rows else None
