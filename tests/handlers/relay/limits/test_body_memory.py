"""Shares, eviction and release of bytes held for bodies."""

import pytest

from adapters.faults import Condition, Fault
from handlers.relay.limits.body_memory import BodyMemory

TOTAL = 800  # a user's share is 200, a key's 100
E20, E38 = Condition.RATE_LIMITED, Condition.UNAVAILABLE


class Body:
    """An incoming body; `grow` returns the memory's decision."""

    def __init__(self, memory, user, key=None):
        self.hold = memory.hold(self.evict, user, key or f"key of {user}")
        self.evicted = None

    def evict(self, fault):
        self.evicted = fault.condition

    def grow(self, size):
        try:
            self.hold.resize(self.hold.held_bytes + size)
        except Fault as fault:
            assert fault.wait_s == 1
            self.hold.release()
            return fault.condition
        return None


@pytest.fixture
def memory():
    refused = []
    memory = BodyMemory(TOTAL, refused.append)
    memory.refused = refused
    return memory


def is_empty(memory):
    return (memory.held_bytes, memory.users, memory.keys) == (0, {}, {})


def test_one_whole_body_has_no_share(memory):
    body = Body(memory, "alice")
    assert body.grow(TOTAL) is None
    body.hold.release()
    body.hold.release()
    assert is_empty(memory)


def test_a_key_holds_an_eighth(memory):
    first, second = Body(memory, "alice"), Body(memory, "alice")
    assert (first.grow(60), second.grow(40), second.grow(1)) == (None, None, E20)
    assert (first.grow(500), memory.refused) == (None, ["key_body_memory"])
    assert memory.held_bytes == 560


def test_a_user_holds_a_quarter_with_all_keys(memory):
    bodies = [Body(memory, "alice", f"key {at}") for at in range(3)]
    assert [body.grow(80) for body in bodies] == [None, None, E20]
    assert memory.refused == ["user_body_memory"]
    assert Body(memory, "carol").grow(90) is None


def test_what_is_unpacked_again_makes_room(memory):
    first, second = Body(memory, "alice"), Body(memory, "alice")
    assert (first.grow(90), first.grow(-50), second.grow(60)) == (None, None, None)


def test_the_oldest_body_of_the_largest_holder_makes_room(memory):
    small = Body(memory, "boss")
    older, newer = Body(memory, "alice", "one"), Body(memory, "alice", "two")
    assert [small.grow(100), older.grow(90), newer.grow(90)] == [None] * 3
    others = [Body(memory, f"user {at}") for at in range(4)]
    assert [other.grow(140) for other in others] == [None] * 4
    assert (older.evicted, newer.evicted, small.evicted) == (E20, None, None)
    assert (memory.held_bytes, memory.refused) == (750, ["body_memory"])


def test_the_largest_holder_loses_the_body_that_grows_when_it_is_the_oldest(memory):
    body, other = Body(memory, "alice"), Body(memory, "carol")
    assert (body.grow(500), other.grow(300)) == (None, None)
    assert (body.grow(1), other.evicted) == (E20, None)


def test_finished_bodies_are_not_evicted(memory):
    bodies = [Body(memory, f"user {at}") for at in range(4)]
    for body in bodies:
        assert body.grow(200) is None
        body.hold.finish()
    assert Body(memory, "alice").grow(1) is E38
    assert [body.evicted for body in bodies] == [None] * 4
    unfinished = Body(memory, "carol")
    bodies[0].hold.release()
    assert (unfinished.grow(200), Body(memory, "alice").grow(50)) == (None, None)
    assert unfinished.evicted is E20


def test_a_released_body_counts_no_more(memory):
    body = Body(memory, "alice")
    assert body.grow(10) is None
    body.hold.release()
    assert body.grow(50) is None
    assert is_empty(memory)
