"""Parts of pages that are written by a function: `{% module Name(…) %}` in a template.

docs/hub-parts.md shows each of them. All text is escaped here; nothing is marked as safe elsewhere.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tornado.escape import xhtml_escape
from tornado.web import UIModule

from handlers.hub.web.icons import ICONS

SHAPES: Mapping[str, str] = {
    "ok": '<circle cx="5" cy="5" r="4" fill="currentColor"/>',
    "warn": '<path d="M5 .6 9.8 9.4H.2z" fill="currentColor"/>',
    "bad": '<rect width="10" height="10" rx="1.5" fill="currentColor"/>'
    '<path class="cut" d="M3 3l4 4M7 3 3 7" stroke-width="1.5"/>',
    "idle": '<circle cx="5" cy="5" r="3.6" fill="none" stroke="currentColor" stroke-width="1.6"/>',
    "gone": '<circle cx="5" cy="5" r="3.6" fill="none" stroke="currentColor" stroke-width="1.4"/>'
    '<path d="M2.4 7.6 7.6 2.4" stroke="currentColor" stroke-width="1.4"/>',
    "live": '<circle cx="5" cy="5" r="3.8" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    '<path d="M5 1.2a3.8 3.8 0 0 0 0 7.6z" fill="currentColor"/>',
    "none": '<path d="M1.5 5h7" stroke="currentColor" stroke-width="1.4"/>',
}
"""What a state looks like: ok, warn, bad, idle (refused, switched off), gone (the client left),
live (running, waiting), none (not offered)."""

NEAR_SHARE = 0.8
UPTIME_STEPS = ((0.999, 1.0, "good"), (0.99, 0.8, "good"), (0.95, 0.6, "warn"))
UPTIME_LOWEST, UPTIME_FOOT = 0.3, 2
BAR_WIDTH, BAR_GAP, BAR_HEIGHT = 5, 1, 18
_BRACES = re.compile(r"\{(\w+)\}")
_STRONG = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)


class Moment(UIModule):
    """A time, in UTC; the page's script shows it in the browser's zone. `form`: auto (today without
    its date), time, clock (without seconds), date, weekday (with date and time), full (with
    milliseconds)."""

    def render(self, at_ms: int | None, form: str = "auto") -> str:
        if at_ms is None:
            return "–"
        at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
        shown = f"{at:%Y-%m-%d %H:%M:%S}" if form in ("full", "time") else f"{at:%Y-%m-%d %H:%M}"
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f'<time datetime="{stamp}" data-form="{form}">{shown} UTC</time>'


class Sentence(UIModule):
    """A sentence with values in its braces; those that are an At are shown as times, the words
    between two asterisks stand out."""

    def render(self, text: str, **values: Any) -> str:
        parts = _BRACES.split(text)
        written = []
        for place, part in enumerate(parts):
            value = values[part] if place % 2 else None
            if isinstance(value, At):
                written.append(Moment(self.handler).render(value.at_ms, value.form))
            else:
                written.append(xhtml_escape(str(value) if place % 2 else part))
        return _STRONG.sub(r"<strong>\1</strong>", "".join(written))


@dataclass(frozen=True, slots=True)
class At:
    """A moment within a sentence, in a form of Moment."""

    at_ms: int
    form: str = "auto"


class Icon(UIModule):
    """An icon; without a word beside it, `label` says what it means."""

    def render(self, name: str, label: str = "") -> str:
        _icons_of(self.handler)[name] = ICONS[name]
        said = f'role="img" aria-label="{xhtml_escape(label)}"' if label else 'aria-hidden="true"'
        title = f"<title>{xhtml_escape(label)}</title>" if label else ""
        return f'<svg class="icon" viewBox="0 0 16 16" {said}>{title}<use href="#i-{name}"/></svg>'


class IconSheet(UIModule):
    """The icons that the page has used, and those its scripts may: at the page's end."""

    SCRIPTED = ("check", "copy", "close")

    def render(self) -> str:
        used = dict.fromkeys((*_icons_of(self.handler), *self.SCRIPTED))
        symbols = "".join(
            f'<symbol id="i-{name}" viewBox="0 0 16 16"><path d="{ICONS[name]}"/></symbol>'
            for name in used
        )
        return f'<svg class="sheet-of-icons" aria-hidden="true">{symbols}</svg>'


def _icons_of(handler: Any) -> dict[str, str]:
    found: dict[str, str] | None = getattr(handler, "icons_used", None)
    if found is None:
        found = handler.icons_used = {}
    return found


class State(UIModule):
    """A state: shape, word, and what follows it in a lighter colour. `alone`: the word is only
    there for those who do not see the shape."""

    def render(self, shape: str, word: str, note: Any = "", *, alone: bool = False) -> str:
        svg = Shape(self.handler).render(shape)
        said = xhtml_escape(word)
        if alone:
            hidden = f'<span class="hidden-text">{said}</span>'
            return f'<span class="state" title="{said}">{svg}{hidden}</span>'
        after = f" <small>{xhtml_escape(str(note))}</small>" if note not in ("", None) else ""
        return f'<span class="state {shape}">{svg}<b>{said}</b>{after}</span>'


