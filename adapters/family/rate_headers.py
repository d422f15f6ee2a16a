"""The rate-limit headers of the families, from the gateway's own limits.

Names and forms come from the vendors' public documentation and their official SDKs. Imported by the
families.
"""

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Literal

from adapters.json.jsonio import Struct

Lines = tuple[tuple[str, str], ...]


# Names of limit, remaining and reset; precomputed because they go out with every answer.
_KINDS = ("requests", "tokens")
_PARTS = ("limit", "remaining", "reset")
_OPENAI = {kind: tuple(f"x-ratelimit-{part}-{kind}" for part in _PARTS) for kind in _KINDS}
_ANTHROPIC = {
    kind: tuple(f"anthropic-ratelimit-{kind}-{part}" for part in _PARTS) for kind in _KINDS
}
_TO_SECONDS = len("2026-11-22T05:14:39")


class RateLevel(Struct, frozen=True, gc=False):
    """A rate limit: its size, what remains of it, and the seconds until it is full again."""

    kind: Literal["requests", "tokens"]
    limit: int
    remaining: int
    reset_s: float


RateLines = Callable[[Sequence[RateLevel], float], Lines]
"""The conversion of levels and the time, in seconds since 1970, to headers."""


def no_rate_lines(_: Sequence[RateLevel], now_s: float) -> Lines:
    """Return no lines, for families without such headers."""
    return ()


def openai_rate_lines(levels: Sequence[RateLevel], now_s: float) -> Lines:
    """Return ``x-ratelimit-*`` lines; the reset is a duration: ``6m0s``, ``1s``, ``20ms``."""
    lines: list[tuple[str, str]] = []
    for level in levels:
        limit, remaining, reset = _OPENAI[level.kind]
        lines += (
            (limit, str(level.limit)),
            (remaining, str(level.remaining)),
            (reset, _duration(level.reset_s)),
        )
    return tuple(lines)


def anthropic_rate_lines(levels: Sequence[RateLevel], now_s: float) -> Lines:
    """Return ``anthropic-ratelimit-*`` lines; the reset is an RFC 3339 time."""
    lines: list[tuple[str, str]] = []
    for level in levels:
        limit, remaining, reset = _ANTHROPIC[level.kind]
        at = datetime.datetime.fromtimestamp(math.ceil(now_s + level.reset_s), datetime.UTC)
        lines += (
            (limit, str(level.limit)),
            (remaining, str(level.remaining)),
            (reset, f"{at.isoformat()[:_TO_SECONDS]}Z"),
        )
    return tuple(lines)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
