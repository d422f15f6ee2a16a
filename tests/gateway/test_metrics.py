"""/metrics of a whole gateway: one scrape has all workers, no counter falls, and they match the
records."""

import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import ALL, CHAT, ask, credentials, path_of
from tests.support.documents import channel, document
from tests.support.metrics import scrape

MODEL = "demo-small"
SETTINGS = {"server.workers": 2, "log.level": "warning"}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    """Return a gateway whose counters add up from test to test; the last tests drain and reload
    it."""
    channels = [channel(one, one, vendor.url, {MODEL: MODEL}) for one in ALL]
    return launch(document([MODEL], channels), SETTINGS, follow=False, shared=False)


def call(gateway, family, stream=False):
    path, body = path_of(family, MODEL, stream), ask(family, MODEL, "hello", stream=stream)
    return exchange(gateway.port, "POST", path, credentials(family), body)


def counted(metrics):
    """Return the number of calls with a record, by the labels of the counter."""
    found = Counter()
    for sample in metrics.of("sluice_requests_total"):
        labels = sample.labels
        if labels["group"]:
            kind = (labels["endpoint"], labels["model"], labels["status"], labels["error_code"])
            found[kind] += sample.value
    return found


def recorded(gateway):
    return Counter(
        (record["endpoint"], MODEL, str(record["status"] or ""), record["error_code"] or "")
        for record in gateway.usage()
    )


class Watch:
    """A thread that scrapes continuously and checks that no counter falls."""

    def __init__(self, gateway):
        self._gateway = gateway
        self._ended = threading.Event()
        self.fallen, self.scrapes = [], 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(30)
        assert self.fallen == [] and self.scrapes > 5

    def _run(self):
        before = {}
        while not self._ended.wait(0.05):
            now = scrape(self._gateway).counters()
            self.fallen += [one for one in before if now.get(one, 0) < before[one]]
            before, self.scrapes = now, self.scrapes + 1


def test_calls_are_counted_as_they_are_recorded_though_workers_are_killed_and_replaced(gateway):
    def load(count):
        with ThreadPoolExecutor(8) as pool:
            for number in range(count):
                pool.submit(attempt, number)

    def attempt(number):
        try:
            call(gateway, ALL[number % 4], stream=number % 3 == 0)
        except OSError:
            pass  # its worker was killed

    with Watch(gateway):
        load(40)
        killed = threading.Timer(0.05, os.kill, (gateway.worker_pids()[0], signal.SIGKILL))
        killed.start()
        load(150)
        killed.join()
        assert wait_until(lambda: len(gateway.worker_pids()) == 2, 10)
        load(20)
        gateway.process.send_signal(signal.SIGHUP)
        load(60)
        assert wait_until(lambda: scrape(gateway).one("sluice_workers_ready") == 2, 10)
        load(20)
    assert wait_until(lambda: counted(scrape(gateway)) == recorded(gateway), 15), (
        counted(scrape(gateway)) - recorded(gateway),
        recorded(gateway) - counted(scrape(gateway)),
    )
    metrics, records = scrape(gateway), gateway.usage()
    assert metrics.sum("sluice_worker_restarts_total") == 1
    assert metrics.sum("sluice_request_duration_seconds_count") == len(records)
    for kind in ("input", "output", "reasoning"):
        told = sum(record[f"{kind}_tokens"] for record in records)
        assert metrics.sum("sluice_tokens_total", type=kind) == told
    cost = sum(float(record["cost"]) for record in records)
    assert metrics.sum("sluice_cost_total", currency="USD") == pytest.approx(cost)
    assert metrics.one("sluice_config_reload_success") == 1


def test_what_runs_and_who_leaves(gateway):
    running = ("sluice_streams_in_flight", "sluice_calls_in_flight", "sluice_connections")
    body = ask(CHAT, MODEL, "[[demo chunks=100 ms=50]]", stream=True)
    with Connection(gateway.port) as client:
        client.request("POST", path_of(CHAT, MODEL), credentials(CHAT), body)
        assert client.read_head().status == 200
        assert wait_until(lambda: all(scrape(gateway).one(one) >= 1 for one in running))
    assert wait_until(lambda: not any(scrape(gateway).one(one) for one in running))
    assert scrape(gateway).one("sluice_client_disconnects_total", phase="answer") == 1


def test_backup_proof_of_the_books_and_parked_records_are_seen(gateway):
    ages = ("sluice_backup_age_seconds", "sluice_books_verify_age_seconds")
    metrics = scrape(gateway)
    assert metrics.one("sluice_records_parked") == 0
    assert not any(metrics.of(name) for name in (*ages, "sluice_hub_up"))  # it is not enabled
    gateway.run("backup", str(gateway.folder / "backup.tar"))
    gateway.run("books", "verify")
    assert wait_until(lambda: all(scrape(gateway).of(name) for name in ages), 60)
    restarts = scrape(gateway).sum("sluice_worker_restarts_total")
    for pid in gateway.worker_pids():
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: scrape(gateway).sum("sluice_worker_restarts_total") == restarts + 2)
    # Those that have seen it are gone.
    assert all(0 <= scrape(gateway).one(name) < 60 for name in ages)
    assert wait_until(lambda: gateway.ready_workers() == 2)


def test_a_refused_reload_is_seen(gateway):
    before = scrape(gateway).one("sluice_config_reload_timestamp_seconds")
    assert abs(before - time.time()) < 60
    text = gateway.config.read_text()
    gateway.config.write_text(text + "\n[nonsense]\nx = 1\n")
    gateway.process.send_signal(signal.SIGHUP)
    assert wait_until(lambda: scrape(gateway).one("sluice_config_reload_success") == 0)
    assert scrape(gateway).one("sluice_config_reload_timestamp_seconds") == before
    gateway.config.write_text(text)
    gateway.process.send_signal(signal.SIGHUP)
    assert wait_until(lambda: scrape(gateway).one("sluice_config_reload_success") == 1)
    assert scrape(gateway).one("sluice_config_reload_timestamp_seconds") > before


def test_limits_and_drain_are_seen(gateway):
    gateway.run("group", "set", "all", "rpm=1")
    assert wait_until(lambda: call(gateway, CHAT).status == 429)
    assert scrape(gateway).one("sluice_rate_limited_total", limit="group_rpm") >= 1
    assert scrape(gateway).one("sluice_draining") == 0
    gateway.call("POST", "/drain", port=gateway.ops_port)
    assert scrape(gateway).one("sluice_draining") == 1
