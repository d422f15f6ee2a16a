"""The process's memory policy: no long pauses for garbage collection, freed memory returned.

Belongs here: when to collect and when to trim. Does not belong here: what is freed. Imported by the
command that composes the relay.

With 5,000 open streams one full collection stops the process for 0.3 s, although the relay leaves
nearly no cyclic garbage. And the C library keeps the holes that request bodies of long streams
leave, unless it is asked to return them (0.05 to 6 ms each time).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import Callable
from typing import cast

from tornado.ioloop import IOLoop
from tornado.platform.asyncio import BaseAsyncIOLoop

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # parameters of mallopt
LARGE_BYTES = 64 * 1024
YOUNG_INTERVAL_S = 1.0  # short, so that few objects are new since the last time
TRIM_EVERY_TICKS = 5
FULL_EVERY_TICKS = 600
FULL_MAX_STREAMS = 50  # with more open, a full collection would delay them noticeably


def find_malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's malloc_trim, or None if the C library has none (musl, macOS)."""
    try:
        return cast("Callable[[int], int]", ctypes.CDLL(None).malloc_trim)
    except (OSError, AttributeError):
        return None


def one_arena() -> None:
    """Make all threads share one malloc arena, and allocate large blocks outside of it.

    For processes in which few threads work at a time. Holes of large blocks would stay in the
    arena. The threshold for them is set because the C library otherwise raises it with each large
    block that is freed.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


class MemoryPolicy:
    """The memory policy of one loop, from `start` to `stop`; `streams` returns how many are
    open."""

    def __init__(self, streams: Callable[[], int]) -> None:
        self._streams = streams
        self._trim = find_malloc_trim()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._last_full = 0

    def start(self, io_loop: IOLoop) -> None:
        """Start the policy, and freeze all existing objects, which should be the long-lived
        ones."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self._loop = cast(BaseAsyncIOLoop, io_loop).asyncio_loop
        self._timer = self._loop.call_later(YOUNG_INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Return to Python's own policy. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.enable()
            gc.unfreeze()

    def _tick(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(YOUNG_INTERVAL_S, self._tick)
        self._ticks += 1
        due = self._ticks - self._last_full >= FULL_EVERY_TICKS
        if due and self._streams() <= FULL_MAX_STREAMS:
            self._last_full = self._ticks
            gc.collect()
        else:
            gc.collect(0)
        if self._trim is not None and self._ticks % TRIM_EVERY_TICKS == 0:
            self._trim(0)
