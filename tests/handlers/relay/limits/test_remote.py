"""Limits that all nodes count in Redis: exact, returned at the end of a call; and what happens
without Redis."""

import asyncio
import logging
import time

import pytest
import uvloop

from adapters.faults import Condition, Fault
from handlers.relay.limits import remote as module
from handlers.relay.limits.cells import Claim, LimitRefusal, Slots, private_cells
from handlers.relay.limits.limits import Entering, Limits
from handlers.relay.limits.remote import RemoteAway, RemoteCells, RemoteEntry, with_password
from tests.handlers.relay.limits.calls import demand_of, group_of, key_of
from tests.support.forwarder import Forwarder
from tests.support.ports import HOST
from tests.support.redis import RedisServer

SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def server():
    with RedisServer() as running:
        yield running


@pytest.fixture
def play(server):
    """Return play(scene), which runs `scene(node, …)` on a loop, with the number of nodes that it
    takes."""
    server.client.flushall()

    def run(scene, nodes=1):
        async def all_of_it():
            cells = [RemoteCells(server.url, f"worker-{number}") for number in range(nodes)]
            for one in cells:
                await one.start()
            try:
                await until_async(lambda: all(one.up for one in cells))
                return await scene(*cells)
            finally:
                for one in cells:
                    await one.close()

        return uvloop.run(all_of_it())

    return run


async def let_through(cells, claim, calls):
    """Return how many of `calls` calls at once are admitted; the nodes take turns."""
    entered = await asyncio.gather(
        *(cells[number % len(cells)].enter((claim,), (), 1, 1) for number in range(calls))
    )
    return sum(isinstance(one, RemoteEntry) for one in entered)


@pytest.mark.parametrize("round_", range(10))
def test_two_nodes_let_a_minutes_requests_through_together(play, round_, monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 5)  # one loop works for both nodes

    async def scene(*nodes):
        began = time.monotonic()
        count = await let_through(nodes, Claim(f"key {round_}", 60, 0, 0), 400)
        assert abs(count - 60 - int(time.monotonic() - began)) <= 1

    play(scene, nodes=2)


def test_concurrency_and_tokens_are_given_back(play):
    async def scene(one, two):
        claim = Claim("key", 100, 1000, 2)
        first, second = (
            await one.enter((claim,), (), 300, 10),
            await two.enter((claim,), (), 300, 10),
        )
        refusal = await two.enter((claim,), (), 300, 10)
        assert isinstance(refusal, LimitRefusal) and (refusal.kind, refusal.wait_ns) == (
            "calls",
            None,
        )
        assert (await one.state(claim))[2] == 2
        limits = Limits(private_cells(), remote=one)
        limits.leave(first.callers, 100)
        limits.leave(first.callers, 100)
        two.leave(second.callers, None)  # as if it had never been made
        await asyncio.sleep(0.05)
        requests_ns, tokens_ns, running = await two.state(claim)
        assert running == 0
        assert tokens_ns == pytest.approx(6 * SECOND_NS, rel=0.1)  # 100 of 1000 a minute
        assert requests_ns == pytest.approx(0.6 * SECOND_NS, rel=0.3)  # one of 100
        entry = await one.enter((claim,), (), 2000, 10)  # capped by what is left
        assert entry.callers.reservations[0].reserved_ns == pytest.approx(54 * SECOND_NS, rel=0.01)
        one.leave(entry.callers, 5000)  # more than it reserved, so a debt
        await asyncio.sleep(0.05)
        refusal = await two.enter((claim,), (), 10, 10)
        assert refusal.kind == "tokens" and refusal.wait_ns > 200 * SECOND_NS

    play(scene, nodes=2)


def test_the_first_place_with_room_is_taken_with_its_callers(play):
    async def scene(cells):
        caller, full = Claim("key", 0, 0, 10), Claim("channel a", 0, 0, 1)
        keys = [(full, Claim("upstream key a 1", 5, 0, 0)), (Claim("channel b", 0, 0, 2),), ()]
        for position, slots in ((0, 2), (1, 1), (1, 1), (2, 0)):
            entry = await cells.enter((caller,), keys)
            assert (entry.position, len(entry.place.reservations)) == (position, slots)
        refusals = await cells.enter((caller,), keys[:2])
        assert [refusal.claim.subject for refusal in refusals] == ["channel a", "channel b"]
        assert (await cells.state(caller))[2] == 4  # the refused call took no slot
        refusal = await cells.enter((Claim("key", 0, 0, 4),), keys)
        assert isinstance(refusal, LimitRefusal) and refusal.claim.subject == "key"

    play(scene)


def test_slots_of_a_dead_node_are_free_when_its_lease_ends(play, server, monkeypatch):
    monkeypatch.setattr(module, "ALIVE_MS", 400)

    async def scene(one, two):
        claim = Claim("key", 0, 0, 1)
        await one.enter((claim,))
        one._keeper.cancel()  # like a kill
        assert isinstance(await two.enter((claim,)), LimitRefusal)
        await until_async(lambda: not server.client.exists("sluice:worker:worker-0"))
        assert isinstance(await two.enter((claim,)), RemoteEntry)

    play(scene, nodes=2)


