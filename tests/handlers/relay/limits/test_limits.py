"""Limits of a call: whose limits it counts against, what it reserves, what the client sees."""

import logging
import os

import pytest

from adapters.faults import Condition, Fault
from commands.process.limits import node_cells
from handlers.relay.limits.cells import SharedCells, Slots, private_cells
from handlers.relay.limits.limits import NO_TOKENS, Limits
from tests.handlers.relay.limits.calls import demand_of, group_of, key_of


class Spy:
    """Cells that admit everything and record it."""

    def __init__(self, told=()):
        self.claims, self.wanted, self.left, self.told = (), (), [], list(told)

    def enter(self, claims, tokens=0, least=0):
        self.claims, self.wanted = claims, (tokens, least)
        return Slots([])

    def leave(self, slots, used_tokens):
        self.left.append(used_tokens)

    def sweep(self):
        return self.told


def enter(limits, key=None, group=None, demand=None, *, free=False):
    """Enter a call of a key with limits, in a group with limits; return the result."""
    demand = demand or (NO_TOKENS if free else demand_of())
    return limits.enter(key_of(**(key or {})), group_of(**(group or {})), demand, free=free)


def entered(**asked):
    """Return what a call asks the cells for."""
    spy = Spy()
    assert enter(Limits(spy), **asked) == ((), Slots([]))
    return spy


def claims_of(**asked):
    return entered(**asked).claims


def test_most_keys_and_groups_have_no_limits():
    assert not (key_of().limited or group_of().limited)
    for name in ("rpm", "tpm", "concurrency"):
        assert key_of(**{name: 1}).limited and group_of(**{name: 1}).limited
        assert key_of(**{f"user_{name}": 1}).limited


def test_key_user_and_group_are_subjects_of_their_own():
    [key] = claims_of(key={"rpm": 1, "tpm": 200, "concurrency": 3})
    assert (key.subject, key.rpm, key.tpm, key.concurrency) == ("paid key k", 1, 200, 3)
    [group] = claims_of(group={"rpm": 4})
    assert (group.subject, group.rpm) == ("paid group default", 4)
    [user] = claims_of(key={"user_rpm": 5, "user_tpm": 600, "user_concurrency": 7})
    assert (user.subject, user.rpm, user.tpm, user.concurrency) == ("paid user u", 5, 600, 7)
    both = claims_of(key={"rpm": 1, "user_rpm": 2}, group={"tpm": 1000})
    assert [one.subject for one in both] == ["paid key k", "paid user u", "paid group default"]


def test_claims_are_those_of_the_newest_key_and_group():
    """Changed limits come with a new entry of the key, or a new snapshot of the groups."""
    spy = Spy()
    limits = Limits(spy)

    def rates(key, group):
        enter(limits, key, group)
        return [one.rpm for one in spy.claims]

    assert rates({"rpm": 1}, {"rpm": 2}) == [1, 2]
    assert rates({"rpm": 3}, {"rpm": 2}) == [3, 2]
    assert rates({"rpm": 3}, {"rpm": 4}) == [3, 4]
    assert rates({"rpm": 3, "user_rpm": 9}, {}) == [3, 9]


def test_calls_that_cost_nothing_are_subjects_of_their_own_without_tokens():
    spy = entered(key={"rpm": 1}, group={"tpm": 1}, free=True)
    assert [one.subject for one in spy.claims] == ["free key k", "free group default"]
    assert spy.wanted == (0, 0)


def test_tokens_that_are_asked_for():
    assert entered(key={"tpm": 10**6}).wanted == (5100, 356)


@pytest.mark.parametrize(("limit", "words", "wait_s"), [
    ({"rpm": 60}, "60 requests per minute. Try again in 1s.", 1),
    ({"rpm": 1}, "1 request per minute. Try again in 60s.", 60),
    ({"tpm": 100}, "100 tokens per minute. Try again in 60s.", 60),
    ({"concurrency": 2}, "2 concurrent calls. Try again in 3s.", 3),
])  # fmt: skip
def test_a_refusal_says_the_limit_and_the_wait(limit, words, wait_s):
    limits = Limits(private_cells())
    for _ in range(100):
        levels, fault = enter(limits, limit)
        if isinstance(fault, Fault):
            break
    assert fault.condition is Condition.RATE_LIMITED and fault.wait_s == wait_s
    assert fault.message == f"Rate limit reached: {words}"
    assert [level.remaining for level in levels] == [0] * ("concurrency" not in limit)


