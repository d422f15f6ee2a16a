"""Usage by groups for the Hub: sums by day, model, user and so on, for a span and the span before
it, with a stack for each bucket of a chart.

From the roll-ups if one has the group and its filters, otherwise from at most READ_AT_MOST records.
The groups with the greatest sums have a row each; the others share one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from typing import Any

import peewee

from store.calls.reading.buckets import DAY, HOUR, Buckets, buckets, pieces
from store.calls.reading.sums import MIN_STREAMS, NamedSums
from store.calls.reading.usage_page import READ_AT_MOST, last_before
from store.calls.usage_queries import Filters
from store.calls.usage_stats import Order, calls_to_read, series, stats
from store.channels.figures import percentile
from store.db.database import in_snapshot, portions, select_rows
from store.db.tables.channels import FIRST_BYTE
from store.db.tables.users import ApiKey
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms
from store.values.usage import TOKEN_COUNTS

GROUPS = ("day", "model", "user", "key_id", "channel", "endpoint", "error_code")
ADMIN_GROUPS = ("user", "channel")
GROUPS_MAX = 200
COLOURED = 5
CHARTS: Mapping[str, Sequence[str]] = {
    "calls": (),
    "tokens": TOKEN_COUNTS,
    "cost": ("cost_nanos",),
    "margin": ("upstream_known_nanos", "upstream_nanos"),
    "first_byte": FIRST_BYTE,
}
"""The figures of the chart, each with the columns that it needs besides the calls."""


@dataclass(slots=True)
class GroupSums(NamedSums):
    """Calls of a group. `before_…` are the sums of the span before, `spark` the costs by day or
    hour, `begin_ms` and `end_ms` the span of a day, `label` the display name, `users` the users of
    a key."""

    before_nanos: int | None = None
    before_calls: int = 0
    spark: list[int] = field(default_factory=list)
    begin_ms: int | None = None
    end_ms: int | None = None
    label: str = ""
    users: set[str] = field(default_factory=set)

    def join(self, part: "GroupSums", sign: int = 1) -> None:
        """Add the sums of another group, including those of the span before."""
        self.plus(part, sign)
        if part.before_nanos is not None:
            self.before_nanos = (self.before_nanos or 0) + sign * part.before_nanos
            self.before_calls += sign * part.before_calls

    @property
    def change(self) -> float | None:
        """Return the relative change of the cost from the span before, or None if that had no
        cost."""
        before = self.before_nanos
        return (self.cost_nanos - before) / before if before else None

    @property
    def cached_share(self) -> float | None:
        """Return the part of the input that was read from a cache."""
        tokens = self.input + self.cached
        return self.cached / tokens if tokens else None


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a page: a dimension of GROUPS, the chart's figure and unit, the zone of days,
    the span to compare with, the order of the rows (a name of SORTS)."""

    by: str
    chart: str
    unit: str
    zone: tzinfo
    before: tuple[int, int] | None = None
    sort: str = "cost"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bucket of the chart: the calls, and a value (nanos, tokens, calls, ms; None: unknown) for
    each coloured group, then one for all other groups."""

    begin_ms: int
    end_ms: int
    calls: int
    values: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class GroupedUsage:
    """Groups for a page. `groups`: at most GROUPS_MAX, in order. `coloured`: the names of the
    groups with a colour, by rank. `more`: the number of groups that share `rest`. `total` is None
    if too many calls would have to be read. `last_ms`: the start of the last call before a span
    without calls."""

    groups: Sequence[GroupSums]
    coloured: Sequence[str | None]
    total: GroupSums | None
    rest: GroupSums | None = None
    more: int = 0
    bars: Sequence[Bar] = ()
    last_ms: int | None = None


SORTS: Mapping[str, Callable[[GroupSums], Any]] = {
    "cost": lambda sums: (sums.cost_nanos, sums.calls),
    "calls": lambda sums: sums.calls,
    "change": lambda sums: sums.change if sums.change is not None else float("-inf"),
    "success": lambda sums: sums.share or 0,
    "in": lambda sums: sums.input + sums.cached,
    "cached": lambda sums: sums.cached_share or 0,
    "out": lambda sums: sums.output,
    "first": lambda sums: sums.first_byte(50) or 0,
    "margin": lambda sums: sums.margin if sums.margin is not None else float("-inf"),
    "begin": lambda sums: sums.begin_ms or 0,
}
"""The possible sort orders of rows, the greatest first."""


@in_snapshot
def load_groups(
    db: peewee.Database, filters: Filters, at_ms: int, grouping: Grouping
) -> GroupedUsage:
    """Read the groups of the matching calls, their chart and the sums of the span before."""
    since_ms = filters.since_ms if filters.since_ms is not None else at_ms - 30 * DAY_MS
    filters = replace(filters, since_ms=since_ms)
    until_ms = min(filters.until_ms or at_ms, at_ms)
    by = "endpoint" if grouping.by == DAY else grouping.by  # any dimension with daily sums
    parts = pieces(filters)
    if sum(calls_to_read(db, (by,), part) for part in parts) > READ_AT_MOST:
        return GroupedUsage([], [], None)
    chart = buckets(since_ms, until_ms, grouping.unit, grouping.zone)
    if grouping.by == DAY:
        days = buckets(since_ms, until_ms, DAY, grouping.zone)
        groups = _days(db, filters, days, grouping.before)
    else:
        groups = _named(db, filters, grouping)
    total = _total(db, filters, groups)
    if not total.calls and not total.before_calls:
        return GroupedUsage([], [], total, last_ms=last_before(db, filters, at_ms))
    ranked = sorted(groups, key=SORTS["cost"], reverse=True)
    coloured = [] if grouping.by == DAY else [sums for sums in ranked[:COLOURED] if sums.name]
    order = sorted(groups, key=SORTS[grouping.sort], reverse=True)
    rows, more, rest = order[:GROUPS_MAX], len(order) - GROUPS_MAX, None
    if grouping.by != DAY:
        # For the rows alone, since these columns are most of the work.
        of_rows = _of_groups(filters, by, rows) if more > 0 else filters
        if grouping.sort != "first":
            _add_first_bytes(db, of_rows, by, rows)
        _add_sparks(db, of_rows, until_ms, by, rows)
    if more > 0:
        rest = GroupSums()
        rest.join(total)
        for sums in rows:
            rest.join(sums, -1)
    _add_labels(db, grouping.by, rows)
    bars = _bars(db, filters, chart, grouping, coloured)
    if coloured and len(coloured) == len(groups):  # no other groups
        bars = [replace(bar, values=bar.values[: len(coloured)]) for bar in bars]
    names = [sums.name for sums in coloured]
    return GroupedUsage(rows, names, total, rest, max(more, 0), bars)


def _named(db: peewee.Database, filters: Filters, grouping: Grouping) -> list[GroupSums]:
    by, groups = grouping.by, dict[str, GroupSums]()
    for part in pieces(filters):
        order = Order(first_bytes=grouping.sort == "first", margin=True)
        # A key is read with its users, since the sums of days are indexed by user.
        for row in stats(db, ("user", by) if by == "key_id" else (by,), part, order):
            name = row[by] or ""
            sums = groups.setdefault(name, GroupSums(name=name))
            sums.add(row)
            sums.users.add(row.get("user") or "")
    if grouping.before is not None:
        since_ms, until_ms = grouping.before
        for part in pieces(replace(filters, since_ms=since_ms, until_ms=until_ms)):
            for name, cost_nanos, calls in series(db, (by,), part, ("cost_nanos", "calls")):
                sums = groups.setdefault(name or "", GroupSums(name=name or ""))
                sums.before_nanos = (sums.before_nanos or 0) + cost_nanos
                sums.before_calls += calls
    return list(groups.values())


def _of_groups(filters: Filters, by: str, groups: Sequence[GroupSums]) -> Filters:
    """Return the filters for the calls of some groups."""
    names: dict[str, Any] = {by: tuple(sums.name for sums in groups)}
    if by == "key_id" and filters.user is None:
        names["user"] = tuple(set[str]().union(*(sums.users for sums in groups)))
    return replace(filters, **names)


def _total(db: peewee.Database, filters: Filters, groups: Sequence[GroupSums]) -> GroupSums:
    """Return the sums of all groups. Those of the span before are the sum over the groups."""
    total = GroupSums()
    for part in pieces(filters):
        for row in stats(db, (), part, Order(first_bytes=True, margin=True)):
            total.add(row)
    for sums in groups:
        if sums.before_nanos is not None:
            total.before_nanos = (total.before_nanos or 0) + sums.before_nanos
            total.before_calls += sums.before_calls
    return total


def _add_first_bytes(
    db: peewee.Database, filters: Filters, by: str, rows: Sequence[GroupSums]
) -> None:
    """Add the histograms of times to the first byte."""
    by_name = {sums.name: sums for sums in rows}
    for part in pieces(filters):
        for name, *histogram in series(db, (by,), part, FIRST_BYTE):
            if (sums := by_name.get(name or "")) is not None:
                pairs = zip(sums.first_bytes, histogram, strict=True)
                sums.first_bytes = [a + b for a, b in pairs]


def _days(
    db: peewee.Database, filters: Filters, days: Buckets, before: tuple[int, int] | None
) -> list[GroupSums]:
    """Return the sums of each day, as groups. `before`: the span whose days they are compared
    with."""
    ends = zip(days.begins, days.ends(), strict=True)
    groups = [GroupSums(name=str(begin), begin_ms=begin, end_ms=end) for begin, end in ends]
    unit = HOUR if days.by_hour else DAY
    for part in [filters] if days.by_hour else pieces(filters):
        for row in stats(db, (unit,), part, Order(first_bytes=True, margin=True)):
            index = days.index(_begin_ms(row[unit]))
            if index is not None:
                groups[index].add(row)
    if before is not None:
        for day, hour, cost_nanos, calls in series(
            db, (HOUR,), replace(filters, since_ms=before[0], until_ms=before[1]), _BEFORE
        ):
            offset_ms = day_begin_ms(day) + int(hour) * HOUR_MS - before[0]
            index = days.index(days.begins[0] + offset_ms)
            if index is not None:
                sums = groups[index]
                sums.before_nanos = (sums.before_nanos or 0) + cost_nanos
                sums.before_calls += calls
    return groups


_BEFORE = ("cost_nanos", "calls")


def _begin_ms(text: str) -> int:
    day_ms = day_begin_ms(int(text[:10].replace("-", "")))
    return day_ms + int(text[11:13] or 0) * HOUR_MS


def _add_sparks(
    db: peewee.Database, filters: Filters, until_ms: int, by: str, rows: Sequence[GroupSums]
) -> None:
    """Add the costs of each UTC day, or of each hour in short spans. If there are no costs, and for
    errors, add the calls."""
    since_ms = filters.since_ms or 0
    long = until_ms - since_ms > 3 * DAY_MS
    unit = DAY if long else HOUR
    first_ms = since_ms + -since_ms % DAY_MS if long else since_ms
    spans = buckets(first_ms, until_ms, unit, UTC)
    whole = replace(filters, since_ms=first_ms, until_ms=spans.end_ms if filters.until_ms else None)
    by_name = {sums.name: sums for sums in rows}
    for sums in rows:
        sums.spark = [0] * len(spans.begins)
    costs = by != "error_code" and any(sums.cost_nanos for sums in rows)
    name = "cost_nanos" if costs else "calls"
    for *when, group, value in series(db, (unit, by), whole, (name,)):
        index, row = spans.index_of_row(when), by_name.get(group or "")
        if row is not None and index is not None:
            row.spark[index] += value


def _add_labels(db: peewee.Database, by: str, rows: Sequence[GroupSums]) -> None:
    """Set the display name of each group. A key's name differs from its id."""
    names: dict[str | None, str] = {}
    if by == "key_id":
        ids = [sums.name for sums in rows if sums.name]
        for portion in portions(ids):
            query = ApiKey.select(ApiKey.id, ApiKey.name).where(ApiKey.id << portion)
            names |= dict(select_rows(db, query))
    for sums in rows:
        sums.label = names.get(sums.name, sums.name or "")


