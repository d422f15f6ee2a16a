"""A worker's rows of its breakers: no secrets, one row while a breaker is open, none when
closed."""

import random
from dataclasses import replace

import pytest

from handlers.relay.routing import breaker
from handlers.relay.routing import breaker as module
from handlers.relay.routing.health import Health
from handlers.relay.routing.suspended_keys import KeyRefusal
from store.catalog.catalog import EMPTY
from tests.handlers.relay.routing.channels import MODEL, channel
from tests.handlers.relay.routing.channels import fail as fail_at

OWN = KeyRefusal("")
ONE = replace(channel("one"), keys=("sk-first", "sk-second"), fingerprints=("f1", "f2"))


@pytest.fixture
def health():
    return Health(random.Random(7).random)


@pytest.fixture
def shown(health):
    """Return shown(): the current rows."""
    open_breakers = breaker.OpenBreakers(health.breakers)
    snapshot = replace(EMPTY, channels=(ONE, channel("bare", keys=())))

    def look():
        open_breakers.update(snapshot)
        return open_breakers.rows

    return look


def fail(health, at_s, key=0, one=ONE, times=breaker.CONSECUTIVE_FAULTS, **more):
    fail_at(health, one, times, at_s, key, **more)


def test_nothing_is_shown_of_what_is_closed(health, shown):
    assert shown() == {}
    fail(health, 10.0, times=1)
    assert health.breakers and shown() == {}


def test_a_breaker_is_told_by_fingerprint_and_wall_clock(health, shown):
    fail(health, 10.0)
    [(name, (reason, since_ms, until_ms))] = shown().items()
    assert name == (ONE.id, MODEL, "f1")
    assert (reason, since_ms) == (breaker.FAILING, 10_000)
    assert since_ms < until_ms <= since_ms + breaker.COOLDOWN_S * 1000
    assert "sk-" not in repr(shown())


def test_since_is_when_it_was_well_for_the_last_time(health, shown):
    fail(health, 10.0)
    before = shown()[ONE.id, MODEL, "f1"]
    fail(health, 10.0 + 2 * breaker.COOLDOWN_S, times=1)  # the probe fails
    after = shown()[ONE.id, MODEL, "f1"]
    assert after[1] == before[1] and after[2] > before[2]
    assert shown() == shown()


def test_it_vanishes_when_it_closes_and_begins_anew(health, shown):
    fail(health, 10.0)
    assert shown()
    attempt = health.begin(ONE, MODEL, 0, 100.0)
    health.succeeded(attempt, 100.0)
    assert shown() == {}
    fail(health, 200.0)
    assert shown()[ONE.id, MODEL, "f1"][1] == 200_000


def test_a_suspended_key_is_for_all_models(health, shown):
    fail(health, 10.0, key=1, times=1, refusal=OWN)
    assert shown()[ONE.id, "", "f2"][0] == breaker.KEY_SUSPENDED


def test_what_is_gone_from_the_catalog_is_not_shown(health, shown):
    replaced = replace(ONE, keys=("sk-old",), fingerprints=("f0",))
    for one in (replaced, channel("removed"), channel("bare", keys=())):
        fail(health, 10.0, one=one)
    assert [(name[0], name[2]) for name in shown()] == [("id-bare", "")]


def test_the_open_breakers_is_bounded(health, shown, monkeypatch):
    monkeypatch.setattr(module, "STORED_MAX", 1)
    for key in (0, 1):
        fail(health, 10.0, key=key, times=1, refusal=OWN)
    assert len(shown()) == 1
