"""What the page of calls shows: one page of them, the sums of all by hour or day, errors by kind.

Two questions to the roll-ups and one to the records, whatever their number. Filters that no
roll-up knows are summed up in the records, and for no more than UNSUMMED_HOURS.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from handlers.hub.usage.asked import ERROR_CODES, Asked
from store.calls.usage_queries import Filters, Row, conditions, page, rows_where, with_user
from store.calls.usage_stats import Order, stats, told_by_sums
from store.channels.figures import percentile
from store.db.tables.channels import FIRST_BYTE
from store.db.tables.usage import UsageRow
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms
from store.values.pricing import format_money, parse_money

PAGE_ROWS, MORE_ROWS = 50, 100
HOURS_AT_MOST = 3 * 24  # beyond them a bar is a day
BARS_AT_MOST = 400
KINDS_SHOWN = 6
KIND_BARS = 12
UNSUMMED_HOURS = 25
SORTS: Mapping[str, Any] = {"cost": UsageRow.cost_nanos, "duration": UsageRow.duration_ms}
SORTED_AT_MOST = 20_000  # calls; of more the greatest are not looked for
SEARCH_S = 0.15  # for calls of one page; the script goes on with what is left
LEAST_STREAMS = 20  # for a percentile
TOKENS = {
    "input": ("input_tokens", "cache_write_tokens", "cache_write_1h_tokens"),
    "cached": ("cache_read_tokens",),
    "output": ("output_tokens", "reasoning_tokens"),
}


@dataclass(slots=True)
class Sums:
    """Calls of a span of time, summed up."""

    at_ms: int = 0
    calls: int = 0
    ok: int = 0
    refused: int = 0
    client_gone: int = 0
    failed: int = 0
    cost_nanos: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    first_bytes: list[int] = field(default_factory=lambda: [0] * len(FIRST_BYTE))

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a row of `stats`."""
        for name in ("calls", "ok", "refused", "client_gone", "failed"):
            setattr(self, name, getattr(self, name) + row[name])
        for name, columns in TOKENS.items():
            setattr(self, name, getattr(self, name) + sum(row[column] for column in columns))
        self.cost_nanos += parse_money(row["cost"])
        self.first_bytes = [
            a + b for a, b in zip(self.first_bytes, row["first_bytes"], strict=True)
        ]

    @property
    def cost(self) -> str:
        """Decimal text."""
        return format_money(self.cost_nanos)

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.cached + self.output

    @property
    def share(self) -> float | None:
        """The part that went well of all but those whose client left."""
        counted = self.calls - self.client_gone
        return self.ok / counted if counted else None

    def first_byte(self, percent: int) -> int | None:
        """A percentile, ms; None: too few streams."""
        enough = sum(self.first_bytes) >= LEAST_STREAMS
        return percentile(self.first_bytes, percent) if enough else None


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
    bars: list[Sums] | None
    total: Sums
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
        return View(found.rows, found.next, None, Sums(), [], HOUR_MS)
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
    bars, total, kinds = None, Sums(), list[Kind]()
    if told_by_sums((name,), filters) or span_ms <= UNSUMMED_HOURS * HOUR_MS:
        begins = range(since_ms - since_ms % unit_ms, max(until_ms, since_ms + 1), unit_ms)
        bars = [Sums(at) for at in begins[-BARS_AT_MOST:]]
        total = _sum_up(stats(db, (name,), filters, Order(first_bytes=True)), name, bars)
        if total.calls > total.ok + total.client_gone:
            kinds = _kinds(db, filters, name, bars)
    return View([], None, bars, total, kinds, unit_ms)


def _sum_up(rows: Sequence[Mapping[str, Any]], name: str, bars: Sequence[Sums]) -> Sums:
    total, places = Sums(), {one.at_ms: one for one in bars}
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


def _kinds(db: peewee.Database, filters: Filters, name: str, bars: Sequence[Sums]) -> list[Kind]:
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
