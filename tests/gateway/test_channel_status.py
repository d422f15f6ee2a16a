"""The status of channels with real processes: down and up again, restarts, two workers, probes."""

import json
import os
import signal
import time

import pytest

from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS
from store.channels.breakers import all_open
from store.channels.status import of_models
from store.db.database import discard, execute, open_database, snapshot_read
from store.values.ids import now_ms
from tests.support.client import exchange
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.gateway import Gateway
from tests.support.switched import Switched


@pytest.fixture
def upstream():
    made = Switched()
    yield made
    made.close()


@pytest.fixture
def start(tmp_path):
    made = []

    def launch(channels, **settings):
        models = sorted({model for one in channels for model in one["models"]})
        gateway = Gateway(tmp_path / "gateway", {"server.workers": 2, **settings})
        made.append(gateway)
        gateway.apply(document(models, channels))
        gateway.start()
        return gateway

    yield launch
    for gateway in made:
        gateway.close()


@pytest.fixture
def store(tmp_path):
    db = open_database(f"sqlite:///{tmp_path}/gateway/sluice.db")
    yield db
    discard(db)


def call(gateway, model="m1"):
    """Return the status of one call on a new connection; chance decides which worker gets it."""
    body = ask(CHAT, model)
    return exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), body).status


def status_of(gateway, model="m1"):
    """Return what `channel list` says of the first channel that serves a model."""
    for item in json.loads(gateway.run("channel", "list", "--json")):
        for one in item["status"]:
            if one["model"] == model:
                return one
    raise AssertionError(model)


def wait_for(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def owners(db):
    """Return the processes that report an open breaker."""
    return {one.journal_id for one in snapshot_read(db, lambda: all_open(db))}


def state_for_users(db):
    [status] = of_models(db, now_ms(), ["all"])
    return status.state


def test_down_through_a_restart_and_back(start, store, upstream):
    gateway = start([channel("one", CHAT, upstream.url, {"m1": "up"})])
    assert call(gateway) == 200
    wait_for(lambda: status_of(gateway)["windows"]["5m"]["calls"] == 1)
    upstream.way = "500"
    # Each worker opens its circuit after CONSECUTIVE_FAULTS of its own, and still tries channels.
    wait_for(lambda: call(gateway) and len(owners(store)) == 2)
    assert upstream.asked.count("500") >= CONSECUTIVE_FAULTS * 2
    down = wait_for(lambda: (s := status_of(gateway))["state"] == "down" and s)
    assert (down["reason"], down["last_error"]) == ("failing", "upstream_error")
    assert down["since"] >= down["last_ok_at"]
    assert state_for_users(store) == "down"
    said = json.loads(gateway.run("status", "--json"))
    assert said["channels"][0]["models"][0]["state"] == "down"
    assert [worker["open_breakers"] for worker in said["workers"]] == [1, 1]

    # A dead worker's report about the channel is removed.
    victim = gateway.worker_pids()[0]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(owners(store)) == 1)
    assert status_of(gateway)["state"] == "down"

    assert gateway.stop() == 0
    assert owners(store) == set()

    def forget_the_good_call():
        # As if the last successful call were older than the window.
        change = 'UPDATE "channel_sums" SET "ok" = 0 WHERE "span" = \'minute\''
        return execute(store, change).rowcount

    snapshot_read(store, forget_the_good_call)
    assert status_of(gateway)["state"] == "down"
    gateway.start()
    assert status_of(gateway)["state"] == "down"

    upstream.way = None
    assert call(gateway) == 200
    wait_for(lambda: status_of(gateway)["state"] != "down")
    assert status_of(gateway)["state"] == "degraded"
    for _ in range(20 * (upstream.asked.count("500") + 1)):
        assert call(gateway) == 200
    wait_for(lambda: status_of(gateway)["state"] == "available")
