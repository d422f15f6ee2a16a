"""Wrong wall clocks: set back by an hour and forward again while calls run; and a wrong clock on
one of two nodes."""

import datetime
import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from store.values.ids import ulid_ms
from tests.support import leash
from tests.support.client import Connection, wait_until
from tests.support.clock import FakeClock
from tests.support.dialects import CHAT
from tests.support.gateway import ROOT
from tests.support.load import (
    GOOD_PROMPTS,
    Load,
    Manner,
    check_books,
    gateway_before,
    names_in,
    send,
)
from tests.support.upstream import ScriptedUpstream

HOUR_S = 3600
STAGE_S = 1.5
BEATS_WITHIN_S = 20
TOLERANCE_MS = 1000 * (HOUR_S + 60)
LONGEST_MS = 60_000
TAIL_S = 20
MINUTES_S = 300
STEADY = Manner(callers=8, prompts=GOOD_PROMPTS, rest_s=0.05)


def test_a_clock_that_is_set_back_an_hour_harms_neither_calls_nor_books(tmp_path):
    clock = FakeClock()
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor:
        gateway = gateway_before(vendor, tmp_path / "node", {"server.workers": 2})
        gateway.env = clock.environment
        began_ms = int(time.time() * 1000)
        try:
            gateway.start()
            load = Load(gateway.port, "clock", STEADY)
            for seconds in (0, -HOUR_S, 0):
                clock.set_by(seconds)
                time.sleep(STAGE_S)
            load.stop()
            assert load.not_served() == []
            # Its last heartbeat may have the time that was set back.
            assert wait_until(lambda: state_of(gateway) == "ready", BEATS_WITHIN_S, step_s=1)
            records = check_books(gateway, names_in(tmp_path / "vendor.log"), [load])
            assert "Traceback" not in gateway.log()
            assert gateway.stop() == 0
        finally:
            gateway.close()
    check_times(records, began_ms)


def state_of(gateway):
    [node] = json.loads(gateway.run("nodes", "--json"))
    return node["state"]


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory, vendor, mariadb):
    """Yield two nodes of one MariaDB, of which the second has a clock of its own, and that
    clock."""
    folder = tmp_path_factory.mktemp("clock")
    clock = FakeClock()
    first = gateway_before(vendor, folder / "node", {"store.url": mariadb.fresh_url()})
    second = first.sibling("second")
    second.env = clock.environment
    try:
        first.start()
        second.start()
        yield first, second, clock
    finally:
        second.close()
        first.close()


def test_tail_loses_no_record_of_a_node_whose_clock_is_minutes_off(two_nodes):
    first, second, clock = two_nodes
    argv = [sys.executable, str(ROOT / "app.py"), "usage", "tail", "-f", "--json"]
    tail = leash.Popen([*argv, "--config", str(first.config)], stdout=subprocess.PIPE, text=True)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(tail.stdout))
    reader.start()
    called = []
    try:
        for seconds in (0, -MINUTES_S, 0, MINUTES_S):
            clock.set_by(seconds)
            for gateway in (first, second, first):
                with Connection(gateway.port) as connection:
                    send(connection, CHAT, f"call-clock-{len(called)}")
                    called.append(connection.read().headers["x-request-id"])
                # Booked before the next call: a record of a clock that is ahead must not hide
                # later ones.
                assert wait_until(lambda: any(called[-1] in line for line in lines), TAIL_S)
    finally:
        tail.send_signal(signal.SIGINT)
        assert tail.wait(10) == 0
        reader.join()
        tail.stdout.close()
    records = [json.loads(line) for line in lines]
    assert [record["id"] for record in records] == called, "each once"
    at = [datetime.datetime.fromisoformat(record["recorded_at"]) for record in records]
    assert at == sorted(at)
    off = [
        at - datetime.datetime.fromisoformat(r["started_at"])
        for at, r in zip(at, records, strict=True)
    ]
    assert max(off).total_seconds() > MINUTES_S / 2 > -MINUTES_S / 2 > min(off).total_seconds()


def test_a_clock_that_is_minutes_off_is_a_warning_at_the_start(two_nodes):
    first, second, clock = two_nodes
    assert "this node's clock is" not in first.log() + second.log()
    assert second.stop() == 0
    clock.set_by(MINUTES_S)
    second.start()
    words = f"this node's clock is {MINUTES_S} s ahead of the database's"
    assert wait_until(lambda: words in second.log(), 15)
    for node, lead_s in ((first, 0), (second, MINUTES_S)):
        _, _, text = node.call("GET", "/metrics", port=node.ops_port)
        (line,) = [one for one in text.splitlines() if one.startswith(b"sluice_clock_lead_seconds")]
        assert abs(float(line.split()[1]) - lead_s) < 2
        _, _, status = node.call("GET", "/status", port=node.ops_port)
        assert abs(json.loads(status)["clock_lead_s"] - lead_s) < 2


def check_times(records, began_ms):
    """Check that ids and times follow the clock's changes in both directions."""
    ids = [record["id"] for record in records]
    assert len(set(ids)) == len(ids)
    back = [call_id for call_id in ids if ulid_ms(call_id) < began_ms - HOUR_S * 500]
    assert 0 < len(back) < len(ids), "the clock was not set back, or for good"
    apart = 0
    for record in records:
        at_ms = ulid_ms(record["id"])
        started = datetime.datetime.fromisoformat(record["started_at"])
        # The id contains the day of the record; id and start time are taken one after the other.
        apart += abs(started.timestamp() * 1000 - at_ms) >= 1000
        assert abs(at_ms - began_ms) < TOLERANCE_MS, record
        # Durations are of the monotonic clock, whatever happens to the other one.
        assert 0 <= record["ttft_ms"] <= record["duration_ms"] < LONGEST_MS, record
    assert apart <= 2, "beside calls that began just as the clock was set"
