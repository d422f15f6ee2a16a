"""Gauges of channels: whether they may take calls, and whether their circuits are open."""

import random
from dataclasses import replace

import pytest

from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS, COOLDOWN_S
from handlers.relay.routing.health import Health
from handlers.relay.routing.suspended_keys import KeyRefusal
from handlers.telemetry import channel_gauges as module
from handlers.telemetry.channel_gauges import ChannelGauges, ChannelHealth
from store.catalog.catalog import EMPTY
from tests.handlers.relay.routing.channels import MODEL, channel, fail

TWO_KEYS = channel("two", keys=("sk-first", "sk-second"), fingerprints=("f1", "f2"))
ONE_KEY = channel("one", keys=("sk-1",), fingerprints=("f3",))
UP, OPENED = ChannelHealth(True, 0), ChannelHealth(False, 2)


class Shown(dict):
    """The current gauges, with a method that moves on."""

    def __init__(self):
        self.health = Health(random.Random(7).random)
        self.gauges = ChannelGauges(self.health, self.__setitem__, self.pop)

    def take(self, *channels, at_s=0.0):
        self.gauges.take_snapshot(replace(EMPTY, channels=channels), at_s)

    def fail(self, one, key, at_s, times=CONSECUTIVE_FAULTS, **more):
        fail(self.health, one, times, at_s, key, **more)
        self.gauges.update(at_s)


@pytest.fixture
def shown():
    return Shown()


def test_channels_are_up_until_their_circuit_opens_and_again_when_it_closes(shown):
    shown.take(ONE_KEY)
    assert shown == {("one", MODEL): UP}
    shown.fail(ONE_KEY, 0, 10.0)
    assert shown == {("one", MODEL): OPENED}
    later_s = 10.0 + 2 * COOLDOWN_S
    shown.gauges.update(later_s)
    assert shown == {("one", MODEL): ChannelHealth(True, 1)}  # half-open: a probe may pass
    probe = shown.health.begin(ONE_KEY, MODEL, 0, later_s)
    shown.health.succeeded(probe, later_s + 0.1)
    shown.gauges.update(later_s + 1)
    assert shown == {("one", MODEL): UP}


def test_one_of_two_keys_is_enough(shown):
    shown.take(TWO_KEYS)
    shown.fail(TWO_KEYS, 0, 10.0)
    assert shown == {("two", MODEL): ChannelHealth(True, 2)}
    shown.fail(TWO_KEYS, 1, 10.0)
    assert shown == {("two", MODEL): OPENED}


def test_a_refused_key_is_refused_for_all_models(shown):
    more = replace(ONE_KEY, models={MODEL: "u", "other": "u"})
    shown.take(more)
    shown.fail(more, 0, 10.0, times=1, refusal=KeyRefusal(""))
    assert shown.health.breakers
    assert shown["one", MODEL].circuit == shown["one", "other"].circuit != UP.circuit


def test_what_is_removed_disabled_or_draining_is_hidden(shown):
    shown.take(ONE_KEY, TWO_KEYS)
    assert len(shown) == 2
    shown.take(replace(ONE_KEY, enabled=False), TWO_KEYS)
    assert shown == {("two", MODEL): UP}
    shown.take(ONE_KEY, TWO_KEYS)
    assert len(shown) == 2
    shown.take()
    assert shown == {}


def test_very_many_pairs_come_in_portions_and_only_so_many_at_all(shown, monkeypatch):
    monkeypatch.setattr(module, "PER_UPDATE", 10)
    monkeypatch.setattr(module, "PAIRS_MAX", 25)
    many = [replace(ONE_KEY, id=str(n), name=f"c{n}", keys=(f"k{n}",)) for n in range(40)]
    shown.take(*many)
    counts = [len(shown)]
    for _ in range(4):
        shown.gauges.update(1.0)
        counts.append(len(shown))
    assert counts == [10, 20, 25, 25, 25]
    hidden = next(one for one in many if (one.name, MODEL) not in shown)
    shown.fail(hidden, 0, 10.0)
    assert shown[hidden.name, MODEL] == OPENED
