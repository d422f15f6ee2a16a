"""Holds and charges in memory: no amount is counted twice or forgotten, whatever the order."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from store import funds as funds_module
from store.errors import StoreUnavailable
from store.funds import IDLE_S, Funds, WalletEmpty
from store.usage import Charge

ALICE = [("wallet", "alice")]
BOB = [("wallet", "bob")]


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Bank:
    """A scripted database: balances, how often it was asked, and whether it answers."""

    def __init__(self, **balances):
        self.balances = balances
        self.asked = []
        self.away = False
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def load(self, user_id):
        self.asked.append(user_id)
        self.begun.set()
        balance = self.balances.get(user_id, 0)
        assert self.gate.wait(5)
        if self.away:
            raise StoreUnavailable("away")
        return balance


@pytest.fixture
def executor():
    with ThreadPoolExecutor(2) as made:
        yield made


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def bank():
    return Bank(alice=1000, bob=50, carol=1, dave=1)


@pytest.fixture
def funds(bank, executor, clock):
    return Funds(bank.load, executor, clock)


def run(coroutine):
    return asyncio.run(coroutine)


def known(funds, **balances):
    """Make balances known as a first hold and a poll would."""

    async def touch():
        for user in balances:
            funds.settle(await funds.hold([("wallet", user)], 1, 1), 0)

    run(touch())
    funds.applied(balances, {})


def test_the_first_hold_loads_the_balance_and_later_ones_do_not_wait(funds, bank):
    assert funds.try_hold(ALICE, 300, 300) is None
    assert funds.free_nanos("alice") is None
    hold = run(funds.hold(ALICE, 300, 300))
    assert hold.amount_nanos == 300
    assert funds.free_nanos("alice") == 700
    assert funds.try_hold(ALICE, 700, 700).amount_nanos == 700
    assert bank.asked == ["alice"]


def test_a_hold_beyond_what_is_free_takes_all_when_the_least_is_covered(funds):
    known(funds, alice=1000)
    assert funds.try_hold(ALICE, 5_000, 400).amount_nanos == 1000
    with pytest.raises(WalletEmpty):
        funds.try_hold(ALICE, 5_000, 400)
    with pytest.raises(WalletEmpty):
        funds.try_hold(ALICE, 1, 0)


def test_an_empty_wallet_refuses_and_a_free_call_passes(funds, bank):
    known(funds, bob=0)
    with pytest.raises(WalletEmpty):
        run(funds.hold(BOB, 1, 1))
    free = run(funds.hold(BOB, 0, 0))
    assert funds.settle(free, 0) == ()
    asked = len(bank.asked)
    assert funds.settle(run(funds.hold([("wallet", "stranger")], 0, 0)), 0) == ()
    assert len(bank.asked) == asked


def test_settling_gives_the_hold_back_and_charges_the_cost(funds):
    known(funds, alice=1000)
    hold = funds.try_hold(ALICE, 600, 600)
    assert funds.settle(hold, 250) == (Charge("wallet", 250),)
    assert funds.free_nanos("alice") == 750
    over = funds.try_hold(ALICE, 750, 750)
    assert funds.settle(over, 900) == (Charge("wallet", 900),)
    assert funds.free_nanos("alice") == -150
    with pytest.raises(WalletEmpty):
        funds.try_hold(ALICE, 1, 1)


def test_a_hold_is_settled_once(funds):
    known(funds, alice=1000)
    hold = funds.try_hold(ALICE, 600, 600)
    funds.settle(hold, 0)
    with pytest.raises(RuntimeError):
        funds.settle(hold, 0)
    assert funds.free_nanos("alice") == 1000


def test_balance_and_unwritten_charges_change_together(funds):
    known(funds, alice=1000)
    funds.settle(funds.try_hold(ALICE, 100, 100), 100)
    funds.settle(funds.try_hold(ALICE, 100, 100), 30)
    assert funds.free_nanos("alice") == 870
    # A poll from before both were written, the first is written, then a credit is seen.
    funds.applied({"alice": 1000}, {})
    assert funds.free_nanos("alice") == 870
    funds.applied({"alice": 900}, {"alice": 100})
    assert funds.free_nanos("alice") == 870
    funds.applied({"alice": 1400}, {})
    assert funds.free_nanos("alice") == 1370
    funds.applied({"alice": 1370, "unknown": 5}, {"alice": 30, "unknown": 5})
    assert funds.free_nanos("alice") == 1370


def test_while_the_store_is_away_known_users_are_served_and_others_are_told(funds, bank, clock):
    known(funds, alice=1000)
    bank.away = True
    clock.now += 10 * IDLE_S
    assert run(funds.hold(ALICE, 10, 10)).amount_nanos == 10
    with pytest.raises(StoreUnavailable):
        run(funds.hold(BOB, 10, 10))
    bank.away = False
    assert run(funds.hold(BOB, 10, 10)).amount_nanos == 10


def test_many_first_holds_ask_once_and_share_what_there_is(funds, bank):
    async def many():
        holds = [funds.hold(ALICE, 300, 300) for _ in range(5)]
        return await asyncio.gather(*holds, return_exceptions=True)

    results = run(many())
    assert bank.asked == ["alice"]
    assert sum(isinstance(result, WalletEmpty) for result in results) == 2
    assert funds.free_nanos("alice") == 100


def test_a_waiter_that_is_cancelled_holds_nothing_and_disturbs_nobody(funds, bank):
    async def two():
        bank.gate.clear()
        leaving = asyncio.ensure_future(funds.hold(ALICE, 300, 300))
        staying = asyncio.ensure_future(funds.hold(ALICE, 300, 300))
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        bank.gate.set()
        return await staying

    assert run(two()).amount_nanos == 300
    assert funds.free_nanos("alice") == 700


def test_a_slow_first_reading_does_not_replace_what_the_writer_brought(funds, bank):
    async def race():
        bank.gate.clear()
        waiting = asyncio.ensure_future(funds.hold(ALICE, 100, 100))
        await asyncio.get_running_loop().run_in_executor(None, bank.begun.wait, 5)
        # A free call turned out to cost something; it is written while the reading waits.
        funds.settle(await funds.hold(ALICE, 0, 0), 400)
        funds.applied({"alice": 600}, {"alice": 400})
        bank.gate.set()
        await waiting

    run(race())
    assert funds.free_nanos("alice") == 500


def test_idle_wallets_are_forgotten_and_busy_ones_are_not(funds, clock, monkeypatch):
    monkeypatch.setattr(funds_module, "_FORGET_PER_CALL", 10)
    known(funds, alice=1000, bob=50, carol=1, dave=1)
    open_hold = funds.try_hold(ALICE, 10, 10)
    funds.settle(funds.try_hold(BOB, 10, 10), 10)
    clock.now += IDLE_S + 1
    funds.settle(funds.try_hold([("wallet", "carol")], 1, 1), 0)
    funds.applied({}, {})
    assert sorted(funds.active_users()) == ["alice", "bob", "carol"]
    assert funds.free_nanos("alice") == 990
    funds.settle(open_hold, 0)
    clock.now += IDLE_S + 1
    funds.applied({"bob": 40}, {"bob": 10})
    assert funds.active_users() == []


def test_only_wallets_pay(funds):
    with pytest.raises(ValueError, match="window"):
        funds.try_hold([("window", "alice")], 1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_never_lose_or_double_money(seed, executor, clock):
    """Against a model: a database with a balance, charges that are written late and in batches,
    credits from outside, polls at any moment. What Funds calls free is exactly the balance minus
    holds minus what was charged and is not in that balance.
    """
    rng = random.Random(seed)
    database = {"alice": 10_000, "bob": 500}
    funds = Funds(lambda user: database[user], executor, clock)
    known(funds, **database)
    seen = dict(database)
    holds, unwritten, posts = [], [], []
    held = {"alice": 0, "bob": 0}
    spent = {"alice": 0, "bob": 0}
    credited = {"alice": 0, "bob": 0}
    initial = dict(database)

    def free(user):
        waiting = sum(cost for name, cost in unwritten if name == user)
        in_flight = sum(charged.get(user, 0) for _, charged in posts)
        return seen[user] - held[user] - waiting - in_flight

    for _ in range(2_000):
        user = rng.choice(("alice", "bob"))
        action = rng.randrange(7)
        if action <= 1:
            wanted = rng.randrange(1, 800)
            least = rng.randrange(1, wanted + 1)
            before = free(user)
            try:
                hold = funds.try_hold([("wallet", user)], wanted, least)
            except WalletEmpty:
                assert before < least
                continue
            assert hold.amount_nanos == min(wanted, before) and before >= least
            held[user] += hold.amount_nanos
            holds.append((user, hold))
        elif action == 2 and holds:
            user, hold = holds.pop(rng.randrange(len(holds)))
            cost = rng.choice((0, rng.randrange(hold.amount_nanos + 1), hold.amount_nanos + 3))
            charges = funds.settle(hold, cost)
            assert sum(charge.amount_nanos for charge in charges) == cost
            held[user] -= hold.amount_nanos
            spent[user] += cost
            unwritten.append((user, cost))
        elif action == 3 and unwritten:
            batch, unwritten = unwritten[: (n := rng.randrange(1, 9))], unwritten[n:]
            charged = {}
            for name, cost in batch:
                database[name] -= cost
                charged[name] = charged.get(name, 0) + cost
            posts.append(({name: database[name] for name in charged}, charged))
        elif action == 4:
            posts.append((dict(database), {}))
        elif action == 5:
            amount = rng.randrange(1000)
            database[user] += amount
            credited[user] += amount
        while posts and (action == 6 or len(posts) > 3):
            balances, charged = posts.pop(0)
            funds.applied(balances, charged)
            seen.update(balances)
        for name in database:
            assert funds.free_nanos(name) == free(name)
    for _, hold in holds:
        funds.settle(hold, 0)
    for balances, charged in posts:
        funds.applied(balances, charged)
    for user, cost in unwritten:
        database[user] -= cost
        funds.applied({user: database[user]}, {user: cost})
    funds.applied(database, {})
    for user in database:
        expected = initial[user] + credited[user] - spent[user]
        assert database[user] == expected == funds.free_nanos(user)
