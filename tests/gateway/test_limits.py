"""Limits of keys and groups through real sockets: exact over two workers, and given back always."""

import contextlib
import itertools
import os
import signal
import time
from collections import Counter

import pytest

from tests.support.client import Closed, Connection, exchange, wait_until
from tests.support.coins import FREE, WORDS, base, check_free_refusal, person
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
from tests.support.documents import channel
from tests.support.served_by import gateway_calls, who_serves
from tests.support.wallets import joined, owners, secret_of

CROWD = 500
ENDLESS = "[[demo ms=1000 chunks=900]]"
SHORT = "[[demo ms=50 chunks=10]]"
COUNTS = {
    RESPONSES: "/v1/responses/input_tokens",
    MESSAGES: "/v1/messages/count_tokens",
    GENERATE: f"/v1beta/models/{FREE}:countTokens",
}
OPENAI_LIMITS = [
    f"x-ratelimit-{what}-{kind}"
    for kind in ("requests", "tokens")
    for what in ("limit", "remaining", "reset")
]
LIMITS_OF = {
    CHAT: OPENAI_LIMITS,
    RESPONSES: OPENAI_LIMITS,
    MESSAGES: [
        f"anthropic-ratelimit-{kind}-{what}"
        for kind in ("requests", "tokens")
        for what in ("limit", "remaining", "reset")
    ],
    GENERATE: [],
}


HOW = ("plain", "streamed")


def dashed(family):
    return family.replace("_", "-")


LIMITS = {
    "many": {"rpm": 200},
    "crowd": {"concurrency": 100},
    "comers": {"concurrency": 250},
    "killed": {"concurrency": 40},
    "killed-rpm": {"rpm": 1},
    "one": {"concurrency": 1},
    "tokens": {"tpm": 3000},
    "changed": {"rpm": 1},
    "changed-calls": {"concurrency": 1},
    **{f"told-{dashed(f)}-{how}": {"rpm": 2, "tpm": 10**6} for f in ALL for how in HOW},
    **{f"counts-{dashed(f)}": {"rpm": 1, "concurrency": 1} for f in COUNTS},
}
GROUPS = {"few": {"rpm": 3}, "swapped": {"concurrency": 1}, "left": {"concurrency": 100}}
# Where calls are when their clients leave: (prompt, stream).
PHASES = (
    (ENDLESS, True),
    ("[[demo stall_before_head]]", True),
    ("[[demo stall_before_head]]", False),
    ("[[demo stall_after_head]]", True),
    ("[[demo slow_body]]", False),
)


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    people = [person(name, "1000", **limits) for name, limits in LIMITS.items()]
    people += [person("pauper", "0", rpm=1)]
    for group in GROUPS:
        people += [owners([f"{group}-1", f"{group}-2"], "10", group=group)]
    groups = [{"name": name, **limits} for name, limits in GROUPS.items()]
    own = [
        channel(f"grouped-{f}", f, vendor.url, {FREE: "demo-small"}, groups=[*GROUPS]) for f in ALL
    ]
    document = joined(base(vendor), {"group": groups, "channel": own}, *people)
    return launch(document, {"server.workers": 2, "upstream.commit_after_s": 0})


def call(gateway, name, family=CHAT, *, prompt="Say something.", stream=False, **more):
    """One call -> its answer."""
    model = more.pop("model", FREE)
    body = ask(family, model, prompt, stream, **more)
    headers = credentials(family, secret_of(name))
    return exchange(gateway.port, "POST", path_of(family, model, stream), headers, body)


def count(gateway, name, family):
    body = ask(family, FREE)
    for word in ("max_tokens", "max_output_tokens", "generationConfig"):
        body.pop(word, None)
    headers = credentials(family, secret_of(name))
    return exchange(gateway.port, "POST", COUNTS[family], headers, body)


def send(gateway, name, prompt, *, stream=True, family=CHAT):
    """A call that runs; its connection."""
    connection = Connection(gateway.port, patience_s=60)
    body = ask(family, FREE, prompt, stream)
    headers = credentials(family, secret_of(name))
    connection.request("POST", path_of(family, FREE, stream), headers, body)
    return connection


@contextlib.contextmanager
def running(gateway, name, number, prompt=ENDLESS):
    """So many calls at once: the connections with a stream, and the refused answers."""
    with contextlib.ExitStack() as stack:
        sent = [stack.enter_context(send(gateway, name, prompt)) for _ in range(number)]
        streams, refused = [], []
        for connection in sent:
            answer = connection.read_head()
            if answer.status == 200:
                streams.append(connection)
            else:
                connection.read_body(answer)
                refused.append(answer)
        yield streams, refused


# ---- exact ---------------------------------------------------------------------------------------


