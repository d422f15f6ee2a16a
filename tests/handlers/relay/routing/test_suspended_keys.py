"""Refused upstream keys: who must confirm a refusal, and what a check clears. Only simulated
time."""

import random

import pytest

from adapters.faults import Condition, Fault
from handlers.relay.routing import suspended_keys
from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS, KEY_SUSPENDED
from handlers.relay.routing.health import Health
from tests.handlers.relay.routing.channels import MODEL, channel

ONE = channel("one", keys=("x", "y"))
REFUSED = Fault(Condition.CHANNEL_MISCONFIGURED)


class World:
    """Health, and the checks that it has requested."""

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
        self.health.failed(
            attempt, self.now_s, REFUSED, suspended_keys.KeyRefusal(caller, about, "status")
        )

    def checked(self, refused):
        self.health.keys.checked(self.due.pop(0), self.now_s, refused)

    @property
    def aside(self):
        return self.health.fault_of(ONE, MODEL, 0, self.now_s)[0] == KEY_SUSPENDED


RESULTS = {"refused": True, "answered": False, "undecided": None}  # results of a check
OFTEN = " ann" * CONSECUTIVE_FAULTS


def play(events, checks=True):
    """Return a world after these events: the result of a check, `well` (a successful call with the
    key), a number of seconds, or the caller to whom the key is refused, with the kind of
    refusal."""
    world = World(checks)
    for event in events.split():
        if event in RESULTS:
            world.checked(RESULTS[event])
        elif event == "well":
            attempt = world.health.begin(ONE, MODEL, 0, world.now_s)
            world.health.succeeded(attempt, world.now_s)
        elif event[0].isdigit():
            world.now_s += float(event)
        else:
            caller, _, about = event.partition(":")
            world.refuse("" if caller == "probe" else caller, about or "access")
    return world


@pytest.mark.parametrize(("events", "aside", "due"), [
    ("ann refused", True, 0),
    # after a check has cleared a key, a second caller does not confirm for a while
    ("ann answered ann bob ann bob", False, 0),
    (f"ann answered ann bob ann bob {suspended_keys.CLEARED_S} ann", False, 1),
    # during a check a second caller confirms that a key is wrong; the check's result comes too
    # late
    ("ann:key bob:key", True, 1),
    ("ann:key bob:key answered", True, 0),
    # for rights and quota the check decides first; if it is undecided, two callers do
    *((f"ann:{about} bob:{about}", False, 1) for about in ("access", "quota")),
    *((f"ann:{about} bob:{about} undecided", True, 0) for about in ("access", "quota")),
    # after an undecided check, the next one comes only after a while, however often the key is
    # refused
    (f"ann undecided {OFTEN}", False, 0),
    (f"ann undecided {OFTEN} {suspended_keys.NEXT_CHECK_S} ann", False, 1),
    (f"ann undecided {OFTEN} {suspended_keys.NEXT_CHECK_S} ann undecided bob", True, 0),
    # probes confirm at once, except rights; after that, the first caller does not count as a
    # second one
    ("probe:key", True, 0),
    ("probe:quota", True, 0),
    ("probe", False, 1),
    ("probe ann undecided", False, 0),
    ("probe ann undecided bob", True, 0),
])  # fmt: skip
def test_what_refusals_and_checks_make_of_a_key(events, aside, due):
    world = play(events)
    assert (world.aside, len(world.due), len(world.told)) == (aside, due, aside)
    # The other key is not affected.
    assert world.health.fault_of(ONE, MODEL, 1, world.now_s)[0] == ""


@pytest.mark.parametrize(("events", "aside"), [
    ("ann ann ann", False),
    ("ann ann ann bob", True),
    ("ann well bob", False),  # a successful call clears the key
    (f"ann well bob {suspended_keys.HISTORY_S + 1} ann", False),  # long afterwards
])  # fmt: skip
def test_without_checks_a_second_caller_confirms(events, aside):
    assert play(events, checks=False).aside is aside


def test_a_refusal_to_one_caller_asks_for_one_check_and_no_more():
    world = World()
    for _ in range(3 * CONSECUTIVE_FAULTS):
        world.refuse("ann")
    [check] = world.due
    assert (check.channel, check.key, check.model) == (ONE, 0, MODEL)
    assert not world.aside and world.told == []
    world.refuse("ann", key=1)
    assert [one.key for one in world.due] == [0, 1]  # each key separately


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


def test_a_key_that_is_aside_stays_so_until_a_check_of_its_refused_probe_ends():
    world = World()
    world.refuse("", "key")
    world.now_s = world.told[0].wait_s
    world.refuse("ann")  # the probe is refused
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
    world.now_s = suspended_keys.CLEARED_S + 1
    world.health.succeeded(world.health.begin(ONE, MODEL, 0, world.now_s), world.now_s)
    assert world.health.keys._histories == {} and world.health.breakers == {}


def test_refusal_histories_are_bounded(monkeypatch):
    monkeypatch.setattr("handlers.relay.routing.suspended_keys.MAX_HISTORIES", 10)
    world = World(checks=False)
    for number in range(50):
        one = channel(f"c{number}")
        attempt = world.health.begin(one, MODEL, 0, 0.0)
        world.health.failed(attempt, 0.0, REFUSED, suspended_keys.KeyRefusal("ann"))
    assert len(world.health.keys._histories) <= 10


def test_a_check_of_a_key_that_is_no_suspect_any_more_says_nothing():
    world = World()
    world.refuse("ann", "key")
    late = world.due[0]
    world.refuse("bob", "key")
    world.health.keys.checked(late, 1.0, None)
    assert len(world.told) == 1
