"""Holds that grow with their streams: at once from the lease, or by a new lease; otherwise the
call ends."""

import asyncio
from dataclasses import replace

import pytest

from adapters.family import Operation, Peek
from adapters.faults import Condition
from handlers.relay.call import Delivery, Held
from handlers.relay.holding import AHEAD_S, AHEAD_TOKENS, Holding, call_bound
from handlers.relay.live import LiveStream
from handlers.relay.running import Interrupt, MoneyUsedUp
from store.catalog.catalog import Group
from store.db.database import discard, open_database
from store.money.wallet import Movement, credit
from tests.handlers.relay.calls import KEY, a_call
from tests.store.processes import Process
from tests.support.stores import sqlite_store
from tests.support.users import add_user

TOKEN = 2 * 10**6  # nanos of an output token
DEAREST = 6 * 10**6  # of a reasoning token: the price at which each token is held
BEGIN = 40 * 10**6 + 7 * 10**6  # the cost of the input and of the call, included in every cost
UNBOUNDED = Peek("m", True, None, 1, True)
RICH = 10**6 * TOKEN


class Pump:
    """A stream with this much text."""

    def __init__(self):
        self.output_units, self.looked_at = 0, 0

    def delivery(self):
        self.looked_at += 1
        return Delivery(relayed=True, output_units=self.output_units)


class Rig:
    """A call of a user with a wallet, and its stream."""

    def __init__(self, db, balance=RICH, **changes):
        self.user_id = add_user(db, "alice")
        credit(db, "alice", Movement(balance, "paid"))
        self.process = Process(db)
        self.funds = self.process.funds
        self.holding = Holding(self.funds, "USD")
        key = replace(KEY, user_id=self.user_id, spend_order="wallet_only")
        changes = {"peek": UNBOUNDED, "output_bound_tokens": 8192, "key": key, **changes}
        self.call, self.pump = a_call(**changes), Pump()
        self.stream = LiveStream(self.call, self.pump, None, 0)

    async def begin(self):
        head, admitted = self.call.head, self.call.admitted
        hold = self.holding.at_once(head, call_bound(admitted))
        if hold is None:
            hold, _ = await self.holding.wait(head, admitted, b"")
        self.call.held = Held(None, hold)
        return self

    async def grow(self, tokens):
        """Simulate a second in which the stream has reached this many tokens, and the reactions to
        it."""
        grown, self.pump.output_units = tokens - self.pump.output_units, tokens
        self.holding.follow(self.stream, grown)
        await asyncio.gather(*self.holding._raising.values())

    @property
    def held(self):
        return self.call.held.hold.amount_nanos


@pytest.fixture
def db(tmp_path):
    made = open_database(sqlite_store(tmp_path / "sluice.db"))
    yield made
    discard(made)


async def test_a_stream_within_its_hold_is_not_looked_at_closely(db):
    rig = await Rig(db).begin()
    held = rig.held
    for tokens in range(100, 7001, 100):
        await rig.grow(tokens)
    assert rig.held == held and not rig.call.held.hold.raised
    assert rig.pump.looked_at == 1  # in the first second


@pytest.mark.parametrize("pace", [100, 3000])
async def test_more_is_held_before_the_text_costs_more(db, pace):
    rig = await Rig(db).begin()
    for tokens in range(pace, 60_000, pace):
        await rig.grow(tokens)
        assert rig.held >= BEGIN + tokens * TOKEN
        most = max(8192, tokens) + max(AHEAD_TOKENS, AHEAD_S * pace) + pace
        assert rig.held <= 1000 * DEAREST + most * DEAREST
    assert rig.call.held.hold.raised and rig.call.running.interrupted is None
    assert sum(part.amount_nanos for part in rig.call.held.hold.parts) == rig.held
    cost = BEGIN + rig.pump.output_units * TOKEN
    rig.funds.settle(rig.call.held.hold, cost)
    assert rig.funds.held() == {rig.user_id: 0}


async def test_a_bound_of_the_client_is_held_and_no_more(db):
    bounded = {"peek": Peek("m", True, 300, 1, True), "output_bound_tokens": 300}
    rig = await Rig(db, **bounded).begin()
    held = rig.held
    for tokens in (100, 290, 300, 450, 600):  # the gateway's count may be twice the vendor's
        await rig.grow(tokens)
        assert rig.held == held
    await rig.grow(5000)  # a vendor that ignores the bound
    assert rig.held >= BEGIN + 2500 * TOKEN


async def test_what_was_cut_to_the_last_coins_grows_when_there_are_more(db):
    rig = await Rig(db, balance=BEGIN + 1000 * TOKEN).begin()
    assert rig.held == BEGIN + 1000 * TOKEN
    credit(db, "alice", Movement(RICH, "paid"))
    await rig.grow(900)
    assert rig.held > BEGIN + 1900 * TOKEN and rig.call.running.interrupted is None


async def test_without_money_the_call_ends_when_it_costs_more_than_it_holds(db):
    rig = await Rig(db, balance=BEGIN + 1000 * TOKEN).begin()
    await rig.grow(900)  # the next seconds are not covered, the past one is
    assert rig.call.running.interrupted is None
    await rig.grow(1000)
    assert rig.call.running.interrupted is None
    await rig.grow(1001)
    ended = rig.call.running.interrupted
    assert isinstance(ended, MoneyUsedUp) and isinstance(ended, Interrupt)
    assert ended.fault.condition is Condition.WALLET_EMPTY


async def test_a_stream_goes_on_while_the_store_is_away(db):
    rig = await Rig(db, balance=BEGIN + 1000 * TOKEN).begin()
    rig.process.store = "away"
    await rig.grow(5000)
    assert rig.call.running.interrupted is None
    rig.process.store = "up"


async def test_what_comes_after_the_end_goes_back(db):
    rig = await Rig(db, balance=BEGIN + 9000 * TOKEN).begin()
    credit(db, "alice", Movement(RICH, "paid"))
    rig.process.store = "slow"
    rig.pump.output_units = 9500
    rig.holding.follow(rig.stream, 9500)
    await asyncio.sleep(0)
    rig.funds.settle(rig.call.held.hold, rig.held)
    rig.process.store = "up"
    for _ in range(5):
        await asyncio.sleep(0)
    rig.process.serve()
    await asyncio.gather(*rig.holding._raising.values())
    assert rig.funds.held() == {rig.user_id: 0}


async def test_calls_without_a_hold_are_left_alone(db):
    free = Rig(db, operation=Operation("/v1/count", free=True))
    await free.grow(50_000)
    assert free.call.held.hold is None and free.pump.looked_at == 0


async def test_what_no_money_covers_is_not_raised(db):
    rig = Rig(db, balance=8 * 10**18, group=Group("gold", 10**14, None, frozenset(), False))
    held = (await rig.begin()).held
    await rig.grow(20_000)  # the next seconds would cost twice as much
    assert rig.held == held and rig.call.running.interrupted is None
