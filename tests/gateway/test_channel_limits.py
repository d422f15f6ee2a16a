"""Limits of channels, upstream keys and users through real sockets.

Exact over two workers, passed over when full, and given back always. Each case has a model and
channels of its own.
"""

import contextlib
import os
import signal
import time
from collections import Counter

import pytest

from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    ask,
    check_refusal,
    credentials,
    path_of,
)
from tests.support.documents import channel, document
from tests.support.served_by import gateway_calls, who_serves
from tests.support.wallets import joined, owners, secret_of

CROWD = 200
ENDLESS = "[[demo ms=1000 chunks=900]]"
SAY = "Say something."
COUNTS = {
    RESPONSES: "/v1/responses/input_tokens",
    MESSAGES: "/v1/messages/count_tokens",
    GENERATE: "/v1beta/models/{model}:countTokens",
}
TWO_KEYS, SOME_KEYS = ["sk-up-1", "sk-up-2"], [f"sk-up-{number}" for number in range(4)]
OUTS = [  # how an attempt fails, and whether the call streams
    *((script, False) for script in ("status=500", "status=400", "status=429")),
    *((script, False) for script in ("reset_before_head", "html200")),
    *((script, True) for script in ("cut=3", "error_event=2", "garbage=1")),
]
# model: the channels that serve it, highest priority first
PLACES = {
    "crowd": [{"concurrency": 60}],
    "crowd-keys": [{"keys": SOME_KEYS, "key_concurrency": 15}],
    "crowd-both": [{"keys": SOME_KEYS, "key_concurrency": 20, "concurrency": 50}],
    "comers": [{"concurrency": 250}],
    "killed": [{"concurrency": 30, "keys": TWO_KEYS, "key_concurrency": 20}],
    "spill": [{"rpm": 3}, {}],
    "spill-keys": [{"keys": TWO_KEYS, "key_rpm": 2}, {}],
    "one": [{"concurrency": 1, "rpm": 1000, "tpm": 10**6}],
    **{f"out-{number}": [{"concurrency": 1}] for number in range(len(OUTS))},
    "tokens": [{"tpm": 4000}],
    "tokens-keys": [{"keys": TWO_KEYS, "key_tpm": 4000}],
    "late": [{"rpm": 1}],
    "costly": [{"rpm": 1}],
    "changed": [{"rpm": 1}],
    **{f"full-{family.replace('_', '-')}": [{"rpm": 2}, {"rpm": 1}] for family in ALL},
    **{f"counts-{family.replace('_', '-')}": [{"rpm": 2, "tpm": 1}] for family in COUNTS},
}
LIMITED = {"user-rpm": {"rpm": 4}, "user-tpm": {"tpm": 10**6}, "user-calls": {"concurrency": 1}}


def family_of(place):
    return next((f for f in ALL if place.endswith("-" + f.replace("_", "-"))), CHAT)


def channels_of(place, url):
    return [
        channel(
            f"{place}-{number}", family_of(place), url, {place: "demo-small"},
            **{"priority": -number, **fields},
        )
        for number, fields in enumerate(PLACES[place])
    ]  # fmt: skip


def user(name, **limits):
    """A user with limits of its own and two keys."""
    key = {"user": name, "group": "all"}
    return {
        "user": [{"name": name, "balance": "10", **limits}],
        "key": [{**key, "name": n, "secret": secret_of(f"{name}-{n}")} for n in ("a", "b")],
    }


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    channels = [one for place in PLACES for one in channels_of(place, vendor.url)]
    whole = document(
        [*PLACES, "free"], [*channels, channel("free", CHAT, vendor.url, {"free": "x"})]
    )
    people = [user(name, **limits) for name, limits in LIMITED.items()]
    people += [owners(["own-rpm"], "10", rpm=1), owners(["pauper"], "0")]
    return launch(joined(whole, *people), {"server.workers": 2, "upstream.commit_after_s": 0})


def call(gateway, place, prompt=SAY, *, stream=False, who=None, **more):
    family = family_of(place)
    headers = credentials(family, secret_of(who)) if who else credentials(family)
    body = ask(family, place, prompt, stream, **more)
    return exchange(gateway.port, "POST", path_of(family, place, stream), headers, body)


def send(gateway, place, prompt=ENDLESS, *, who=None):
    """A stream that runs; its connection."""
    family = family_of(place)
    connection = Connection(gateway.port, patience_s=60)
    headers = credentials(family, secret_of(who)) if who else credentials(family)
    body = ask(family, place, prompt, True)
    connection.request("POST", path_of(family, place, True), headers, body)
    return connection


