"""The order of channels: priority strictly, weights by share."""

import random
from collections import Counter
from dataclasses import dataclass

from handlers.relay.plan import ordered


@dataclass
class Channel:
    name: str
    priority: int = 0
    weight: int = 1


def test_higher_priority_always_comes_first():
    channels = [Channel("a", 10), Channel("b", 10), Channel("c", 0), Channel("d", -5)]
    rng = random.Random(1)
    for _ in range(200):
        names = [c.name for c in ordered(channels, rng.random)]
        assert set(names[:2]) == {"a", "b"}
        assert names[2:] == ["c", "d"]


def test_first_place_is_shared_by_weight():
    channels = [Channel("heavy", weight=3), Channel("light", weight=1)]
    rng = random.Random(2)
    firsts = Counter(ordered(channels, rng.random)[0].name for _ in range(4000))
    assert 0.70 < firsts["heavy"] / 4000 < 0.80


def test_every_channel_is_there_once_whatever_the_weights():
    rng = random.Random(3)
    channels = [Channel(str(i), i // 3, weight=i % 3) for i in range(12)]
    channels.sort(key=lambda c: -c.priority)
    for _ in range(100):
        assert sorted(c.name for c in ordered(channels, rng.random)) == sorted(map(str, range(12)))


def test_all_weights_zero_means_equal_chances():
    channels = [Channel("a", weight=0), Channel("b", weight=0)]
    rng = random.Random(4)
    firsts = Counter(ordered(channels, rng.random)[0].name for _ in range(1000))
    assert 400 < firsts["a"] < 600


def test_one_channel_needs_no_draw():
    def never():
        raise AssertionError("drawn")

    channel = Channel("only")
    assert ordered([channel], never) == [channel]
