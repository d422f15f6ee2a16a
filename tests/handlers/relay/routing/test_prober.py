"""Probes of a worker: when they are made, with which key, and the results for health and store."""

import asyncio
import contextlib
import dataclasses
import random

import pytest

from adapters.faults import Condition, Fault
from conf.settings import ProbeSettings, Settings
from handlers.relay.routing import prober as module
from handlers.relay.routing.breaker import COOLDOWN_MAX_S, KEY_SUSPENDED
from handlers.relay.routing.health import Health
from handlers.relay.routing.prober import Prober
from handlers.relay.routing.suspended_keys import KeyRefusal
from handlers.relay.upstream.client import UpstreamClient
from store.catalog.catalog import EMPTY, Model
from store.channels import probes
from store.db.database import discard, execute, open_database, snapshot_read
from store.values.ids import now_ms
from tests.handlers.relay.routing.channels import MODEL, channel, fail
from tests.support.stores import sqlite_store
from tests.support.switched import Switched


@pytest.fixture
def upstream():
    made = Switched()
    yield made
    made.close()


@pytest.fixture
def db(tmp_path):
    made = open_database(sqlite_store(tmp_path / "sluice.db"))
    yield made
    discard(made)


@contextlib.contextmanager
def made(upstream, interval_s=600, **fields):
    """Yield a prober of one channel, inside a running loop."""
    health = Health(random.Random(7).random)
    client = UpstreamClient(force_instance=True)
    settings = Settings(probe=ProbeSettings(interval_s=interval_s))
    prober = Prober(settings, client, health, lambda work, *args: work(*args))
    one = channel("one", **({"base_url": upstream.url} | fields))
    model = Model(MODEL, None, None, False, 0, ())
    prober.take_snapshot(dataclasses.replace(EMPTY, channels=(one,), models={MODEL: model}))
    prober.rota._look_at = 0.0
    try:
        yield prober, health, one
    finally:
        prober.close()
        client.close()


async def probed(prober, db):
    """Look for due probes once, and write the results to the store."""
    prober.rota.look(db)
    while prober._probes:
        await asyncio.gather(*prober._probes)
    prober.rota.look(db)


def sums(db):
    query = 'SELECT "scope", "name", "model", "ok", "failed", "last_error" FROM "channel_sums"'
    return snapshot_read(db, lambda: execute(db, query).fetchall())


async def test_a_quiet_channel_is_probed_once(db, upstream):
    with made(upstream) as (prober, health, _):
        await probed(prober, db)
        assert sums(db) == [("probe", "one", MODEL, 1, 0, "")]
        prober.rota._look_at = 0.0
        await probed(prober, db)
        assert upstream.asked == [None]
        assert health.breakers == {}


@pytest.mark.parametrize("case", ["off", "claimed", "disabled", "draining", "model off", "not due"])
async def test_when_no_probe_is_made(db, upstream, case):
    fields = {"disabled": {"enabled": False}, "draining": {"draining": True}}.get(case, {})
    with made(upstream, 0 if case == "off" else 600, **fields) as (prober, _, one):
        if case == "claimed":
            assert probes.claim(db, (one.name, MODEL), 600, now_ms())
        if case == "model off":
            prober.take_snapshot(dataclasses.replace(prober._snapshot, models={}))
        if case == "not due":
            prober.rota._look_at = float("inf")
        await probed(prober, db)
        assert (upstream.asked, sums(db)) == ([], [])


@pytest.mark.parametrize(("way", "error"), [
    ("500", "upstream_error"),
    ("401", "channel_misconfigured"),
    ("html", "upstream_invalid_response"),
])  # fmt: skip
async def test_a_failure_is_told_and_counts_for_health(db, upstream, way, error):
    upstream.way = way
    with made(upstream, keys=("sk-up",), fingerprints=("f",)) as (prober, health, one):
        await probed(prober, db)
        assert sums(db) == [("probe", "one", MODEL, 0, 1, error)]
        aside = health.fault_of(one, MODEL, 0, module.time.monotonic())[0]
        assert aside == (KEY_SUSPENDED if way == "401" else "")
        assert len(health.breakers) == 1


async def test_a_success_closes_what_was_open(db, upstream):
    with made(upstream) as (prober, health, one):
        fail(health, one, at=module.time.monotonic() - COOLDOWN_MAX_S)
        assert all(breaker.open for breaker in health.breakers.values())
        await probed(prober, db)
        assert not any(breaker.open for breaker in health.breakers.values())


async def test_what_is_left_alone_is_not_asked(db, upstream):
    with made(upstream) as (prober, health, one):
        fail(health, one, at=module.time.monotonic())
        await probed(prober, db)
        assert (upstream.asked, sums(db)) == ([], [])


async def test_the_key_that_health_has_nothing_against_is_asked(db, upstream):
    with made(upstream, keys=("sk-one", "sk-two")) as (prober, health, one):
        refused = Fault(Condition.CHANNEL_MISCONFIGURED)
        now_s = module.time.monotonic()
        fail(health, one, 1, now_s, fault=refused, refusal=KeyRefusal(""))
        upstream.way, upstream.bad_keys = "401", ("sk-one",)
        await probed(prober, db)
        assert upstream.asked == [None]


async def test_results_wait_for_a_store_that_is_away(db, upstream, monkeypatch):
    with made(upstream) as (prober, _, _one):
        prober.rota.look(db)
        while prober._probes:
            await asyncio.gather(*prober._probes)

        def away(*_):
            raise RuntimeError("away")

        with monkeypatch.context() as patched, pytest.raises(RuntimeError):
            patched.setattr(probes, "add_probes", away)
            prober.rota.look(db)
        prober.rota.look(db)
        assert sums(db) == [("probe", "one", MODEL, 1, 0, "")]


async def test_a_worker_makes_few_probes_at_a_time_and_none_when_it_drains(
    db, upstream, monkeypatch
):
    monkeypatch.setattr(module, "PROBES_MAX", 1)
    upstream.delay_s = 0.1
    with made(upstream) as (prober, _, one):
        prober._begin_probe((one.name, MODEL))
        prober._begin_probe((one.name, MODEL))
        assert len(prober._probes) == 1 and prober.rota.busy
        await asyncio.gather(*prober._probes)
        await asyncio.sleep(0)
        assert not prober.rota.busy
        prober._begin_probe((one.name, MODEL))
        prober.close()
        await asyncio.gather(*prober._probes, return_exceptions=True)
        await asyncio.sleep(0)
        assert prober.rota.busy and not prober._probes
        await probed(prober, db)
        assert [line[3:] for line in sums(db)] == [(1, 0, "")]
        assert len(upstream.asked) <= 2
