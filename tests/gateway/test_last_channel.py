"""The last channel is never refused by us, over real sockets: neither one caller nor a bad second
takes it from the others."""

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS
from handlers.relay.routing.health import LAST_RESORT_WAIT_S
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, PATHS, SECRET, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import ANSWER, ERROR
from tests.support.switched import Vendor

AT_ONCE, GOOD_CALLS = 40, 320
OTHER_SECRET = "sk-test-of-another-user-0123456789"
PLACES = ("big", "hangs", "fails", "refuses", "fifth")  # each a model with one channel
SETTINGS = {"upstream.first_byte_timeout_s": 3}


@pytest.fixture(scope="module")
def vendors():
    with contextlib.ExitStack() as stack:
        yield {place: stack.enter_context(contextlib.closing(Vendor())) for place in PLACES}


@pytest.fixture(scope="module")
def gateway(launch, vendors):
    channels = [
        channel(place, CHAT, vendor.url, {place: "up"}) for place, vendor in vendors.items()
    ]
    made = document(PLACES, channels)
    made["user"].append({"name": "other", "balance": "100"})
    made["key"].append({"user": "other", "name": "k", "group": "all", "secret": OTHER_SECRET})
    return launch(made, SETTINGS)


def call(gateway, place, prompt, secret=SECRET):
    headers = credentials(CHAT, secret)
    return exchange(gateway.port, "POST", PATHS[CHAT], headers, ask(CHAT, place, prompt))


def code(answer):
    return None if answer.status == 200 else answer.json["error"]["code"]


def codes_at_once(gateway, place, prompts, workers=10):
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda prompt: code(call(gateway, place, prompt)), prompts))


def good(prompt, key):
    return 200, ANSWER, {}


def opened(gateway, place):
    """The lines that say that the channel's circuit opened."""
    lines = gateway.log().splitlines()
    return [line for line in lines if "circuit opened" in line and f"channel={place} " in line]


def test_one_big_calls_429_stops_nobody(gateway, vendors):
    def behave(prompt, key):
        if prompt == "big":
            return 429, {"error": {"message": "tokens per minute"}}, {"Retry-After": "20"}
        return good(prompt, key)

    vendors["big"].behave = behave
    assert code(call(gateway, "big", "big")) == "upstream_rate_limited"
    began = time.monotonic()
    assert [code(call(gateway, "big", "small", OTHER_SECRET)) for _ in range(20)] == [None] * 20
    assert time.monotonic() - began < 15


def test_an_upstream_that_hangs_is_asked_by_few_at_a_time(gateway, vendors):
    vendor, hold = vendors["hangs"], threading.Event()

    def hang(prompt, key):
        hold.wait(20)
        return good(prompt, key)

    vendor.behave = hang
    try:
        prompts = [f"Talk {number}" for number in range(CONSECUTIVE_FAULTS)]
        codes = codes_at_once(gateway, "hangs", prompts)
        assert codes == ["upstream_timeout"] * CONSECUTIVE_FAULTS
        assert wait_until(lambda: opened(gateway, "hangs"))
        before = len(vendor.asked)
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda n: call(gateway, "hangs", f"More {n}"), range(10)))
        # One for ten calls, at least one; a second later another one may ask.
        assert 1 <= len(vendor.asked) - before <= 2
        refused = [one for one in answers if one.status == 503]
        assert len(refused) >= 8 and {code(one) for one in refused} == {"no_channel_available"}
        assert {one.headers["retry-after"] for one in refused} == {"1"}
        record = gateway.record(refused[0].call_id)
        assert (record["outcome"], record["attempts"], record["cost"]) == ("refused", [], "0")
    finally:
        hold.set()
    time.sleep(LAST_RESORT_WAIT_S)
    assert code(call(gateway, "hangs", "again")) is None
    prompts = [f"Well {number}" for number in range(10)]
    assert codes_at_once(gateway, "hangs", prompts) == [None] * 10


@pytest.mark.parametrize("place", ["fails", "refuses"])
def test_after_an_outage_of_a_second_the_next_call_is_served(gateway, vendors, place):
    vendor = vendors[place]
    if place == "fails":
        vendor.behave = lambda prompt, key: (500, ERROR, {})
    else:
        vendor.away()
    deadline, answers = time.monotonic() + 1, []
    while time.monotonic() < deadline or len(answers) < 3 * CONSECUTIVE_FAULTS:
        answers.append(call(gateway, place, "now"))
    # The vendor's own error, and from no call it is kept by us.
    assert {code(one) for one in answers} <= {"upstream_unreachable", "upstream_error"}
    assert place == "refuses" or len(vendor.asked) == len(answers)
    attempts = gateway.record(answers[-1].call_id)["attempts"]
    assert [one["channel"] for one in attempts] == [place]
    assert f"channel={place} model={place} upstream_key=1 cause=" in opened(gateway, place)[0]
    vendor.behave = good
    if place == "refuses":
        vendor.back()
    assert [code(call(gateway, place, "again")) for _ in range(20)] == [None] * 20


def test_a_fifth_of_forty_at_once_fails_and_no_good_call_is_refused(gateway, vendors):
    def behave(prompt, key):
        if prompt == "bad":
            return 500, ERROR, {}
        time.sleep(0.3)
        return good(prompt, key)

    vendors["fifth"].behave = behave
    prompts = ["good"] * GOOD_CALLS + ["bad"] * (GOOD_CALLS // 4)
    random.Random(3).shuffle(prompts)
    codes = codes_at_once(gateway, "fifth", prompts, AT_ONCE)
    expected = {"good": None, "bad": "upstream_error"}
    assert codes == [expected[prompt] for prompt in prompts]
    assert codes_at_once(gateway, "fifth", ["good"] * AT_ONCE, AT_ONCE) == [None] * AT_ONCE
    assert opened(gateway, "fifth") == []  # a fifth is no reason to open, either
