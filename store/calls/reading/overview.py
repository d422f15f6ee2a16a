"""Sums of everybody's calls for the overview of administrators: spans, days, channels, refusals.

From roll-ups, and a few records found by index. Days are those of UTC.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import peewee

from store.calls import usage_stats
from store.calls.reading.sums import CallSums, SumsBar, sum_of
from store.calls.usage_queries import Filters
from store.calls.usage_stats import Order
from store.channels import status
from store.channels.status import AVAILABLE, DEGRADED, DISABLED, DOWN, Status, worst
from store.channels.uptime import Slot, channel_days
from store.db.database import in_snapshot, select_rows
from store.db.tables.catalog import Channel
from store.values.ids import DAY_MS, HOUR_MS
from store.values.usage_record import rfc3339

SPANS: Mapping[str, int] = {"today": 1, "7d": 7, "30d": 30}
"""Spans by name: UTC days, today the last."""

BEFORE_DAYS: Mapping[str, int] = {"today": 7, "7d": 7, "30d": 30}
"""How many days before a span the one begins that it is compared with."""

SPAN_DAYS_MAX = max(SPANS.values())
CHANNELS_SHOWN = 9
_STATES = (DOWN, DEGRADED, AVAILABLE, DISABLED)
_MARGIN = Order(margin=True)


# ---- the spans -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpanSums:
    """The calls of a span; what was charged in it up to the last full hour, and in the span before
    up to the same hour of its last day (None: before the first full hour of a day)."""

    since_ms: int
    sums: CallSums
    charged_by_hour: int | None
    before_by_hour: int | None

    @property
    def change(self) -> float | None:
        """The change of the charges, as a part of those before; None: unknown."""
        now, before = self.charged_by_hour, self.before_by_hour
        return (now - before) / before if now is not None and before else None


@dataclass(frozen=True, slots=True)
class OverviewSums:
    """Spans by name, days up to today, and the hours of today."""

    at_ms: int
    spans: Mapping[str, SpanSums]
    days: Sequence[SumsBar]
    hours: Sequence[SumsBar]

    def bars(self, span: str) -> Sequence[SumsBar]:
        """Return the parts of a span: its days, or the hours of today."""
        return self.hours if SPANS[span] == 1 else self.days[-SPANS[span] :]


@in_snapshot
def overview_sums(db: peewee.Database, at_ms: int) -> OverviewSums:
    """Return the sums of everybody's calls up to a moment."""
    today_ms, hour_ms = at_ms - at_ms % DAY_MS, at_ms - at_ms % HOUR_MS
    first_ms = today_ms - (SPAN_DAYS_MAX - 1) * DAY_MS
    order = Order(margin=True, first_bytes=True)
    days = _bars(db, "day", Filters(since_ms=first_ms), order, range(first_ms, at_ms + 1, DAY_MS))
    earlier_ms = first_ms - max(BEFORE_DAYS.values()) * DAY_MS
    earlier = Filters(since_ms=earlier_ms, until_ms=first_ms)
    charged = {bar.at_ms: bar.cost_nanos for bar in days}
    for bar in _bars(db, "day", earlier, Order(), range(earlier_ms, first_ms, DAY_MS)):
        charged[bar.at_ms] = bar.cost_nanos
    hours = _bars(
        *(db, "hour", Filters(since_ms=today_ms), _MARGIN),
        range(today_ms, today_ms + DAY_MS, HOUR_MS),
    )
    by_hour = {0: sum(bar.cost_nanos for bar in hours if bar.at_ms < hour_ms)}
    for ago in sorted({*BEFORE_DAYS.values()}) if hour_ms > today_ms else ():
        shift_ms = ago * DAY_MS
        part = Filters(since_ms=today_ms - shift_ms, until_ms=hour_ms - shift_ms)
        by_hour[ago] = sum_of(db, part).cost_nanos
    spans = {
        name: _span(name, days, charged, by_hour if hour_ms > today_ms else None) for name in SPANS
    }
    return OverviewSums(at_ms, spans, days, hours)


