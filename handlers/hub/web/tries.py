"""A try at a password or a code: counted before it is judged, since many at the same time would
all be allowed otherwise, and taken back when nobody could judge it."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from handlers.hub.web.base import HubHandler
from handlers.hub.web.throttle import WINDOW_S, Throttle

Result = TypeVar("Result")


class TooManyTries(Exception):
    """Too many were wrong; `wait_s`: when another one is allowed."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many tries; again in {wait_s} s")
        self.wait_s = wait_s


async def judged(
    handler: HubHandler,
    tries: Throttle,
    name: str,
    judge: Callable[[], Awaitable[Result | None]],
) -> Result | None:
    """Return what `judge` makes of a try at the secret of `name`; None: it was wrong. Raises
    TooManyTries, and whatever `judge` raises, which is no wrong try."""
    address, at_s = handler.address, time.monotonic()
    if wait_s := tries.wait_s(name, address, at_s):
        raise TooManyTries(wait_s)
    locked = tries.failed(name, address, at_s)
    try:
        result = await judge()
    except BaseException:
        tries.take_back(name, address, at_s)
        raise
    if result is not None:
        tries.succeeded(name, address, at_s)
    elif locked:
        await handler.note("lock_out", "sign-in", name, locked=locked, seconds=int(WINDOW_S))
    return result