def _bars(
    db: peewee.Database,
    filters: Filters,
    chart: Buckets,
    grouping: Grouping,
    coloured: Sequence[GroupSums],
) -> list[Bar]:
    unit = HOUR if chart.by_hour else DAY
    names = ("calls", *CHARTS[grouping.chart])
    width = len(names)
    whole = [[0] * width for _ in chart.begins]
    parts = [[[0] * width for _ in chart.begins] for _ in coloured]
    places = {sums.name: place for place, sums in enumerate(coloured)}

    def add(rows: Sequence[list[int]], when: Sequence[Any], sums: Sequence[int]) -> None:
        index = chart.index_of_row(when)
        if index is not None:
            rows[index][:] = [a + b for a, b in zip(rows[index], sums, strict=True)]

    for part in [filters] if chart.by_hour else pieces(filters):
        for row in series(db, (unit,), part, names):
            add(whole, row[:-width], row[-width:])
        if coloured:
            of_groups = _of_groups(part, grouping.by, coloured)
            for row in series(db, (unit, grouping.by), of_groups, names):
                if row[-width - 1] in places:
                    add(parts[places[row[-width - 1]]], row[: -width - 1], row[-width:])
    spans = zip(chart.begins, chart.ends(), strict=True)
    return [
        Bar(begin_ms, end_ms, whole[index][0], _values(grouping.chart, whole, parts, index))
        for index, (begin_ms, end_ms) in enumerate(spans)
    ]


def _values(
    chart: str, whole: Sequence[Sequence[int]], parts: Sequence[Sequence[Sequence[int]]], index: int
) -> list[int | None]:
    """Return the value of each coloured group in a bucket, then that of all other groups."""
    of_groups = [rows[index] for rows in parts]
    if chart == "first_byte":
        return [_first_byte(sums[1:]) for sums in (of_groups or [whole[index]])]
    value = _AMOUNTS[chart]
    amounts = [value(sums) for sums in of_groups]
    return [*amounts, value(whole[index]) - sum(amounts)]


_AMOUNTS: Mapping[str, Callable[[Sequence[int]], int]] = {
    "calls": lambda sums: sums[0],
    "tokens": lambda sums: sum(sums[1:]),
    "cost": lambda sums: sums[1],
    "margin": lambda sums: sums[1] - sums[2],
}


def _first_byte(buckets_: Sequence[int]) -> int | None:
    return percentile(buckets_, 50) if sum(buckets_) >= MIN_STREAMS else None