@contextlib.contextmanager
def running(gateway, place, number):
    """So many calls at once: connections with a stream; refused ones with their answers."""
    with contextlib.ExitStack() as stack:
        sent = [stack.enter_context(send(gateway, place)) for _ in range(number)]
        streams, refused = [], []
        for connection in sent:
            answer = connection.read_head()
            if answer.status == 200:
                streams.append(connection)
            else:
                connection.read_body(answer)
                refused.append((connection, answer))
        yield streams, refused


def served_by(gateway, answers):
    """How many calls each channel served; each was asked once."""
    names = []
    for answer in answers:
        assert answer.status == 200, answer.body
        record = gateway.record(answer.call_id)
        [attempt] = record["attempts"]
        assert attempt["channel"] == record["channel"]
        names.append(record["channel"])
    return Counter(names)


# ---- exact ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "most"), [("crowd", 60), ("crowd-keys", 60), ("crowd-both", 50)])
def test_running_calls_are_exact_over_two_workers(gateway, place, most):
    with running(gateway, place, CROWD) as (streams, refused):
        assert (len(streams), len(refused)) == (most, CROWD - most)
        asked = who_serves(gateway, *streams, *(one for one, _ in refused))
        assert set(asked) == set(gateway.worker_pids())
    check_refusal(refused[0][1], CHAT, "E09")
    assert wait_until(lambda: call(gateway, place).status == 200)


def test_every_upstream_key_is_used_to_its_limit(gateway, vendor):
    assert wait_until(lambda: gateway_calls(gateway) == 0)
    vendor.reset()
    with running(gateway, "crowd-keys", 60) as (streams, refused):
        assert (len(streams), len(refused)) == (60, 0)
        used = Counter(entry["headers"]["authorization"] for entry in vendor.log())
    assert used == {f"Bearer {key}": 15 for key in SOME_KEYS}


# ---- passed over ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "first"), [("spill", 3), ("spill-keys", 4)])
def test_what_is_full_is_passed_over_and_nothing_is_held_against_it(gateway, place, first):
    answers = [call(gateway, place) for _ in range(12)]
    assert served_by(gateway, answers) == {f"{place}-0": first, f"{place}-1": 12 - first}
    assert f"channel {place}-0" not in gateway.log()


@pytest.mark.parametrize("family", ALL)
def test_when_all_are_full_the_client_is_told_the_true_wait(gateway, family):
    place = "full-" + family.replace("_", "-")
    answers = [call(gateway, place) for _ in range(4)]
    assert [answer.status for answer in answers[:3]] == [200] * 3
    # The next request of the first channel, two a minute, fits sooner than that of the second.
    wait_s = answers[3].headers["retry-after"]
    assert 20 <= int(wait_s) <= 30
    check_refusal(answers[3], family, "E09", retry_after=wait_s)
    record = gateway.record(answers[3].call_id)
    assert (record["outcome"], record["error_code"]) == ("refused", "no_channel_available")
    assert (record["attempts"], record["cost"]) == ([], "0")


def test_the_end_of_a_running_call_is_not_known(gateway):
    with send(gateway, "one") as connection:
        assert connection.read_head().status == 200
        check_refusal(call(gateway, "one"), CHAT, "E09")


def test_a_full_channel_costs_a_call_nothing_of_its_own_limit(gateway):
    assert call(gateway, "late").status == 200
    for _ in range(3):
        wait_s = (refused := call(gateway, "late", who="own-rpm")).headers["retry-after"]
        check_refusal(refused, CHAT, "E09", retry_after=wait_s)
    assert call(gateway, "free", who="own-rpm").status == 200
    assert call(gateway, "free", who="own-rpm").status == 429


def test_a_call_that_cannot_be_paid_costs_the_channel_nothing(gateway):
    for _ in range(3):
        check_refusal(call(gateway, "costly", who="pauper"), CHAT, "E18")
    assert call(gateway, "costly").status == 200
    assert call(gateway, "costly").status == 503


# ---- given back ----------------------------------------------------------------------------------


def test_a_thousand_disconnects_leave_no_slot_taken(gateway):
    for turn in range(4):
        with running(gateway, "comers", 250) as (streams, refused):
            assert (len(streams), len(refused)) == (250, 0), turn
            check_refusal(call(gateway, "comers"), CHAT, "E09")
            for connection in streams[::2]:
                connection.reset()
        assert wait_until(lambda: gateway_calls(gateway) == 0), turn
    with running(gateway, "comers", 251) as (streams, refused):
        assert (len(streams), len(refused)) == (250, 1)


@pytest.mark.parametrize("number", range(len(OUTS)))
def test_an_attempt_that_fails_gives_its_slot_back(gateway, number):
    script, stream = OUTS[number]
    call(gateway, f"out-{number}", f"[[demo {script}]]", stream=stream)
    assert [call(gateway, f"out-{number}").status for _ in range(3)] == [200] * 3


