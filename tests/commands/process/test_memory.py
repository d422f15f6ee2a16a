"""The memory policy: which generations are collected when."""

import asyncio
import gc

import pytest

from commands.process import memory
from commands.process.memory import MemoryPolicy

TICK_S = 0.01


@pytest.fixture
def policy(io_loop, monkeypatch):
    """Return a policy with short intervals; `policy.open` streams are open."""
    monkeypatch.setattr(memory, "YOUNG_INTERVAL_S", TICK_S)
    monkeypatch.setattr(memory, "FULL_EVERY_TICKS", 4)
    policy = MemoryPolicy(lambda: policy.open)
    policy.open = 0
    yield policy
    policy.stop()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.fixture
def collections(monkeypatch):
    """Return the generation of each collection, in order."""
    seen = []

    def note(phase, info):
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


async def test_start_takes_the_present_out_of_sight_until_it_stops(policy, io_loop, collections):
    policy.start(io_loop)
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 1000
    policy.stop()
    policy.stop()
    assert gc.isenabled()
    gc.disable()
    collections.clear()
    await asyncio.sleep(TICK_S * 5)
    gc.enable()
    assert collections == []


async def test_young_often_and_full_seldom(policy, io_loop, collections):
    policy.start(io_loop)
    collections.clear()
    await asyncio.sleep(TICK_S * 40)
    assert collections[:8] == [0, 0, 0, 2, 0, 0, 0, 2]


async def test_no_full_collection_with_many_streams(policy, io_loop, collections):
    policy.open = memory.FULL_MAX_STREAMS + 1
    policy.start(io_loop)
    collections.clear()
    await asyncio.sleep(TICK_S * 10)
    assert set(collections) == {0}
    policy.open = memory.FULL_MAX_STREAMS
    await asyncio.sleep(TICK_S * 10)
    assert 2 in collections


async def test_free_memory_is_given_back_in_time(policy, io_loop):
    trims = []
    # None if the C library has no such function; the start must work nevertheless.
    if policy._trim is not None:
        policy._trim(0)
        policy._trim = trims.append
    policy.start(io_loop)
    await asyncio.sleep(TICK_S * (memory.TRIM_EVERY_TICKS * 2 + 2))
    assert policy._trim is None or 1 <= len(trims) <= 3


def test_c_library_without_malloc_trim(monkeypatch):
    class Bare:
        pass

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Bare())
    assert MemoryPolicy(lambda: 0)._trim is None