def test_an_empty_server_learns_what_runs(play, server, monkeypatch):
    monkeypatch.setattr(module, "RENEW_S", 0.1)

    async def scene(cells):
        claim = Claim("key", 0, 0, 2)
        await cells.enter((claim,))
        server.stop()
        server.start()
        with pytest.raises(RemoteAway):
            await cells.enter((claim,))
        await until_async(lambda: server.client.hget("sluice:key", "worker-0") == "1")
        entry = None
        while entry is None:
            try:
                entry = await cells.enter((claim,))
            except RemoteAway:
                await asyncio.sleep(0.05)
        assert (await cells.state(claim))[2] == 2

    play(scene)


def test_calls_do_not_wait_for_a_server_that_hangs(play, server):
    async def scene(cells):
        claim = Claim("key", 1000, 0, 0)
        await cells.enter((claim,))
        server.freeze()
        waits = []
        for _ in range(8):
            began = time.monotonic()
            with pytest.raises(RemoteAway):
                await cells.enter((claim,))
            waits.append(time.monotonic() - began)
        # The first call waits for an answer; after that there is no connection to wait for.
        assert waits[0] > 0.04 > waits[1]
        assert max(waits) < 0.5 and not cells.up
        server.thaw()
        await asyncio.sleep(module.OPEN_S + 0.1)
        entry = None
        while entry is None:
            try:
                entry = await cells.enter((claim,))
            except RemoteAway:
                await asyncio.sleep(0.1)
        assert cells.up

    play(scene)


def test_slow_answers_open_the_breaker_until_one_call_had_a_quick_one(server, monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 5)
    monkeypatch.setattr(module, "SLOW_S", 0.2)
    monkeypatch.setattr(module, "RENEW_S", 60)

    async def scene():
        with Forwarder(server.port) as forwarder:
            cells = RemoteCells(f"redis://{HOST}:{forwarder.port}/3", "worker")
            await cells.start()

            async def answered(calls):
                claims = (Claim("key", 0, 0, 1000),)
                ends = await asyncio.gather(
                    *(cells.enter(claims) for _ in range(calls)), return_exceptions=True
                )
                return sum(isinstance(end, RemoteEntry) for end in ends)

            assert await answered(1)
            [way] = forwarder.ways
            way.delay_s = 0.25
            assert [await answered(1) for _ in range(7)] == [1] * 5 + [0] * 2
            assert not cells.up
            await asyncio.sleep(module.OPEN_S)
            assert [await answered(3) for _ in range(2)] == [1, 0]  # slow again
            way.delay_s = 0
            await asyncio.sleep(module.OPEN_S)
            assert [await answered(3) for _ in range(2)] == [1, 3]
            assert cells.up
            await cells.close()

    uvloop.run(scene())


def test_a_loop_that_is_late_itself_has_its_answer(play, server):
    async def scene(cells):
        for _ in range(6):
            server.freeze()
            entering = asyncio.ensure_future(cells.enter((Claim("key", 0, 0, 100),)))
            for _ in range(5):  # until it is sent
                await asyncio.sleep(0)
            server.thaw()
            time.sleep(3 * module.WAIT_S)  # noqa: ASYNC251
            assert isinstance(await entering, RemoteEntry)
        assert cells.up and not any(cells._bad)

    play(scene)


def test_redis_and_a_node_count_on_where_the_other_one_was(play):
    key, group = key_of(rpm=20, tpm=100_000), group_of()

    async def scene(cells):
        limits = Limits(private_cells(), remote=cells)
        limits.divide(2)

        async def let_in(most):
            count = 0
            while count < most:
                entering = Entering(key, group, free=False)
                try:
                    await limits.enter_everywhere(entering, demand_of(1000, 1000))
                except Fault:
                    break
                count += 1
                limits.leave(entering.slots, 500)
            return count

        assert await let_in(10) == 10
        cells._open_until_s = time.monotonic() + 60
        assert await let_in(20) == 5  # half of its share
        cells._open_until_s = 0
        assert await let_in(20) == 5
        requests, tokens = await limits.levels_everywhere(key, group)
        assert requests.left == 0
        assert tokens.left == pytest.approx(100_000 - 20 * 500, rel=0.01)

    play(scene)


def lock_out(client):
    client.config_set("requirepass", "another")
    # Clients without the new password lose their connections too.
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


