"""The output of a scrape, with several workers and some that have ended."""

import pytest

from commands.process import metrics as module
from commands.process.metrics import (
    ABSENT,
    SCRATCH,
    Totals,
    WordReader,
    WordTable,
    percentile_ms,
    text_of,
)
from conf.metrics import (
    BUILD_INFO,
    CALLS,
    CIRCUIT,
    COST,
    DURATION,
    LOOP_LAG,
    METRICS,
    OVERHEAD,
    REQUESTS,
    RESTARTS,
    TOKENS,
    UPSTREAM,
)
from handlers.telemetry.metrics import Metrics
from store.values.usage_record import AttemptRecord
from tests.support.metrics import Scrape
from tests.support.usage_records import usage_record


class Node:
    """A node's workers and its printed metrics."""

    def __init__(self):
        self.readers, self.totals = [], Totals()

    def worker(self):
        self.readers.append(WordReader())
        return Metrics(WordTable(self.readers[-1].descriptor), "EUR")

    def end(self, number):
        reader = self.readers.pop(number)
        self.totals.ended(reader)
        reader.close()

    def print(self, own=()):
        return Scrape(text_of(self.totals.read(self.readers), own).decode())


@pytest.fixture
def node():
    made = Node()
    yield made
    for reader in made.readers:
        reader.close()


def test_every_metric_is_described_before_anything_has_happened(node):
    scrape = node.print()
    for metric in METRICS.values():
        family = scrape.families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.text)
    assert scrape.one("sluice_worker_restarts_total") == 0


def test_workers_are_added_up_and_the_dead_stay(node):
    one, other = node.worker(), node.worker()
    for metrics, count in ((one, 3), (other, 4)):
        metrics.count(TOKENS, "m", "input", by=count)
        metrics.set(CALLS, value=count)
    other.count(TOKENS, "n", "input", by=5)
    scrape = node.print()
    assert scrape.one("sluice_tokens_total", model="m", type="input") == 7
    assert scrape.one("sluice_tokens_total", model="n") == 5
    assert scrape.one("sluice_calls_in_flight") == 7
    before = scrape.counters()
    node.end(1)
    scrape = node.print()
    assert scrape.counters() == before
    assert scrape.one("sluice_calls_in_flight") == 3
    node.worker().count(TOKENS, "m", "input")
    assert node.print().one("sluice_tokens_total", model="m") == 8


def test_a_gauge_of_several_workers_is_the_worst_and_goes_when_it_is_absent(node):
    one, other = node.worker(), node.worker()
    one.set(CIRCUIT, "c", "m", value=0)
    other.set(CIRCUIT, "c", "m", value=2)
    assert node.print().one("sluice_channel_circuit_state", channel="c") == 2
    other.set(CIRCUIT, "c", "m", value=ABSENT)
    assert node.print().one("sluice_channel_circuit_state", channel="c") == 0
    one.set(CIRCUIT, "c", "m", value=ABSENT)
    assert node.print().of("sluice_channel_circuit_state") == []


def test_a_histogram_has_cumulated_buckets_in_seconds(node):
    metrics = node.worker()
    for duration_ms in (5, 6, 600_000, 600_001):
        metrics.call_ended(ended(duration_ms=duration_ms), 0)
    scrape = node.print()
    name = "sluice_request_duration_seconds"
    buckets = {one.labels["le"]: one.value for one in scrape.of(f"{name}_bucket")}
    picked = [buckets[le] for le in ("0.005", "0.01", "300", "600", "+Inf")]
    assert picked == [1, 2, 2, 3, 4] and scrape.one(f"{name}_count") == 4
    assert scrape.one(f"{name}_sum") == pytest.approx(1200.012)
    assert [float(le) for le in buckets] == sorted(map(float, buckets))


def test_money_is_exact_names_are_escaped_and_the_supervisors_own_is_there(node):
    metrics = node.worker()
    odd = 'a "b"\\c\nd'
    metrics.count(COST, "EUR", odd, by=12_345_678_901_234_567_891)
    own = [(BUILD_INFO, ("1.2", "3.11", "build-1"), 1), (RESTARTS, (), 2)]
    text = text_of(node.totals.read(node.readers), own).decode()
    assert "12345678901.234567891\n" in text
    scrape = Scrape(text)
    [sample] = scrape.of("sluice_cost_total", currency="EUR")
    assert sample.labels["model"] == odd
    assert scrape.one("sluice_build_info", version="1.2", python="3.11") == 1
    assert scrape.one("sluice_worker_restarts_total") == 2


def test_every_series_of_a_call_has_the_labels_of_the_table(node):
    metrics = node.worker()
    metrics.models = {"m"}
    metrics.call_ended(ended(stream=True, reasoning_tokens=1), 250)
    found = node.totals.read(node.readers)
    for name, labels in found:
        assert len(labels) == len(METRICS[name].labels), name
    names = {name for name, _ in found}
    assert {one.name for one in (REQUESTS, DURATION, OVERHEAD, UPSTREAM, TOKENS)} <= names


def ended(**changes):
    fields = {
        **{"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "started_ms": 1, "user_id": "u", "user": "alice"},
        **{"key_id": "k", "key_name": "n", "group": "g", "endpoint": "/v1/messages"},
        **{"family": "messages", "model": "m", "status": 200, "duration_ms": 9, "ttft_ms": 2},
        **{"channel": "main", "output_tokens": 3, "usage_source": "reported"},
        "attempts": (AttemptRecord("main", 200),),
    }
    return usage_record(**{**fields, **changes})


def test_percentiles_are_of_all_series_of_a_histogram(node):
    one, other = node.worker(), node.worker()
    assert percentile_ms(node.totals.read(node.readers), LOOP_LAG, 50) is None
    for us in (500, 500, 1500):
        one.observe(LOOP_LAG, us)
    other.observe(LOOP_LAG, 9_000_000)
    found = node.totals.read(node.readers)
    assert percentile_ms(found, LOOP_LAG, 50) == 1
    assert percentile_ms(found, LOOP_LAG, 75) == 2
    assert percentile_ms(found, LOOP_LAG, 99) == LOOP_LAG.bounds[-1] / 1000


@pytest.fixture
def reader():
    made = WordReader()
    yield made
    made.close()


def test_what_is_counted_is_read_at_once(reader):
    assert list(reader.read()) == [] and reader.series == []  # a worker that has not started
    table = WordTable(reader.descriptor)
    first = table.add(TOKENS, ("m", "input"))
    table.words[first] += 2**53 + 1
    assert reader.read()[first] == 2**53 + 1
    second = table.add(DURATION, ("messages", 'odd "name"\n\udce9'))
    third = table.add(TOKENS, ("m", "output"))
    table.words[third] = 3
    assert third == second + DURATION.words and reader.read()[third] == 3
    assert [(one.metric, one.labels, one.first) for one in reader.series] == [
        (TOKENS, ("m", "input"), first),
        (DURATION, ("messages", 'odd "name"\n\udce9'), second),
        (TOKENS, ("m", "output"), third),
    ]


def test_a_full_table_counts_what_it_leaves_out(reader, monkeypatch):
    monkeypatch.setattr(module, "WORDS", SCRATCH + 60)
    table = WordTable(reader.descriptor)
    added = [table.add(DURATION, ("messages", str(number))) for number in range(4)]
    assert SCRATCH in added and table.dropped == added.count(SCRATCH)
    assert table.add(REQUESTS, ("x",) * 6) != SCRATCH  # one more label still fits
    reader.read()
    assert len(reader.series) == len(added) - table.dropped + 1
