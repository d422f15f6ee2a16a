"""The last resort, when health has suspended all candidates: the least bad one is asked, but
rarely."""

import pytest

from adapters.faults import Condition, Fault
from handlers.relay.faults import no_candidate_fault
from handlers.relay.routing import breaker
from handlers.relay.routing.health import LAST_RESORT_WAIT_S
from handlers.relay.routing.plan import Candidate
from handlers.relay.routing.suspended_keys import KeyRefusal
from tests.handlers.relay.limits.calls import demand_of
from tests.handlers.relay.routing.channels import MODEL, Worker, channel, fail, routing_request

QUICK = Fault(Condition.UPSTREAM_FAILED)
LATE = Fault(Condition.UPSTREAM_TIMEOUT)
TOLD = Fault(Condition.UPSTREAM_RATE_LIMITED, retry_after_s=20)
REFUSED = Fault(Condition.CHANNEL_MISCONFIGURED)
E09, E25 = Condition.NO_CHANNEL, Condition.UPSTREAM_RATE_LIMITED


class World(Worker):
    """A worker's calls to some channels, on a clock that the test sets."""

    now_s = 0.0

    def break_(self, one, fault, times=breaker.CONSECUTIVE_FAULTS, key=0):
        refusal = KeyRefusal("") if fault is REFUSED else None
        fail(self.health, one, times, self.now_s, key, fault, refusal=refusal)
        assert self.health.fault_of(one, MODEL, key, self.now_s)[0]

    def choose(self, tried=None):
        asked = routing_request(self.channels, demand=demand_of())
        found = self.selector.next(asked, self.now_s, tried or {})
        return found if isinstance(found, Candidate) else no_candidate_fault(found, MODEL)

    def ask(self):
        """Return the attempt of a call at this time, or the fault that it gets."""
        candidate = self.choose()
        if isinstance(candidate, Fault):
            return candidate
        begin = self.health.begin_anyway if candidate.anyway else self.health.begin
        attempt = begin(candidate.channel, MODEL, candidate.key, self.now_s)
        assert attempt is not None, "a plan of now may begin now"
        return attempt

    def why(self, one, key=0):
        return self.health.fault_of(one, MODEL, key, self.now_s)[0]


ONE = channel("one")


@pytest.mark.parametrize("fault", [QUICK, Fault(Condition.UPSTREAM_OVERLOADED, retry_after_s=20)])
def test_one_that_fails_quickly_is_asked_by_every_call(fault):
    world = World(ONE)
    world.break_(ONE, fault, 1 if fault.retry_after_s else breaker.CONSECUTIVE_FAULTS)
    until_s = world.health.fault_of(ONE, MODEL, 0, 0.0)[1]
    attempts = [world.ask() for _ in range(100)]
    for attempt in attempts:
        world.health.failed(attempt, 0.1, QUICK)
        world.health.release(attempt)
    # For other calls it is suspended no longer than before.
    assert world.health.fault_of(ONE, MODEL, 0, 0.0)[1] == until_s
    assert world.why(ONE)


@pytest.mark.parametrize(
    ("fault", "times"),
    [(QUICK, breaker.CONSECUTIVE_FAULTS), (TOLD, 1), (LATE, breaker.CONSECUTIVE_FAULTS)],
)
def test_a_success_closes_the_circuit_at_once(fault, times):
    world = World(ONE)
    world.break_(ONE, fault, times)
    attempt = world.ask()
    assert world.why(ONE)
    world.health.succeeded(attempt, 0.5)
    assert world.why(ONE) == ""
    assert all(not isinstance(world.ask(), Fault) for _ in range(50))


def test_the_first_bytes_of_a_stream_close_it_and_a_break_behind_them_opens_it():
    world = World(ONE)
    world.break_(ONE, QUICK)
    attempt = world.ask()
    world.health.started(attempt, 0.5, 0.5)
    assert world.why(ONE) == ""
    world.health.failed(attempt, 0.7, QUICK)
    assert world.why(ONE) == breaker.FAILING


@pytest.mark.parametrize(
    ("fault", "times", "condition", "reason"),
    [
        (TOLD, 1, E25, breaker.RATE_LIMITED),
        (LATE, breaker.CONSECUTIVE_FAULTS, E09, breaker.TIMING_OUT),
    ],
)
def test_one_that_limits_us_or_hangs_is_asked_by_few_at_a_time(fault, times, condition, reason):
    world = World(ONE)
    world.break_(ONE, fault, times)
    assert world.why(ONE) == reason
    attempt = world.ask()
    told = world.ask()
    assert (told.condition, told.wait_s) == (condition, 1)
    world.health.failed(attempt, 0.2, fault)
    world.now_s = 0.3
    second = world.ask()  # the first one has been answered
    world.now_s = 0.3 + LAST_RESORT_WAIT_S - 0.01
    assert world.ask().condition is condition
    world.now_s = 0.3 + LAST_RESORT_WAIT_S
    assert not isinstance(world.ask(), Fault)  # the second one has waited too long for its answer
    world.health.release(second)  # its end does not release anything
    assert world.ask().condition is condition


