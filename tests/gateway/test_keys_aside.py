"""Upstream keys that are refused: put aside for all workers and nodes, and taken back."""

import itertools
import json
import time

import pytest

from store.db.changes import CATALOG, bump
from store.db.database import discard, execute, open_database, transaction
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import GOOD, Echo, answer_of
from tests.support.metrics import scrape

CHANGES_AFTER_S = 2.5  # a running gateway has taken them in
MET = 2  # a call, and then the gateway's own, which asks for the list of models
_numbers = itertools.count()
REFUSAL = answer_of(401, {"error": {"message": "Incorrect API key sk-one", "type": "x"}})


class Vendor(Echo):
    """Refuses some keys."""

    def __init__(self):
        super().__init__()
        self.refused = {"sk-one"}
        self.answer = lambda request: REFUSAL if self.key_of(request) in self.refused else GOOD

    @staticmethod
    def key_of(request):
        return request.lower().partition("authorization: bearer ")[2].split("\r\n")[0]

    def asked(self, key):
        return [self.key_of(request) for request in self.requests].count(key)


@pytest.fixture
def vendor():
    upstream = Vendor()
    yield upstream
    upstream.close()


@pytest.fixture
def gateway(launch_own, vendor):
    only = channel("only", CHAT, vendor.url, {"m": "up"}, keys=["sk-one", "sk-two"])
    return launch_own(document(["m"], [only]), {"server.workers": 2}, follow=False)


def call(gateway):
    """A conversation of its own: equal ones keep to one key."""
    body = ask(CHAT, "m", f"Say {next(_numbers)}.")
    return exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), body)


def meet_refusal(gateway, vendor):
    """One call, by one worker, is refused with the first key and served with the next one; then
    all have heard of it."""
    before = vendor.asked("sk-one")
    while vendor.asked("sk-one") == before:
        answer = call(gateway)
    assert answer.status == 200
    time.sleep(CHANGES_AFTER_S)


def shown(gateway):
    return json.loads(gateway.run("channel", "show", "only", "--json"))["keys_aside"]


def test_what_one_worker_meets_all_workers_and_nodes_keep_to(gateway, vendor):
    other = gateway.sibling("other")
    other.start()
    try:
        meet_refusal(gateway, vendor)
        for node in (gateway, other):
            assert all(call(node).status == 200 for _ in range(20))
        assert vendor.asked("sk-one") == MET
        [aside] = shown(gateway)
        assert (aside["position"], aside["times"]) == (1, 1)
        assert aside["reason"] == "upstream status 401" and aside["since"] < aside["until"]
        told = [
            x for x in (gateway.log() + other.log()).splitlines() if "refused, circuit opened" in x
        ]
        assert len(told) == 1 and "upstream_key=1/2" in told[0] and "sk-" not in told[0]
    finally:
        other.close()
    assert gateway.stop() == 0
    gateway.start()
    assert all(call(gateway).status == 200 for _ in range(20))
    assert vendor.asked("sk-one") == MET


def test_a_probe_that_succeeds_brings_it_back_for_all(gateway, vendor):
    meet_refusal(gateway, vendor)
    vendor.refused.clear()
    db = open_database(f"sqlite:///{gateway.folder}/sluice.db")

    def end_it():
        execute(db, 'UPDATE "keys_aside" SET "until_ms" = ?', (time.time_ns() // 1_000_000,))
        bump(db, CATALOG, ["x"])

    transaction(db, end_it)
    discard(db)
    time.sleep(CHANGES_AFTER_S)
    assert all(call(gateway).status == 200 for _ in range(40))
    assert wait_until(lambda: not shown(gateway))
    before = vendor.asked("sk-one")
    time.sleep(CHANGES_AFTER_S)
    assert all(call(gateway).status == 200 for _ in range(100))
    assert 25 <= vendor.asked("sk-one") - before <= 75


def test_an_operator_takes_it_back(gateway, vendor):
    meet_refusal(gateway, vendor)
    assert scrape(gateway).one("sluice_upstream_keys_suspended", channel="only") == 1
    vendor.refused.clear()
    gateway.run("channel", "reinstate", "only", "--key", "2", code=1)
    said = json.loads(gateway.run("channel", "reinstate", "only", "--key", "1", "--json"))
    assert said == {"channel": "only", "reinstated": 1} and shown(gateway) == []
    time.sleep(CHANGES_AFTER_S)
    assert scrape(gateway).one("sluice_upstream_keys_suspended", channel="only") == 0
    assert all(call(gateway).status == 200 for _ in range(40))
    assert vendor.asked("sk-one") > MET


def test_a_replaced_key_is_used_at_once(gateway, vendor):
    meet_refusal(gateway, vendor)
    gateway.run("channel", "set", "only", "keys=sk-new,sk-two")
    assert shown(gateway) == []
    time.sleep(CHANGES_AFTER_S)
    assert all(call(gateway).status == 200 for _ in range(40))
    assert vendor.asked("sk-one") == MET and vendor.asked("sk-new") >= 3
