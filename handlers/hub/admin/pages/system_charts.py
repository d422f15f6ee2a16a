"""The charts of the system page: calls, failures and first bytes of the last 24 hours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from handlers.hub.admin.api.hours import Hour
from handlers.hub.web.numbers import count, seconds
from handlers.hub.web.parts import Column
from store.values.ids import HOUR_MS
from store.values.usage_record import rfc3339

TICK_HOURS = 6
CHART_HEIGHT = 132

Values = Mapping[str, float | None]
"""The parts of a bar from below, by name; None: unknown."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars, one an hour; `tones` are those of their parts."""

    name: str
    tones: Sequence[str]
    hours: Sequence[tuple[int, Values]]

    @property
    def parts(self) -> Sequence[str]:
        """The names of the parts."""
        return list(self.hours[0][1])

    def columns(self, words: Mapping[str, str]) -> list[Column]:
        """The bars as they are drawn; each leads to the calls of its hour."""
        return [
            self._column(place, at_ms, values, words[f"admin.chart_{self.name}_bar"])
            for place, (at_ms, values) in enumerate(self.hours)
        ]

    def _column(self, place: int, at_ms: int, values: Values, told: str) -> Column:
        begun = rfc3339(at_ms)
        span = {"since": begun, "until": rfc3339(at_ms + HOUR_MS)}
        return Column(
            parts=[value or 0 for value in values.values()],
            tick=begun[11:13] if place % TICK_HOURS == 0 else "",
            title=told.format(
                hour=begun[11:16], **{name: written(value) for name, value in values.items()}
            ),
            href="/admin/usage?" + urlencode(span),
            at_ms=at_ms,
        )


def written(value: float | None) -> str:
    """A value of a bar: whole calls, or seconds."""
    return count(value) if value is None or isinstance(value, int) else seconds(value * 1000)


def charts_of(hours: Sequence[Hour]) -> list[Chart]:
    """All of them, in their order on the page."""
    return [
        Chart("calls", ("c2",), [(one.at_ms, {"calls": one.calls}) for one in hours]),
        Chart(
            "failures",
            ("warn", "bad"),
            [(one.at_ms, {"refused": one.refused, "failed": one.failed}) for one in hours],
        ),
        Chart("first_byte", ("c1",), [(one.at_ms, {"p50": _p50_s(one)}) for one in hours]),
    ]


def _p50_s(hour: Hour) -> float | None:
    ms = hour.first_byte(50)
    return None if ms is None else ms / 1000