def test_so_many_as_a_tenth_of_the_calls_of_ten_seconds():
    world = World(ONE)
    for number in range(400):
        world.now_s = number / 40
        world.health.succeeded(world.health.begin(ONE, MODEL, 0, world.now_s), world.now_s)
    world.break_(ONE, TOLD, 1)
    found = [world.ask() for _ in range(100)]  # these count as calls too
    assert 40 <= sum(not isinstance(one, Fault) for one in found) <= 50


def test_calls_that_are_refused_count_as_calls():
    world = World(ONE)
    world.break_(ONE, LATE)
    asked = 0
    for number in range(2000):  # a hundred a second, all of them hang
        world.now_s = number / 100
        asked += not isinstance(world.ask(), Fault)
    world.now_s = 21.0
    assert sum(not isinstance(world.ask(), Fault) for _ in range(200)) > 50
    assert asked > 500


def test_one_that_fails_quickly_comes_before_one_that_hangs_whatever_the_priority():
    hangs, fails = channel("hangs", 9), channel("fails")
    world = World(hangs, fails)
    world.break_(hangs, LATE)
    world.break_(fails, QUICK)
    candidate = world.choose()
    assert (candidate.channel, candidate.anyway) == (fails, True)
    candidate = world.choose({fails.id: {0}})
    assert (candidate.channel, candidate.anyway) == (hangs, True)
    assert isinstance(world.choose({fails.id: {0}, hangs.id: {0}}), Fault)


def test_where_another_one_is_well_even_if_it_is_full_nothing_that_is_aside_is_asked():
    ill, well = channel("ill", 9), channel("well", concurrency=1)
    world = World(ill, well)
    world.break_(ill, QUICK)
    assert world.choose({well.id: {0}}).condition is E09  # tried, and not suspended
    assert world.choose().channel is well
    assert world.choose().condition is E09


def test_its_own_limits_hold():
    ill = channel("ill", concurrency=2, fingerprints=("f",))
    world = World(ill)
    world.break_(ill, QUICK)
    assert all(isinstance(world.choose(), Candidate) for _ in range(2))
    assert world.choose().condition is E09


def test_refused_keys_stay_aside():
    two = channel("two", keys=("x", "y"))
    world = World(two)
    world.break_(two, REFUSED, 1, 0)
    world.break_(two, QUICK, breaker.CONSECUTIVE_FAULTS, 1)
    assert {world.choose().key for _ in range(5)} == {1}
    world = World(ONE)
    world.break_(ONE, REFUSED, 1)
    assert world.choose().condition is Condition.CHANNEL_MISCONFIGURED
    assert world.health.begin_anyway(ONE, MODEL, 0, 0.0) is None


def test_beside_a_refused_key_or_its_probe_others_are_told_to_come_again():
    world = World(ONE)
    world.break_(ONE, REFUSED, 1)
    world.now_s = breaker.KEY_COOLDOWN_S
    assert not world.choose().anyway
    world.ask()
    assert world.choose().condition is E09
    two = channel("two")
    world = World(ONE, two)
    world.break_(ONE, REFUSED, 1)
    world.break_(two, LATE)
    world.ask()
    told = world.choose()
    assert (told.condition, told.wait_s) == (E09, 1)  # the wait until the next trial


def test_trials_are_counted_for_each_channel_whatever_the_key_and_not_in_plans():
    two = channel("two", keys=("x", "y"))
    world = World(two)
    for key in (0, 1):
        world.break_(two, TOLD, 1, key)
    # Another call may have started between a plan and its attempt.
    assert world.choose().anyway and world.choose().anyway
    assert not isinstance(world.ask(), Fault)
    assert world.health.begin_anyway(two, MODEL, 1, 0.0) is None
    assert world.ask().condition is E25


def test_places_are_given_back_on_every_way_out():
    world = World(ONE)
    world.break_(ONE, TOLD, 1)
    for end in (
        world.health.release,
        lambda attempt: world.health.failed(attempt, 0.1, TOLD),
        lambda attempt: world.health.failed(attempt, 0.1, Fault(Condition.UPSTREAM_REFUSED)),
        lambda attempt: world.health.failed(attempt, 0.1, REFUSED, KeyRefusal("user")),
    ):
        attempt = world.ask()
        assert isinstance(world.ask(), Fault)
        end(attempt)
        world.health.release(attempt)
    assert world.health.last_resorts._running == {}


def test_the_probe_behind_a_cool_down_is_one_call_and_others_ask_anyway():
    world = World(ONE)
    world.break_(ONE, QUICK)
    world.now_s = breaker.COOLDOWN_S
    probe = world.choose()
    assert not probe.anyway
    world.ask()
    assert world.choose().anyway
