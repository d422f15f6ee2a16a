"""Times as people type them: 90m, 24h, 7d; 2026-11-21; RFC 3339. Imported by commands only."""

import time
from typing import Any

import click

from store.values.times import duration_s, moment_ms


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
        at_ms = moment_ms(str(value))
        if at_ms is None:
            self.fail(
                f"{value!r} is not a time; write 2026-11-21T14:00:00Z, the day 2026-11-21 (UTC),"
                " or how long ago: 24h, 7d",
                param,
                ctx,
            )
        return at_ms
