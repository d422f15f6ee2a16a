"""Formats of numbers, times and outcomes of calls on pages. Pure functions.

Templates call the formats of numbers by name. Texts of outcomes are `codes.outcome_…`, those of
error codes `codes.CODE`.
"""

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from handlers.hub.web.parts import At
from handlers.hub.web.zones import with_day_texts
from store.admin.kinds import ENTRIES
from store.values.ids import DAY_MS, HOUR_MS
from store.values.meters import TOKEN_METERS
from store.values.pricing import format_money

MINUS = "−"
UNKNOWN = "–"
WORDED_FIELDS = frozenset({"role", "order", "window", "limit_window", "family"})
ACTORS = ("cli", "upkeep")  # actors of the audit log other than users
MAX_SHOWN_CHARS = 300  # of a field's value
LIST_DECIMALS = 4
PRICE_DECIMALS = 3
THOUSAND, MILLION, BILLION = 10**3, 10**6, 10**9


def money(amount: str | Decimal | None, decimals: int | None = LIST_DECIMALS) -> str:
    """Format an amount given as decimal text: with 4 decimals in lists, with all decimals
    (`decimals` None) on the page of a call and in the ledger. Zero is "0", None is "–"."""
    if amount is None:
        return UNKNOWN
    value = Decimal(amount)
    if value == 0:
        return "0"
    if decimals is None:
        text = f"{abs(value):,f}"
    else:
        unit = Decimal(1).scaleb(-decimals)
        if abs(value) < unit / 2:
            return f"<{unit}"
        text = f"{abs(value):,.{decimals}f}"
    return MINUS + text if value < 0 else text


def price_word(text: str | None) -> str:
    """Format a price with three decimals, or with all of them if it has more."""
    if text is None:
        return UNKNOWN
    return money(text, PRICE_DECIMALS if len(text.partition(".")[2]) <= PRICE_DECIMALS else None)


def count(number: int | None) -> str:
    """Format an integer with thousands separators."""
    return UNKNOWN if number is None else f"{number:,}"


def brief(number: int | None) -> str:
    """Format an integer for summaries: 9.21 M, 52 k, 812."""
    if number is None:
        return UNKNOWN
    for unit, name in ((BILLION, "G"), (MILLION, "M")):
        if number >= unit:
            return f"{number / unit:.2f} {name}"
    return f"{number / THOUSAND:.0f} k" if number >= 10 * THOUSAND else f"{number:,}"


def seconds(ms: float | None) -> str:
    """Format milliseconds as seconds with 2 decimals."""
    return UNKNOWN if ms is None else f"{ms / 1000:,.2f}"


def milliseconds(ms: float | None) -> str:
    """Format a short time in ms, with 1 decimal below 10."""
    if ms is None:
        return UNKNOWN
    return f"{ms:.1f}" if ms < 10 else f"{ms:,.0f}"


def share(part: float | None) -> str:
    """Format a fraction as a percentage with 2 decimals, never rounded up to 100."""
    if part is None:
        return UNKNOWN
    percent = 100 * part
    return "99.99" if 99.99 < percent < 100 else f"{percent:.2f}"


def margin(text: str | None) -> str:
    """Format a margin as a percentage with 1 decimal."""
    return UNKNOWN if text is None else f"{Decimal(text) * 100:.1f}".replace("-", MINUS)


def text_of_size(size: int | None) -> str:
    """Format a number of bytes: 812 B, 1.4 MiB."""
    if size is None:
        return UNKNOWN
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def conditions(words: Mapping[str, str], when: Mapping[str, str | int]) -> str:
    """Return the conditions of a rate, or those under which a call was served, as text."""
    return ", ".join(
        words[f"meter.when_{name}"].format(value=count(value) if isinstance(value, int) else value)
        for name, value in when.items()
    )


def meter_unit(words: Mapping[str, str], meter: str) -> str:
    """Return the text for the unit of a meter's price. Empty for tokens (per million) and calls,
    whose units a page names once."""
    if meter in TOKEN_METERS or meter == "call":
        return ""
    return words.get(f"meter.per_{meter}", words["meter.per_use"])


def address(path: str, /, **fields: str) -> str:
    """Return a path with the non-empty fields as its query."""
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"{path}?{query}" if query else path


def entry_names(words: Mapping[str, str], entries: Collection[str]) -> str:
    """Return the names of the entries, or one word if these are all of them."""
    if set(entries) >= set(ENTRIES):
        return words["admin.all"]
    return ", ".join(words.get(f"keys.entry_{entry}", entry) for entry in entries) or UNKNOWN


def source_text(words: Mapping[str, str], text: str, language: str) -> str:
    """Return the source of prices, like `catalogue 2026-11-22`, in the page's language."""
    word, space, rest = text.partition(" ")
    word = words["prices.catalogue"] if word == "catalogue" else word
    return with_day_texts(f"{word}{space}{rest}", language)


def code_word(words: Mapping[str, str], code: str | None) -> str | None:
    """Return the text of an error code, or the code itself if it has no text. None without a
    code."""
    return words.get(f"codes.{code}", code) if code else None


