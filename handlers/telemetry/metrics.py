"""Counts and times of a worker's calls, in memory that the supervisor reads (ADR 0021).

Every call passes through here. One look-up finds all series for a kind of call, and adding to a
word takes neither a lock nor a system call. Only the loop's thread counts.
"""

import asyncio
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection
from struct import Struct
from typing import Any, Protocol

from conf.metrics import (
    BLOCK_SUMS,
    CALLS_ENDED,
    DISCONNECTS,
    DURATION,
    FIRST_TOKEN,
    OTHER,
    OVERHEAD,
    PER_TOKEN,
    REQUESTS,
    RETRIES,
    TOKENS,
    UNPRICED,
    UPSTREAM,
    Metric,
)
from store.values.features import FEATURES
from store.values.meters import METERS
from store.values.usage import Usage
from store.values.usage_record import AttemptRecord, UsageRecord

_MS, _US = DURATION.bounds, OVERHEAD.bounds
_MS_SUM, _US_SUM = len(_MS) + 1, len(_US) + 1
# The sums of a block, read and written by one call each, in a third of the time of seven additions.
_SUMS = Struct(f"{len(BLOCK_SUMS)}Q")
_DURATION_AT = len(BLOCK_SUMS)
_OWN_AT = _DURATION_AT + len(_MS) + 1
_FIRST_BYTE_AT = _OWN_AT + len(_US) + 1
# The buckets of usual values. A look-up takes a third of the time of a search.
_MS_BUCKETS = bytes(bisect_left(_MS, value) for value in range(4096))
_US_BUCKETS = bytes(bisect_left(_US, value) for value in range(4096))
_WORD_BYTES = 8
LAG_INTERVAL_S = 0.25


class Words(Protocol):
    """Integers of 64 bits by index."""

    def __getitem__(self, index: int) -> int: ...

    def __setitem__(self, index: int, value: int) -> None: ...


class Table(Protocol):
    """The words of series. `memory` has them as bytes."""

    memory: Any

    @property
    def words(self) -> Words: ...

    @property
    def dropped(self) -> int: ...

    def add(self, metric: Metric, labels: tuple[str, ...]) -> int: ...


class PrivateTable:
    """Words that no other process reads, for a relay without a supervisor."""

    dropped = 0

    def __init__(self) -> None:
        self.words = self.memory = array("Q")

    def add(self, metric: Metric, labels: tuple[str, ...]) -> int:
        """Add a series and return the index of its first word."""
        first = len(self.words)
        self.words.frombytes(bytes(_WORD_BYTES * metric.words))
        return first