REFUSALS = {  # fault: (function that causes it, function that ends it, text in the log)
    "replica": (
        lambda c: c.replicaof("127.0.0.1", 1),
        lambda c: c.replicaof("NO", "ONE"),
        "READONLY You can't write against a read only replica",
    ),
    "replica without its master": (
        lambda c: (c.config_set("replica-serve-stale-data", "no"), c.replicaof("127.0.0.1", 1)),
        lambda c: (c.replicaof("NO", "ONE"), c.config_set("replica-serve-stale-data", "yes")),
        "MASTERDOWN",
    ),
    "no memory": (
        lambda c: c.config_set("maxmemory", 1),
        lambda c: c.config_set("maxmemory", 0),
        "OOM",
    ),
    "no right": (
        lambda c: c.execute_command("ACL", "SETUSER", "default", "-evalsha"),
        lambda c: c.execute_command("ACL", "SETUSER", "default", "+evalsha"),
        "NOPERM",
    ),
    "another password": (lock_out, lambda c: c.config_set("requirepass", ""), "NOAUTH"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_server_that_answers_errors_does_not_count(play, server, caplog, monkeypatch, name):
    monkeypatch.setattr(module, "RENEW_S", 0.2)
    monkeypatch.setattr(module, "WAIT_S", 5)
    monkeypatch.setattr(module, "SLOW_S", 5)
    begin, end, code = REFUSALS[name]
    caplog.set_level(logging.INFO, "sluice.relay")

    def lines(what):
        return [record.getMessage() for record in caplog.records if what in record.getMessage()]

    async def scene(cells):
        limits = Limits(private_cells(), remote=cells)

        async def count():
            entering = Entering(key_of(rpm=1000, concurrency=100), group_of(), free=False)
            await limits.enter_everywhere(entering, demand_of())
            limits.leave(entering.slots, 0)
            return entering.slots.everywhere is cells

        assert await count()
        client = server.client
        client.ping()
        begin(client)
        try:
            for _ in range(30):  # no call fails
                await count()
                await asyncio.sleep(0.02)
            assert not cells.up and not await count()
        finally:
            end(client)
        logged = lines("Redis cannot count")
        assert code in " ".join(logged) and len(logged) <= 2
        await until_async(lambda: cells.up)
        assert await count()
        assert len(lines("Redis counts for all nodes")) == 2

    play(scene)


def test_counts_that_are_written_again_are_right_beside_calls(play, monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 5)
    monkeypatch.setattr(module, "RENEW_S", 0.002)

    async def scene(cells):
        claim = Claim("key", 0, 0, 1000)
        running = [await cells.enter((claim,)) for _ in range(5)]

        async def call():
            for _ in range(40):
                entry = await cells.enter((claim,))
                cells._unsure.add("sluice:key")  # as if an answer had been lost
                await asyncio.sleep(0)
                cells.leave(entry.callers, 0)

        await asyncio.gather(*(call() for _ in range(20)))
        cells._unsure.clear()
        assert (await cells.state(claim))[2] == len(running)

    play(scene)


def test_lost_scripts_are_loaded_again(play, server, monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 5)

    async def scene(cells):
        claim = Claim("key", 0, 0, 2)
        entry = await cells.enter((claim,))
        server.client.script_flush()
        with pytest.raises(RemoteAway):
            await cells.enter((claim,))
        cells.leave(entry.callers, 0)
        assert isinstance(await cells.enter((claim,)), RemoteEntry)
        await until_async(lambda: server.client.hget("sluice:key", "worker-0") == "1")
        assert cells.up

    play(scene)


async def until_async(condition, patience_s=10):
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


class AwayCells:
    """Cells that never answer."""

    async def enter(self, *args):
        raise RemoteAway

    def owe(self, *args):
        pass


@pytest.mark.parametrize(("fallback", "nodes", "let"), [
    ("share", 2, 2), ("each", 2, 4), ("refuse", 2, 0),
])  # fmt: skip
def test_while_it_is_away_the_fallback_counts(fallback, nodes, let):
    limits = Limits(private_cells(), remote=AwayCells(), fallback=fallback)
    limits.divide(nodes)
    ends = []

    async def scene():
        for _ in range(6):
            entering = Entering(key_of(rpm=4), group_of(), free=False)
            try:
                await limits.enter_everywhere(entering, demand_of())
                ends.append(isinstance(entering.slots, Slots))
            except Fault as fault:
                ends.append(fault.condition)

    asyncio.run(scene())
    assert ends.count(True) == let
    refused = Condition.UNAVAILABLE if fallback == "refuse" else Condition.RATE_LIMITED
    assert set(ends) - {True} == {refused}


def test_a_password_may_be_a_variable(monkeypatch):
    monkeypatch.setenv("SLUICE_TEST_REDIS", "p@ss/word")
    assert with_password("redis://u:env:SLUICE_TEST_REDIS@h:1/2") == "redis://u:p%40ss%2Fword@h:1/2"
    assert with_password("rediss://u:plain@h:1/2") == "rediss://u:plain@h:1/2"
    assert with_password("redis://h:1/2") == "redis://h:1/2"
    with pytest.raises(KeyError):
        with_password("redis://u:env:NO_SUCH_VARIABLE_OF_A_TEST@h:1/2")
