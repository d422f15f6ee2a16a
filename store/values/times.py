"""Times as people write them: 90m, 24h, 7d; yesterday; 2026-11-21; RFC 3339. Windows of quotas and
spend limits: UTC days, weeks from Monday, calendar months. Pure."""

import datetime
import re
from decimal import Decimal

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
WORDS = ("today", "yesterday", "this-month", "last-month")
MAX_DURATION_S = 36_500 * UNITS_S["d"]
MAX_INSTANT_MS = 253_402_300_799_999
"""The end of the year 9999, after which times have no notation."""

NEVER = "never"
DAY = "day"
WEEK = "week"
MONTH = "month"
WINDOWS = (DAY, WEEK, MONTH)

_DURATION = re.compile(r"([0-9]{1,12})([smhd])", re.ASCII)
_SHORT = re.compile(r"([0-9]{1,12}(?:[.,][0-9]{1,3})?) *(ms|[smhd])?", re.ASCII)
_SHORT_UNITS_S = {name: Decimal(s) for name, s in UNITS_S.items()} | {"ms": Decimal("0.001")}
_ZONED = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def duration_s(text: str) -> int | None:
    """Return the seconds of a text like 24h, or None if it is not a duration or unreasonably
    long."""
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * UNITS_S[match[2]] if match else None
    return seconds if seconds is not None and seconds <= MAX_DURATION_S else None


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a text like 500 ms, 1.5 s or 2m. A number alone is milliseconds.
    None if it is not a duration or unreasonably long."""
    match = _SHORT.fullmatch(text.strip())
    if match is None:
        return None
    seconds = Decimal(match[1].replace(",", ".")) * _SHORT_UNITS_S[match[2] or "ms"]
    return int(seconds * 1000) if seconds <= MAX_DURATION_S else None


def word_ms(text: str, now_ms: int) -> int | None:
    """Return the start of the period of one of WORDS, in ms, UTC, or None for another text."""
    if text not in WORDS:
        return None
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    day = now.date()
    if text == "yesterday":
        day -= datetime.timedelta(1)
    elif text != "today":
        day = day.replace(day=1)
        if text == "last-month":
            day = (day - datetime.timedelta(1)).replace(day=1)
    return _begin_ms(day)


def moment_ms(text: str) -> int | None:
    """Return the milliseconds of a day (UTC) or of an RFC 3339 time with a zone, or None for
    another text."""
    try:
        if _DATE.fullmatch(text):
            at_ms = _begin_ms(datetime.date.fromisoformat(text))
        elif _ZONED.fullmatch(text):
            at_ms = round(datetime.datetime.fromisoformat(text.upper()).timestamp() * 1000)
        else:
            return None
    except ValueError:
        return None
    return at_ms if 0 <= at_ms <= MAX_INSTANT_MS else None


def window_at(window: str, at_ms: int) -> tuple[int, int | None]:
    """Return the window that contains a time: its first day (YYYYMMDD) and its end, in ms. The
    window `never` has the day 0 and no end. Raises ValueError if there is no such window."""
    if window == NEVER:
        return 0, None
    day = datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC).date()
    if window == DAY:
        first, following = day, day + datetime.timedelta(1)
    elif window == WEEK:
        first = day - datetime.timedelta(day.weekday())
        following = first + datetime.timedelta(7)
    elif window == MONTH:
        first = day.replace(day=1)
        following = (first + datetime.timedelta(31)).replace(day=1)
    else:
        raise ValueError(f"there is no window {window!r}")
    return int(first.strftime("%Y%m%d")), _begin_ms(following)


def _begin_ms(day: datetime.date) -> int:
    """Return the start of a UTC day."""
    moment = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    return round(moment.timestamp() * 1000)
