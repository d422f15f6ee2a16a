"""Counts and times of a worker's calls, in memory that the supervisor reads (ADR 0021).

On the path of every call: one look-up finds all series of calls of a kind, and adding to a word
takes neither lock nor system call. Only the loop's thread counts here.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from conf.metrics import (
    COST,
    DISCONNECTS,
    DURATION,
    FIRST_TOKEN,
    OTHER,
    OVERHEAD,
    PER_TOKEN,
    REQUESTS,
    RETRIES,
    TOKENS,
    UPSTREAM,
    Metric,
)
from store.values.usage_record import AttemptRecord, UsageRecord

_MS, _US = DURATION.bounds, OVERHEAD.bounds
_MS_SUM, _US_SUM = len(_MS) + 1, len(_US) + 1


class Words(Protocol):
    """Integers of 64 bits by index."""

    def __getitem__(self, index: int) -> int: ...

    def __setitem__(self, index: int, value: int) -> None: ...


class Table(Protocol):
    """Where the words of series are."""

    @property
    def words(self) -> Words: ...

    @property
    def dropped(self) -> int: ...

    def add(self, metric: Metric, labels: tuple[str, ...]) -> int: ...


class PrivateTable:
    """Words that nobody else reads: of a relay without a supervisor."""

    dropped = 0

    def __init__(self) -> None:
        self.words = array("Q")

    def add(self, metric: Metric, labels: tuple[str, ...]) -> int:
        """The index of the first word of a new series."""
        first = len(self.words)
        self.words.frombytes(bytes(8 * metric.words))
        return first


class _Series(Struct, gc=False):
    """Where calls of one kind are counted: indices of words; 0: not made yet."""

    requests: int
    duration: int
    overhead: int
    cost: int
    input_tokens: int
    output_tokens: int
    first_token: int = 0
    per_token: int = 0


class Metrics:
    """The metrics of one worker. `models` are the configured names; all others are OTHER."""

    def __init__(self, table: Table, currency: str = "") -> None:
        self.models: Collection[str] = ()
        self._table = table
        self._words = table.words
        self._currency = currency
        self._indices: dict[tuple[str, ...], int] = {}
        self._calls: dict[tuple[object, ...], _Series] = {}

    # ---- calls -----------------------------------------------------------------------------------

    def call_ended(self, record: UsageRecord, own_us: int) -> None:
        """Count a settled call; `own_us`: the time it took here, its upstream's left out."""
        call, words = record.call, self._words
        model = call.model if call.model in self.models else OTHER
        kind = (call.endpoint, model, call.group, record.status, record.error_code)
        series = self._calls.get(kind)
        if series is None:
            series = self._calls[kind] = self._series_of(record, model or OTHER)
        words[series.requests] += 1
        duration_ms = record.duration_ms or 0
        words[series.duration + bisect_left(_MS, duration_ms)] += 1
        words[series.duration + _MS_SUM] += duration_ms
        if record.attempts:
            self._count_attempts(record.attempts, record.outcome)
            words[series.overhead + bisect_left(_US, own_us)] += 1
            words[series.overhead + _US_SUM] += own_us
        if record.usage_source != "none":
            words[series.cost] += record.cost_nanos
            words[series.input_tokens] += record.input_tokens
            words[series.output_tokens] += record.output_tokens
            if (
                record.cache_read_tokens
                or record.reasoning_tokens
                or record.cache_write_tokens
                or record.cache_write_1h_tokens
            ):
                self._count_seldom_tokens(record, model or OTHER)
        if call.stream and record.ttft_ms is not None:
            self._count_stream(record, series, model or OTHER)
        if record.outcome == "client_gone":
            self.count(DISCONNECTS, _phase_of(record))

    def not_recorded(self, family: str, endpoint: str | None, status: int, code: str) -> None:
        """Count a refused request that has no known key, or no endpoint."""
        self.count(REQUESTS, family, endpoint or OTHER, OTHER, "", str(status), code)

    def _series_of(self, record: UsageRecord, model: str) -> _Series:
        call = record.call
        status = "" if record.status is None else str(record.status)
        kind = (call.family, call.endpoint, model, call.group, status, record.error_code or "")
        return _Series(
            requests=self._index(REQUESTS, kind),
            duration=self._index(DURATION, (call.family, model)),
            overhead=self._index(OVERHEAD, (call.family,)),
            cost=self._index(COST, (self._currency, model)),
            input_tokens=self._index(TOKENS, (model, "input")),
            output_tokens=self._index(TOKENS, (model, "output")),
        )

    def _count_seldom_tokens(self, record: UsageRecord, model: str) -> None:
        written = record.cache_write_tokens + record.cache_write_1h_tokens
        self.count(TOKENS, model, "cache_read", by=record.cache_read_tokens)
        self.count(TOKENS, model, "cache_write", by=written)
        self.count(TOKENS, model, "reasoning", by=record.reasoning_tokens)

    def _count_stream(self, record: UsageRecord, series: _Series, model: str) -> None:
        words, labels = self._words, (record.call.family, model)
        if not series.first_token:
            series.first_token = self._index(FIRST_TOKEN, labels)
            series.per_token = self._index(PER_TOKEN, labels)
        first_ms = record.ttft_ms or 0
        words[series.first_token + bisect_left(_MS, first_ms)] += 1
        words[series.first_token + _MS_SUM] += first_ms
        tokens = record.output_tokens + record.reasoning_tokens
        if tokens and record.outcome == "ok":
            each_us = max(0, (record.duration_ms or 0) - first_ms) * 1000 // tokens
            words[series.per_token + bisect_left(_US, each_us)] += 1
            words[series.per_token + _US_SUM] += each_us

    def _count_attempts(self, attempts: tuple[AttemptRecord, ...], outcome: str) -> None:
        last = attempts[-1]
        self.count(UPSTREAM, last.channel, last.error or outcome)
        for attempt in attempts[:-1]:
            failed = attempt.error or "not_accepted"
            self.count(UPSTREAM, attempt.channel, failed)
            self.count(RETRIES, failed)

    # ---- anything else ---------------------------------------------------------------------------

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        """Add to a counter."""
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
        """Series that found no room."""
        return self._table.dropped

    def _index(self, metric: Metric, labels: tuple[str, ...]) -> int:
        key = (metric.name, *labels)
        index = self._indices.get(key)
        if index is None:
            index = self._indices[key] = self._table.add(metric, labels)
        return index


def _phase_of(record: UsageRecord) -> str:
    """Where a client was when it left."""
    if not record.attempts:
        return "request"
    return "waiting" if record.ttft_ms is None else "answer"
