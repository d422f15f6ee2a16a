"""Sums of all users' calls for the overview of administrators: spans, days, channels, refusals.

From roll-ups, and a few records found by index. Days are those of UTC.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import peewee

from store.calls.reading.sums import MONEY_SUMS, CallSums, SumsBar
from store.calls.rollups import DAY_HOURS
from store.calls.usage_queries import Filters
from store.calls.usage_stats import CLASSES, series
from store.channels import status
from store.channels.status import AVAILABLE, DEGRADED, DISABLED, DOWN, Status, worst
from store.channels.uptime import Slot, channel_days
from store.db.database import in_snapshot, select_rows
from store.db.tables.catalog import Channel
from store.db.tables.channels import FIRST_BYTE
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms

SPANS: Mapping[str, int] = {"today": 1, "7d": 7, "30d": 30}
"""Spans by name, in UTC days, today being the last."""

BEFORE_DAYS: Mapping[str, int] = {"today": 7, "7d": 7, "30d": 30}
"""The number of days between the start of a span and the start of the one it is compared with."""

SPAN_DAYS_MAX = max(SPANS.values())
CHANNELS_SHOWN = 9
_STATES = (DOWN, DEGRADED, AVAILABLE, DISABLED)


# ---- the spans -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpanSums:
    """The calls of a span. `charged_by_hour` is what was charged in it up to the last full hour,
    `before_by_hour` what was charged in the earlier span up to the same hour of its last day. Both
    are None before the first full hour of a day."""

    since_ms: int
    sums: CallSums
    charged_by_hour: int | None
    before_by_hour: int | None

    @property
    def change(self) -> float | None:
        """Return the relative change of the charges, or None if it is unknown."""
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
        """Return the bars of a span: its days, or the hours of today."""
        return self.hours if SPANS[span] == 1 else self.days[-SPANS[span] :]


@in_snapshot
def overview_sums(db: peewee.Database, at_ms: int) -> OverviewSums:
    """Return the sums of all users' calls up to `at_ms`."""
    today_ms, hour_ms = at_ms - at_ms % DAY_MS, at_ms - at_ms % HOUR_MS
    first_ms = today_ms - (SPAN_DAYS_MAX - 1) * DAY_MS
    days = [SumsBar(at_ms=begin_ms) for begin_ms in range(first_ms, at_ms + 1, DAY_MS)]
    _fill(db, "day", Filters(since_ms=first_ms), days)
    earlier_ms = first_ms - max(BEFORE_DAYS.values()) * DAY_MS
    earlier = Filters(since_ms=earlier_ms, until_ms=first_ms)
    charged = dict.fromkeys(range(earlier_ms, first_ms, DAY_MS), 0)
    charged |= {day.at_ms: day.cost_nanos for day in days}
    for day, cost_nanos in series(db, ("day",), earlier, ("cost_nanos",)):
        charged[day_begin_ms(day)] = cost_nanos
    hours = [SumsBar(at_ms=today_ms + hour * HOUR_MS) for hour in range(DAY_HOURS)]
    _fill(db, "hour", Filters(since_ms=today_ms), hours)
    by_hour = {0: sum(hour.cost_nanos for hour in hours if hour.at_ms < hour_ms)}
    for ago in sorted({*BEFORE_DAYS.values()}) if hour_ms > today_ms else ():
        shift_ms = ago * DAY_MS
        part = Filters(since_ms=today_ms - shift_ms, until_ms=hour_ms - shift_ms)
        [(by_hour[ago],)] = series(db, (), part, ("cost_nanos",))
    compared = by_hour if hour_ms > today_ms else None
    spans = {name: _span(name, days, charged, compared) for name in SPANS}
    return OverviewSums(at_ms, spans, days, hours)


def _fill(db: peewee.Database, unit: str, filters: Filters, bars: Sequence[SumsBar]) -> None:
    """Add calls to the bars of their days or hours. Only bars of days get first bytes."""
    by_begin = {bar.at_ms: bar for bar in bars}
    first_bytes = FIRST_BYTE if unit == "day" else ()
    names = ("calls", *MONEY_SUMS, *first_bytes)
    for day, *rest in series(db, (unit, "outcome"), filters, names):
        hour = rest.pop(0) if unit == "hour" else 0
        if (bar := by_begin.get(day_begin_ms(day) + hour * HOUR_MS)) is not None:
            outcome, calls, cost, upstream, with_cost, *buckets = rest
            part = CallSums(calls, cost_nanos=cost, upstream_nanos=upstream, known_nanos=with_cost)
            setattr(part, outcome if outcome in CLASSES else "failed", calls)
            part.first_bytes = buckets or part.first_bytes
            bar.plus(part)


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
    model), its sums of a span, and the calls that reached it by day up to today."""

    name: str
    status: Status | None
    sums: CallSums
    days: Sequence[Slot] = ()

    @property
    def state(self) -> str:
        """Return the state, `disabled` for a channel without models."""
        return self.status.state if self.status else DISABLED

    @property
    def failed_share(self) -> float | None:
        """Return the failed part of the calls that reached the channel, over all days."""
        calls = sum(day.calls for day in self.days)
        return sum(day.failed for day in self.days) / calls if calls else None

    @property
    def failed_today(self) -> float | None:
        """Return the failed part of today's calls that reached the channel."""
        return self.days[-1].failed / self.days[-1].calls if self.days[-1].calls else None


@dataclass(frozen=True, slots=True)
class ChannelLines:
    """The first channels, those not up first, then the most expensive; and the number of the other
    channels by state."""

    lines: Sequence[ChannelLine]
    unlisted: Mapping[str, int]


@in_snapshot
def channel_lines(
    db: peewee.Database,
    at_ms: int,
    sums: Mapping[str, CallSums],
    limit: int = CHANNELS_SHOWN,
) -> ChannelLines:
    """Return the channels of the overview. `sums`: the sums of a span, by channel."""
    by_name: dict[str, list[Status]] = {}
    for of_model in status.of_channels(db, at_ms, figures=False):
        by_name.setdefault(of_model.name, []).append(of_model)
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
    """Return, for each channel by name, whether its cost to the operator is set."""
    query = Channel.select(Channel.name, Channel.cost_factor_ppm, Channel.cost)
    return {
        name: factor_ppm is not None or bool(cost)
        for name, factor_ppm, cost in select_rows(db, query)
    }