class Shape(UIModule):
    """The shape of a state alone: the words beside it say what it means."""

    def render(self, shape: str) -> str:
        return (
            f'<svg class="shape {shape}" viewBox="0 0 10 10" aria-hidden="true">'
            f"{SHAPES[shape]}</svg>"
        )


class Copy(UIModule):
    """A button that copies a text."""

    def render(self, text: str) -> str:
        words: Mapping[str, str] = self.handler.words  # type: ignore[attr-defined]
        label = xhtml_escape(words["copy"].format(what=text))
        return (
            f'<button type="button" class="copy" data-copy="{xhtml_escape(text)}"'
            f' title="{xhtml_escape(words["copy_short"])}" aria-label="{label}">'
            f"{Icon(self.handler).render('copy')}</button>"
        )


class Level(UIModule):
    """How much of a whole is used, as a thin bar; the two numbers stand beside it. `tone`: flow
    (turns to a warning near the end), coin (money as a share, no warning), past (expired)."""

    def render(self, used: float, whole: float, tone: str = "flow", width: int = 120) -> str:
        part = min(max(float(used) / float(whole), 0.0), 1.0) if whole else 0.0
        kind = tone
        if tone == "flow" and part >= NEAR_SHARE:
            kind = "over" if part >= 1 else "near"
        return (
            f'<svg class="level {kind}" viewBox="0 0 {width} 4" preserveAspectRatio="none"'
            f' width="{width}" height="4" aria-hidden="true">'
            f'<rect class="whole" width="{width}" height="4"/>'
            f'<rect class="part" width="{part * width:.1f}" height="4"/></svg>'
        )


@dataclass(frozen=True, slots=True)
class Span:
    """A span of an uptime bar: the share of calls that went well (None: no calls), how many there
    were, whether only probes, where its rows are, what is said on hover."""

    share: float | None
    title: str
    href: str = ""
    probes_only: bool = False


class Uptime(UIModule):
    """A bar for each span; its height says the share, its colour repeats it."""

    def render(self, spans: Sequence[Span], label: str) -> str:
        step = BAR_WIDTH + BAR_GAP
        bars = "".join(self._bar(place * step, span) for place, span in enumerate(spans))
        width = len(spans) * step
        return (
            f'<svg class="uptime" role="img" aria-label="{xhtml_escape(label)}" width="{width}"'
            f' height="{BAR_HEIGHT}" viewBox="0 0 {width} {BAR_HEIGHT}">{bars}</svg>'
        )

    def _bar(self, left: int, span: Span) -> str:
        height, kind = self._height(span)
        top = BAR_HEIGHT - height
        inset = 0.5 if kind == "probes" else 0
        rect = (
            f'<rect class="{kind}" x="{left + inset}" y="{top + inset:g}"'
            f' width="{BAR_WIDTH - 2 * inset:g}" height="{height - 2 * inset:g}">'
            f"<title>{xhtml_escape(span.title)}</title></rect>"
        )
        return (
            f'<a href="{xhtml_escape(span.href)}" tabindex="-1">{rect}</a>' if span.href else rect
        )

    @staticmethod
    def _height(span: Span) -> tuple[float, str]:
        if span.share is None:
            return UPTIME_FOOT, "foot"
        if span.probes_only:
            return BAR_HEIGHT, "probes"
        for least, part, kind in UPTIME_STEPS:
            if span.share >= least:
                return round(BAR_HEIGHT * part, 1), kind
        return round(BAR_HEIGHT * UPTIME_LOWEST, 1), "bad"


class UptimeRow(UIModule):
    """The same for tables with many of them: bars of one kind are one path, and the whole is one
    link. A script says on hover what a bar is, and leads to the rows of that one.

    `counts`: of each span how many calls went well, how many failed, how many were only probes.
    `since_ms`, `step_ms`: when the first one begins, how long each is.
    """

    def render(
        self,
        counts: Sequence[tuple[int, int, int]],
        times: tuple[int, int],
        href: str,
        label: str,
    ) -> str:
        step, paths = BAR_WIDTH + BAR_GAP, dict[str, str]()
        for place, (ok, failed, probes) in enumerate(counts):
            share = ok / (ok + failed) if ok + failed else 1.0 if probes else None
            kind, drawn = self._drawn(place * step, share, probes_only=not ok + failed)
            paths[kind] = paths.get(kind, "") + drawn
        bars = "".join(f'<path class="{kind}" d="{d}"/>' for kind, d in paths.items())
        packed = ",".join(f"{ok}/{failed}/{probes}" for ok, failed, probes in counts)
        width, since_ms, step_ms = len(counts) * step, *times
        return (
            f'<a class="bars-link" href="{xhtml_escape(href)}" aria-label="{xhtml_escape(label)}"'
            f' data-bars="{packed}" data-since="{since_ms}" data-step="{step_ms}">'
            f'<svg class="uptime" aria-hidden="true" width="{width}" height="{BAR_HEIGHT}"'
            f' viewBox="0 0 {width} {BAR_HEIGHT}" preserveAspectRatio="none">{bars}</svg></a>'
        )

    @staticmethod
    def _drawn(left: int, share: float | None, *, probes_only: bool) -> tuple[str, str]:
        height, kind = Uptime._height(Span(share, "", probes_only=probes_only))
        top, wide = BAR_HEIGHT - height, BAR_WIDTH
        if kind == "probes":  # its line is drawn within
            return kind, f"M{left + 0.5} 0.5h{wide - 1}v{BAR_HEIGHT - 1}h-{wide - 1}z"
        return kind, f"M{left} {top:g}h{wide}v{height:g}h-{wide}z"


