"""The running part of a call: interrupts of its waits, its stopwatch, long work in slices.

Long work on the loop is cut into slices of a few ms, so that no caller's body blocks the others. A
thread would not help: decoders and regular expressions hold the interpreter's lock. Imported by the
relay's modules and the inference handlers. Structs rather than dataclasses, which take six times as
long to make.
"""

import asyncio
import time
from typing import Any

from msgspec import Struct

from adapters.faults import Fault
from adapters.json.structure import Steps, T

LARGE_BYTES = 512 << 10  # smaller bodies are read in one go, within 25 ms
SLICE_S = 0.005


class Interrupt(Exception):
    """The end of a running call from outside. The subclass is the reason."""


class ClientGone(Interrupt):
    """The interrupt of a call whose client closed its connection."""


class DrainForced(Interrupt):
    """The interrupt of a call at the end of the drain's time."""


class MoneyUsedUp(Interrupt):
    """The interrupt of a stream that costs more than its payer has left. `fault` names the
    payer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


class Running(Struct, eq=False):
    """The wait of a running call, which can be interrupted, and the call's stopwatch: it measures
    the gateway's own time, and stops while the call waits for the upstream or the client."""

    interrupted: Interrupt | None = None
    own_ns: int = 0
    _started_ns: int = 0  # by time.monotonic_ns(); 0: the stopwatch is stopped
    _waiter: "asyncio.Future[Any] | None" = None

    def start(self, at_ns: int = 0) -> None:
        """Start the stopwatch now, or as of `at_ns` of time.monotonic_ns(). Idempotent."""
        if not self._started_ns:
            self._started_ns = at_ns or time.monotonic_ns()

    def stop(self) -> None:
        """Stop the stopwatch. Idempotent."""
        if self._started_ns:
            self.own_ns += time.monotonic_ns() - self._started_ns
            self._started_ns = 0

    def check(self) -> None:
        """Raise the call's Interrupt, if it has one."""
        if self.interrupted is not None:
            raise self.interrupted

    def wait(self, future: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        """Return `future` for an await. Until `waited`, `interrupt` may end it with an
        Interrupt."""
        if self.interrupted is not None:
            raise self.interrupted
        self._waiter = future
        return future

    def waited(self) -> None:
        """Drop the future of `wait`, which may refer to an exception, and so to the call."""
        self._waiter = None

    def interrupt(self, reason: Interrupt) -> None:
        """Raise `reason` at the call's current or next wait. Only the first reason counts."""
        if self.interrupted is not None:
            return
        self.interrupted = reason
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(reason)


async def run_in_slices(steps: Steps[T], running: Running) -> T:
    """Run `steps` in slices, with other work in between, and return their result. Raises their
    exceptions, and the call's Interrupt as soon as it has one."""
    try:
        while True:
            await asyncio.sleep(0)
            if running.interrupted is not None:
                steps.close()
                raise running.interrupted
            until_s = time.monotonic() + SLICE_S
            while not next(steps) and time.monotonic() < until_s:
                pass
    except StopIteration as ended:
        result: T = ended.value
    await asyncio.sleep(0)
    return result