def test_a_client_that_leaves_before_the_first_byte_gives_its_slot_back(gateway):
    assert wait_until(lambda: gateway_calls(gateway) == 0)
    with send(gateway, "one", "[[demo stall_before_head]]"):
        assert wait_until(lambda: gateway_calls(gateway) == 1)
        assert call(gateway, "one").status == 503
    assert wait_until(lambda: gateway_calls(gateway) == 0)
    assert [call(gateway, "one").status for _ in range(3)] == [200] * 3


def test_a_killed_workers_slots_are_free(gateway):
    with running(gateway, "killed", 30) as (streams, refused):
        assert (len(streams), len(refused)) == (30, 0)
        serving = who_serves(gateway, *streams)
        victim = serving[0]
        lost = serving.count(victim)
        assert 0 < lost < 30
        os.kill(victim, signal.SIGKILL)
        assert wait_until(lambda: victim not in gateway.worker_pids(), 5)
        assert wait_until(lambda: gateway.ready_workers() == 2, 20)
        assert wait_until(lambda: call(gateway, "killed").status == 200, 5)
        with running(gateway, "killed", lost + 5) as (again, refused):
            assert (len(again), len(refused)) == (lost, 5)
    assert wait_until(lambda: len(gateway.worker_pids()) == 2)


# ---- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["tokens", "tokens-keys"])
def test_tokens_are_settled_by_usage(gateway, place):
    # Reserved whole, and given back but for the few that were used.
    assert [call(gateway, place, max_tokens=10**6).status for _ in range(5)] == [200] * 5
    # What was not sent, or failed, used none.
    script = "[[demo status=400]]"
    assert [call(gateway, place, script, max_tokens=3000).status for _ in range(5)] == [400] * 5
    # Used up by the answers' own counts.
    deadline = time.monotonic() + 30
    while (answer := call(gateway, place, "word " * 1500)).status == 200:
        assert time.monotonic() < deadline
    check_refusal(answer, CHAT, "E09", retry_after=answer.headers["retry-after"])


@pytest.mark.parametrize("family", COUNTS)
def test_counting_calls_are_requests_of_the_channel_without_tokens(gateway, family):
    place = "counts-" + family.replace("_", "-")
    body = ask(family, place)
    for word in ("max_tokens", "max_output_tokens", "generationConfig"):
        body.pop(word, None)
    path = COUNTS[family].format(model=place)
    told = [exchange(gateway.port, "POST", path, credentials(family), body) for _ in range(3)]
    assert [answer.status for answer in told[:2]] == [200, 200], told[0].body
    check_refusal(told[2], family, "E09", retry_after=told[2].headers["retry-after"])


# ---- users ---------------------------------------------------------------------------------------


def test_a_users_limit_is_shared_by_its_keys(gateway):
    told = [call(gateway, "free", who=f"user-rpm-{'ab'[turn % 2]}") for turn in range(6)]
    assert [answer.status for answer in told] == [200] * 4 + [429] * 2
    left = [answer.headers["x-ratelimit-remaining-requests"] for answer in told]
    assert left == ["3", "2", "1", "0", "0", "0"]


def test_a_users_running_calls_and_tokens(gateway):
    with send(gateway, "free", who="user-calls-a") as connection:
        assert connection.read_head().status == 200
        check_refusal(call(gateway, "free", who="user-calls-b"), CHAT, "E20")
    assert wait_until(lambda: call(gateway, "free", who="user-calls-b").status == 200)
    answer = call(gateway, "free", who="user-tpm-b")
    assert answer.headers["x-ratelimit-limit-tokens"] == "1000000"


# ---- changes -------------------------------------------------------------------------------------


def test_changed_limits_act_within_two_seconds(gateway):
    assert [call(gateway, "changed").status for _ in range(2)] == [200, 503]
    gateway.apply(
        {
            "channel": [{"name": "changed-0", "rpm": 0, "key_concurrency": 5}],
            "user": [{"name": "user-tpm", "rpm": 1}],
        }
    )
    # Each worker learns it for itself.
    assert wait_until(lambda: statuses_of(gateway, "changed") == {200}, 2.5)
    assert wait_until(lambda: statuses_of(gateway, "free", "user-tpm-a") == {429}, 2.5)


def statuses_of(gateway, place, who=None):
    return {call(gateway, place, who=who).status for _ in range(6)}


def test_the_log_tells_of_no_trouble(gateway):
    """Last: nothing above had no room or waited in vain."""
    assert "limits:" not in gateway.log()
