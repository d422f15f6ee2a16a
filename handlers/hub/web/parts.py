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

from store.channels.uptime import Slot

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
"""The drawings of states: ok, warn, bad, idle (refused, disabled), gone (the client left), live
(running, waiting), none (not offered)."""

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
        text = f"{at:%Y-%m-%d %H:%M:%S}" if form in ("full", "time") else f"{at:%Y-%m-%d %H:%M}"
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f'<time datetime="{stamp}" data-form="{form}">{text} UTC</time>'


class Sentence(UIModule):
    """A sentence with values in its braces; those that are an At are shown as times, the words
    between two asterisks stand out."""

    def render(self, text: str, **values: Any) -> str:
        parts = _BRACES.split(text)
        written = []
        for index, part in enumerate(parts):
            value = values[part] if index % 2 else None
            if isinstance(value, At):
                written.append(Moment(self.handler).render(value.at_ms, value.form))
            else:
                written.append(xhtml_escape(str(value) if index % 2 else part))
        return _STRONG.sub(r"<strong>\1</strong>", "".join(written))


@dataclass(frozen=True, slots=True)
class At:
    """A moment within a sentence, in a form of Moment."""

    at_ms: int
    form: str = "auto"


class Icon(UIModule):
    """An icon; `label` names it when no word stands beside it."""

    def render(self, name: str, label: str = "") -> str:
        _icons_of(self.handler)[name] = ICONS[name]
        role = f'role="img" aria-label="{xhtml_escape(label)}"' if label else 'aria-hidden="true"'
        title = f"<title>{xhtml_escape(label)}</title>" if label else ""
        return f'<svg class="icon" viewBox="0 0 16 16" {role}>{title}<use href="#i-{name}"/></svg>'


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
    icons: dict[str, str] | None = getattr(handler, "icons_used", None)
    if icons is None:
        icons = handler.icons_used = {}
    return icons


class State(UIModule):
    """A state: shape, word, and what follows it in a lighter colour. `alone`: the word is only
    there for those who do not see the shape."""

    def render(self, shape: str, word: str, note: Any = "", *, alone: bool = False) -> str:
        svg = Shape(self.handler).render(shape)
        text = xhtml_escape(word)
        if alone:
            hidden = f'<span class="hidden-text">{text}</span>'
            return f'<span class="state" title="{text}">{svg}{hidden}</span>'
        after = f" <small>{xhtml_escape(str(note))}</small>" if note not in ("", None) else ""
        return f'<span class="state {shape}">{svg}<b>{text}</b>{after}</span>'


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
    """A thin bar of the used part of a whole; the two numbers stand beside it. `tone`: flow (turns
    to a warning near the end), coin (money as a share, no warning), past (expired)."""

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