class Metrics:
    """The metrics of one worker. `models` are the configured names; all others are OTHER."""

    def __init__(self, table: Table, currency: str = "") -> None:
        self.models: Collection[str] = ()
        self._table = table
        self._words, self._memory = table.words, table.memory
        self._currency = currency
        self._indices: dict[tuple[str, ...], int] = {}
        self._kinds: dict[tuple[object, ...], int] = {}

    def call_ended(self, record: UsageRecord, own_us: int) -> str | None:
        """Count a settled call. Return the name of its model, or OTHER. `own_us`: the time it took
        in the gateway, without its upstream's."""
        call, attempts, words, memory = record.call, record.attempts, self._words, self._memory
        model = call.model if call.model in self.models else OTHER
        duration_ms = record.duration_ms or 0
        kind: tuple[object, ...] = (call.endpoint, model, call.group, record.status, record.channel)
        if record.error_code is not None:
            kind += (record.error_code, attempts[-1].error if attempts else None)
        first = self._kinds.get(kind)
        if first is None:
            first = self._kinds[kind] = self._add_kind(record, model or OTHER)
        at = first * _WORD_BYTES
        usage = record.usage
        calls, ms, us, nanos, tokens_in, tokens_out, first_ms = _SUMS.unpack_from(memory, at)
        nanos += record.cost_nanos
        tokens_in += usage.input_tokens
        tokens_out += usage.output_tokens
        if usage.more:
            tokens_in += usage.more_of("input")
            tokens_out += usage.more_of("output")
        wait_ms = _first_byte_ms(record)
        if wait_ms >= 0:
            bucket = _MS_BUCKETS[wait_ms] if wait_ms < 4096 else bisect_left(_MS, wait_ms)
            words[first + _FIRST_BYTE_AT + bucket] += 1
            first_ms += wait_ms
        ms += duration_ms
        us += own_us
        _SUMS.pack_into(memory, at, calls + 1, ms, us, nanos, tokens_in, tokens_out, first_ms)
        bucket = _MS_BUCKETS[duration_ms] if duration_ms < 4096 else bisect_left(_MS, duration_ms)
        words[first + _DURATION_AT + bucket] += 1
        if attempts:
            bucket = _US_BUCKETS[own_us] if own_us < 4096 else bisect_left(_US, own_us)
            words[first + _OWN_AT + bucket] += 1
            if len(attempts) > 1:
                self._count_failed_attempts(attempts[:-1])
        written = usage.cache_write_tokens or usage.cache_write_1h_tokens
        if usage.cache_read_tokens or usage.reasoning_tokens or written or usage.more:
            self._count_seldom_tokens(usage, model or OTHER)
        if record.receipt.unpriced:
            for name, count in record.receipt.unpriced:
                self.count(UNPRICED, model or OTHER, _bounded_meter(name), by=count)
        if call.stream and record.ttft_ms is not None:
            self._count_stream(record, model or OTHER)
        if record.outcome == "client_gone":
            self.count(DISCONNECTS, _phase_of(record))
        return model

    def not_recorded(self, family: str, endpoint: str | None, status: int, code: str) -> None:
        """Count a refused request that has no known key or no endpoint."""
        self.count(REQUESTS, family, endpoint or OTHER, OTHER, "", str(status), code)

    def _add_kind(self, record: UsageRecord, model: str) -> int:
        call, attempts = record.call, record.attempts
        status = "" if record.status is None else str(record.status)
        labels = (call.family, call.endpoint, model, call.group, status, record.error_code or "")
        tried = attempts[-1] if attempts else None
        channel, result = (tried.channel, tried.error or record.outcome) if tried else ("", "")
        return self._index(CALLS_ENDED, (*labels, channel, result, self._currency))

    def _count_seldom_tokens(self, usage: Usage, model: str) -> None:
        cached = usage.cache_read_tokens + usage.more_of("cache_read")
        self.count(TOKENS, model, "cache_read", by=cached)
        self.count(TOKENS, model, "cache_write", by=usage.written)
        self.count(TOKENS, model, "reasoning", by=usage.reasoning_tokens)

    def _count_stream(self, record: UsageRecord, model: str) -> None:
        words, labels = self._words, (record.call.family, model)
        first_token = self._index(FIRST_TOKEN, labels)
        first_ms = record.ttft_ms or 0
        words[first_token + bisect_left(_MS, first_ms)] += 1
        words[first_token + _MS_SUM] += first_ms
        tokens = record.usage.outputs
        if tokens and record.outcome == "ok":
            per_token = self._index(PER_TOKEN, labels)
            each_us = max(0, (record.duration_ms or 0) - first_ms) * 1000 // tokens
            words[per_token + bisect_left(_US, each_us)] += 1
            words[per_token + _US_SUM] += each_us

    def _count_failed_attempts(self, attempts: tuple[AttemptRecord, ...]) -> None:
        for attempt in attempts:
            failed = attempt.error or "not_accepted"
            self.count(UPSTREAM, attempt.channel, failed)
            self.count(RETRIES, failed)

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        self._words[self._index(metric, labels)] += by

    def set(self, metric: Metric, *labels: str, value: int) -> None:
        """Set a gauge, or a counter that is kept elsewhere."""
        self._words[self._index(metric, labels)] = value

    def observe(self, metric: Metric, value: int) -> None:
        """Add a value, in the metric's integers, to a histogram without labels."""
        first = self._index(metric, ())
        self._words[first + bisect_left(metric.bounds, value)] += 1
        self._words[first + len(metric.bounds) + 1] += value

    @property
    def dropped(self) -> int:
        """Return the number of series that did not fit."""
        return self._table.dropped

    def _index(self, metric: Metric, labels: tuple[str, ...]) -> int:
        key = (metric.name, *labels)
        index = self._indices.get(key)
        if index is None:
            index = self._indices[key] = self._table.add(metric, labels)
        return index


def _first_byte_ms(record: UsageRecord) -> int:
    """Return the time in which the accepted attempt's channel sent its first byte; -1 if it sent
    none."""
    attempts, wait_ms = record.attempts, record.ttft_ms
    if wait_ms is None or not attempts:
        return -1
    if len(attempts) > 1:
        wait_ms -= sum(attempt.ms for attempt in attempts[:-1])
    return wait_ms if wait_ms > 0 else 0


def _bounded_meter(name: str) -> str:
    """Return a meter or feature as a label. Words that only a vendor knows are cut to their
    condition."""
    return name if name in METERS or name in FEATURES else name.partition(".")[0]


def _phase_of(record: UsageRecord) -> str:
    """Return the phase in which the client disconnected."""
    if not record.attempts:
        return "request"
    return "waiting" if record.ttft_ms is None else "answer"


class LoopLag:
    """The lag of the event loop's timers, which is the first sign of an overloaded or blocked
    worker. Measured from `start` to `stop`; `observe` gets microseconds."""

    def __init__(self, observe: Callable[[int], None]) -> None:
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def start(self) -> None:
        self._due_ns = time.monotonic_ns() + round(LAG_INTERVAL_S * 1e9)
        self._timer = asyncio.get_running_loop().call_later(LAG_INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Stop. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._observe(max(0, time.monotonic_ns() - self._due_ns) // 1000)
        self.start()
