"""Limits of keys, users, groups, channels and upstream keys through real sockets.

They are exact over two workers, and every slot is returned; full channels are skipped. Each case
has users, a model and channels of its own. Where a key and a channel have the same limit, the
key's is checked first; the test notices if either slot is not returned.
"""

import contextlib
import itertools
import os
import signal
import time
from collections import Counter

import pytest

from tests.support import dialects
from tests.support.client import Closed, Connection, exchange, wait_until
from tests.support.coins import check_free_refusal
from tests.support.documents import CREDIT, channel, document
from tests.support.served_by import gateway_calls, who_serves
from tests.support.wallets import joined, owners, secret_of

CROWD = 500
ENDLESS = "[[demo ms=1000 chunks=900]]"
SHORT = "[[demo ms=50 chunks=10]]"
STALL = "[[demo stall_before_head]]"
# how an attempt fails, and whether the call streams
OUTS = (("status=500", False), ("reset_before_head", False), ("cut=3", True))
# Phases of calls in which their clients disconnect: (prompt, stream).
PHASES = (
    (ENDLESS, True),
    (STALL, True),
    (STALL, False),
    ("[[demo stall_after_head]]", True),
    ("[[demo slow_body]]", False),
)


TWO_KEYS = ["sk-up-1", "sk-up-2"]
# model: the channels that serve it, highest priority first
PLACES = {
    "free": [{}],
    "left": [{"concurrency": 100}],
    "killed": [{"concurrency": 30, "keys": TWO_KEYS, "key_concurrency": 20}],
    "spill-keys": [{"keys": TWO_KEYS, "key_rpm": 2}, {}],
    "one": [{"concurrency": 1, "rpm": 1000, "tpm": 10**6}],
    **{f"out-{number}": [{"concurrency": 1}] for number in range(len(OUTS))},
    "tokens-keys": [{"keys": TWO_KEYS, "key_tpm": 4000}],
    "changed": [{"rpm": 1}],
}
FREE = "free"
# Users, each with one key that has these limits.
LIMITS = {
    "many": {"rpm": 200},
    "crowd": {"concurrency": 100},
    "killed": {"concurrency": 30},
    "killed-rpm": {"rpm": 1},
    "one": {"concurrency": 1},
    "tokens": {"tpm": 3000},
    "changed": {"rpm": 1},
}
GROUPS = {"few": {"rpm": 3}, "swapped": {"concurrency": 1}, "left": {"concurrency": 100}}
USERS = {"user-rpm": {"rpm": 4}, "user-tpm": {"tpm": 10**6}, "user-calls": {"concurrency": 1}}


def channels_of(place, url):
    for number, fields in enumerate(PLACES[place]):
        more = {"priority": -number, "groups": ["all", *GROUPS], **fields}
        yield channel(f"{place}-{number}", dialects.CHAT, url, {place: "demo-small"}, **more)


def user_of_two_keys(name, **limits):
    key = {"user": name, "group": "all"}
    return {
        "user": [{"name": name, "balance": CREDIT, **limits}],
        "key": [{**key, "name": n, "secret": secret_of(f"{name}-{n}")} for n in ("a", "b")],
    }


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    channels = [one for place in PLACES for one in channels_of(place, vendor.url)]
    whole = document(PLACES, channels)
    whole["group"] += [{"name": name, **limits} for name, limits in GROUPS.items()]
    free = {"input": "0", "output": "0"}
    whole["model"] = [
        {"name": model["name"], "price": free if "free" in model["name"] else model["price"]}
        for model in whole["model"]
    ]
    people = [owners([name], CREDIT, **limits) for name, limits in LIMITS.items()]
    people += [owners([f"{group}-1", f"{group}-2"], CREDIT, group=group) for group in GROUPS]
    people += [user_of_two_keys(name, **limits) for name, limits in USERS.items()]
    return launch(joined(whole, *people), {"server.workers": 2, "upstream.commit_after_s": 0})


def request_of(who, place, prompt, stream, **more):
    """Return (path, headers, body) of a call with the key of `who`, by default the key without
    limits."""
    key = (secret_of(who),) if who else ()
    body = dialects.ask(dialects.CHAT, place, prompt, stream, **more)
    return dialects.PATHS[dialects.CHAT], dialects.credentials(dialects.CHAT, *key), body


def call(gateway, who=None, place=FREE, prompt="Say something.", *, stream=False, **more):
    """Make one call; return its answer."""
    return exchange(gateway.port, "POST", *request_of(who, place, prompt, stream, **more))


def statuses_of(gateway, who=None, place=FREE, times=6):
    return [call(gateway, who, place).status for _ in range(times)]


def send(gateway, who=None, place=FREE, prompt=ENDLESS, *, stream=True):
    """Start a call that keeps running; return its connection."""
    connection = Connection(gateway.port, patience_s=60)
    connection.request("POST", *request_of(who, place, prompt, stream))
    return connection


