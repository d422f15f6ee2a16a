"""The rate-limit headers of the families, from the gateway's own limits.

Source of their names and forms: the public documents of the vendors and what their official SDKs
show. Imported by the families.
"""

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Literal

from adapters.jsonio import Struct

Lines = tuple[tuple[str, str], ...]


class RateLevel(Struct, frozen=True, gc=False):
    """A limit of so many a minute: what is left of it, and when it is as if never used."""

    kind: Literal["requests", "tokens"]
    limit: int
    remaining: int
    reset_s: float


RateLines = Callable[[Sequence[RateLevel], float], Lines]
"""Levels and the time, in seconds since 1970, to headers."""


def no_rate_lines(_: Sequence[RateLevel], now_s: float) -> Lines:
    """None: there are families without such headers."""
    return ()


def openai_rate_lines(levels: Sequence[RateLevel], now_s: float) -> Lines:
    """``x-ratelimit-*``: the reset is a duration such as ``6m0s``, ``1s`` or ``20ms``."""
    lines: list[tuple[str, str]] = []
    for level in levels:
        lines += (
            (f"x-ratelimit-limit-{level.kind}", str(level.limit)),
            (f"x-ratelimit-remaining-{level.kind}", str(level.remaining)),
            (f"x-ratelimit-reset-{level.kind}", _duration(level.reset_s)),
        )
    return tuple(lines)


def anthropic_rate_lines(levels: Sequence[RateLevel], now_s: float) -> Lines:
    """``anthropic-ratelimit-*``: the reset is a time of RFC 3339; ``now_s`` since 1970."""
    lines: list[tuple[str, str]] = []
    for level in levels:
        at = datetime.datetime.fromtimestamp(math.ceil(now_s + level.reset_s), datetime.UTC)
        lines += (
            (f"anthropic-ratelimit-{level.kind}-limit", str(level.limit)),
            (f"anthropic-ratelimit-{level.kind}-remaining", str(level.remaining)),
            (f"anthropic-ratelimit-{level.kind}-reset", f"{at:%Y-%m-%dT%H:%M:%SZ}"),
        )
    return tuple(lines)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
