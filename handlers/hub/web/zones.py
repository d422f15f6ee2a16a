"""The viewer's time zone, which the pages' script stores in a cookie, and times formatted in it.

The forms are those of Moment in parts.py. static/js/time.js writes the same texts on pages that
were sent before the cookie was set.
"""

import functools
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

COOKIE = "zone"
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}", re.ASCII)
_ISO_DAY = re.compile(r"\b20\d\d-[01]\d-[0-3]\d\b", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ZH_WEEKDAYS = "一二三四五六日"
UTC_MARK = " UTC"


@functools.lru_cache(maxsize=64)
def zone_of(name: str | None) -> tzinfo:
    """Return the zone of a name like Europe/Berlin, or UTC if the name is missing or unknown."""
    if not name or not _NAME.fullmatch(name) or name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError):  # no such zone, or no time zone data on this machine
        return UTC


def zone_name(zone: tzinfo) -> str:
    """Return the name of a zone."""
    return zone.key if isinstance(zone, ZoneInfo) else "UTC"


def local(at_ms: int, zone: tzinfo) -> datetime:
    """Return a timestamp as a datetime in a zone."""
    return datetime.fromtimestamp(at_ms / 1000, zone)


def day_text(at: date, language: str, *, year: bool = False) -> str:
    """Return the date as text: 22 Nov, or with its year."""
    if language == "zh":
        return f"{at.year}年{at.month}月{at.day}日" if year else f"{at.month}月{at.day}日"
    text = f"{at.day} {_MONTHS[at.month - 1]}"
    return f"{text} {at.year}" if year else text


def utc_day_text(day: int, language: str) -> str:
    """Return a UTC day (yyyymmdd) as text, not converted to the viewer's zone: 22 Nov."""
    return _utc_day_text(date(day // 10_000, day // 100 % 100, day % 100), language)


def _utc_day_text(day: date, language: str) -> str:
    return day_text(day, language, year=day.year != datetime.now(UTC).year)


def with_day_texts(text: str, language: str) -> str:
    """Return a stored text like `catalogue 2026-11-22` with its dates formatted as on pages."""

    def day_of(match: re.Match[str]) -> str:
        try:
            return _utc_day_text(date.fromisoformat(match[0]), language)
        except ValueError:  # not a date
            return match[0]

    return _ISO_DAY.sub(day_of, text)


def weekday_text(at: datetime, language: str, *, short: bool = False) -> str:
    """Return the weekday and date as text: Friday 13 November, or Fri 13 Nov."""
    weekday = at.weekday()
    if language == "zh":
        return f"{day_text(at, language)}{'周' if short else '星期'}{_ZH_WEEKDAYS[weekday]}"
    if short:
        return f"{_WEEKDAYS[weekday][:3]} {day_text(at, language)}"
    return f"{_WEEKDAYS[weekday]} {at.day} {at:%B}"


def month_text(at: datetime, language: str) -> str:
    """Return the month and year as text: November 2026."""
    return f"{at.year}年{at.month}月" if language == "zh" else f"{at:%B} {at.year}"


def with_clock(day: str, clock: str, language: str) -> str:
    """Join the texts of a day and a time: 22 Nov, 14:31."""
    return f"{day}{' ' if language == 'zh' else ', '}{clock}"


def viewer_text(at_ms: int, form: str, zone: tzinfo, language: str) -> str:
    """Return a timestamp as text in the viewer's zone, in a form of Moment. Text in UTC ends in
    "UTC"."""
    text = moment_text(local(at_ms, zone), form, language, datetime.now(zone))
    return text + UTC_MARK if zone is UTC else text


def moment_text(at: datetime, form: str, language: str, now: datetime) -> str:
    """Return a time as text, in a form of Moment. `now`: the current time, in the same zone."""
    clock, seconds = f"{at:%H:%M}", f"{at:%H:%M:%S}"
    same_year = at.year == now.year
    texts: Mapping[str, Any] = {
        "time": lambda: seconds,
        "clock": lambda: clock,
        "date": lambda: day_text(at, language, year=not same_year),
        "weekday": lambda: with_clock(weekday_text(at, language), clock, language),
        "full": lambda: with_clock(
            day_text(at, language, year=True), f"{seconds}.{at.microsecond // 1000:03d}", language
        ),
    }
    if form in texts:
        return str(texts[form]())
    if at.date() == now.date():
        return seconds
    if same_year:
        return with_clock(day_text(at, language), clock, language)
    return day_text(at, language, year=True)