def short_word(words: Mapping[str, str], code: str | None) -> str | None:
    """Return the short text of an error code, for narrow columns."""
    return words.get(f"codes.short_{code}") or code_word(words, code)


def actor_text(words: Mapping[str, str], actor: str) -> str:
    """Return an actor of the audit log as text. A command's actor is a user of the operating system
    instead of the Hub; upkeep's is its node."""
    prefix, _, name = actor.partition(":")
    return words[f"admin.actor_{prefix}"].format(name=name) if prefix in ACTORS and name else actor


def stored_actor(words: Mapping[str, str], text: str) -> str:
    """Return an actor as the audit log stores it, given the text of `actor_text`."""
    for prefix in ACTORS:
        before, _, after = words[f"admin.actor_{prefix}"].partition("{name}")
        if text.startswith(before) and text.endswith(after):
            return f"{prefix}:{text.removeprefix(before).removesuffix(after)}"
    return text


def duration_text(ms: int) -> str:
    """Format a duration in ms as people write it: 500 ms, 1.5 s."""
    return f"{ms} ms" if ms < 1000 else f"{Decimal(ms) / 1000:f} s"


def value_text(value: Any) -> str:
    """Return the value of a field as a short text."""
    if isinstance(value, dict):
        text = ", ".join(f"{name} = {value_text(inner)}" for name, inner in value.items()) or "{}"
    elif isinstance(value, list):
        text = ", ".join(map(value_text, value)) or "[]"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = "–" if value is None else str(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def field_text(words: Mapping[str, str], name: str, value: Any) -> str:
    """Return the value of an object's field as text, in the words of the object's form."""
    if isinstance(value, bool):
        return words["admin.yes" if value else "admin.no"]
    if name == "entries" and isinstance(value, list):
        return entry_names(words, value)
    if name in WORDED_FIELDS:
        return words.get(f"admin.o_{value}", value_text(value))
    return value_text(value)


_ALL = (
    *(value_text, field_text, actor_text),
    *(money, count, brief, seconds, milliseconds, share, margin, text_of_size),
    *(conditions, meter_unit, entry_names, source_text, format_money, At),
)
FUNCTIONS = {function.__name__: function for function in _ALL}
"""The functions that templates may call."""

_WAIT = re.compile(r"in (\d+) ?s\b")
_LEFT = re.compile(r": ([\d.]+[^,]*) is left, and it needs at least ([\d.]+.*?)\.(?: |$)")
STATE_SHAPES: Mapping[str, str] = {
    **{"available": "ok", "degraded": "warn", "down": "bad", "disabled": "idle"},
}
"""The shapes of the states of channels and models."""

OUTCOME_SHAPES: Mapping[str, str] = {
    "ok": "ok",
    "refused": "idle",
    "client_gone": "gone",
    "upstream_truncated": "warn",
    "drained": "live",
}
"""The shapes of outcomes other than plain failures; all others have `bad`."""


def shape_of(outcome: str) -> str:
    """Return the shape of an outcome, for the part State."""
    return OUTCOME_SHAPES.get(outcome, "bad")


def amounts_lacking(message: str | None) -> tuple[str, str] | None:
    """Return the amount that was left and the amount that a refused call needed, with their
    currency, from its message. None: the message has no amounts."""
    amounts = _LEFT.search(message or "")
    return (amounts[1], amounts[2]) if amounts else None


def failure_reason(words: Mapping[str, str], code: str | None, message: str | None) -> str | None:
    """Return the text of an error code, with the numbers in its message: the time to wait, or the
    money left and the money needed."""
    amounts = amounts_lacking(message)
    if amounts and (with_amounts := words.get(f"codes.{code}_left")):
        return with_amounts.format(left=amounts[0], needed=amounts[1])
    wait = _WAIT.search(message or "")
    if wait and (with_wait := words.get(f"codes.{code}_wait")):
        return with_wait.format(wait=wait[1])
    return code_word(words, code)


def is_upstream_fault(outcome: str) -> bool:
    """Return whether a call failed for another reason than its client or a rule of the gateway."""
    return outcome not in ("ok", "refused", "client_gone")


MINUTE_MS = 60_000


def countdown(words: Mapping[str, str], left_ms: int) -> str:
    """Return the remaining time as text, in its two largest units."""
    left_ms = max(0, left_ms)
    days, hours = left_ms // DAY_MS, left_ms % DAY_MS // HOUR_MS
    minutes = left_ms % HOUR_MS // MINUTE_MS
    if days:
        return words["home.days_hours"].format(days=days, hours=hours)
    return words["home.hours_minutes"].format(hours=hours, minutes=minutes)


def days_word(words: Mapping[str, str], days: float) -> str:
    """Return a number of days as text, rounded to whole days."""
    if days < 1:
        return words["home.less_than_a_day"]
    return words["home.days"].format(days=round(days))


def iso_day(day: int) -> str:
    """Format a UTC day (yyyymmdd) as 2026-11-24, as used in URLs and the store."""
    return f"{day // 10_000}-{day // 100 % 100:02d}-{day % 100:02d}"
