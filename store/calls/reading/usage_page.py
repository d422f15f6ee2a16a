"""The page of calls for the Hub: some calls, the sums of all by hour or day, errors by code.

Two queries to the roll-ups and one to the records, however many calls there are. Sums for filters
that no roll-up has are read from the records, if that is no more than READ_AT_MOST.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from store.calls.reading.buckets import DAY, HOUR, Buckets, buckets
from store.calls.reading.search import newest_since
from store.calls.reading.sums import CallSums, SumsBar
from store.calls.usage_queries import Filters, Row, conditions, page, rows_where, with_user
from store.calls.usage_stats import Order, calls_to_read, stats
from store.db.database import in_snapshot
from store.db.tables.usage import UsageRow
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms

SHORT_MS = 3 * DAY_MS  # in longer spans a bar is a day
KIND_BARS = 12
READ_AT_MOST = 100_000  # records read for sums
SORTS: Mapping[str, Any] = {"cost": UsageRow.cost_nanos, "duration": UsageRow.duration_ms}
SORTED_AT_MOST = 20_000  # calls; more are not sorted
SEARCH_S = 0.15  # for the calls of one page; the script continues with the next page


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
    """The part of the calls on a page: at most `limit`, before the call `after`. `sort`, one of
    SORTS, is for the first page only."""

    limit: int
    after: str | None = None
    sort: str | None = None


@dataclass(frozen=True, slots=True)
class UsageView:
    """Some calls, and the sums of all. `bars` is None if the span is too long to be summed up with
    these filters. `last_ms`: the start of the last call before a span without calls. `sort`: the
    order of the rows, the greatest first (None: by time). `searched_ms`: only calls since then were
    searched, not older ones of the span. `coming`: the sums take long and follow later."""

    rows: list[Row]
    next: str | None
    bars: list[SumsBar] | None
    total: CallSums
    kinds: list[ErrorKind]
    unit_ms: int
    last_ms: int | None = None
    sort: str | None = None
    searched_ms: int | None = None
    coming: bool = False

    def with_sums(self, view: "UsageView | None") -> "UsageView":
        """Return the same calls with the sums of another view, or as `coming` if that is None."""
        if view is None:
            return replace(self, coming=True)
        return replace(view, rows=self.rows, next=self.next, last_ms=self.last_ms, sort=self.sort)

    @property
    def sortable(self) -> bool:
        """Return whether the calls are few enough to be sorted."""
        return self.bars is not None and self.total.calls <= SORTED_AT_MOST


def newest_calls(db: peewee.Database, filters: Filters) -> tuple[Filters, int | None]:
    """Return the filters for the calls that a search without an index reads, the newest of the
    span, and the time (ms) since which; None for the whole span."""
    searched_ms = newest_since(db, filters)
    if searched_ms is None:
        return filters, None
    return replace(filters, since_ms=max(searched_ms, filters.since_ms or 0)), searched_ms


@in_snapshot
def load_calls(
    db: peewee.Database, filters: Filters, at_ms: int, part: UsagePart, sums: UsageView | None
) -> UsageView:
    """Read the calls of a page. `sums` are those of all calls; without them the calls cannot be
    sorted."""
    view = UsageView([], None, None, CallSums(), [], HOUR_MS).with_sums(sums)
    if part.after is not None:
        following = page(db, filters, part.limit, part.after, SEARCH_S)
        return replace(view, rows=following.rows, next=following.next, coming=False)
    column = SORTS.get(part.sort or "")
    if column is not None and view.sortable:
        order = (column.desc(), UsageRow.id.desc())
        rows = rows_where(db, conditions(with_user(db, filters)), order, part.limit)
        return replace(view, rows=rows, sort=part.sort)
    first = page(db, filters, part.limit, None, SEARCH_S)
    last_ms = None if first.rows or first.next else last_before(db, filters, at_ms)
    return replace(view, rows=first.rows, next=first.next, last_ms=last_ms)


@in_snapshot
def load_sums(
    db: peewee.Database,
    filters: Filters,
    at_ms: int,
    error_codes: Sequence[str],
    zone: datetime.tzinfo = datetime.UTC,
) -> UsageView:
    """Read the sums of the first page, without its calls. `error_codes`: all codes that count as
    errors."""
    since_ms = filters.since_ms if filters.since_ms is not None else at_ms - 30 * DAY_MS
    until_ms = min(filters.until_ms or at_ms, at_ms)
    short = until_ms - since_ms <= SHORT_MS
    spans = buckets(since_ms, until_ms, HOUR if short else DAY, zone)
    unit = HOUR if spans.by_hour else DAY
    bars, total, kinds = None, CallSums(), list[ErrorKind]()
    if calls_to_read(db, (unit,), filters) <= READ_AT_MOST:
        ends = zip(spans.begins, spans.ends(), strict=True)
        bars = [SumsBar(at_ms=begin_ms, end_ms=end_ms) for begin_ms, end_ms in ends]
        total = _sum_up(stats(db, (unit,), filters, Order(first_bytes=True)), unit, bars, spans)
        if total.calls > total.ok + total.client_gone:
            if filters.error_code is None:
                filters = replace(filters, error_code=tuple(error_codes))
            kinds = _kinds(db, filters, spans)
    return UsageView([], None, bars, total, kinds, HOUR_MS if short else DAY_MS)


def _sum_up(
    rows: Sequence[Mapping[str, Any]], unit: str, bars: Sequence[SumsBar], spans: Buckets
) -> CallSums:
    total = CallSums()
    for row in rows:
        total.add(row)
        if (number := spans.index(_begin_ms(row[unit]))) is not None:
            bars[number].add(row)
    return total


def _begin_ms(text: str) -> int:
    """Return the start of an hour or a day as `stats` formats it."""
    if len(text) == 10:
        return day_begin_ms(int(text.replace("-", "")))
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def _kinds(db: peewee.Database, filters: Filters, spans: Buckets) -> list[ErrorKind]:
    """Return errors by code, those with the most calls first, without calls whose client left. In
    long spans the bars are UTC days, whatever the zone, to read fewer rows."""
    kinds: dict[str, ErrorKind] = {}
    unit, first_ms = spans.unit, spans.begins[0]
    for row in stats(db, ("error_code", "outcome", "model", unit), filters):
        if row["outcome"] == "client_gone":
            continue
        kind = kinds.setdefault(row["error_code"], ErrorKind(row["error_code"], row["outcome"]))
        kind.calls += row["calls"]
        kind.models.add(row["model"] or "")
        if (number := spans.index(max(first_ms, _begin_ms(row[unit])))) is not None:
            kind.bars[number * KIND_BARS // len(spans.begins)] += row["calls"]
    return sorted(kinds.values(), key=lambda kind: -kind.calls)


def last_before(db: peewee.Database, filters: Filters, at_ms: int) -> int | None:
    """Return the start of the last call before the span of the filters."""
    before = Filters(user=filters.user, until_ms=filters.since_ms or at_ms)
    rows = page(db, before, 1).rows
    return int(rows[0]["started_ms"]) if rows else None
