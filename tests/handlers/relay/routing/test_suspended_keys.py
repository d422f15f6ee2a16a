"""Refused upstream keys: who has to confirm it, and what a check clears. No clock but ours."""

import random

import pytest

from adapters.faults import Condition, Fault
from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS, KEY_SUSPENDED
from handlers.relay.routing.health import Health
from handlers.relay.routing.suspended_keys import (
    CLEARED_S,
    HISTORY_S,
    NEXT_CHECK_S,
    KeyRefusal,
    RefusalHistory,
)
from tests.handlers.relay.routing.channels import MODEL, channel

ONE = channel("one", keys=("x", "y"))
REFUSED = Fault(Condition.CHANNEL_MISCONFIGURED)


class World:
    """Health, and the checks it has asked for."""

    def __init__(self, checks=True):
        self.health = Health(random.Random(1).random)
        self.due, self.told, self.now_s = [], [], 0.0
        self.health.keys.on_report = self.told.append
        self.health.keys.on_check = self._check if checks else lambda check: False

    def _check(self, check):
        self.due.append(check)
        return True

    def refuse(self, caller, about="access", key=0):
        attempt = self.health.begin(ONE, MODEL, key, self.now_s)
        self.health.failed(attempt, self.now_s, REFUSED, KeyRefusal(caller, about, "status"))

    def checked(self, refused):
        self.health.keys.checked(self.due.pop(0), self.now_s, refused)

    @property
    def aside(self):
        return self.health.fault_of(ONE, MODEL, 0, self.now_s)[0] == KEY_SUSPENDED


def test_a_refusal_to_one_caller_asks_for_one_check_and_no_more():
    world = World()
    for _ in range(3 * CONSECUTIVE_FAULTS):
        world.refuse("ann")
    [check] = world.due
    assert (check.channel, check.key, check.model) == (ONE, 0, MODEL)
    assert not world.aside and world.told == []
    world.refuse("ann", key=1)
    assert [one.key for one in world.due] == [0, 1]  # each key for itself


def test_a_check_that_is_refused_puts_the_key_aside():
    world = World()
    world.refuse("ann")
    world.checked(True)
    assert world.aside and len(world.told) == 1
    assert world.health.fault_of(ONE, MODEL, 1, 0.0)[0] == ""


def test_what_a_check_has_cleared_no_second_caller_confirms():
    world = World()
    world.refuse("ann")
    world.checked(False)
    for caller in ("ann", "bob") * 2:
        world.refuse(caller)
    assert not world.aside and world.due == []
    world.now_s = CLEARED_S
    world.refuse("ann")
    assert len(world.due) == 1


def test_one_caller_alone_never_opens_a_circuit_and_several_do_for_the_model():
    world = World()
    world.refuse("ann")
    world.checked(False)
    for _ in range(5 * CONSECUTIVE_FAULTS):
        world.refuse("ann")
    assert world.health.fault_of(ONE, MODEL, 0, 0.0)[0] == ""
    for number in range(CONSECUTIVE_FAULTS):
        world.refuse(f"user {number}")
    assert world.health.fault_of(ONE, MODEL, 0, 0.0)[0] not in ("", KEY_SUSPENDED)
    assert world.health.fault_of(ONE, "another", 0, 0.0)[0] == ""


def test_while_a_check_runs_a_second_caller_confirms_that_a_key_is_wrong():
    world = World()
    world.refuse("ann", "key")
    world.refuse("bob", "key")
    assert world.aside
    world.checked(False)  # too late
    assert world.aside


@pytest.mark.parametrize("about", ["access", "quota"])
def test_of_what_a_key_may_do_a_check_speaks_first(about):
    world = World()
    world.refuse("ann", about)
    world.refuse("bob", about)
    assert not world.aside
    world.checked(None)  # it could not tell: two callers do
    assert world.aside


def test_a_second_caller_confirms_what_no_check_could_tell():
    world = World()
    world.refuse("ann")
    world.checked(None)
    for _ in range(CONSECUTIVE_FAULTS):
        world.refuse("ann")
    assert not world.aside and world.due == []  # not as often as it is refused
    world.now_s = NEXT_CHECK_S
    world.refuse("ann")
    assert not world.aside and len(world.due) == 1
    world.checked(None)
    world.refuse("bob")
    assert world.aside


def test_without_checks_a_second_caller_confirms():
    world = World(checks=False)
    for _ in range(3):
        world.refuse("ann")
    assert not world.aside
    world.refuse("bob")
    assert world.aside


def test_a_call_that_goes_well_clears_the_key():
    world = World(checks=False)
    world.refuse("ann")
    world.health.succeeded(world.health.begin(ONE, MODEL, 0, 0.0), 0.0)
    world.refuse("bob")
    assert not world.aside
    world.now_s = HISTORY_S + 1
    world.refuse("ann")  # long after
    assert not world.aside


@pytest.mark.parametrize("about", ["key", "quota"])
def test_probes_confirm_at_once(about):
    world = World()
    world.refuse("", about)
    assert world.aside and world.due == []


def test_a_probe_that_may_not_do_what_it_asks_for_is_checked():
    world = World()
    world.refuse("")
    assert not world.aside and len(world.due) == 1
    world.refuse("ann")  # not a second user: the first one
    world.checked(None)
    assert not world.aside
    world.refuse("bob")
    assert world.aside


def test_a_key_that_is_aside_stays_so_until_a_check_of_its_refused_probe_ends():
    world = World()
    world.refuse("", "key")
    world.now_s = world.told[0].wait_s
    world.refuse("ann")  # the probe
    assert world.aside and len(world.told) == 1
    assert world.health.begin(ONE, MODEL, 0, world.now_s) is None
    world.checked(True)
    assert world.aside and world.told[1].times == 2
    world.now_s += world.told[1].wait_s
    world.refuse("ann")
    world.checked(False)
    assert not world.aside and world.told[2].wait_s is None
    assert world.health.begin(ONE, MODEL, 0, world.now_s) is not None


def test_a_probe_whose_refusal_nobody_can_check_is_believed():
    world = World(checks=False)
    world.refuse("", "key")
    world.now_s = world.told[0].wait_s
    world.refuse("ann")
    assert world.aside and world.told[1].times == 2


def test_nothing_is_kept_of_a_key_that_answers():
    world = World()
    world.refuse("ann")
    world.checked(False)
    world.now_s = CLEARED_S + 1
    world.health.succeeded(world.health.begin(ONE, MODEL, 0, world.now_s), world.now_s)
    assert world.health.keys._histories == {} and world.health.breakers == {}


def test_refusal_histories_are_bounded(monkeypatch):
    monkeypatch.setattr("handlers.relay.routing.suspended_keys.MAX_HISTORIES", 10)
    world = World(checks=False)
    for number in range(50):
        one = channel(f"c{number}")
        attempt = world.health.begin(one, MODEL, 0, 0.0)
        world.health.failed(attempt, 0.0, REFUSED, KeyRefusal("ann"))
    assert len(world.health.keys._histories) <= 10


def test_a_check_of_a_key_that_is_no_suspect_any_more_says_nothing():
    world = World()
    world.refuse("ann", "key")
    late = world.due[0]
    world.refuse("bob", "key")
    world.health.keys.checked(late, 1.0, None)
    assert len(world.told) == 1


def test_the_first_refusal_is_unknown():
    assert RefusalHistory().record_refusal(KeyRefusal("ann"), 0.0) == "unknown"
