"""Threads shared by users: each gets a turn."""

import asyncio
import threading

import pytest

from handlers.hub.web.site import Busy, FairThreads


async def test_slow_work_of_one_party_leaves_places_for_others():
    places, held = FairThreads(4, "test", 1000, 100), threading.Event()
    slow = [asyncio.create_task(places.run("alice", held.wait)) for _ in range(24)]
    await asyncio.sleep(0)
    try:
        assert await places.run("boss", lambda: "done") == "done"
        other = [asyncio.create_task(places.run("carol", held.wait)) for _ in range(24)]
        await asyncio.sleep(0)
        last = asyncio.create_task(places.run("boss", lambda: "done"))
    finally:
        held.set()
    assert all(await asyncio.gather(*slow, *other)) and await last == "done"


async def test_whoever_waits_gets_a_place_in_turn():
    places, held, order = FairThreads(1, "test", 1000, 100), threading.Event(), []
    first = asyncio.create_task(places.run("a", held.wait))
    await asyncio.sleep(0)
    waiting = [
        asyncio.create_task(places.run(who, lambda who=who: order.append(who))) for who in "aaaabc"
    ]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(first, *waiting)
    assert "".join(order) == "abcaaa"


@pytest.mark.parametrize(("in_all", "of_party"), [(3, 100), (100, 3)])
async def test_more_than_may_wait_is_refused_and_leaves_nothing(in_all, of_party):
    places, held = FairThreads(2, "test", in_all, of_party), threading.Event()
    taken = [asyncio.create_task(places.run("alice", held.wait)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await places.run("alice", held.wait)
    held.set()
    await asyncio.gather(*taken)
    assert await places.run("alice", lambda: 1) == 1


async def test_who_leaves_while_waiting_or_working_gives_the_place_back():
    places, held = FairThreads(1, "test", 100, 100), threading.Event()
    working = asyncio.create_task(places.run("alice", held.wait))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(places.run("boss", lambda: 1))
    await asyncio.sleep(0)
    for task in (waiting, working):
        task.cancel()
    last = asyncio.create_task(places.run("carol", lambda: "done"))
    await asyncio.sleep(0)
    held.set()
    assert await last == "done"