def test_requests_a_minute_are_exact_over_two_workers(gateway):
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        sent = [
            stack.enter_context(send(gateway, "many", "Say something.", stream=False))
            for _ in range(CROWD)
        ]
        answers = [connection.read() for connection in sent]
    seconds = time.monotonic() - begin
    served = Counter(answer.status for answer in answers)
    assert set(served) == {200, 429}
    assert 198 <= served[200] <= 200 + seconds * 200 / 60
    for answer in answers:
        if answer.status == 429:
            assert check_wait(answer, CHAT, 1) == (
                "Rate limit reached: 200 requests per minute. Try again in 1s."
            )


def test_running_calls_are_exact_over_two_workers(gateway):
    with running(gateway, "crowd", 20) as (first, refused):
        # Of the crowd one worker alone may serve the hundred while the other has no turn.
        assert set(who_serves(gateway, *first)) == set(gateway.worker_pids())
        assert refused == []
        with running(gateway, "crowd", CROWD) as (streams, refused):
            assert (len(streams), len(refused)) == (80, CROWD - 80)
    message = check_refusal(refused[0], CHAT, "E20")
    assert message == "Rate limit reached: 100 concurrent calls. Try again in 3s."
    check_free_refusal(gateway.record(refused[0].call_id))


# ---- given back ----------------------------------------------------------------------------------


def test_a_thousand_disconnects_leave_no_slot_taken(gateway):
    for turn in range(4):
        with running(gateway, "comers", 250) as (streams, refused):
            assert (len(streams), len(refused)) == (250, 0), turn
            check_refusal(call(gateway, "comers"), CHAT, "E20")
            for connection in streams[::2]:
                connection.reset()
        assert wait_until(lambda: gateway_calls(gateway) == 0), turn
    with running(gateway, "comers", 251) as (streams, refused):
        assert (len(streams), len(refused)) == (250, 1)


def test_clients_that_leave_in_any_phase_give_back_what_their_group_may_use(gateway):
    assert wait_until(lambda: gateway_calls(gateway) == 0)
    for turn in range(4):  # a slot that stays taken is missed at the end
        with contextlib.ExitStack() as stack:
            sent = [
                stack.enter_context(send(gateway, f"left-{1 + number % 2}", prompt, stream=stream))
                for number, (prompt, stream) in zip(range(100), itertools.cycle(PHASES))
            ]
            assert wait_until(lambda: gateway_calls(gateway) >= 80), turn
            for connection in sent:
                connection.reset()
        assert wait_until(lambda: gateway_calls(gateway) == 0), turn
    with running(gateway, "left-1", 101) as (streams, refused):
        assert (len(streams), len(refused)) == (100, 1)


def test_a_client_that_leaves_before_the_first_byte_gives_its_slot_back(gateway):
    for _ in range(3):
        # What is told may be a moment old: a call that is over must not be taken for this one.
        assert wait_until(lambda: gateway_calls(gateway) == 0)
        with send(gateway, "one", "[[demo stall_before_head]]"):
            assert wait_until(lambda: gateway_calls(gateway) == 1)
            check_refusal(call(gateway, "one"), CHAT, "E20")
        assert wait_until(lambda: call(gateway, "one").status == 200)


def test_a_stream_holds_its_slot_until_it_ends(gateway):
    assert wait_until(lambda: call(gateway, "one").status == 200)
    with send(gateway, "one", SHORT) as connection:
        answer = connection.read_head()
        assert answer.status == 200
        check_refusal(call(gateway, "one"), CHAT, "E20")
        connection.read_body(answer)
    assert answer.whole
    # The slot is free before the last bytes are out.
    assert [call(gateway, "one").status for _ in range(5)] == [200] * 5


def test_failures_of_the_upstream_give_the_slot_back(gateway):
    for script in ("status=500", "reset_before_head", "html200", "status=400"):
        assert call(gateway, "one", prompt=f"[[demo {script}]]").status >= 400
    for script in ("cut=3", "error_event=2", "garbage=1"):
        call(gateway, "one", prompt=f"[[demo {script}]]", stream=True)

    def statuses():
        return {call(gateway, "one").status for _ in range(16)}

    # A worker that met five of them in a row leaves its channel alone: that is no slot taken.
    assert statuses() <= {200, 503}
    assert wait_until(lambda: statuses() == {200}, 30)


def test_what_is_refused_later_costs_nothing_of_the_limit(gateway):
    for _ in range(4):
        answer = call(gateway, "pauper", model=WORDS)
        check_refusal(answer, CHAT, "E18")
    assert call(gateway, "pauper").status == 200
    check_wait(call(gateway, "pauper", model=WORDS), CHAT, 60)


def test_what_is_refused_earlier_never_meets_the_limit(gateway):
    for _ in range(3):
        check_refusal(call(gateway, "killed-rpm", model="nobodys"), CHAT, "E08")
        check_refusal(call(gateway, "killed-rpm", messages=7), CHAT, "E12")


# ---- tokens --------------------------------------------------------------------------------------


