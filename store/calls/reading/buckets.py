"""Time spans of charts: hours, days and weeks of a zone, and the parts of a span that roll-ups
answer cheaply. Pure, except for `tells_days`, which asks the database how much it would have to
read."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import peewee

from store.calls.usage_queries import Filters
from store.calls.usage_stats import rows_to_sum
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms

HOUR, DAY, WEEK = "hour", "day", "week"
UNITS = (HOUR, DAY, WEEK)
BUCKETS_MAX = 400
LOCAL_DAYS_MAX = 31
"""The longest span whose days of a zone other than UTC are summed up from hours."""
HOUR_ROWS_MAX = 60_000
"""The most rows of hours that a page sums up. With more of them, days are those of UTC."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Consecutive spans: their starts in ms, and the end of the last one. `by_hour` is true if
    their sums are made from hours, false if from UTC days."""

    begins: Sequence[int]
    end_ms: int
    unit: str
    by_hour: bool

    def index(self, at_ms: int) -> int | None:
        """Return the index of the bucket that contains a time, or None."""
        if not self.begins or not self.begins[0] <= at_ms < self.end_ms:
            return None
        return bisect_right(self.begins, at_ms) - 1

    def index_of_row(self, row: Sequence[Any]) -> int | None:
        """Return the index of the bucket for a row of `usage_stats.series` by day or by hour."""
        hours = row[1] if self.by_hour else 0
        return self.index(day_begin_ms(row[0]) + int(hours) * HOUR_MS)

    def ends(self) -> list[int]:
        """Return the end of each bucket."""
        return [*self.begins[1:], self.end_ms]


def buckets(since_ms: int, until_ms: int, unit: str, zone: tzinfo) -> Buckets:
    """Return the buckets of a span: hours, or days and weeks (from Monday) of a zone. Only the
    newest BUCKETS_MAX."""
    if unit == HOUR:
        first_ms = since_ms - since_ms % HOUR_MS
        begins = list(range(first_ms, max(until_ms, since_ms + 1), HOUR_MS))
        return Buckets(begins[-BUCKETS_MAX:], begins[-1] + HOUR_MS, unit, by_hour=True)
    day = datetime.fromtimestamp(since_ms / 1000, zone).date()
    if unit == WEEK:
        day -= timedelta(day.weekday())
    step = timedelta(7 if unit == WEEK else 1)
    begins = [begin_of(day, zone)]
    while begins[-1] < max(until_ms, since_ms + 1):
        day += step
        begins.append(begin_of(day, zone))
    *newest, end_ms = begins[-BUCKETS_MAX - 1 :]
    return Buckets(newest, end_ms, unit, by_hour=zone is not UTC)


def begin_of(day: date, zone: tzinfo) -> int:
    """Return the start of a day of a zone, in ms."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)


def tells_days(
    db: peewee.Database, by: Sequence[str], filters: Filters, at_ms: int, zone: tzinfo
) -> bool:
    """Return whether days of a zone can be summed up from hours quickly: the zone's offset is whole
    hours, the span is short, and there are not too many rows. Always true for UTC."""
    since_ms, until_ms = filters.since_ms, filters.until_ms or at_ms
    if zone is UTC:
        return True
    if since_ms is None or until_ms - since_ms > (LOCAL_DAYS_MAX + 1) * DAY_MS:
        return False
    offsets = [datetime.fromtimestamp(ms / 1000, zone).utcoffset() for ms in (since_ms, until_ms)]
    if any(offset is None or offset % timedelta(hours=1) for offset in offsets):
        return False
    whole = replace(filters, since_ms=since_ms - since_ms % HOUR_MS, until_ms=None)
    return rows_to_sum(db, (HOUR, *by), whole, HOUR_ROWS_MAX) <= HOUR_ROWS_MAX


def pieces(filters: Filters) -> list[Filters]:
    """Split a span at UTC midnights: the hours before the first, whole days, the hours after the
    last. Each part uses its smallest roll-up, and together they are the span."""
    since_ms, until_ms = filters.since_ms, filters.until_ms
    if any(at_ms is not None and at_ms % HOUR_MS for at_ms in (since_ms, until_ms)):
        return [filters]
    first_ms = None if since_ms is None else since_ms + -since_ms % DAY_MS
    last_ms = None if until_ms is None else until_ms - until_ms % DAY_MS
    if first_ms is not None and last_ms is not None and first_ms > last_ms:
        return [filters]
    cuts = [(since_ms, first_ms), (first_ms, last_ms), (last_ms, until_ms)]
    return [
        replace(filters, since_ms=begin_ms, until_ms=end_ms)
        for place, (begin_ms, end_ms) in enumerate(cuts)
        if begin_ms != end_ms or (place == 1 and begin_ms is None)
    ]
