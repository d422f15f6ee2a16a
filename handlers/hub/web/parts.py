"""Parts of pages that functions render: `{% module Name(…) %}` in a template.

docs/hub-parts.md shows each part. All text is escaped here; no other code marks text as safe.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from tornado.escape import xhtml_escape
from tornado.web import UIModule

from handlers.hub.web.icons import ICONS
from handlers.hub.web.strings import Plural
from handlers.hub.web.zones import UTC_MARK, viewer_text
from store.values.usage_record import rfc3339

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
LONG_NAME_CHARS = 48  # in a sentence; longer names are truncated
_BRACES = re.compile(r"(\{\w+(?::[^}]*)?\})")
_CODE = re.compile(r"`([^`]+)`")
_STRONG = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)


class Moment(UIModule):
    """A time in the viewer's time zone, with UTC in its title. While the zone is unknown, the time
    is in UTC, and the page's script replaces it by that of the browser's zone. `form`: auto (no
    date if today), time, clock (no seconds), date, weekday (with date and time), full (with
    milliseconds)."""

    def render(self, at_ms: int | None, form: str = "auto") -> str:
        if at_ms is None:
            return "–"
        stamp = rfc3339(at_ms)
        zone = getattr(self.handler, "zone", UTC)
        language: str = self.handler.language  # type: ignore[attr-defined]
        text = viewer_text(at_ms, form, zone, language)
        title = stamp.replace("T", " ").replace("Z", UTC_MARK)
        to_be_shown = f' data-form="{form}"' if zone is UTC else ""
        return f'<time datetime="{stamp}" title="{title}"{to_be_shown}>{text}</time>'


class Sentence(UIModule):
    """A sentence with values in braces. Values of type At become times, text between pairs of
    asterisks is strong, text between backticks is code, and long names are truncated."""

    def render(self, text: str, **values: Any) -> str:
        written = []
        for part in _BRACES.split(text):
            is_value = _BRACES.fullmatch(part)
            name, _, forms = part[1:-1].partition(":") if is_value else ("", "", "")
            value = values[name] if is_value else part
            if isinstance(value, At):
                written.append(Moment(self.handler).render(value.at_ms, value.form))
            elif is_value and len(str(value)) > LONG_NAME_CHARS:
                long = xhtml_escape(str(value))
                written.append(f'<span class="one-line" title="{long}">{long}</span>')
            else:
                words = xhtml_escape(format(Plural(value), forms) if forms else str(value))
                written.append(words if is_value else _CODE.sub(r"<code>\1</code>", words))
        return _STRONG.sub(r"<strong>\1</strong>", "".join(written))


@dataclass(frozen=True, slots=True)
class At:
    """A time within a sentence, in a form of Moment."""

    at_ms: int
    form: str = "auto"


class Icon(UIModule):
    """An icon. `label` names it if no text is next to it."""

    def render(self, name: str, label: str = "") -> str:
        _icons_of(self.handler)[name] = ICONS[name]
        role = f'role="img" aria-label="{xhtml_escape(label)}"' if label else 'aria-hidden="true"'
        title = f"<title>{xhtml_escape(label)}</title>" if label else ""
        return f'<svg class="icon" viewBox="0 0 16 16" {role}>{title}<use href="#i-{name}"/></svg>'


class IconSheet(UIModule):
    """The icons that the page uses and those that its scripts may use, at the end of the page."""

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
    """A state: its shape, its word, and a note in a lighter colour. `alone`: hide the word, except
    from screen readers and on hover."""

    def render(self, shape: str, word: str, note: Any = "", *, alone: bool = False) -> str:
        svg = Shape(self.handler).render(shape)
        text = xhtml_escape(word)
        if alone:
            hidden = f'<span class="hidden-text">{text}</span>'
            return f'<span class="state" title="{text}">{svg}{hidden}</span>'
        after = f" <small>{xhtml_escape(str(note))}</small>" if note not in ("", None) else ""
        return f'<span class="state {shape}">{svg}<b>{text}</b>{after}</span>'


class Shape(UIModule):
    """The shape of a state alone. The text next to it gives the meaning."""

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
    """A thin bar that shows how much of a whole is used; both numbers are next to it. `tone`: flow
    (a warning near the end; fully used is no failure), coin (money as a share), past (expired),
    plain."""

    def render(self, used: float, whole: float, tone: str = "flow", width: int = 120) -> str:
        part = min(max(float(used) / float(whole), 0.0), 1.0) if whole else 0.0
        kind = tone
        if tone == "flow" and part >= NEAR_SHARE:
            kind = "near"
        return (
            f'<svg class="level {kind}" viewBox="0 0 {width} 4" preserveAspectRatio="none"'
            f' width="{width}" height="4" aria-hidden="true">'
            f'<rect class="whole" width="{width}" height="4"/>'
            f'<rect class="part" width="{part * width:.1f}" height="4"/></svg>'
        )


class ShareBar(UIModule):
    """A thin bar that shows a value relative to the largest of a list, in the colour of money;
    `tone` flow if it is not money. The numbers are next to it, so the cell `td.share-bar` has no
    text."""

    def render(self, part: float, largest: float, tone: str = "coin") -> str:
        return Level(self.handler).render(part, largest, "plain" if tone == "flow" else tone)


class Monogram(UIModule):
    """Two letters in a square that stand for a vendor, instead of its logo and colours."""

    SIZE = 28

    def render(self, letters: str) -> str:
        middle, side = self.SIZE // 2, self.SIZE - 1
        return (
            f'<svg class="monogram" width="{self.SIZE}" height="{self.SIZE}" aria-hidden="true">'
            f'<rect x=".5" y=".5" width="{side}" height="{side}" rx="6.5"/>'
            f'<text x="{middle}" y="{middle + 4}" text-anchor="middle">{xhtml_escape(letters)}'
            "</text></svg>"
        )


_ALL = (*(Moment, Sentence, Icon, IconSheet, State, Shape, Copy, Level, ShareBar, Monogram),)
MODULES = {module.__name__: module for module in _ALL}
"""The modules that templates may use."""
