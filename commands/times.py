"""Times as people type them: 90m, 24h, 7d; yesterday; 2026-11-21; RFC 3339. For commands only."""

import time
from typing import Any

import click

from store.values.times import WORDS, duration_s, moment_ms, word_ms


class Duration(click.ParamType[int]):
    """A length of time, passed to the command in seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        seconds = duration_s(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration; write it like 90m, 24h or 7d", param, ctx)
        return seconds


class Moment(click.ParamType[int]):
    """A point in time, passed to the command in milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        now_ms = time.time_ns() // 1_000_000
        ago_s = duration_s(str(value))
        if ago_s is not None:
            return max(0, now_ms - ago_s * 1000)
        at_ms = word_ms(str(value), now_ms)
        if at_ms is None:
            at_ms = moment_ms(str(value))
        if at_ms is None:
            self.fail(
                f"{value!r} is not a time; write 2026-11-21T14:00:00Z, the day 2026-11-21 (UTC),"
                f" an age like 24h or 7d, or one of {', '.join(WORDS)}",
                param,
                ctx,
            )
        return at_ms


since_option = click.option(
    "--since",
    "since_ms",
    type=Moment(),
    help="Only from this time on: a time, a day, an age (24h), or the start of yesterday …",
)
"""The option --since of verbs that verify: `since_ms: int | None`."""