@contextlib.contextmanager
def running(gateway, number, who=None, place=FREE):
    """Start this many calls at once; yield the connections of streams, and refused ones with their
    answers."""
    with contextlib.ExitStack() as stack:
        sent = [stack.enter_context(send(gateway, who, place)) for _ in range(number)]
        streams, refused = [], []
        for connection in sent:
            answer = connection.read_head()
            if answer.status == 200:
                streams.append(connection)
            else:
                connection.read_body(answer)
                refused.append((connection, answer))
        yield streams, refused


def check_wait(answer, family, expected_s, within_s=10):
    """Check an E20 and that its wait is correct; return its message."""
    wait_s = answer.headers["retry-after"]
    assert expected_s - within_s <= int(wait_s) <= expected_s
    hidden = {n: answer.headers.pop(n) for n in list(answer.headers) if "ratelimit" in n}
    message = dialects.check_refusal(answer, family, "E20", retry_after=wait_s)
    answer.headers.update(hidden)
    assert message.endswith(f"Try again in {wait_s}s.")
    return message


# ---- exact limits --------------------------------------------------------------------------------


def test_requests_a_minute_are_exact_over_two_workers(gateway):
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        sent = [
            stack.enter_context(send(gateway, "many", prompt="Say something.", stream=False))
            for _ in range(CROWD)
        ]
        answers = [connection.read() for connection in sent]
    seconds = time.monotonic() - begin
    served = Counter(answer.status for answer in answers)
    assert set(served) == {200, 429}
    assert 198 <= served[200] <= 200 + seconds * 200 / 60
    messages = {check_wait(answer, dialects.CHAT, 1) for answer in answers if answer.status == 429}
    assert messages == {"Rate limit reached: 200 requests per minute. Try again in 1s."}


def test_running_calls_are_exact_over_two_workers(gateway):
    with running(gateway, 20, "crowd") as (first, refused):
        # Of the crowd's hundred calls one worker may serve all, while the other gets no turn.
        assert set(who_serves(gateway, *first)) == set(gateway.worker_pids())
        assert refused == []
        with running(gateway, CROWD, "crowd") as (streams, refused):
            assert (len(streams), len(refused)) == (80, CROWD - 80)
    answer = refused[0][1]
    message = dialects.check_refusal(answer, dialects.CHAT, "E20")
    assert message == "Rate limit reached: 100 concurrent calls. Try again in 3s."
    check_free_refusal(gateway.record(answer.call_id))


# ---- full channels are skipped -------------------------------------------------------------------


def test_what_is_full_is_passed_over_and_nothing_is_held_against_it(gateway):
    answers = [call(gateway, place="spill-keys") for _ in range(12)]
    assert {answer.status for answer in answers} == {200}
    attempts = [gateway.record(answer.call_id)["attempts"] for answer in answers]
    served = Counter(attempt["channel"] for [attempt] in attempts)  # each call had one attempt
    assert served == {"spill-keys-0": 4, "spill-keys-1": 8}
    assert "channel spill-keys-0" not in gateway.log()


# ---- return of slots -----------------------------------------------------------------------------


def test_clients_that_leave_in_any_phase_give_back_what_group_and_channel_allow(gateway):
    assert wait_until(lambda: gateway_calls(gateway) == 0)
    for turn in range(2):  # a slot that was not returned shows at the end
        with contextlib.ExitStack() as stack:
            sent = [
                stack.enter_context(
                    send(gateway, f"left-{1 + number % 2}", "left", prompt, stream=stream)
                )
                for number, (prompt, stream) in zip(range(100), itertools.cycle(PHASES))
            ]
            assert wait_until(lambda: gateway_calls(gateway) >= 80), turn
            for connection in sent:
                connection.reset()
        assert wait_until(lambda: gateway_calls(gateway) == 0), turn
    for who in ("left-1", None):  # the group's limit, the channel's
        with running(gateway, 101, who, "left") as (streams, refused):
            assert (len(streams), len(refused)) == (100, 1)
        assert wait_until(lambda: gateway_calls(gateway) == 0)


def test_a_stream_holds_its_slot_until_it_ends(gateway):
    with send(gateway, "one", "one", SHORT) as connection:
        answer = connection.read_head()
        assert answer.status == 200
        dialects.check_refusal(call(gateway, "one"), dialects.CHAT, "E20")
        # The refusal gives no wait, because nobody knows when a running call ends.
        dialects.check_refusal(call(gateway, place="one"), dialects.CHAT, "E09")
        connection.read_body(answer)
    assert answer.whole
    # The slot is free before the last bytes are sent.
    assert statuses_of(gateway, "one", "one") == [200] * 6


