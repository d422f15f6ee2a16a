"""The last channel is never refused by us, over real sockets: neither one caller nor a bad second
takes it from the others."""

import json
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
from tests.support.switched import LIST, WRONG, Vendor

AT_ONCE, GOOD_CALLS = 40, 320
OTHER_SECRET = "sk-test-of-another-user-0123456789"


@pytest.fixture
def upstream():
    made = Vendor()
    yield made
    made.close()


@pytest.fixture
def gateway(launch_own, upstream):
    return launch_with(launch_own, upstream, ["sk-only"])


def launch_with(launch_own, upstream, keys, **settings):
    only = channel("only", CHAT, upstream.url, {"m": "up"}, keys=keys)
    made = document(["m"], [only])
    made["user"].append({"name": "other", "balance": "100"})
    made["key"].append({"user": "other", "name": "k", "group": "all", "secret": OTHER_SECRET})
    return launch_own(made, {**settings})


def call(gateway, prompt, secret=SECRET):
    headers = credentials(CHAT, secret)
    return exchange(gateway.port, "POST", PATHS[CHAT], headers, ask(CHAT, "m", prompt))


def code(answer):
    return None if answer.status == 200 else answer.json["error"]["code"]


def test_one_big_calls_429_stops_nobody(gateway, upstream):
    def behave(prompt, key):
        if prompt == "big":
            return 429, {"error": {"message": "tokens per minute"}}, {"Retry-After": "20"}
        return 200, ANSWER, {}

    upstream.behave = behave
    assert code(call(gateway, "big")) == "upstream_rate_limited"
    began = time.monotonic()
    assert [code(call(gateway, "small", OTHER_SECRET)) for _ in range(20)] == [None] * 20
    assert time.monotonic() - began < 15


def test_calls_beyond_the_trials_are_told_to_come_again_in_a_second(gateway, upstream):
    upstream.behave = lambda prompt, key: (429, ERROR, {"Retry-After": "20"})
    assert code(call(gateway, "first")) == "upstream_rate_limited"
    asked, hold = len(upstream.asked), threading.Event()

    def slow(prompt, key):
        hold.wait(10)
        return 200, ANSWER, {}

    upstream.behave = slow
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(call, gateway, "trial")
        assert wait_until(lambda: len(upstream.asked) > asked)
        refused = call(gateway, "beyond")
        hold.set()
        assert code(trial.result()) is None
    assert (refused.status, code(refused)) == (429, "upstream_rate_limited")
    assert refused.headers["retry-after"] == "1"
    assert code(call(gateway, "after")) is None


def test_an_upstream_that_hangs_is_asked_by_few_at_a_time(launch_own, upstream):
    gateway = launch_with(launch_own, upstream, ["sk-only"], **{"upstream.first_byte_timeout_s": 2})
    hold = threading.Event()

    def hang(prompt, key):
        hold.wait(20)
        return 200, ANSWER, {}

    upstream.behave = hang
    try:
        with ThreadPoolExecutor(CONSECUTIVE_FAULTS) as pool:
            codes = list(
                pool.map(lambda n: code(call(gateway, f"Talk {n}")), range(CONSECUTIVE_FAULTS))
            )
        assert codes == ["upstream_timeout"] * CONSECUTIVE_FAULTS
        assert wait_until(lambda: "circuit opened" in gateway.log())
        before = len(upstream.asked)
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda n: call(gateway, f"More {n}"), range(10)))
        # One for ten calls, at least one; a second later another one may ask.
        assert 1 <= len(upstream.asked) - before <= 2
        refused = [one for one in answers if one.status == 503]
        assert len(refused) >= 8 and {code(one) for one in refused} == {"no_channel_available"}
        assert {one.headers["retry-after"] for one in refused} == {"1"}
        record = gateway.record(refused[0].call_id)
        assert (record["outcome"], record["attempts"], record["cost"]) == ("refused", [], "0")
    finally:
        hold.set()
    upstream.behave = lambda prompt, key: (200, ANSWER, {})
    time.sleep(LAST_RESORT_WAIT_S)
    assert code(call(gateway, "again")) is None
    with ThreadPoolExecutor(10) as pool:
        codes = list(pool.map(lambda n: code(call(gateway, f"Well {n}")), range(10)))
    assert codes == [None] * 10


@pytest.mark.parametrize("how", ["500", "refused"])
def test_after_an_outage_of_a_second_the_next_call_is_served(gateway, upstream, how):
    if how == "500":
        upstream.behave = lambda prompt, key: (500, ERROR, {})
        wanted = "upstream_error"
    else:
        upstream.away()
        wanted = "upstream_unreachable"
    deadline, seen = time.monotonic() + 1, []
    while time.monotonic() < deadline or len(seen) < 3 * CONSECUTIVE_FAULTS:
        seen.append(code(call(gateway, "now")))
    # The vendor's own error, and from no call it is kept by us.
    assert set(seen) <= {wanted, "upstream_error"}
    assert "circuit opened" in gateway.log()
    if how == "500":
        upstream.behave = lambda prompt, key: (200, ANSWER, {})
    else:
        upstream.back()
    assert [code(call(gateway, "again")) for _ in range(20)] == [None] * 20


