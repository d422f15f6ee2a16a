"""Metrics of a node: the memory in which each process counts, and the text of a scrape.

The supervisor has a file for each worker (ADR 0018, ADR 0021): a header of two words, then the
words of all series, then the names of the series, one line of JSON each, in order of creation. Only
its worker writes it. A word is one aligned store of 64 bits, so it is never torn. A name is written
before the header counts it. Counts stay readable when the worker is killed.

The series of all workers are added up and printed in Prometheus' text format. The code for that is
here because the supervisor would have to keep prometheus-client in memory, which is also ten times
as slow. Tests read the text with that library's parser.
"""

import json
import mmap
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import add
from typing import NamedTuple

from conf import metrics as names
from conf.metrics import COUNTED, METRICS, Metric

WORDS = 1 << 20  # of 8 bytes; only pages in use take memory
NAMES_MAX_BYTES = 1 << 24
ABSENT = (1 << 64) - 1
"""The value of a gauge that no longer exists."""

_HEADER = struct.Struct("<QQ")  # words in use, bytes of names
SCRATCH = 2  # index of words that nothing reads, enough for any series
_FIRST = SCRATCH + max(metric.words for metric in COUNTED.values())
_NAMES_AT = WORDS * 8


class WordTable:
    """The worker's side of the file: `words` may be changed by index, `memory` has their bytes."""

    def __init__(self, descriptor: int) -> None:
        # Written through memory only: a file size limit must not fail a call that counts.
        os.ftruncate(descriptor, _NAMES_AT + NAMES_MAX_BYTES)
        self.memory = mmap.mmap(descriptor, _NAMES_AT + NAMES_MAX_BYTES)
        self.words = memoryview(self.memory)[:_NAMES_AT].cast("Q")
        self.dropped = 0  # series that did not fit
        self._used = _FIRST
        self._names_bytes = 0
        self.words[0], self.words[1] = self._used, 0

    def add(self, metric: Metric, labels: tuple[str, ...]) -> int:
        """Add a series and return the index of its first word, or SCRATCH if there is no room."""
        first = self._used
        line = json.dumps([metric.name, labels, first]).encode() + b"\n"
        if first + metric.words > WORDS or self._names_bytes + len(line) > NAMES_MAX_BYTES:
            self.dropped += 1
            return SCRATCH
        at = _NAMES_AT + self._names_bytes
        self.memory[at : at + len(line)] = line
        self._used += metric.words
        self._names_bytes += len(line)
        # Only now: the reader must find the words of each name that it finds.
        self.words[0], self.words[1] = self._used, self._names_bytes
        return first


class Series(NamedTuple):
    """A series and the index of its first word."""

    metric: Metric
    labels: tuple[str, ...]
    first: int


class WordReader:
    """The supervisor's side, which creates the file. Raises OSError."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("sluice-metrics", os.MFD_CLOEXEC)
        self.series: list[Series] = []
        self._names_bytes = 0

    def read(self) -> "array[int]":
        """Return a copy of the words; `series` lists the series that existed then."""
        head = os.pread(self.descriptor, _HEADER.size, 0)
        words = array("Q")
        if len(head) < _HEADER.size:
            return words
        used, names_bytes = _HEADER.unpack(head)
        if names_bytes > self._names_bytes:
            self._read_names(names_bytes - self._names_bytes)
        data = os.pread(self.descriptor, used * 8, 0)
        words.frombytes(data)
        return words

    def close(self) -> None:
        os.close(self.descriptor)

    def _read_names(self, size: int) -> None:
        lines = os.pread(self.descriptor, size, _NAMES_AT + self._names_bytes)
        for line in lines.splitlines():
            name, labels, first = json.loads(line)
            self.series.append(Series(COUNTED[name], tuple(labels), first))
        self._names_bytes += len(lines)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Key = tuple[str, tuple[str, ...]]  # the metric's name, values of its labels
Sample = tuple[Metric, tuple[str, ...], float]


class Totals:
    """The sums over all workers. Counters of ended workers are kept, their gauges are dropped."""

    def __init__(self) -> None:
        self._ended: dict[Key, list[int]] = {}

    def ended(self, reader: WordReader) -> None:
        """Keep the counts of a worker that has ended."""
        words = reader.read()
        for series in reader.series:
            if series.metric.kind != "gauge":
                _add(self._ended, series, words)

    def read(self, readers: Iterable[WordReader]) -> Mapping[Key, list[int]]:
        """Return the words of every metric's series, over all workers."""
        totals = {key: list(words) for key, words in self._ended.items()}
        for reader in readers:
            words = reader.read()
            for series in reader.series:
                _add(totals, series, words)
        for key in [key for key in totals if key[0] == names.CALLS_ENDED.name]:
            for part, own in _parts(key[1], totals.pop(key)):
                before = totals.get(part)
                totals[part] = own if before is None else list(map(add, own, before))
        return totals


