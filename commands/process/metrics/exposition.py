"""What a scrape prints: the series of all workers as one, in Prometheus' text form.

Written here and not by prometheus-client, which the supervisor would have to keep in memory and
which takes ten times as long (ADR 0021); tests read it with that library's parser.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import add

from commands.process.metrics.words import ABSENT, Series, WordReader
from conf.metrics import (
    BLOCK_SUMS,
    CALLS_ENDED,
    COST,
    DURATION,
    METRICS,
    OVERHEAD,
    REQUESTS,
    TOKENS,
    UPSTREAM,
    UPSTREAM_FIRST_BYTE,
    Metric,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Key = tuple[str, tuple[str, ...]]  # the metric's name, values of its labels
Sample = tuple[Metric, tuple[str, ...], float]


class Totals:
    """Adds up workers. Counters of those that have ended stay; their gauges go."""

    def __init__(self) -> None:
        self._ended: dict[Key, list[int]] = {}

    def ended(self, reader: WordReader) -> None:
        """A worker has ended: what it counted is kept."""
        words = reader.read()
        for series in reader.series:
            if series.metric.kind != "gauge":
                _add(self._ended, series, words)

    def read(self, readers: Iterable[WordReader]) -> Mapping[Key, list[int]]:
        """The words of every metric's series, over all workers."""
        found = {key: list(words) for key, words in self._ended.items()}
        for reader in readers:
            words = reader.read()
            for series in reader.series:
                _add(found, series, words)
        for key in [key for key in found if key[0] == CALLS_ENDED.name]:
            for part, own in _parts(key[1], found.pop(key)):
                before = found.get(part)
                found[part] = own if before is None else list(map(add, own, before))
        return found


def _add(found: dict[Key, list[int]], series: Series, words: "array[int]") -> None:
    metric, first = series.metric, series.first
    own = words[first : first + metric.words].tolist()
    key = (metric.name, series.labels)
    before = found.get(key)
    if metric.kind == "gauge" and own[0] == ABSENT:
        return
    if before is None:
        found[key] = own
    elif metric.join == "max":
        found[key] = [max(own[0], before[0])]
    else:
        found[key] = list(map(add, own, before))


def _buckets(metric: Metric) -> str:
    """The lines of a histogram's buckets as a format: 0 is what stands before the bound, then the
    counts."""
    bounds = (*(f"{bound / metric.per:.15g}" for bound in metric.bounds), "+Inf")
    lines = (f'{{0}}{bound}"}}}} {{{place}}}\n' for place, bound in enumerate(bounds, 1))
    return "".join(lines)


def _parts(labels: tuple[str, ...], words: list[int]) -> Iterator[tuple[Key, list[int]]]:
    """What a block of CALLS_ENDED adds to the metrics."""
    family, endpoint, model, group, status, code, channel, result, currency = labels
    calls, duration_ms, own_us, cost_nanos, given, made, first_byte_ms = words[: len(BLOCK_SUMS)]
    own_at = len(BLOCK_SUMS) + len(DURATION.bounds) + 1
    first_byte_at = own_at + len(OVERHEAD.bounds) + 1
    durations, owns = words[len(BLOCK_SUMS) : own_at], words[own_at:first_byte_at]
    first_bytes = words[first_byte_at:]
    yield (REQUESTS.name, (family, endpoint, model, group, status, code)), [calls]
    yield (DURATION.name, (family, model)), [*durations, duration_ms]
    if given or made:
        yield (TOKENS.name, (model, "input")), [given]
        yield (TOKENS.name, (model, "output")), [made]
    if cost_nanos:
        yield (COST.name, (currency, model)), [cost_nanos]
    if channel:
        yield (UPSTREAM.name, (channel, result)), [calls]
        yield (OVERHEAD.name, (family,)), [*owns, own_us]
        if any(first_bytes):
            yield (UPSTREAM_FIRST_BYTE.name, (channel,)), [*first_bytes, first_byte_ms]


def percentile_ms(found: Mapping[Key, list[int]], metric: Metric, percent: int) -> float | None:
    """The time below which so many percent of a histogram lie, over all its series, even within a
    bucket; beyond the last bound that bound. None: nothing was measured."""
    series = [words[:-1] for (name, _), words in found.items() if name == metric.name]
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


_BUCKETS = {one.name: _buckets(one) for one in METRICS.values() if one.kind == "histogram"}


def text_of(found: Mapping[Key, list[int]], own: Iterable[Sample]) -> bytes:
    """The body of a scrape; `own` are the supervisor's samples."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}
    for (name, labels), words in found.items():
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
    shown = _pairs(metric, labels)
    head = f'{metric.name}_bucket{{{shown}{"," if shown else ""}le="'
    *buckets, total = words
    lines.append(_BUCKETS[metric.name].format(head, *accumulate(buckets)))
    in_braces = f"{{{shown}}}" if shown else ""
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
    """Exact: a cost of many digits is not a float's."""
    if per == 1:
        return str(value)
    whole, rest = divmod(value, per)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(per)) - 1}d}".rstrip("0")
