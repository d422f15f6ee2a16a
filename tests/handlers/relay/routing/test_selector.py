"""The first candidate with capacity: a channel's keys before other channels; correct waits."""

import pytest

from adapters.faults import Condition
from handlers.relay.faults import no_candidate_fault
from handlers.relay.limits.limits import NO_TOKENS
from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS
from handlers.relay.routing.plan import Candidate
from tests.handlers.relay.limits.calls import demand_of
from tests.handlers.relay.routing.channels import MODEL, Worker, channel, fail, routing_request


class World(Worker):
    """A selector over some channels, and the running calls."""

    def __init__(self, *channels, seed=1):
        super().__init__(*sorted(channels, key=lambda one: -one.priority), seed=seed)

    def next(self, demand=None, **more):
        """Return the next candidate of a call and start its attempt; the fault if there is none."""
        asked = routing_request(self.channels, demand=demand or demand_of(outputs=100))
        found = self.selector.next(asked, 0.0, **more)
        if not isinstance(found, Candidate):
            return no_candidate_fault(found, MODEL)
        self.health.begin(found.channel, MODEL, found.key, 0.0)
        return found

    def places(self, count):
        """Return the places of this many calls at this time; None if there is none."""
        found = [self.next() for _ in range(count)]
        return [
            (one.channel.name, one.key) if isinstance(one, Candidate) else None for one in found
        ]


@pytest.mark.parametrize(("first", "places"), [
    # a full key passes the call to the next one, and then to the next channel
    ({"keys": ("x", "y"), "key_concurrency": 2}, [0, 1, 0, 1, None, None]),
    # a full channel is skipped with all its keys
    ({"keys": ("x", "y"), "concurrency": 1, "key_rpm": 9}, [0, None, None]),
    # the limits of keys apply once to a channel without keys
    ({"keys": (), "key_concurrency": 1}, [0, None]),
])  # fmt: skip
def test_keys_in_turn_and_then_the_next_channel(first, places):
    world = World(channel("a", 5, **first), channel("b"))
    expected = [("b", 0) if key is None else ("a", key) for key in places]
    assert world.places(len(places)) == expected


def test_channels_without_limits_count_nothing():
    world = World(channel("a"))
    assert world.next() == Candidate(world.channels[0], 0)


def test_every_channel_with_room_is_found():
    """Whichever is drawn first: fifty channels, of which only one, at any position, has
    capacity."""
    for seed in range(20):
        world = World(*(channel(f"c{n}", concurrency=1) for n in range(50)), seed=seed)
        assert len({name for name, _ in world.places(50)}) == 50
        assert world.places(1) == [None]


def test_limits_are_of_the_key_and_not_of_its_place():
    world = World(channel("a", keys=("x", "y"), key_concurrency=1))
    assert world.places(2) == [("a", 0), ("a", 1)]
    world.channels = (channel("a", keys=("y", "z"), key_concurrency=1),)
    assert world.places(2) == [("a", 1), None]


@pytest.mark.parametrize(("channels", "wait_s"), [
    ([{"rpm": 2}], 30),
    ([{"rpm": 1}, {"rpm": 2}], 30),
    ([{"rpm": 1, "keys": ("x", "y"), "key_rpm": 2}], 60),
    ([{"keys": ("x", "y"), "key_rpm": 1}], 60),
    ([{"tpm": 200}], 60),
    ([{"concurrency": 1}], 2),
    ([{"concurrency": 1}, {"rpm": 1}], 2),
])  # fmt: skip
def test_when_all_are_full_the_wait_is_that_of_the_first_to_have_room(channels, wait_s):
    world = World(*(channel(f"c{n}", **fields) for n, fields in enumerate(channels)))
    while isinstance((found := world.next()), Candidate):
        pass
    assert (found.condition, found.wait_s) == (Condition.NO_CHANNEL, wait_s)


def test_one_full_and_the_other_ill():
    world = World(channel("full", rpm=1), channel("ill", 5))
    fail(world.health, world.channels[0], CONSECUTIVE_FAULTS)
    assert world.places(1) == [("full", 0)]
    fault = world.next()
    assert fault.condition is Condition.NO_CHANNEL
    assert fault.wait_s <= 5  # the failing one's cool-down ends first


def test_another_key_of_a_channel_comes_first_when_asked_for():
    one, other = channel("a", 0, keys=("x", "y")), channel("b", 5)
    world = World(one, other)
    tried = {one.id: {0}}
    candidate = world.next(tried=tried, again=one)
    assert (candidate.channel, candidate.key) == (one, 1)
    candidate = world.next(tried=tried)
    assert candidate.channel is other
    candidate = world.next(tried={one.id: {0, 1}}, again=one)
    assert candidate.channel is other
    # A channel of which a key was tried comes last, with its other keys.
    candidate = world.next(tried={other.id: {0}, one.id: {1}})
    assert (candidate.channel, candidate.key) == (one, 0)


def test_a_full_neighbour_leaves_the_call_to_other_channels():
    one, other = channel("a", 0, keys=("x", "y"), key_concurrency=1), channel("b", -5)
    world = World(one, other)
    assert world.places(2) == [("a", 0), ("a", 1)]
    candidate = world.next(tried={one.id: {0}}, again=one)
    assert candidate.channel is other


def test_an_attempt_that_was_not_sent_costs_nothing():
    world = World(channel("a", rpm=1, concurrency=1))
    for sent in (False, False, True):
        slots = world.next().slots
        world.limits.leave(slots, 0 if sent else None)
        world.limits.leave(slots, 0 if sent else None)
    assert world.places(1) == [None]


def test_tokens_are_settled_by_usage():
    world = World(channel("a", keys=("x",), key_tpm=1000))
    for _ in range(4):
        candidate = world.next(demand_of(outputs=800))
        assert world.places(1) == [None]
        world.limits.leave(candidate.slots, 100)
    assert isinstance(world.next(demand_of(outputs=500)), Candidate)


def test_calls_that_cost_nothing_are_requests_without_tokens():
    world = World(channel("a", rpm=2, tpm=1))
    assert isinstance(world.next(NO_TOKENS), Candidate)
    assert isinstance(world.next(NO_TOKENS), Candidate)
    assert world.places(1) == [None]


@pytest.mark.parametrize("limit", [{"tpm": 99}, {"key_tpm": 99}])
def test_a_channel_that_is_too_small_for_the_call_is_passed_over(limit):
    small = channel("a", 5, keys=("x", "y"), **limit)
    assert World(small, channel("b")).places(2) == [("b", 0), ("b", 0)]
    fault = World(small).next()
    assert fault.condition is Condition.NO_CHANNEL and fault.permanent
    candidate = World(small).next(NO_TOKENS)
    assert isinstance(candidate, Candidate)
