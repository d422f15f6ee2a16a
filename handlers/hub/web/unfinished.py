"""Results that take longer than people wait for a page. The page is sent with grey placeholders,
and the work continues for a later request."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")

PATIENCE_S = 0.15  # before a page is sent without the result
KEPT_S = 60.0
KEPT_MAX = 64


@dataclass(slots=True)
class Unfinished:
    """Work in progress, by key. Call its methods only on the event loop's thread."""

    patience_s: float = PATIENCE_S
    _tasks: dict[str, tuple[float, "asyncio.Future[Any]"]] = field(default_factory=dict)

    async def result(
        self, key: str, work: Callable[[], Awaitable[Result]], *, wait: bool
    ) -> Result | None:
        """Return the result of `work`, or of the running work with the same key. None: it took
        longer than `patience_s` and the page does not `wait`. Raises whatever the work raises."""
        now_s = time.monotonic()
        for old, (begun_s, _) in list(self._tasks.items()):
            if now_s - begun_s > KEPT_S:
                del self._tasks[old]
        _, task = self._tasks.pop(key, (now_s, None))
        task = task or asyncio.ensure_future(work())
        done, _ = await asyncio.wait({task}, timeout=None if wait else self.patience_s)
        if done:
            result: Result = task.result()
            return result
        if len(self._tasks) >= KEPT_MAX:
            del self._tasks[next(iter(self._tasks))]
        self._tasks[key] = (now_s, task)
        task.add_done_callback(forget)
        return None


def forget(task: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of abandoned work, which asyncio would log otherwise."""
    if not task.cancelled():
        task.exception()
