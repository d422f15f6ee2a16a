"""Whom a call counts for, what it reserves, and what is told about it."""

import logging
import os

import pytest

from adapters.faults import Condition
from handlers.relay.limits.cells import SharedCells, Slots, private_cells
from handlers.relay.limits.limits import Limits, shared_cells
from tests.handlers.relay.limits.calls import FREE, call


class Spy:
    """Cells that let everything in and note it."""

    def __init__(self, told=()):
        self.claims, self.wanted, self.left, self.told = (), (), [], list(told)

    def enter(self, claims, tokens=0, least=0):
        self.claims, self.wanted = claims, (tokens, least)
        return Slots([])

    def leave(self, slots, used_tokens):
        self.left.append(used_tokens)

    def sweep(self):
        return self.told


def entered(made):
    """What a call asks the cells for."""
    spy = Spy()
    assert Limits.concern(made)
    assert Limits(spy).enter(made) == ((), None)
    return spy


def claims_of(made):
    return entered(made).claims


def test_most_calls_are_not_concerned():
    assert not Limits.concern(call())
    for name in ("rpm", "tpm", "concurrency"):
        assert Limits.concern(call(key={name: 1})) and Limits.concern(call(group={name: 1}))
        assert Limits.concern(call(key={f"user_{name}": 1}))


def test_key_user_and_group_are_subjects_of_their_own():
    [key] = claims_of(call(key={"rpm": 1, "tpm": 200, "concurrency": 3}))
    assert (key.subject, key.rpm, key.tpm, key.concurrency) == ("paid key k", 1, 200, 3)
    [group] = claims_of(call(group={"rpm": 4}))
    assert (group.subject, group.rpm) == ("paid group default", 4)
    [user] = claims_of(call(key={"user_rpm": 5, "user_tpm": 600, "user_concurrency": 7}))
    assert (user.subject, user.rpm, user.tpm, user.concurrency) == ("paid user u", 5, 600, 7)
    both = claims_of(call(key={"rpm": 1, "user_rpm": 2}, group={"tpm": 1000}))
    assert [one.subject for one in both] == ["paid key k", "paid user u", "paid group default"]


def test_claims_are_those_of_the_newest_key_and_group():
    """Changed limits come with a new entry of the key, or a new picture of the groups."""
    spy = Spy()
    limits = Limits(spy)

    def rates(key, group):
        limits.enter(call(key=key, group=group))
        return [one.rpm for one in spy.claims]

    assert rates({"rpm": 1}, {"rpm": 2}) == [1, 2]
    assert rates({"rpm": 3}, {"rpm": 2}) == [3, 2]
    assert rates({"rpm": 3}, {"rpm": 4}) == [3, 4]
    assert rates({"rpm": 3, "user_rpm": 9}, {}) == [3, 9]


def test_calls_that_cost_nothing_are_subjects_of_their_own_without_tokens():
    spy = entered(call(FREE, key={"rpm": 1}, group={"tpm": 1}))
    assert [one.subject for one in spy.claims] == ["free key k", "free group default"]
    assert spy.wanted == (0, 0)


@pytest.mark.parametrize(
    ("asked", "tokens", "least"),
    [
        ({}, 5100, 356),
        ({"outputs": 10, "stated": 10}, 110, 110),
        ({"outputs": 10**9, "stated": 10**9}, 10**9 + 100, 356),
        ({"outputs": 64_000, "stated": None}, 8292, 356),
        ({"outputs": 128_000, "stated": None, "choices": 2}, 2 * 8192 + 100, 356),
        ({"outputs": 1000, "stated": None}, 1100, 356),
    ],
)
def test_tokens_that_are_reserved(asked, tokens, least):
    assert entered(call(key={"tpm": 10**6}, **asked)).wanted == (tokens, least)


@pytest.mark.parametrize(
    ("limit", "words", "wait_s"),
    [
        ({"rpm": 60}, "60 requests per minute. Try again in 1s.", 1),
        ({"rpm": 1}, "1 request per minute. Try again in 60s.", 60),
        ({"tpm": 100}, "100 tokens per minute. Try again in 60s.", 60),
        ({"concurrency": 2}, "2 concurrent calls. Try again in 3s.", 3),
    ],
)
def test_a_refusal_says_the_limit_and_the_wait(limit, words, wait_s):
    limits = Limits(private_cells())
    for _ in range(100):
        levels, fault = limits.enter(call(key=limit))
        if fault is not None:
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
    levels, fault = Limits(spy).enter(call(**limited))
    assert fault.condition is Condition.RATE_LIMITED and levels == ()
    assert (fault.wait_s, fault.should_retry_header) == (None, "false")
    assert fault.message == (
        "The request is larger than the limit allows in a minute: about 100 input tokens, the"
        " limit is 99 tokens per minute. Send a shorter one."
    )
    assert spy.claims == ()  # nothing was taken
    assert Limits(spy).enter(call(FREE, **limited)) == ((), None)


def test_input_of_just_a_minute_fits():
    assert Limits(private_cells()).enter(call(key={"tpm": 100}))[1] is None


def test_the_limit_with_least_left_is_told():
    limits = Limits(private_cells())
    made = call(key={"rpm": 10, "tpm": 10**6}, group={"rpm": 5, "tpm": 10**7}, stated=900,
                outputs=900)  # fmt: skip
    (requests, tokens), fault = limits.enter(made)
    assert fault is None
    assert (requests.limit, requests.remaining, requests.reset_s) == (5, 4, 12)
    assert (tokens.limit, tokens.remaining) == (10**6, 10**6 - 1000)
    assert tokens.reset_s == pytest.approx(0.06)


@pytest.mark.parametrize("opened", [True, False])
def test_only_a_call_that_was_opened_is_counted(opened):
    spy = Spy()
    made = call(key={"rpm": 1})
    limits = Limits(spy)
    limits.enter(made)
    made.opened = opened
    limits.leave(made, 77)
    assert spy.left == [77 if opened else None]


def test_trouble_is_told_once_a_minute(caplog):
    caplog.set_level(logging.WARNING)
    limits = Limits(Spy(["limits: trouble"]))
    for _ in range(90):
        limits.sweep()
    assert [record.message for record in caplog.records] == ["limits: trouble"] * 2


def test_memory_that_does_not_fit_is_not_shared(caplog):
    strange = private_cells()
    cells = shared_cells(strange._file)
    assert isinstance(cells, SharedCells) and cells._file == strange._file
    os.ftruncate(strange._file, 10**9)
    cells = shared_cells(strange._file)
    assert cells._file != strange._file
    assert "counted in each worker apart" in caplog.text
