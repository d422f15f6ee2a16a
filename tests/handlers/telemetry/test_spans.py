"""The thread that hands spans to an exporter: nobody waits for it, lost spans are counted."""

import threading
import time

import pytest

from handlers.telemetry import spans as module
from handlers.telemetry.spans import SpanThread
from handlers.telemetry.trace import trace_of
from tests.handlers.telemetry.test_metrics import record
from tests.support.client import wait_until


class Exporter:
    """An exporter that takes batches while the test allows it."""

    def __init__(self):
        self.batches, self.closed = [], False
        self.may, self.works = threading.Event(), True
        self.may.set()

    def export(self, calls):
        assert self.may.wait(10)
        if self.works is None:
            raise ValueError("a bug")
        self.batches.append(len(calls))
        return self.works

    def close(self):
        self.closed = True


@pytest.fixture
def exporter(monkeypatch):
    monkeypatch.setattr(module, "GATHER_S", 0.02)
    return Exporter()


def put(thread, count=1):
    for _ in range(count):
        thread.put(record(), trace_of(None, None, exporting=True))


def test_calls_are_sent_in_batches_the_last_ones_at_the_end(exporter):
    thread = SpanThread(exporter)
    put(thread, 7)
    thread.stop()
    assert sum(exporter.batches) == 7 and len(exporter.batches) <= 2
    assert exporter.closed and thread.dropped == 0


def test_a_collector_that_hangs_holds_nobody_up(exporter, monkeypatch):
    monkeypatch.setattr(module, "QUEUE_MAX", 5)
    monkeypatch.setattr(module, "STOP_WITHIN_S", 0.1)
    exporter.may.clear()
    thread = SpanThread(exporter)
    began = time.monotonic()
    put(thread, 1000)
    assert time.monotonic() - began < 2
    assert thread.dropped > 0
    thread.stop()
    assert time.monotonic() - began < 4
    exporter.may.set()
    thread.stop()  # now the end marker fits into the queue
    thread._thread.join(5)
    assert sum(exporter.batches) + thread.dropped == 1000


@pytest.mark.parametrize("works", [False, None])
def test_what_is_refused_is_counted_and_said_once(exporter, works, caplog):
    exporter.works = works
    thread = SpanThread(exporter)
    for count in range(1, 4):
        put(thread)
        assert wait_until(lambda count=count: thread.dropped == count)
    thread.stop()
    told = [one for one in caplog.records if "does not take spans" in one.getMessage()]
    assert len(told) == 1
