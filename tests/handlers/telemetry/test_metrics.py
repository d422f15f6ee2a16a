"""Metrics of calls."""

import asyncio
import time

import pytest

from commands.process.metrics import Totals, WordReader, WordTable
from conf.metrics import METRICS, OTHER
from handlers.telemetry.calls import Telemetry, Unrecorded
from handlers.telemetry.metrics import LoopLag, Metrics
from store.values.usage_record import AttemptRecord, Receipt
from tests.support.served import until
from tests.support.usage_records import usage_record


class Counted(WordTable):
    """A worker's table, read like a scrape."""

    def __init__(self, reader):
        super().__init__(reader.descriptor)
        self.reader = reader

    @property
    def series(self):
        return Totals().read([self.reader])

    def value(self, name, *labels):
        return self.series.get((f"sluice_{name}", labels), [0])[0]

    def histogram(self, name, *labels):
        """Return (number of values, their sum)."""
        *buckets, total = self.series.get((f"sluice_{name}", labels), [0])
        return sum(buckets), total


@pytest.fixture
def table():
    reader = WordReader()
    yield Counted(reader)
    reader.close()


@pytest.fixture
def metrics(table):
    made = Metrics(table, "USD")
    made.models = {"m", "n"}
    return made


def record(**changes):
    fields = {
        "id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "started_ms": 1, "user_id": "u", "user": "alice",
        "key_id": "k", "key_name": "laptop", "group": "gold", "endpoint": "/v1/messages",
        "family": "messages", "model": "m", "channel": "main", "stream": False, "status": 200,
        "input_tokens": 10, "output_tokens": 20, "usage_source": "reported",
        "cost_nanos": 1500, "ttft_ms": 30, "duration_ms": 1234,
        "attempts": (AttemptRecord("main", 200),),
    }  # fmt: skip
    return usage_record(**{**fields, **changes})


def requests(table, model="m", status="200", code=""):
    labels = ("messages", "/v1/messages", model, "gold", status, code)
    return table.value("requests_total", *labels)


def test_a_plain_call(metrics, table):
    for _ in range(3):
        metrics.call_ended(record(), 250)
    assert requests(table) == 3
    assert table.histogram("request_duration_seconds", "messages", "m") == (3, 3702)
    assert table.histogram("overhead_seconds", "messages") == (3, 750)
    assert table.value("tokens_total", "m", "input") == 30
    assert table.value("tokens_total", "m", "output") == 60
    assert table.value("cost_total", "USD", "m") == 4500
    assert table.value("upstream_requests_total", "main", "ok") == 3
    assert table.histogram("upstream_first_byte_seconds", "main") == (3, 90)
    assert ("sluice_time_to_first_token_seconds", ("messages", "m")) not in table.series


def test_a_stream(metrics, table):
    metrics.call_ended(record(stream=True, reasoning_tokens=4, output_tokens=20), 250)
    assert table.histogram("time_to_first_token_seconds", "messages", "m") == (1, 30)
    each_us = (1234 - 30) * 1000 // 24
    assert table.histogram("time_per_output_token_seconds", "messages", "m") == (1, each_us)


def test_all_kinds_of_tokens(metrics, table):
    kinds = ("cache_read", "cache_write", "cache_write_1h", "reasoning")
    metrics.call_ended(record(**{f"{kind}_tokens": 7 for kind in kinds}), 0)
    metrics.call_ended(record(cache_write_1h_tokens=1), 0)
    counts = [table.value("tokens_total", "m", kind) for kind in kinds]
    assert counts == [7, 15, 0, 7]  # both kinds of cache writes count as one


def test_tokens_of_other_modalities_count_as_input_output_and_cached(metrics, table):
    more = (("input_audio", 3), ("input_image", 5), ("cache_read_audio", 7), ("output_image", 11))
    metrics.call_ended(record(more=(*more, ("web_search", 99))), 0)
    counts = [table.value("tokens_total", "m", kind) for kind in ("input", "output", "cache_read")]
    assert counts == [10 + 8, 20 + 11, 7]


@pytest.mark.parametrize("model", ["gpt-of-nobody", "sk-slc-secret", None, "", "x" * 256])
def test_a_model_that_is_not_configured_is_other(metrics, table, model):
    metrics.call_ended(
        record(model=model, status=404, outcome="refused", error_code="model_not_found"), 0
    )
    assert requests(table, OTHER, "404", "model_not_found") == 1
    assert {labels for _, labels in table.series if model and model in labels} == set()


