"""The hand-over of calls' spans to an exporter in a thread, so that a slow collector delays no
call.

Independent of OpenTelemetry. The exporter (otlp.py) is imported only if an endpoint is set.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from handlers.telemetry.trace import Trace
from store.values.usage_record import UsageRecord

log = logging.getLogger("sluice.spans")

QUEUE_MAX = 5000  # calls waiting for the exporter; further ones are dropped and counted
BATCH_MAX = 500
GATHER_S = 0.5  # a batch is sent this long after its first call
STOP_WITHIN_S = 1.0
WARN_EVERY_S = 60.0  # between two log lines about a collector that does not answer


class Traced(Struct, frozen=True, gc=False):
    """A call that has ended."""

    record: UsageRecord
    trace: Trace


class Exporter(Protocol):
    """The exporter of spans. It returns False if they are lost."""

    def export(self, calls: Sequence[Traced]) -> bool: ...

    def close(self) -> None: ...


class SpanThread:
    """The queue and the thread. `dropped` counts calls whose spans were lost."""

    def __init__(self, exporter: Exporter) -> None:
        self.dropped = 0
        self._exporter = exporter
        self._queue: queue.Queue[Traced | None] = queue.Queue(QUEUE_MAX)
        self._warned_at = -WARN_EVERY_S
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, record: UsageRecord, trace: Trace) -> None:
        """Queue a call. Never blocks."""
        try:
            self._queue.put_nowait(Traced(record, trace))
        except queue.Full:
            self.dropped += 1

    def stop(self) -> None:
        """Send what is queued, then end. Spans that take too long are lost."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=STOP_WITHIN_S)
        self._thread.join(STOP_WITHIN_S)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            more = self._gather(batch)
            self._send(batch)
            if not more:
                break
        self._exporter.close()

    def _gather(self, batch: list[Traced]) -> bool:
        """Add the calls of the batch's time to it. Return whether more may come."""
        until = time.monotonic() + GATHER_S
        while len(batch) < BATCH_MAX:
            try:
                traced = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return True
            if traced is None:
                return False
            batch.append(traced)
        return True

    def _send(self, batch: list[Traced]) -> None:
        try:
            sent = self._exporter.export(batch)
        except Exception:
            log.exception("spans cannot be exported")
            sent = False
        if sent:
            return
        self.dropped += len(batch)
        now = time.monotonic()
        if now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("the collector does not take spans: %d calls dropped so far", self.dropped)