class UptimeRow(UIModule):
    """A bar for each span, whose height and colour show the share of calls that succeeded. Bars of
    one kind are one path, and the whole is one link; a script adds the titles and links of single
    bars.

    `slots`: the spans, each with its calls that succeeded (`ok`), those that `failed`, `probes`,
    and its beginning; `step_ms`: the length of each.
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
        """Return the kind of a bar and its path; `share` None: no call in its span."""
        if probes_only and share is not None:  # its line is drawn within
            inner = BAR_WIDTH - 1
            return "probes", f"M{left + 0.5} 0.5h{inner}v{BAR_HEIGHT - 1}h-{inner}z"
        part, kind = UPTIME_LOWEST, "bad"
        if share is not None:
            steps = ((part, kind) for least, part, kind in UPTIME_STEPS if share >= least)
            part, kind = next(steps, (part, kind))
        height = UPTIME_FOOT if share is None else round(BAR_HEIGHT * part, 1)
        kind = "foot" if share is None else kind
        return kind, f"M{left} {BAR_HEIGHT - height:g}h{BAR_WIDTH}v{height:g}h-{BAR_WIDTH}z"


class Spark(UIModule):
    """A small chart beside its number: bars, in the colour of `tone` (warn, bad, or none)."""

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
    """A column of a bar chart: its parts from below, the tick under it (may be empty), the title on
    hover, the link to its rows. `at_ms`: the tick is the hour of this time in UTC, which the page's
    script shows in the browser's zone."""

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
        maximum = nice_above(max((sum(column.parts) for column in columns), default=0))
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
        bars = "".join(
            self._column(column, tones, (index * step, step), low, scale)
            for index, column in enumerate(columns)
        )
        return (
            f'<div class="chart" role="img" aria-label="{xhtml_escape(label)}">'
            f'<svg width="{self.LEFT}" height="{height}">{scale_words}</svg>'
            f'<svg class="plot" height="{height}">{lines}{bars}</svg></div>'
        )

    def _column(
        self,
        column: Column,
        tones: Sequence[str],
        position: tuple[float, float],
        low: float,
        scale: float,
    ) -> str:
        left, step = position
        bars, top = "", float(low)
        for value, tone in zip(column.parts, tones, strict=True):
            if (column_height := value * scale) > 0:
                top -= column_height
                bars += (
                    f'<rect class="fill-{tone}" x="{left + step * (1 - self.BAR_SHARE) / 2:.2f}%"'
                    f' y="{top:.1f}" width="{step * self.BAR_SHARE:.2f}%"'
                    f' height="{max(column_height - 0.6, 0.6):.1f}"/>'
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
    """Return the least of 1, 1.2, 1.6, 2, 3, 4, 6, 8 times a power of ten not below `value`."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (len(str(int(value))) - 1)
    while value < unit:
        unit /= 10
    return next(
        unit * step for step in (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10, 12) if unit * step >= value
    )


def tidy(value: float) -> str:
    """Format a value of a scale with no more digits than it needs."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


_ALL = (*(Moment, Sentence, Icon, IconSheet, State, Shape, Copy, Level, UptimeRow, Spark, Bars),)
MODULES = {module.__name__: module for module in _ALL}
"""The modules that templates may use."""


ICONS: Mapping[str, str] = {
    "home": "M2.5 7.2 8 2.5l5.5 4.7V13.5h-3.7V9.8H6.2v3.7H2.5z",
    "key": "M1.5 8a2.6 2.6 0 1 0 5.2 0 2.6 2.6 0 1 0-5.2 0M6.7 8h7.8v2.4M11.7 8v1.9",
    "status": "M2.5 13.5v-4M6.2 13.5V6M9.8 13.5v-9M13.5 13.5v-11",
    "usage": "M2.5 3.5h11M2.5 8h11M2.5 12.5h7",
    "wallet": "M2.5 4.5h9.3a1.7 1.7 0 0 1 1.7 1.7v5.6a1.7 1.7 0 0 1-1.7 1.7H4.2"
    "a1.7 1.7 0 0 1-1.7-1.7zM2.5 4.5l8-2v2M13.5 7.7h-2.6v2.6h2.6",
    "plug": "M5.5 1.8v3.4M10.5 1.8v3.4M3.5 5.2h9v2.3a4.5 4.5 0 0 1-9 0zM8 12v2.5",
    "users": "M6 7.5a2.4 2.4 0 1 0 0-4.8 2.4 2.4 0 1 0 0 4.8M1.7 13.3c0-2.4 1.9-3.8 4.3-3.8"
    "s4.3 1.4 4.3 3.8M10.7 3a2.4 2.4 0 0 1 0 4.4M12.2 9.8c1.3.5 2.1 1.7 2.1 3.5",
    "layers": "M8 2 14 5 8 8 2 5zM2 8l6 3 6-3M2 11l6 3 6-3",
    "box": "M8 1.8 13.5 4.7v6.6L8 14.2l-5.5-2.9V4.7zM2.5 4.7 8 7.6l5.5-2.9M8 7.6v6.6",
    "channels": "M2 5h2.5c3 0 3.5 6 6.5 6H14M12 9l2 2-2 2M2 11h2.2M9.3 5.6C9.8 5.2 10.3 5 11 5h3"
    "M12 3l2 2-2 2",
    "calendar": "M2.5 3.8h11v9.7h-11zM2.5 6.8h11M5.5 2v3M10.5 2v3",
    "ticket": "M2 4.5h12v2.2a1.3 1.3 0 0 0 0 2.6v2.2H2V9.3a1.3 1.3 0 0 0 0-2.6zM9.5 4.5v7",
    "log": "M4 2h8v12H4zM6.3 5.2h3.4M6.3 8h3.4M6.3 10.8h2",
    "gauge": "M2.3 12.5a6.2 6.2 0 1 1 11.4 0M8 9.8l2.6-3.5M8 9.8h.1",
    "more": "M2.5 4h11M2.5 8h11M2.5 12h11",
    "dots": "M3 8h.1M8 8h.1M13 8h.1",
    "copy": "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
    "check": "M3 8.5l3.2 3.2L13 5",
    "plus": "M8 3v10M3 8h10",
    "close": "M3.8 3.8l8.4 8.4M12.2 3.8l-8.4 8.4",
    "search": "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 1 0 0 9M10.3 10.3l3.4 3.4",
    "down": "M4 6l4 4 4-4",
    "up": "M4 10l4-4 4 4",
    "right": "M6 4l4 4-4 4",
    "columns": "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
    "download": "M8 2.5v8M4.7 7.3 8 10.5l3.3-3.2M2.5 13.5h11",
    "open": "M9.5 2.5h4v4M13.5 2.5 8 8M12 9.5v4H2.5V4h4",
    "warning": "M8 2.3 14.3 13.5H1.7zM8 6.5v3.2M8 11.6v.1",
    "info": "M8 14A6 6 0 1 0 8 2a6 6 0 1 0 0 12M8 7.3v3.4M8 5v.1",
    "lock": "M3.5 7h9v6.5h-9zM5.3 7V5a2.7 2.7 0 0 1 5.4 0v2",
    "link": "M6.7 9.3 9.3 6.7M7.3 4.8l1.4-1.4a2.8 2.8 0 0 1 3.9 3.9l-1.4 1.4M8.7 11.2l-1.4 1.4"
    "a2.8 2.8 0 0 1-3.9-3.9l1.4-1.4",
    "sun": "M8 10.7a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 1 0 0 5.4M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3"
    "M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
    "play": "M4.5 3v10l8-5z",
    "pause": "M5.5 3v10M10.5 3v10",
    "again": "M13 4v3.2H9.8M12.8 7.2A5 5 0 1 0 12.5 10",
}
"""The path of each, by its name."""
