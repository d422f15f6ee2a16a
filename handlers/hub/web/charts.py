"""Charts of the pages: bars of days, sparklines, stacked columns, margins. SVG that needs no
script.

docs/hub-parts.md shows each chart. All text is escaped here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import NamedTuple

from tornado.escape import xhtml_escape
from tornado.web import UIModule

from handlers.hub.web.zones import local
from store.channels.uptime import Slot

UPTIME_STEPS = ((0.999, 1.0, "good"), (0.99, 0.8, "good"), (0.95, 0.6, "warn"))
UPTIME_LOWEST, UPTIME_FOOT = 0.3, 2
HOUR = "hour"  # the tick of a column that shows its hour
MAX_SMALL = 20  # below this, half of the scale's maximum may not be a whole number
LEAST_MAXIMUM = 0.001  # of a scale; there is no room for the labels of smaller values
BAR_WIDTH, BAR_GAP, BAR_HEIGHT = 5, 1, 18


class UptimeRow(UIModule):
    """A row with a bar for each time span, whose height and colour show the share of successful
    calls. All bars of one kind are one SVG path, and the row is one link. A script adds the titles
    and links of single bars.

    `slots`: the spans, each with its start and its numbers of successful calls (`ok`), failed calls
    (`failed`) and probes (`probes`). `step_ms`: the length of a span.
    """

    def render(self, slots: Sequence[Slot], step_ms: int, href: str, label: str) -> str:
        step, paths = BAR_WIDTH + BAR_GAP, dict[str, str]()
        counts = [(slot.ok, slot.failed, slot.probes) for slot in slots]
        for index, (ok, failed, probes) in enumerate(counts):
            share = ok / (ok + failed) if ok + failed else 1.0 if probes else None
            kind, path = self._path(index * step, share, probes_only=not ok + failed)
            paths[kind] = paths.get(kind, "") + path
        bars = "".join(f'<path class="{kind}" d="{d}"/>' for kind, d in paths.items())
        packed = ",".join(f"{ok}/{failed}/{probes}" for ok, failed, probes in counts)
        width, since_ms = len(counts) * step, slots[0].at_s * 1000
        return (
            f'<a class="bars-link" href="{xhtml_escape(href)}" aria-label="{xhtml_escape(label)}"'
            f' data-bars="{packed}" data-since="{since_ms}" data-step="{step_ms}">'
            f'<svg class="uptime" aria-hidden="true" width="{width}" height="{BAR_HEIGHT}"'
            f' viewBox="0 0 {width} {BAR_HEIGHT}" preserveAspectRatio="none">{bars}</svg></a>'
        )

    @staticmethod
    def _path(left: int, share: float | None, *, probes_only: bool) -> tuple[str, str]:
        """Return a bar's kind and path. `share` None: no calls in its span."""
        if probes_only and share is not None:  # its stroke is drawn inside the bar
            inner = BAR_WIDTH - 1
            return "probes", f"M{left + 0.5} 0.5h{inner}v{BAR_HEIGHT - 1}h-{inner}z"
        part, kind = UPTIME_LOWEST, "bad"
        if share is not None:
            steps = ((part, kind) for least, part, kind in UPTIME_STEPS if share >= least)
            part, kind = next(steps, (part, kind))
        height = UPTIME_FOOT if share is None else round(BAR_HEIGHT * part, 1)
        kind = "foot" if share is None else kind
        return kind, f"M{left} {BAR_HEIGHT - height:g}h{BAR_WIDTH}v{height:g}h-{BAR_WIDTH}z"


class MarginBar(UIModule):
    """A margin as a bar on either side of a zero line: profit to the right, loss to the left. GAIN
    and LOSS are the percentages that fill a side; a bar that exceeds them is drawn with a cut.
    `percent` None: unknown, only the zero line is drawn."""

    HEIGHT, ZERO_SHARE, GAIN, LOSS = 12, 0.34, 30.0, 15.0

    def render(self, percent: float | None, width: int = 64) -> str:
        zero, low = round(width * self.ZERO_SHARE), self.HEIGHT
        bar = ""
        if percent is not None and percent > 0:
            length = (width - zero) * min(percent / self.GAIN, 1.0)
            bar = f'<rect class="gain" x="{zero}" y="2" width="{length:.1f}" height="{low - 4}"/>'
        elif percent is not None and percent < 0:
            length = zero * min(-percent / self.LOSS, 1.0)
            bar = f'<rect class="loss" x="{zero - length:.1f}" y="2" width="{length:.1f}"'
            bar += f' height="{low - 4}"/>'
        if percent is not None and not -self.LOSS <= percent <= self.GAIN:
            at = width - 8 if percent > 0 else 4
            bar += f'<path class="cut" d="M{at} {low}l4-{low}"/>'
        return (
            f'<svg class="margin" width="{width}" height="{low}" viewBox="0 0 {width} {low}"'
            f' aria-hidden="true">{bar}<path class="zero" d="M{zero} 0v{low}"/></svg>'
        )