def _add(totals: dict[Key, list[int]], series: Series, words: "array[int]") -> None:
    metric, first = series.metric, series.first
    own = words[first : first + metric.words].tolist()
    key = (metric.name, series.labels)
    before = totals.get(key)
    if metric.kind == "gauge" and own[0] == ABSENT:
        return
    if before is None:
        totals[key] = own
    elif metric.join == "max":
        totals[key] = [max(own[0], before[0])]
    else:
        totals[key] = list(map(add, own, before))


def _buckets(metric: Metric) -> str:
    """Return the format of a histogram's lines of buckets: {0} is the text before the bound."""
    bounds = (*(f"{bound / metric.per:.15g}" for bound in metric.bounds), "+Inf")
    lines = (f'{{0}}{bound}"}}}} {{{place}}}\n' for place, bound in enumerate(bounds, 1))
    return "".join(lines)


def _parts(labels: tuple[str, ...], words: list[int]) -> Iterator[tuple[Key, list[int]]]:
    """Add a block of CALLS_ENDED to the metrics."""
    family, endpoint, model, group, status, code, channel, result, currency = labels
    sums = len(names.BLOCK_SUMS)
    calls, duration_ms, own_us, cost_nanos, input_, output, first_byte_ms = words[:sums]
    own_at = sums + len(names.DURATION.bounds) + 1
    first_byte_at = own_at + len(names.OVERHEAD.bounds) + 1
    durations, owns = words[sums:own_at], words[own_at:first_byte_at]
    first_bytes = words[first_byte_at:]
    yield (names.REQUESTS.name, (family, endpoint, model, group, status, code)), [calls]
    yield (names.DURATION.name, (family, model)), [*durations, duration_ms]
    if input_ or output:
        yield (names.TOKENS.name, (model, "input")), [input_]
        yield (names.TOKENS.name, (model, "output")), [output]
    if cost_nanos:
        yield (names.COST.name, (currency, model)), [cost_nanos]
    if channel:
        yield (names.UPSTREAM.name, (channel, result)), [calls]
        yield (names.OVERHEAD.name, (family,)), [*owns, own_us]
        if any(first_bytes):
            yield (names.UPSTREAM_FIRST_BYTE.name, (channel,)), [*first_bytes, first_byte_ms]


def percentile_ms(totals: Mapping[Key, list[int]], metric: Metric, percent: int) -> float | None:
    """Return a percentile over all series of a histogram, interpolated within a bucket and at most
    the last bound. None without a measurement."""
    series = [words[:-1] for (name, _), words in totals.items() if name == metric.name]
    buckets: list[int] = [sum(counts) for counts in zip(*series, strict=True)]
    left: float = sum(buckets) * percent / 100
    if not left:
        return None
    low, unit = 0, metric.per / 1000
    for count, high in zip(buckets, metric.bounds, strict=False):
        if count >= left:
            return round((low + (high - low) * left / count) / unit, 3)
        left -= count
        low = high
    return round(low / unit, 3)


_BUCKETS = {
    metric.name: _buckets(metric) for metric in METRICS.values() if metric.kind == "histogram"
}


def text_of(totals: Mapping[Key, list[int]], own: Iterable[Sample]) -> bytes:
    """Return the body of a scrape; `own` are the supervisor's samples."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}
    for (name, labels), words in totals.items():
        metric = METRICS[name]
        if metric.kind == "histogram":
            _histogram(lines[metric.name], metric, labels, words)
        else:
            value = _number(words[0], metric.per)
            lines[metric.name].append(f"{metric.name}{_labels(metric, labels)} {value}\n")
    for metric, labels, number in own:
        lines[metric.name].append(f"{metric.name}{_labels(metric, labels)} {number:.15g}\n")
    out: list[str] = []
    for name, metric in METRICS.items():
        out.append(f"# HELP {name} {metric.text}\n# TYPE {name} {metric.kind}\n")
        samples = lines[name]
        if not samples and metric.kind == "counter" and not metric.labels:
            samples = [f"{name} 0\n"]
        out += samples
    return "".join(out).encode()


def _histogram(lines: list[str], metric: Metric, labels: tuple[str, ...], words: list[int]) -> None:
    pairs = _pairs(metric, labels)
    head = f'{metric.name}_bucket{{{pairs}{"," if pairs else ""}le="'
    *buckets, total = words
    lines.append(_BUCKETS[metric.name].format(head, *accumulate(buckets)))
    in_braces = f"{{{pairs}}}" if pairs else ""
    lines.append(f"{metric.name}_sum{in_braces} {_number(total, metric.per)}\n")
    lines.append(f"{metric.name}_count{in_braces} {sum(buckets)}\n")


def _labels(metric: Metric, labels: tuple[str, ...]) -> str:
    return f"{{{_pairs(metric, labels)}}}" if labels else ""


def _pairs(metric: Metric, labels: tuple[str, ...]) -> str:
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(metric.labels, labels, strict=True)
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int, per: int) -> str:
    """Format without floats: a cost has more digits than a float holds."""
    if per == 1:
        return str(value)
    whole, rest = divmod(value, per)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(per)) - 1}d}".rstrip("0")