@pytest.mark.parametrize("number", range(len(OUTS)))
def test_an_attempt_that_fails_gives_its_slots_back(gateway, number):
    (script, stream), place = OUTS[number], f"out-{number}"
    call(gateway, "one", place, f"[[demo {script}]]", stream=stream)
    assert statuses_of(gateway, "one", place, times=3) == [200] * 3


def test_a_killed_workers_slots_are_free_and_its_rates_are_not_forgotten(gateway):
    assert call(gateway, "killed-rpm").status == 200
    with running(gateway, 30, "killed", "killed") as (streams, refused):
        assert (len(streams), len(refused)) == (30, 0)
        serving = who_serves(gateway, *streams)
        victim = serving[0]
        lost = serving.count(victim)
        assert 0 < lost < 30
        os.kill(victim, signal.SIGKILL)
        assert wait_until(lambda: victim not in gateway.worker_pids())
        assert wait_until(lambda: gateway.ready_workers() == 2, 20)
        assert wait_until(lambda: call(gateway, "killed", "killed").status == 200)
        with running(gateway, lost + 5, "killed", "killed") as (again, refused):
            assert (len(again), len(refused)) == (lost, 5)
    assert wait_until(lambda: len(gateway.worker_pids()) == 2)
    with contextlib.suppress(Closed, ConnectionError):
        check_wait(call(gateway, "killed-rpm"), dialects.CHAT, 60, within_s=50)


# ---- tokens --------------------------------------------------------------------------------------


def use_up(gateway, who=None, place=FREE):
    """Make calls until one is refused; return that answer."""
    deadline = time.monotonic() + 30
    while (answer := call(gateway, who, place, "word " * 2000)).status == 200:
        assert time.monotonic() < deadline
    return answer


@pytest.mark.parametrize(("who", "place"), [("tokens", FREE), (None, "tokens-keys")])
def test_tokens_of_keys_and_channels_are_settled_by_usage(gateway, who, place):
    # The whole bound is reserved; at the end all but the few tokens used is returned.
    answers = [call(gateway, who, place, max_tokens=10**6) for _ in range(5)]
    # Calls that were not sent, or failed, used none.
    script = "[[demo status=400]]"
    answers += [call(gateway, who, place, script, max_tokens=3000) for _ in range(5)]
    assert [answer.status for answer in answers] == [200] * 5 + [400] * 5
    refused = use_up(gateway, who, place)
    if who is None:
        wait_s = refused.headers["retry-after"]
        dialects.check_refusal(refused, dialects.CHAT, "E09", retry_after=wait_s)
    else:
        message = check_wait(refused, dialects.CHAT, 60, within_s=59)
        assert message.startswith("Rate limit reached: 3000 tokens per minute. Try again in ")


# ---- groups, users, and changes ------------------------------------------------------------------


def test_limits_of_groups_and_users_are_shared_by_their_keys(gateway):
    statuses = [call(gateway, f"few-{1 + turn % 2}").status for turn in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    answers = [call(gateway, f"user-rpm-{'ab'[turn % 2]}") for turn in range(6)]
    assert [answer.status for answer in answers] == [200] * 4 + [429] * 2
    left = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
    assert left == ["3", "2", "1", "0", "0", "0"]
    with send(gateway, "user-calls-a") as connection:
        assert connection.read_head().status == 200
        dialects.check_refusal(call(gateway, "user-calls-b"), dialects.CHAT, "E20")
    assert wait_until(lambda: call(gateway, "user-calls-b").status == 200)
    answer = call(gateway, "user-tpm-b")
    assert answer.headers["x-ratelimit-limit-tokens"] == "1000000"


def test_a_changed_limit_acts_within_two_seconds(gateway):
    assert statuses_of(gateway, "changed", times=2) == [200, 429]
    assert statuses_of(gateway, None, "changed", times=2) == [200, 503]
    assert statuses_of(gateway, "swapped-1", times=1) == [200]
    gateway.apply(
        {
            "key": [{"user": "changed", "name": "main", "rpm": 0}],
            "group": [{"name": "swapped", "rpm": 1}],
            "channel": [{"name": "changed-0", "rpm": 0, "key_concurrency": 5}],
            "user": [{"name": "user-tpm", "rpm": 1}],
        }
    )
    deadline = time.monotonic() + 5
    for who, place, status in (
        ("changed", FREE, 200),
        ("swapped-1", FREE, 429),
        (None, "changed", 200),
        ("user-tpm-a", FREE, 429),
    ):
        # Each worker notices the change for itself.
        while set(statuses_of(gateway, who, place)) != {status}:
            assert time.monotonic() < deadline, (who, place)


def test_the_log_tells_of_no_trouble(gateway):
    """The last test: nothing above ran out of space or waited in vain."""
    assert "limits:" not in gateway.log()