class Spark(UIModule):
    """A sparkline of bars next to its number, in the colour of `tone` (warn, bad, or none)."""

    WIDTH, HEIGHT = 72, 18

    def render(self, values: Sequence[float], tone: str = "") -> str:
        maximum = max(values, default=0) or 1
        step = self.WIDTH / max(len(values), 1)
        bars = "".join(
            f'<rect x="{index * step:.1f}" y="{self.HEIGHT - height:.1f}"'
            f' width="{max(step - 1, 1):.1f}" height="{height:.1f}"/>'
            for index, value in enumerate(values)
            if (height := max(self.HEIGHT * value / maximum, 1.0 if value else 0.5))
        )
        return (
            f'<svg class="spark {tone}" width="{self.WIDTH}" height="{self.HEIGHT}"'
            f' viewBox="0 0 {self.WIDTH} {self.HEIGHT}" aria-hidden="true">{bars}</svg>'
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a bar chart: its parts from the bottom up, the tick below it (may be empty), the
    title on hover, the link to its rows. A tick of HOUR becomes the hour of `at_ms` in the viewer's
    time zone. While the zone is unknown, the hour is in UTC, and the page's script replaces it by
    that of the browser's zone."""

    parts: Sequence[float]
    tick: str
    title: str
    href: str = ""
    at_ms: int | None = None


class Plot(NamedTuple):
    """The geometry of a column: its left edge and width in percent, the y of the baseline, and the
    pixels for one unit."""

    left: float
    step: float
    low: float
    scale: float


class Bars(UIModule):
    """Stacked bars, without a script. `tones`: the class of each part (c1 … c6, g1 … g6, warn,
    bad). The plot scales with the page; its text does not. `explore`: make the columns links that
    can be reached by keyboard and for which static/js/chart.js shows tooltips from the table
    `data-tip-rows`."""

    LEFT, FOOT, TOP = 44, 18, 8
    BAR_SHARE = 0.78

    def render(
        self,
        columns: Sequence[Column],
        tones: Sequence[str],
        label: str,
        height: int = 200,
        *,
        explore: bool = False,
    ) -> str:
        highest = max((self._top(column.parts) for column in columns), default=0)
        maximum = max(nice_above(highest), LEAST_MAXIMUM)
        if maximum < MAX_SMALL and all(
            part == int(part) for column in columns for part in column.parts
        ):
            maximum = max(2.0, 2 * math.ceil(maximum / 2))  # whole numbers on the scale of a count
        low = height - self.FOOT
        scale = (low - self.TOP) / maximum
        marks = [(maximum * part, low - (low - self.TOP) * part) for part in (1, 0.5, 0)]
        scale_words = "".join(
            f'<text x="{self.LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tidy(value)}</text>'
            for value, y in marks
        )
        lines = "".join(
            f'<line class="{"grid" if value else "base"}" x1="0" x2="100%" y1="{y:.1f}"'
            f' y2="{y:.1f}"/>'
            for value, y in marks
        )
        step = 100 / max(len(columns), 1)
        plot = Plot(0, step, low, scale)
        bars = "".join(
            self._column(column, tones, plot._replace(left=index * step))
            for index, column in enumerate(columns)
        )
        if explore:
            bars = bars.replace(' tabindex="-1"', "", 1)  # Tab reaches the first, arrows the rest
        return (
            f'<div class="chart" role="group"{" data-explore" if explore else ""}'
            f' aria-label="{xhtml_escape(label)}">'
            f'<svg width="{self.LEFT}" height="{height}">{scale_words}</svg>'
            f'<svg class="plot" height="{height}">{lines}{bars}'
            f"{self._over(columns, tones, plot)}</svg></div>"
        )

    @staticmethod
    def _top(parts: Sequence[float]) -> float:
        """Return the height of a column, in units of its values."""
        return sum(max(part, 0) for part in parts)

    def _over(self, columns: Sequence[Column], tones: Sequence[str], plot: Plot) -> str:
        """Return SVG that is drawn over the columns."""
        return ""

    def _parts(self, parts: Sequence[float], tones: Sequence[str], plot: Plot) -> str:
        """Return the SVG of a column's parts."""
        left, step, low, scale = plot
        bars, top = "", float(low)
        for value, tone in zip(parts, tones, strict=True):
            if (column_height := value * scale) > 0:
                top -= column_height
                bars += (
                    f'<rect class="fill-{tone}" x="{left + step * (1 - self.BAR_SHARE) / 2:.2f}%"'
                    f' y="{top:.1f}" width="{step * self.BAR_SHARE:.2f}%"'
                    f' height="{max(column_height - 0.6, 0.6):.1f}"/>'
                )
        return bars

    def _column(self, column: Column, tones: Sequence[str], plot: Plot) -> str:
        left, step, low, _ = plot
        bars = self._parts(column.parts, tones, plot)
        if any(column.parts):
            ground = (
                f'<rect class="under-pointer" x="{left:.2f}%" y="{self.TOP}" width="{step:.2f}%"'
                f' height="{low - self.TOP}"/>'
            )
            bars = f"<title>{xhtml_escape(column.title)}</title>{ground}{bars}"
            if column.href:
                bars = (
                    f'<a href="{xhtml_escape(column.href)}" tabindex="-1"'
                    f' aria-label="{xhtml_escape(column.title)}">{bars}</a>'
                )
            else:
                bars = f"<g>{bars}</g>"
        if column.tick:
            tick, hour = column.tick, ""
            if tick == HOUR and column.at_ms is not None:
                zone = getattr(self.handler, "zone", UTC)
                tick = f"{local(column.at_ms, zone):%H}"
                hour = f' data-hour="{column.at_ms}"' if zone is UTC else ""
            bars += (
                f'<text{hour} x="{left + step / 2:.2f}%" y="{low + self.FOOT - 3}"'
                f' text-anchor="middle">'
                f"{xhtml_escape(tick)}</text>"
            )
        return bars


class Lines(Bars):
    """A line for each tone over the columns, without bars. A value of 0 counts as missing and has
    no point."""

    @staticmethod
    def _top(parts: Sequence[float]) -> float:
        return max(parts, default=0)

    def _parts(self, parts: Sequence[float], tones: Sequence[str], plot: Plot) -> str:
        left, step, low, scale = plot
        points = ""
        for value, tone in zip(parts, tones, strict=True):
            if value:
                points += (
                    f'<circle class="fill-{tone}" cx="{left + step / 2:.2f}%"'
                    f' cy="{low - value * scale:.1f}" r="2.5"/>'
                )
        return points

    def _over(self, columns: Sequence[Column], tones: Sequence[str], plot: Plot) -> str:
        lines, low, scale = "", plot.low, plot.scale
        for place, tone in enumerate(tones):
            points = "".join(
                f"{'L' if index and columns[index - 1].parts[place] else 'M'}"
                f"{index + 0.5} {low - column.parts[place] * scale:.1f}"
                for index, column in enumerate(columns)
                if column.parts[place]
            )
            lines += f'<path class="line-{tone}" d="{points}" vector-effect="non-scaling-stroke"/>'
        width, height = max(len(columns), 1), low + self.FOOT
        return (
            f'<svg class="lines" width="100%" height="{height:g}" viewBox="0 0 {width} {height:g}"'
            f' preserveAspectRatio="none" aria-hidden="true">{lines}</svg>'
        )


def nice_above(value: float) -> float:
    """Return the smallest of 1, 1.2, 1.6, 2, 3, 4, 6, 8 times a power of ten that is at least
    `value`."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (len(str(int(value))) - 1)
    while value < unit:
        unit /= 10
    return next(
        unit * step for step in (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10, 12) if unit * step >= value
    )


def tidy(value: float) -> str:
    """Format a value of a scale with as few digits as possible."""
    for unit, name in ((10**9, "G"), (10**6, "M")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


_ALL = (*(UptimeRow, Spark, MarginBar, Bars, Lines),)
MODULES = {module.__name__: module for module in _ALL}
"""The modules that templates may use."""