def test_a_fifth_of_forty_at_once_fails_and_no_good_call_is_refused(gateway, upstream):
    def behave(prompt, key):
        if prompt == "bad":
            return 500, ERROR, {}
        time.sleep(0.3)
        return 200, ANSWER, {}

    upstream.behave = behave
    prompts = ["good"] * GOOD_CALLS + ["bad"] * (GOOD_CALLS // 4)
    random.Random(3).shuffle(prompts)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        codes = list(pool.map(lambda prompt: (prompt, code(call(gateway, prompt))), prompts))
        burst = list(pool.map(lambda _: code(call(gateway, "good")), range(AT_ONCE)))
    assert {found for prompt, found in codes if prompt == "bad"} == {"upstream_error"}
    assert [found for prompt, found in codes if prompt == "good"] == [None] * GOOD_CALLS
    assert burst == [None] * AT_ONCE
    assert "circuit opened" not in gateway.log()  # a fifth is no reason to open, either


# ---- upstream keys -------------------------------------------------------------------------------

VERIFY = {"error": {"message": "Your organization must be verified to stream this model.",
                    "type": "invalid_request_error"}}  # fmt: skip
USED_UP = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}


@pytest.mark.parametrize("status", [401, 402, 403])
@pytest.mark.parametrize("lists", [True, False])
def test_what_is_refused_to_one_caller_is_refused_to_nobody_else(gateway, upstream, status, lists):
    def behave(prompt, key):
        return (status, VERIFY, {}) if prompt == "special" else (200, ANSWER, {})

    upstream.behave = behave
    if not lists:
        upstream.list = lambda key: (404, ERROR, {})
    for _ in range(3):
        assert code(call(gateway, "special")) == "channel_misconfigured"
    assert wait_until(lambda: "refused to one call only" in gateway.log())
    for _ in range(2 * CONSECUTIVE_FAULTS):
        assert code(call(gateway, "special")) == "channel_misconfigured"
        assert code(call(gateway, "usual", OTHER_SECRET)) is None
    # The other user meets it, too, and is the second one to do so.
    assert code(call(gateway, "special", OTHER_SECRET)) == "channel_misconfigured"
    assert code(call(gateway, "usual")) is None
    assert "upstream key refused, circuit opened" not in gateway.log()
    assert upstream.count("sk-only", "GET") <= 1


@pytest.mark.parametrize(
    ("status", "body", "lists"),
    [
        (401, WRONG, "refused"),
        (401, WRONG, "public"),
        (401, WRONG, "missing"),
        (403, WRONG, "refused"),
        (403, WRONG, "missing"),
        (402, USED_UP, "public"),
        (429, USED_UP, "public"),
    ],
)
def test_a_key_that_is_refused_as_such_is_put_aside(launch_own, upstream, status, body, lists):
    """By a call of our own: one user is enough, and calls go on with the other key."""
    gateway = launch_with(launch_own, upstream, ["sk-bad", "sk-good"])

    def behave(prompt, key):
        return (status, body, {}) if key == "sk-bad" else (200, ANSWER, {})

    answers = {"refused": (401, WRONG, {}), "public": (200, LIST, {}), "missing": (404, ERROR, {})}
    upstream.behave = behave
    upstream.list = lambda key: answers[lists]
    number = 0
    while not upstream.count("sk-bad"):
        number += 1
        assert code(call(gateway, f"Conversation {number}")) is None
    assert wait_until(lambda: "refused, circuit opened" in gateway.log())
    met = upstream.count("sk-bad")
    assert met <= 2  # the call, and one word of ours
    assert all(code(call(gateway, f"Further {n}")) is None for n in range(20))
    assert upstream.count("sk-bad") == met
    [aside] = json.loads(gateway.run("channel", "show", "only", "--json"))["keys_aside"]
    assert f"upstream status {status}" in aside["reason"]


def test_a_second_user_confirms_what_the_vendor_does_not_tell_us(launch_own, upstream):
    """The list and our own word hang, as behind some proxies."""
    gateway = launch_with(launch_own, upstream, ["sk-bad"])
    upstream.behave = lambda prompt, key: (401, WRONG, {}) if prompt == "q" else (500, ERROR, {})
    upstream.list = lambda key: (500, ERROR, {})
    for _ in range(3):
        assert code(call(gateway, "q")) == "channel_misconfigured"
    assert "upstream key refused, circuit opened" not in gateway.log()
    assert code(call(gateway, "q", OTHER_SECRET)) == "channel_misconfigured"
    assert wait_until(lambda: "upstream key refused, circuit opened" in gateway.log())
    asked = len(upstream.asked)
    assert code(call(gateway, "q")) == "channel_misconfigured"
    assert len(upstream.asked) == asked


def test_few_calls_meet_a_wrong_key_before_it_is_aside(launch_own, upstream):
    gateway = launch_with(launch_own, upstream, ["sk-bad", "sk-good"])

    def behave(prompt, key):
        time.sleep(0.05)
        return (401, WRONG, {}) if key == "sk-bad" else (200, ANSWER, {})

    upstream.behave = behave
    upstream.list = lambda key: behave("", key)
    with ThreadPoolExecutor(10) as pool:
        codes = list(pool.map(lambda n: code(call(gateway, f"Talk {n}")), range(100)))
    assert codes == [None] * 100
    print(f"{upstream.count('sk-bad')} of 100 calls, ten at once, met the wrong key")
    # Those of two round trips: the first call's own, and that of the list.
    assert upstream.count("sk-bad") <= 20
    assert upstream.count("sk-bad", "GET") == 1
