"""Times as people type them: 90m, 24h, 7d; yesterday; 2026-11-21; RFC 3339. Pure."""

import datetime
import re

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
WORDS = ("today", "yesterday", "this-month", "last-month")
MAX_DURATION_S = 36_500 * UNITS_S["d"]
MAX_INSTANT_MS = 253_402_300_799_999
"""The end of the year 9999, beyond which times cannot be written."""

_DURATION = re.compile(r"([0-9]{1,12})([smhd])", re.ASCII)
_ZONED = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def duration_s(text: str) -> int | None:
    """The seconds of a text like 24h; None when it is none, or too long to mean anything."""
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * UNITS_S[match[2]] if match else None
    return seconds if seconds is not None and seconds <= MAX_DURATION_S else None


def word_ms(text: str, now_ms: int) -> int | None:
    """Return when the period of one of WORDS begins, in milliseconds, UTC; None: it is none of
    them."""
    if text not in WORDS:
        return None
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    day = datetime.datetime.combine(now.date(), datetime.time(), datetime.UTC)
    if text == "yesterday":
        day -= datetime.timedelta(1)
    elif text != "today":
        day = day.replace(day=1)
        if text == "last-month":
            day = (day - datetime.timedelta(1)).replace(day=1)
    return round(day.timestamp() * 1000)


def moment_ms(text: str) -> int | None:
    """The milliseconds of a day (UTC) or of an RFC 3339 time with its zone; None: it is neither."""
    try:
        if _DATE.fullmatch(text):
            day = datetime.date.fromisoformat(text)
            moment = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
        elif _ZONED.fullmatch(text):
            moment = datetime.datetime.fromisoformat(text.upper())
        else:
            return None
        at_ms = round(moment.timestamp() * 1000)
    except ValueError:
        return None
    return at_ms if 0 <= at_ms <= MAX_INSTANT_MS else None