@pytest.mark.parametrize(
    "limited",
    [{"key": {"tpm": 99}}, {"key": {"tpm": 10**6, "user_tpm": 99}},
     {"key": {"rpm": 9}, "group": {"tpm": 99}}],
)  # fmt: skip
def test_input_beyond_a_whole_minute_never_fits(limited):
    spy = Spy()
    levels, fault = enter(Limits(spy), **limited)
    assert fault.condition is Condition.RATE_LIMITED and levels == ()
    assert (fault.wait_s, fault.should_retry_header) == (None, "false")
    assert fault.message == (
        "The request is larger than the limit allows in a minute: about 100 input tokens, the"
        " limit is 99 tokens per minute. Send a shorter one."
    )
    assert spy.claims == ()  # nothing was reserved
    assert enter(Limits(spy), **limited, free=True) == ((), Slots([]))


def test_input_of_just_a_minute_fits():
    assert isinstance(enter(Limits(private_cells()), {"tpm": 100})[1], Slots)


def test_the_limit_with_least_left_is_told():
    limits = Limits(private_cells())
    key, group = {"rpm": 10, "tpm": 10**6}, {"rpm": 5, "tpm": 10**7}
    (requests, tokens), _ = enter(limits, key, group, demand_of(outputs=900))
    assert (requests.limit, requests.remaining, requests.reset_s) == (5, 4, 12)
    assert (tokens.limit, tokens.remaining) == (10**6, 10**6 - 1000)
    assert tokens.reset_s == pytest.approx(0.06)


def test_levels_are_what_is_left_of_each_limit_and_take_nothing():
    limits = Limits(private_cells())
    limited = {"rpm": 10, "tpm": 1200, "user_concurrency": 3}
    key, group = key_of(**limited), group_of(rpm=5)
    _, slots = limits.enter(key, group, demand_of(outputs=900))
    for _ in range(2):
        levels = [(level.name, level.allowed, level.left) for level in limits.levels(key, group)]
        assert levels == [
            ("key_rpm", 10, 9),
            ("key_tpm", 1200, 200),
            ("user_concurrency", 3, 2),
            ("group_rpm", 5, 4),
        ]
    resets_s = [level.reset_s for level in limits.levels(key, group)]
    assert resets_s[2] is None and resets_s[3] == pytest.approx(12, abs=0.5)
    limits.leave(slots, None)
    assert [level.left for level in limits.levels(key, group)] == [10, 1200, 3, 5]


def test_one_of_so_many_in_a_minute():
    limits = Limits(private_cells())
    assert [limits.pass_one("view", 2) for _ in range(2)] == [None, None]
    assert limits.pass_one("view", 2).condition is Condition.RATE_LIMITED
    assert limits.pass_one("other view", 2) is None


def test_trouble_is_told_once_a_minute(caplog):
    caplog.set_level(logging.WARNING)
    limits = Limits(Spy(["limits: trouble"]))
    for _ in range(90):
        limits.sweep()
    assert [record.message for record in caplog.records] == ["limits: trouble"] * 2


def test_memory_that_does_not_fit_is_not_shared(caplog, tmp_path):
    strange = private_cells()
    cells = node_cells(strange._file, str(tmp_path))
    assert isinstance(cells, SharedCells) and cells._file == strange._file
    os.ftruncate(strange._file, 10**9)
    cells = node_cells(strange._file, str(tmp_path))
    assert cells._file != strange._file
    assert "counted in each worker apart" in caplog.text


def test_limits_are_divided_by_nodes_but_named_whole():
    limits = Limits(private_cells())
    limits.divide(2)
    key, group = key_of(rpm=4, tpm=1000), group_of()
    levels, slots = limits.enter(key, group, demand_of(600, 50))
    assert isinstance(slots, Slots)  # beyond the share of 500, within the limit
    assert [(level.limit, level.remaining) for level in levels] == [(4, 2), (1000, 0)]
    _, refusal = limits.enter(key, group, demand_of(1, 1))
    assert isinstance(refusal, Fault) and "1000 tokens per minute" in refusal.message
    _, refusal = limits.enter(key, group, demand_of(1001, 1))
    assert isinstance(refusal, Fault) and refusal.permanent
    limits.divide(1)  # the other node has gone
    assert {level.allowed for level in limits.levels(key, group)} == {4, 1000}
    assert limits.levels(key, group)[0].left == 2  # half of the bucket is left, of four
