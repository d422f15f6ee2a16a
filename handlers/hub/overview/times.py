"""Lengths of time and days in the words of a page."""

from collections.abc import Mapping

from store.values.ids import DAY_MS, HOUR_MS

MINUTE_MS = 60_000


def countdown(words: Mapping[str, str], left_ms: int) -> str:
    """How long it is until a moment, in its two greatest units."""
    left_ms = max(0, left_ms)
    days, hours = left_ms // DAY_MS, left_ms % DAY_MS // HOUR_MS
    minutes = left_ms % HOUR_MS // MINUTE_MS
    if days:
        return words["home.days_hours"].format(days=days, hours=hours)
    return words["home.hours_minutes"].format(hours=hours, minutes=minutes)


def days_word(words: Mapping[str, str], days: float) -> str:
    """A number of days, to the day."""
    if days < 1:
        return words["home.less_than_a_day"]
    whole = round(days)
    return words["home.one_day"] if whole == 1 else words["home.days"].format(days=whole)


def day_text(day: int) -> str:
    """A UTC day (yyyymmdd) as 2026-11-24: it is no moment in the viewer's zone."""
    return f"{day // 10_000}-{day // 100 % 100:02d}-{day % 100:02d}"