def test_an_absurd_bound_locks_nobody_out_and_is_settled_by_usage(gateway):
    absurd = {"max_tokens": 10**6}
    for _ in range(3):
        answer = call(gateway, "tokens", **absurd)
        assert answer.status == 200
        assert answer.headers["x-ratelimit-limit-tokens"] == "3000"
    with send(gateway, "tokens", ENDLESS) as connection:
        assert connection.read_head().status == 200
        with send(gateway, "tokens", ENDLESS) as other:
            head = other.read_head()  # asks for 300, and there are more
            assert 2000 < int(head.headers["x-ratelimit-remaining-tokens"]) < 2500
    assert wait_until(lambda: call(gateway, "tokens").status == 200)


def test_tokens_that_were_used_are_gone(gateway):
    deadline = time.monotonic() + 20
    while (answer := call(gateway, "tokens", prompt="word " * 2000)).status == 200:
        assert time.monotonic() < deadline
    message = check_wait(answer, CHAT, 60, within_s=59)
    assert message.startswith("Rate limit reached: 3000 tokens per minute. Try again in ")


# ---- what a client sees --------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("family", ALL)
def test_a_client_is_told_its_limits_in_its_dialect(gateway, family, stream):
    name = f"told-{dashed(family)}-{HOW[stream]}"
    told = [call(gateway, name, family, stream=stream) for _ in range(3)]
    assert [answer.status for answer in told] == [200, 200, 429]
    message = check_wait(told[2], family, 30)
    assert message.startswith("Rate limit reached: 2 requests per minute. Try again in ")
    for answer, left in zip(told, ("1", "0", "0"), strict=True):
        shown = sorted(n for n in answer.headers if "ratelimit" in n)
        assert shown == sorted(LIMITS_OF[family])
        for header in shown:
            kind = "2" if "requests" in header else "1000000"
            if "limit-" in header.partition("ratelimit-")[2] or header.endswith("-limit"):
                assert answer.headers[header] == kind
            elif "remaining" in header and "requests" in header:
                assert answer.headers[header] == left


def check_wait(answer, family, expected_s, within_s=10):
    """E20 with a wait that is true; its message."""
    wait_s = answer.headers["retry-after"]
    assert expected_s - within_s <= int(wait_s) <= expected_s
    hidden = {n: answer.headers.pop(n) for n in list(answer.headers) if "ratelimit" in n}
    message = check_refusal(answer, family, "E20", retry_after=wait_s)
    answer.headers.update(hidden)
    assert message.endswith(f"Try again in {wait_s}s.")
    return message


def test_without_limits_nothing_is_told(gateway):
    assert not [n for n in call(gateway, "one").headers if "ratelimit" in n]


@pytest.mark.parametrize("family", COUNTS)
def test_counting_calls_have_a_class_of_their_own(gateway, family):
    name = f"counts-{dashed(family)}"
    with send(gateway, name, ENDLESS, family=family) as connection:
        assert connection.read_head().status == 200
        answer = count(gateway, name, family)
        assert answer.status == 200, answer.body
        check_wait(count(gateway, name, family), family, 60)
        check_wait(call(gateway, name, family), family, 60)


# ---- groups, and changes -------------------------------------------------------------------------


def test_a_groups_limit_is_shared_by_its_keys(gateway):
    statuses = [call(gateway, f"few-{1 + turn % 2}").status for turn in range(5)]
    assert statuses == [200, 200, 200, 429, 429]


def test_a_changed_limit_acts_within_two_seconds(gateway):
    assert [call(gateway, "changed").status for _ in range(2)] == [200, 429]
    assert call(gateway, "swapped-1").status == 200
    key = {"user": "changed", "name": "main"}
    gateway.apply({"key": [{**key, "rpm": 0}], "group": [{"name": "swapped", "rpm": 1}]})
    for name, status in {"changed": 200, "swapped-1": 429}.items():
        # Each worker learns it for itself.
        assert wait_until(lambda n=name, s=status: statuses_of(gateway, n) == {s}, 2.5)


def statuses_of(gateway, name):
    return {call(gateway, name).status for _ in range(6)}


# ---- killed --------------------------------------------------------------------------------------


def test_a_killed_workers_slots_are_free_and_its_rates_are_not_forgotten(gateway):
    assert call(gateway, "killed-rpm").status == 200
    with running(gateway, "killed", 40) as (streams, refused):
        assert (len(streams), len(refused)) == (40, 0)
        serving = who_serves(gateway, *streams)
        victim = serving[0]
        lost = serving.count(victim)
        os.kill(victim, signal.SIGKILL)
        assert wait_until(lambda: victim not in gateway.worker_pids(), 5)
        assert wait_until(lambda: gateway.ready_workers() == 2, 20)
        assert wait_until(lambda: call(gateway, "killed").status == 200, 5)
        with running(gateway, "killed", lost + 5) as (again, refused):
            assert (len(again), len(refused)) == (lost, 5)
    assert wait_until(lambda: len(gateway.worker_pids()) == 2)
    with contextlib.suppress(Closed, ConnectionError):
        check_wait(call(gateway, "killed-rpm"), CHAT, 60, within_s=50)


def test_the_log_tells_of_no_trouble(gateway):
    """Last: nothing above had no room or waited in vain."""
    assert "limits:" not in gateway.log()