class Spark(UIModule):
    """A small chart beside its number: bars, in the colour of `tone` (warn, bad, or none)."""

    WIDTH, HEIGHT = 72, 18

    def render(self, values: Sequence[float], tone: str = "") -> str:
        most = max(values, default=0) or 1
        step = self.WIDTH / max(len(values), 1)
        bars = "".join(
            f'<rect x="{place * step:.1f}" y="{self.HEIGHT - tall:.1f}"'
            f' width="{max(step - 1, 1):.1f}" height="{tall:.1f}"/>'
            for place, value in enumerate(values)
            if (tall := max(self.HEIGHT * value / most, 1.0 if value else 0.5))
        )
        return (
            f'<svg class="spark {tone}" width="{self.WIDTH}" height="{self.HEIGHT}"'
            f' viewBox="0 0 {self.WIDTH} {self.HEIGHT}" aria-hidden="true">{bars}</svg>'
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a bar chart: its parts from below, what stands under it (may be empty), what is
    said on hover, where its rows are. `at_ms`: the tick is the hour of this time in UTC, which the
    page's script shows in the browser's zone."""

    parts: Sequence[float]
    tick: str
    title: str
    href: str = ""
    at_ms: int | None = None


class Bars(UIModule):
    """Stacked bars of a chart that needs no script. `tones`: the class of each part (c1 … c6, warn,
    bad). Its plot grows with the page, its words do not."""

    LEFT, FOOT, TOP = 44, 18, 8
    BAR_SHARE = 0.78

    def render(
        self, columns: Sequence[Column], tones: Sequence[str], label: str, height: int = 200
    ) -> str:
        most = nice_above(max((sum(column.parts) for column in columns), default=0))
        low = height - self.FOOT
        scale = (low - self.TOP) / most
        marks = [(most * part, low - (low - self.TOP) * part) for part in (1, 0.5, 0)]
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
        drawn = "".join(
            self._column(column, tones, (place * step, step), low, scale)
            for place, column in enumerate(columns)
        )
        return (
            f'<div class="chart" role="img" aria-label="{xhtml_escape(label)}">'
            f'<svg width="{self.LEFT}" height="{height}">{scale_words}</svg>'
            f'<svg class="plot" height="{height}">{lines}{drawn}</svg></div>'
        )

    def _column(
        self,
        column: Column,
        tones: Sequence[str],
        place: tuple[float, float],
        low: float,
        scale: float,
    ) -> str:
        left, step = place
        bars, top = "", float(low)
        for value, tone in zip(column.parts, tones, strict=True):
            if (tall := value * scale) > 0:
                top -= tall
                bars += (
                    f'<rect class="fill-{tone}" x="{left + step * (1 - self.BAR_SHARE) / 2:.2f}%"'
                    f' y="{top:.1f}" width="{step * self.BAR_SHARE:.2f}%"'
                    f' height="{max(tall - 0.6, 0.6):.1f}"/>'
                )
        if bars:
            bars = f"<g><title>{xhtml_escape(column.title)}</title>{bars}</g>"
            if column.href:
                bars = f'<a href="{xhtml_escape(column.href)}" tabindex="-1">{bars}</a>'
        if column.tick:
            hour = "" if column.at_ms is None else f' data-hour="{column.at_ms}"'
            bars += (
                f'<text{hour} x="{left + step / 2:.2f}%" y="{low + self.FOOT - 3}"'
                f' text-anchor="middle">'
                f"{xhtml_escape(column.tick)}</text>"
            )
        return bars


def nice_above(value: float) -> float:
    """The least of 1, 1.2, 1.6, 2, 3, 4, 6, 8 times a power of ten that is not below `value`."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (len(str(int(value))) - 1)
    while value < unit:
        unit /= 10
    return next(
        unit * step for step in (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10, 12) if unit * step >= value
    )


def tidy(value: float) -> str:
    """A value of a scale: no more digits than it needs."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


_ALL = (
    *(Moment, Sentence, Icon, IconSheet, State, Shape, Copy, Level, Uptime, UptimeRow, Spark),
    Bars,
)
MODULES = {one.__name__: one for one in _ALL}
"""What templates may use."""
