"""The charts of the system page: everybody's calls, failures and first-byte times in the last 24
hours.

They use roll-ups, so the number of calls does not affect their cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import peewee

from handlers.hub.web.base import Page
from handlers.hub.web.charts import HOUR, Column
from handlers.hub.web.formats import address, count, seconds
from store.calls.reading.sums import CallSums
from store.calls.usage_queries import Filters
from store.calls.usage_stats import Order, stats
from store.db.database import database_ms
from store.values.ids import HOUR_MS
from store.values.usage_record import rfc3339

HOURS = 24
TICK_HOURS = 6
CHART_HEIGHT = 132

Values = Mapping[str, float | None]
"""The parts of a bar from the bottom up, by name. None: unknown."""


@dataclass(slots=True)
class Hour(CallSums):
    """Calls that started in an hour."""

    at_ms: int = 0


def last_hours(db: peewee.Database) -> list[Hour]:
    """Return the last HOURS hours, the current one last."""
    now_ms = database_ms(db)
    first_ms = now_ms - now_ms % HOUR_MS - (HOURS - 1) * HOUR_MS
    hours = [Hour(at_ms=first_ms + place * HOUR_MS) for place in range(HOURS)]
    by_begin = {rfc3339(hour.at_ms): hour for hour in hours}
    for row in stats(db, ("hour",), Filters(since_ms=first_ms), Order(first_bytes=True)):
        if hour := by_begin.get(row["hour"]):
            hour.add(row)
    return hours


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with one bar per hour. `tones`: the tones of a bar's parts."""

    name: str
    tones: Sequence[str]
    hours: Sequence[tuple[int, Values]]

    @property
    def parts(self) -> Sequence[str]:
        """Return the names of the parts."""
        return list(self.hours[0][1])

    def columns(self, page: Page) -> list[Column]:
        """Return the bars to draw; each links to the calls of its hour."""
        title = page.words[f"admin.chart_{self.name}_bar"]
        return [
            Column(
                parts=[value or 0 for value in values.values()],
                tick=HOUR if place % TICK_HOURS == 0 else "",
                title=title.format(
                    hour=page.time_text(at_ms, "clock"),
                    **{name: bar_text(value) for name, value in values.items()},
                ),
                href=address("/admin/usage", since=rfc3339(at_ms), until=rfc3339(at_ms + HOUR_MS)),
                at_ms=at_ms,
            )
            for place, (at_ms, values) in enumerate(self.hours)
        ]


def bar_text(value: float | None) -> str:
    """Return the value of a bar as text: a count of calls, or seconds."""
    return count(value) if value is None or isinstance(value, int) else seconds(value * 1000)


def charts_of(hours: Sequence[Hour]) -> list[Chart]:
    """Return the charts in the order of the page."""
    return [
        Chart("calls", ("c2",), [(hour.at_ms, {"calls": hour.calls}) for hour in hours]),
        Chart(
            "failures",
            ("warn", "bad"),
            [(hour.at_ms, {"refused": hour.refused, "failed": hour.failed}) for hour in hours],
        ),
        Chart("first_byte", ("c1",), [(hour.at_ms, {"p50": _p50_s(hour)}) for hour in hours]),
    ]


def _p50_s(hour: Hour) -> float | None:
    ms = hour.first_byte(50)
    return None if ms is None else ms / 1000
