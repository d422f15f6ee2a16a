"""The thread that does the upkeep in a worker: it takes its turn, passes it on, survives faults."""

import threading
import time

import pytest

from store.upkeep import lease, retention
from store.upkeep import thread as thread_module
from store.upkeep.retention import Keep
from store.upkeep.thread import Upkeep
from store.values.errors import StoreError
from tests.support.client import wait_until

pytestmark = pytest.mark.databases("sqlite")

PATIENCE_S = 10


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Make it look at once, and often."""
    monkeypatch.setattr(thread_module, "FIRST_LOOK_S", 0.0)
    monkeypatch.setattr(thread_module, "LOOK_INTERVAL_S", 0.05)


@pytest.fixture
def begun(database):
    """Yield begun(owner), which starts an upkeep; all are stopped at the end."""
    running = []

    def begin(owner, keep=Keep()):  # noqa: B008 - a value
        upkeep = Upkeep(database, owner, f"node-{owner}", keep)
        running.append(upkeep)
        upkeep.start()
        return upkeep

    yield begin
    for upkeep in running:
        upkeep.stop()


def ended(upkeep):
    return wait_until(lambda: upkeep.seen if upkeep.seen and upkeep.seen.ended_ms else None, 10)


def test_one_of_two_does_a_run_and_both_see_it(begun):
    one, two = begun("A"), begun("B")
    first, second = ended(one), ended(two)
    assert first.node == second.node and first.next_ms == second.next_ms
    assert first.removed == {} and first.trouble == ""


def test_a_process_that_ends_leaves_its_run_to_another(begun, database, monkeypatch):
    in_it, go_on = threading.Event(), threading.Event()

    def long_run(db, keep, node, pause):
        in_it.set()
        while not go_on.is_set():
            pause()
        return {"records": 1}

    monkeypatch.setattr(retention, "run", long_run)
    first = begun("A")
    assert in_it.wait(PATIENCE_S)
    first.stop()
    assert not lease.state(database).running
    go_on.set()
    found = ended(begun("B"))
    assert found.node == "node-B" and found.removed == {"records": 1}


def test_the_lease_is_renewed_while_a_run_goes_on(begun, database, monkeypatch):
    monkeypatch.setattr(thread_module, "RENEW_INTERVAL_S", 0.0)
    monkeypatch.setattr(lease, "LEASE_MS", 1000)
    monkeypatch.setattr(thread_module, "PORTION_PAUSE_S", 0.01)
    over = time.monotonic() + 2
    runs = []

    def long_run(db, keep, node, pause):
        runs.append(node)
        while time.monotonic() < over:
            pause()
        return {}

    monkeypatch.setattr(retention, "run", long_run)
    one, two = begun("A"), begun("B")
    ended(one), ended(two)
    assert len(runs) == 1


def test_what_fails_is_told_and_tried_again_later(begun, monkeypatch, caplog):
    def broken(db, keep, node, pause):
        raise StoreError("a bad row")

    monkeypatch.setattr(retention, "run", broken)
    found = ended(begun("A"))
    assert found.trouble == "a bad row" and "upkeep failed: a bad row" in caplog.text
    assert found.next_ms - found.ended_ms == lease.RETRY_MS


def test_a_bug_does_not_end_the_thread(begun, monkeypatch, caplog):
    calls = []

    def look(self):
        calls.append(1)
        raise RuntimeError("no upkeep today")

    monkeypatch.setattr(Upkeep, "look", look)
    begun("A")
    assert wait_until(lambda: len(calls) > 2, PATIENCE_S)
    assert "no upkeep today" in caplog.text