def test_a_model_that_was_removed_keeps_its_counts(metrics, table):
    metrics.call_ended(record(model="n"), 0)
    metrics.models = {"m"}
    metrics.call_ended(record(model="n"), 0)
    assert (requests(table, "n"), requests(table, OTHER)) == (1, 1)


def test_attempts_and_why_they_were_repeated(metrics, table):
    attempts = (
        AttemptRecord("first", 429, "upstream_rate_limited", 12),
        AttemptRecord("second", None, "connect", 3),
        AttemptRecord("main", 200),
    )
    metrics.call_ended(record(attempts=attempts), 0)
    metrics.call_ended(record(outcome="upstream_truncated", error_code="upstream_truncated"), 0)
    first_bytes = table.histogram("upstream_first_byte_seconds", "main")
    assert first_bytes == (2, 30 - 12 - 3 + 30)
    assert table.histogram("upstream_first_byte_seconds", "first") == (0, 0)
    ends = [("first", "upstream_rate_limited"), ("second", "connect"), ("main", "ok"),
            ("main", "upstream_truncated")]  # fmt: skip
    assert [table.value("upstream_requests_total", *labels) for labels in ends] == [1, 1, 1, 1]
    reasons = ("upstream_rate_limited", "connect")
    assert [table.value("upstream_retries_total", reason) for reason in reasons] == [1, 1]


@pytest.mark.parametrize(("changes", "phase"), [
    ({"attempts": (), "ttft_ms": None}, "request"),
    ({"ttft_ms": None}, "waiting"),
    ({}, "answer"),
])  # fmt: skip
def test_where_a_client_was_when_it_left(metrics, table, changes, phase):
    gone = {"outcome": "client_gone", "error_code": "client_gone", "status": None}
    metrics.call_ended(record(**gone, **changes), 0)
    assert table.value("client_disconnects_total", phase) == 1
    assert requests(table, status="", code="client_gone") == 1


def test_a_call_that_found_no_channel_has_no_overhead(metrics, table):
    metrics.call_ended(record(attempts=(), status=503, error_code="no_channel"), 9)
    assert table.histogram("overhead_seconds", "messages") == (0, 0)


def test_requests_without_a_record_are_counted_also_those_that_are_not_logged(metrics, table):
    told = Telemetry(None, metrics=metrics)
    for number in range(50):
        one = Unrecorded(str(number), "messages", None, 404, "unknown_path", "refused", "::1")
        told.not_recorded(one, 1)
    labels = ("messages", OTHER, OTHER, "", "404", "unknown_path")
    assert table.value("requests_total", *labels) == 50


def test_no_label_names_a_user_or_a_key(metrics, table):
    metrics.call_ended(record(user="alice-the-user", key_id="key-id", key_name="laptop"), 0)
    labels = {label for _, labels in table.series for label in labels}
    assert labels.isdisjoint({"alice-the-user", "key-id", "laptop", "u"})
    named = {name for metric in METRICS.values() for name in metric.labels}
    assert named.isdisjoint({"user", "key", "key_id", "client_ip"})


async def test_a_blocked_loop_is_seen(monkeypatch):
    monkeypatch.setattr("handlers.telemetry.metrics.LAG_INTERVAL_S", 0.01)
    seen = []
    lag = LoopLag(seen.append)
    lag.start()
    await until(lambda: seen)
    time.sleep(0.1)  # noqa: ASYNC251 - that is the fault
    await until(lambda: max(seen) > 50_000)
    lag.stop()
    count = len(seen)
    await asyncio.sleep(0.03)
    assert len(seen) == count


def test_uses_without_a_price(metrics, table):
    unpriced = (("web_search", 3), ("tier.priority", 1), ("geo", 1), ("tier.of-a-vendor", 1))
    for model in ("m", "nobodys"):
        for _ in range(2):
            metrics.call_ended(record(model=model, receipt=Receipt(unpriced=unpriced)), 0)
        for meter, uses in (("web_search", 6), ("tier.priority", 2), ("geo", 2), ("tier", 2)):
            label = model if model == "m" else OTHER
            assert table.value("unpriced_uses_total", label, meter) == uses
