"""Refused upstream keys: confirmed by the gateway's own request, suspended for all workers and
nodes, and resumed. A refusal to just one caller suspends nothing."""

import contextlib
import itertools
import json
import time

import pytest

from adapters.faults import CODES, Condition
from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, SECRET, ask, credentials, path_of
from tests.support.documents import channel, document
from tests.support.echo import ANSWER, ERROR
from tests.support.metrics import scrape
from tests.support.switched import LIST, WRONG, Vendor

CHANGES_AFTER_S = 2.5  # by then a running gateway has applied them
OTHER_SECRET = "sk-test-of-another-user-0123456789"
MISCONFIGURED = CODES[Condition.CHANNEL_MISCONFIGURED]
VERIFY = {"error": {"message": "Your organization must be verified to stream this model.",
                    "type": "invalid_request_error"}}  # fmt: skip
USED_UP = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
TO_ONE = {"one-401": (401, True), "one-403": (403, False)}
LISTS = {"refused": (401, WRONG, {}), "public": (200, LIST, {}), "missing": (404, ERROR, {})}
# place: the vendor's answers to the bad key: to calls, and to a request for its list of models
REFUSED = {
    "refused": (401, WRONG, "refused"),
    "public": (401, WRONG, "public"),
    "missing": (403, WRONG, "missing"),
    "used-up": (429, USED_UP, "public"),
}
SHARED = "shared"  # of the gateway with two workers
PLACES = (*TO_ONE, *REFUSED, SHARED)
serial = itertools.count()


@pytest.fixture(scope="module")
def vendors():
    with contextlib.ExitStack() as stack:
        yield {place: stack.enter_context(contextlib.closing(Vendor())) for place in PLACES}


def content(vendors, places):
    channels = []
    for place in places:
        keys = ["sk-only"] if place in TO_ONE else ["sk-bad", "sk-good"]
        channels.append(channel(place, CHAT, vendors[place].url, {place: "up"}, keys=keys))
    made = document(places, channels)
    made["user"].append({"name": "other", "balance": "100"})
    made["key"].append({"user": "other", "name": "k", "group": "all", "secret": OTHER_SECRET})
    return made


@pytest.fixture(scope="module")
def gateway(launch, vendors):
    return launch(content(vendors, PLACES[:-1]))


def call(gateway, place, prompt=None, secret=SECRET):
    """Make a call. Without a prompt it is a new conversation: equal conversations stay with one
    key."""
    body = ask(CHAT, place, prompt or f"Say {next(serial)}.")
    return exchange(gateway.port, "POST", path_of(CHAT, place), credentials(CHAT, secret), body)


def code(answer):
    return None if answer.status == 200 else answer.json["error"]["code"]


def log_of(gateway, place, words):
    lines = gateway.log().splitlines()
    return [line for line in lines if words in line and f"channel={place} " in line]


def suspended(gateway, place):
    return log_of(gateway, place, "key refused, circuit opened")


def shown(gateway, place):
    return json.loads(gateway.run("channel", "show", place, "--json"))["keys_aside"]


def refuse_bad_key(status=401, body=WRONG, wait_s=0.0):
    def behave(prompt, key):
        time.sleep(wait_s)
        return (status, body, {}) if key == "sk-bad" else (200, ANSWER, {})

    return behave


# ---- one caller ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", TO_ONE)
def test_what_is_refused_to_one_caller_is_refused_to_nobody_else(gateway, vendors, place):
    (status, lists), vendor = TO_ONE[place], vendors[place]
    vendor.behave = lambda prompt, key: (
        (status, VERIFY, {}) if prompt == "special" else (200, ANSWER, {})
    )
    vendor.list = lambda key: LISTS["public" if lists else "missing"]
    for _ in range(3):
        assert code(call(gateway, place, "special")) == MISCONFIGURED
    assert wait_until(lambda: log_of(gateway, place, "refused to one call only"))
    for _ in range(2 * CONSECUTIVE_FAULTS):
        assert code(call(gateway, place, "special")) == MISCONFIGURED
        assert code(call(gateway, place, "usual", OTHER_SECRET)) is None
    # The other user gets the refusal too, as the second one.
    assert code(call(gateway, place, "special", OTHER_SECRET)) == MISCONFIGURED
    assert code(call(gateway, place, "usual")) is None
    assert suspended(gateway, place) == []
    assert vendor.count("sk-only", "GET") <= 1


@pytest.mark.parametrize("place", REFUSED)
def test_a_key_that_is_refused_as_such_is_suspended(gateway, vendors, place):
    """The gateway's own request confirms it: one user is enough, and calls go on with the other
    key."""
    (status, body, lists), vendor = REFUSED[place], vendors[place]
    vendor.behave, vendor.list = refuse_bad_key(status, body), lambda key: LISTS[lists]
    while not vendor.count("sk-bad"):
        answer = call(gateway, place)
        assert code(answer) is None
    attempts = gateway.record(answer.call_id)["attempts"]
    assert [one["error"] for one in attempts] == [MISCONFIGURED, None]
    assert wait_until(lambda: suspended(gateway, place))
    met = vendor.count("sk-bad")
    assert met <= 2  # the call, and the gateway's own request
    assert all(code(call(gateway, place)) is None for _ in range(20))
    assert vendor.count("sk-bad") == met
    [line], [key] = suspended(gateway, place), shown(gateway, place)
    assert "upstream_key=1/2" in line and "sk-" not in line
    assert f"upstream status {status}" in key["reason"]


# ---- all workers and nodes -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_workers(launch, vendors):
    return launch(content(vendors, [SHARED]), {"server.workers": 2}, follow=False)


def served(gateway, times):
    return all(call(gateway, SHARED).status == 200 for _ in range(times))


def test_what_one_worker_meets_all_workers_and_nodes_keep_to(two_workers, vendors):
    """The suspension survives a restart; an operator ends it."""
    vendor, other = vendors[SHARED], two_workers.sibling("other")
    gauge = "sluice_upstream_keys_suspended"
    vendor.behave, vendor.list = refuse_bad_key(), lambda key: LISTS["refused"]
    other.start()
    try:
        while not vendor.count("sk-bad"):
            assert served(two_workers, 1)
        time.sleep(CHANGES_AFTER_S)
        assert served(two_workers, 20) and served(other, 20)
        assert vendor.count("sk-bad") == 1
        [key] = shown(two_workers, SHARED)
        assert (key["position"], key["times"]) == (1, 1)
        assert key["reason"] == "upstream status 401" and key["since"] < key["until"]
        assert len(suspended(two_workers, SHARED) + suspended(other, SHARED)) == 1
        assert scrape(two_workers).one(gauge, channel=SHARED) == 1
    finally:
        other.stop()
    assert two_workers.stop() == 0
    two_workers.start()
    assert served(two_workers, 20)
    assert vendor.count("sk-bad") == 1

    vendor.behave = lambda prompt, key: (200, ANSWER, {})
    two_workers.run("channel", "reinstate", SHARED, "--key", "2", code=1)
    printed = two_workers.run("channel", "reinstate", SHARED, "--key", "1", "--json")
    assert json.loads(printed) == {"channel": SHARED, "reinstated": 1}
    assert shown(two_workers, SHARED) == []
    time.sleep(CHANGES_AFTER_S)
    assert scrape(two_workers).one(gauge, channel=SHARED) == 0
    assert served(two_workers, 40)
    assert vendor.count("sk-bad") > 1
