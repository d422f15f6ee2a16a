"""How late the event loop runs its timers: the first sign of an overloaded or blocked worker."""

import asyncio
import time
from collections.abc import Callable

INTERVAL_S = 0.25


class LoopLag:
    """Measures from `start` to `stop`; `observe` gets microseconds."""

    def __init__(self, observe: Callable[[int], None]) -> None:
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def start(self) -> None:
        """To be called on the loop."""
        self._due_ns = time.monotonic_ns() + round(INTERVAL_S * 1e9)
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._observe(max(0, time.monotonic_ns() - self._due_ns) // 1000)
        self.start()