def _bars(
    db: peewee.Database, unit: str, filters: Filters, order: Order, begins: range
) -> list[SumsBar]:
    bars = {begin_ms: SumsBar(at_ms=begin_ms) for begin_ms in begins}
    by_name = {rfc3339(begin_ms): bar for begin_ms, bar in bars.items()}
    for row in usage_stats.stats(db, (unit,), filters, order):
        name = row[unit] if unit == "hour" else f"{row[unit]}T00:00:00.000Z"
        if (bar := by_name.get(name)) is not None:
            bar.add(row)
    return list(bars.values())


def _span(
    name: str,
    days: Sequence[SumsBar],
    charged: Mapping[int, int],
    by_hour: Mapping[int, int] | None,
) -> SpanSums:
    count, ago = SPANS[name], BEFORE_DAYS[name]
    within, sums = days[-count:], CallSums()
    for day in within:
        sums.plus(day)
    if by_hour is None:
        return SpanSums(within[0].at_ms, sums, None, None)
    whole = [day.at_ms for day in within[:-1]]
    now = by_hour[0] + sum(charged[begin_ms] for begin_ms in whole)
    before = by_hour[ago] + sum(charged[begin_ms - ago * DAY_MS] for begin_ms in whole)
    return SpanSums(within[0].at_ms, sums, now, before)


# ---- the channels --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """A channel: the status of the model that an operator should look at first (None: it has no
    model), its sums of a span, and its days up to today: calls that reached it."""

    name: str
    status: Status | None
    sums: CallSums
    days: Sequence[Slot] = ()

    @property
    def state(self) -> str:
        """The state, `disabled` for a channel without models."""
        return self.status.state if self.status else DISABLED

    @property
    def failed_share(self) -> float | None:
        """The part that failed of the calls of all days that reached the channel."""
        calls = sum(day.calls for day in self.days)
        return sum(day.failed for day in self.days) / calls if calls else None

    @property
    def failed_today(self) -> float | None:
        """The same of today."""
        return self.days[-1].failed / self.days[-1].calls if self.days[-1].calls else None


@dataclass(frozen=True, slots=True)
class ChannelLines:
    """The first channels, those not up before the others and the dearest first; how many of the
    others are in each state."""

    lines: Sequence[ChannelLine]
    unlisted: Mapping[str, int]


@in_snapshot
def channel_lines(
    db: peewee.Database, at_ms: int, since_ms: int, limit: int = CHANNELS_SHOWN
) -> ChannelLines:
    """Return the channels of the overview with their sums since a moment."""
    by_name: dict[str, list[Status]] = {}
    for of_model in status.of_channels(db, at_ms, figures=False):
        by_name.setdefault(of_model.name, []).append(of_model)
    sums: dict[str, CallSums] = {}
    for row in usage_stats.stats(db, ("channel",), Filters(since_ms=since_ms), _MARGIN):
        sums.setdefault(row["channel"] or "", CallSums()).add(row)
    names = [name for (name,) in select_rows(db, Channel.select(Channel.name))]
    lines = [
        ChannelLine(name, worst(by_name.get(name, ())), sums.get(name, CallSums()))
        for name in names
    ]
    lines.sort(key=lambda line: (_STATES.index(line.state), -line.sums.cost_nanos, line.name))
    first = lines[:limit]
    days = channel_days(db, at_ms, [line.name for line in first])
    unlisted = Counter(line.state for line in lines[limit:])
    return ChannelLines([replace(line, days=days[line.name]) for line in first], unlisted)


def costs_set(db: peewee.Database) -> dict[str, bool]:
    """Return all channels by name, each with whether its cost to the operator is set."""
    query = Channel.select(Channel.name, Channel.cost_factor_ppm, Channel.cost)
    return {
        name: factor_ppm is not None or bool(cost)
        for name, factor_ppm, cost in select_rows(db, query)
    }
