"""Threads that several parties share: nobody gets all of them while others wait.

A party is a user, or the network of somebody who has not signed in. It has at most half of the
threads; whoever waits gets them in turn, party by party.
"""

import asyncio
import contextvars
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

party: contextvars.ContextVar[str] = contextvars.ContextVar("party", default="")
"""For whom the running task works."""


class Busy(Exception):
    """More work waits than people would wait for, in all or of this party."""


class Places:
    """A pool of threads. For the loop's thread."""

    def __init__(self, threads: int, name: str, waiting_max: int, of_party_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._free = threads
        self._of_party = max(1, threads // 2)
        self._waiting_max, self._waiting_of_party_max = waiting_max, of_party_max
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, whose: str, work: Callable[[], Result]) -> Result:
        """The result of `work` in a thread, when it is this party's turn. Raises Busy."""
        if self._free and self._running[whose] < self._of_party:
            self._take(whose)
        else:
            await self._turn(whose)
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # A thread goes on when nobody waits for its result any more.
        future.add_done_callback(lambda done: self._leave(whose))
        return await asyncio.shield(future)

    def close(self) -> None:
        """Lets the threads end after their present work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, whose: str) -> None:
        waiting = self._waiting.setdefault(whose, deque())
        everybody = sum(map(len, self._waiting.values()))
        if len(waiting) >= self._waiting_of_party_max or everybody >= self._waiting_max:
            if not waiting:
                del self._waiting[whose]
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(whose)
            raise

    def _take(self, whose: str) -> None:
        self._free -= 1
        self._running[whose] += 1

    def _leave(self, whose: str) -> None:
        self._free += 1
        self._running[whose] -= 1
        if not self._running[whose]:
            del self._running[whose]
        for other in list(self._waiting):
            if not self._free:
                return
            if self._running[other] < self._of_party:
                self._next(other)

    def _next(self, whose: str) -> None:
        """Gives a place to the one of a party that waits longest; then it is the others' turn."""
        waiting = self._waiting.pop(whose)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                self._take(whose)
                turn.set_result(None)
                break
        if waiting:
            self._waiting[whose] = waiting
