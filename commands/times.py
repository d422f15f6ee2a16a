"""Times as people type them: 90m, 24h, 7d; 2026-11-21; RFC 3339. Imported by commands only."""

import datetime
import re
import time
from typing import Any

import click

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_DURATION_S = 36_500 * UNITS_S["d"]

_DURATION = re.compile(r"([0-9]{1,12})([smhd])", re.ASCII)
_ZONED = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def duration_s(text: str) -> int | None:
    """The seconds of a text like 24h; None when it is none, or too long to mean anything."""
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * UNITS_S[match[2]] if match else None
    return seconds if seconds is not None and seconds <= MAX_DURATION_S else None


class Duration(click.ParamType[int]):
    """A length of time, given to the command in seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        seconds = duration_s(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration; write it like 90m, 24h or 7d", param, ctx)
        return seconds


class Moment(click.ParamType[int]):
    """A point in time, given to the command in milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        ago_s = duration_s(str(value))
        if ago_s is not None:
            return max(0, time.time_ns() // 1_000_000 - ago_s * 1000)
        at_ms = _moment_ms(str(value))
        if at_ms is None:
            self.fail(
                f"{value!r} is not a time; write 2026-11-21T14:00:00Z, the day 2026-11-21 (UTC),"
                " or how long ago: 24h, 7d",
                param,
                ctx,
            )
        return at_ms


def _moment_ms(text: str) -> int | None:
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
    return at_ms if at_ms >= 0 else None
