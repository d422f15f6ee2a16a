"""Holds, charges and leases in memory: who waits for the store, and who never does."""

import asyncio

import pytest

from store.db.database import discard, open_database
from store.money import funds as funds_module
from store.money.accounts import Account, Payment, payment_of
from store.money.funds import AHEAD_BACKOFF_S, LEASE_IDLE_S, WalletEmpty
from store.money.lease_state import HOLDS_AHEAD, LEASE_COVER_S, RENEW_S, STORE_BACKOFF_S
from store.money.wallet import Movement, credit, show
from store.values.errors import StoreUnavailable
from store.values.ids import now_ms
from store.values.usage_record import Charge
from tests.store.processes import Process, key_of, lease_rows, limited_payment, subscribe
from tests.support.stores import sqlite_store
from tests.support.users import add_user


def plan_of(user):
    """Return the window of a plan, unknown to the store unless the user subscribes to it."""
    return Account("S-gold:day:20260101", "subscription", user.id, "subscription:gold")


class User:
    """A user with a wallet, and the payment of the user's calls."""

    def __init__(self, db, name, balance):
        self.name = name
        self.id = add_user(db, name)
        if balance:
            credit(db, name, Movement(balance, "paid"))
        self.payment = payment_of(key_of(self.id), now_ms())


@pytest.fixture
def db(tmp_path):
    made = open_database(sqlite_store(tmp_path / "sluice.db"))
    yield made
    discard(made)


@pytest.fixture
def process(db, clock):
    return Process(db, clock)


@pytest.fixture
def alice(db):
    return User(db, "alice", 100_000)


@pytest.fixture
def bob(db):
    return User(db, "bob", 0)


async def settled():
    """Let everything that is scheduled on the loop run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_hold_asks_the_store_and_later_ones_do_not_wait(process, alice):
    assert process.funds.try_hold(alice.payment, 300) is None
    hold = await process.hold(alice.payment, 300)
    assert hold.amount_nanos == 300
    for _ in range(HOLDS_AHEAD):
        assert process.funds.try_hold(alice.payment, 300) is not None
    assert process.free(alice.id) == 0
    (order, *_) = process.served
    assert (order.need, order.least, order.ahead) == (300, 300, HOLDS_AHEAD * 300)


async def test_more_is_ordered_before_it_runs_short(process, alice):
    await process.hold(alice.payment, 300)
    for _ in range(100):
        hold = process.funds.try_hold(alice.payment, 300)
        assert hold is not None
        await settled()
        process.end(hold, 300, alice.id)
        process.funds._clock.now += 1  # an order every quarter of a second, at most
        await settled()
    assert len(process.served) < 30


async def test_nothing_is_ordered_while_the_lease_lasts(process, alice):
    await process.hold(alice.payment, 300)
    for _ in range(100):
        process.funds.settle(process.funds.try_hold(alice.payment, 300), 1)
        await settled()
    assert len(process.served) == 1


async def test_the_lease_follows_the_pace_of_spending(process, alice, clock):
    await process.spend(alice.payment, 10, 10)
    for _ in range(60):
        clock.now += 1
        await process.spend(alice.payment, 10, 10)
        await settled()
    # 10 a second: at least half of LEASE_COVER_S is covered without the store
    assert LEASE_COVER_S * 10 // 2 <= process.free(alice.id) <= LEASE_COVER_S * 10 + 10


async def test_an_account_that_another_worker_uses_is_leased_before_it_is_used(
    db, process, alice, clock
):
    other = Process(db, clock)
    await process.hold(alice.payment, 300)
    target = HOLDS_AHEAD * 300
    wallet = alice.payment.payers[0]
    assert process.noted == {wallet: target}
    other.funds.prepare({wallet: target})
    await settled()
    assert other.free(alice.id) == target
    assert not other.noted, "an account is passed on without a call of it"
    other.store = "away"
    assert other.funds.try_hold(alice.payment, 300) is not None


async def test_little_is_ordered_for_what_others_use(process, alice, clock):
    await process.hold(alice.payment, 300)
    wallet = alice.payment.payers[0]
    free = process.free(alice.id)
    for target, orders in ((free * 2, 1), (free * 2 + 2, 2), (free * 2 + 2, 2)):
        process.funds.prepare({wallet: target})
        await settled()
        assert len(process.served) == orders, target
        clock.now += AHEAD_BACKOFF_S
    assert process.free(alice.id) == free * 2 + 2


async def test_a_lease_in_use_is_told_to_other_workers_again_and_again(process, alice, clock):
    for seconds, orders in ((1, 1), (RENEW_S - 1, 1), (1, 2), (RENEW_S - 1, 2), (1, 3)):
        await process.spend(alice.payment, 300, 1)
        await settled()
        assert len(process.served) == orders
        clock.now += seconds


async def test_scarce_money_is_not_leased_for_others(process, alice):
    await process.hold(alice.payment, 100_000 // HOLDS_AHEAD)
    assert not process.noted


async def test_a_lease_stays_while_other_workers_use_the_account(process, alice, clock):
    wallet = alice.payment.payers[0]
    for _ in range(3):
        process.funds.prepare({wallet: 1000})
        await settled()
        clock.now += LEASE_IDLE_S - 1
        process.funds.sweep()
        await settled()
        assert process.free(alice.id) == 1000
    clock.now += LEASE_IDLE_S
    process.funds.sweep()
    await settled()
    assert lease_rows(process.db) == {}


async def test_a_hold_beyond_what_is_free_takes_all_when_the_least_is_covered(process, alice):
    hold = await process.hold(alice.payment, 500_000, 400)
    assert hold.amount_nanos == 100_000
    with pytest.raises(WalletEmpty):
        await process.hold(alice.payment, 500_000, 400)
    with pytest.raises(WalletEmpty):
        await process.hold(alice.payment, 1, 0)


async def test_an_empty_wallet_refuses_a_free_call_passes_and_a_credit_is_seen_soon(
    db, process, bob, clock
):
    with pytest.raises(WalletEmpty):
        await process.hold(bob.payment, 1)
    orders = len(process.served)
    assert await process.spend(bob.payment, 0) == ()
    assert process.funds.try_hold(bob.payment, 0).parts == ()
    for _ in range(100):
        with pytest.raises(WalletEmpty):
            await process.hold(bob.payment, 1)
    assert len(process.served) == orders, "each refused call asks the store"
    credit(db, "bob", Movement(500, "paid"))
    clock.now += STORE_BACKOFF_S
    assert (await process.hold(bob.payment, 500)).amount_nanos == 500


async def test_a_call_that_needs_less_is_not_refused_with_one_that_needs_more(process, alice):
    with pytest.raises(WalletEmpty) as refused:
        await process.hold(alice.payment, 200_000)
    assert (refused.value.left_nanos, refused.value.needed_nanos) == (100_000, 200_000)
    assert (await process.hold(alice.payment, 90_000)).amount_nanos == 90_000


async def test_what_went_back_may_be_had_again_at_once(process, alice):
    await process.spend(alice.payment, 100_000)
    with pytest.raises(WalletEmpty):
        await process.hold(alice.payment, 150_000)
    process.funds.recalled([alice.id])
    assert (await process.hold(alice.payment, 90_000)).amount_nanos == 90_000


async def test_settling_gives_the_hold_back_and_charges_the_cost(process, alice):
    hold = await process.hold(alice.payment, 600)
    before = process.free(alice.id)
    assert process.funds.settle(hold, 250) == (Charge("wallet", 250),)
    assert process.free(alice.id) == before + 350
    hold = await process.hold(alice.payment, 600)
    assert process.funds.settle(hold, 900) == (Charge("wallet", 900),)
    assert process.free(alice.id) == before + 350 - 900
    hold = await process.hold(alice.payment, 600)
    assert process.funds.settle(hold, 0) == ()
    with pytest.raises(RuntimeError):
        process.funds.settle(hold, 0)
    assert process.free(alice.id) == before + 350 - 900


async def test_what_exceeds_the_hold_is_paid_by_who_has_free_money(db, process, alice):
    subscribe(db, alice.id, 100, window="day")
    plan = plan_of(alice)
    payment = Payment((plan, *alice.payment.payers))
    hold = await process.hold(payment, 50)
    assert process.funds.settle(hold, 55) == (Charge("subscription:gold", 55, plan.id),)
    hold = await process.hold(payment, 45)
    charges = process.funds.settle(hold, 60)
    assert charges == (Charge("subscription:gold", 45, plan.id), Charge("wallet", 15))


async def test_lease_and_unwritten_charges_change_together(process, alice):
    hold = await process.hold(alice.payment, 1000)
    process.end(hold, 100, alice.id)
    process.end(await process.hold(alice.payment, 1000), 30, alice.id)
    free, lease = process.free(alice.id), process.lease(alice.id)
    process.book(1)
    assert (process.free(alice.id), process.lease(alice.id)) == (free, lease - 100)
    process.book()
    assert (process.free(alice.id), process.lease(alice.id)) == (free, lease - 130)
    process.funds.applied({"unknown": 5}, {"unknown": 5})
    assert lease_rows(process.db) == {(alice.id, process.id): lease - 130}


async def test_while_the_store_is_away_leases_are_spent_and_others_are_told(
    process, alice, bob, clock
):
    await process.hold(alice.payment, 10)
    process.store = "away"
    for _ in range(HOLDS_AHEAD):
        clock.now += 30
        assert (await process.hold(alice.payment, 10)).amount_nanos == 10
    for user in (alice, bob):
        with pytest.raises(StoreUnavailable):
            await process.hold(user.payment, 10)
    process.store = "up"
    clock.now += STORE_BACKOFF_S
    assert (await process.hold(alice.payment, 10)).amount_nanos == 10
    with pytest.raises(WalletEmpty):
        await process.hold(bob.payment, 10)


async def test_a_payer_that_cannot_be_asked_does_not_stop_the_next(process, alice):
    await process.hold(alice.payment, 10)
    process.store = "away"
    payment = Payment((plan_of(alice), *alice.payment.payers))
    hold = await process.hold(payment, 10)
    assert hold.parts == (Charge("wallet", 10),)
    limit = Account("K:day:20260101", "limit", "K", "limit")
    with pytest.raises(StoreUnavailable):
        await process.hold(Payment(alice.payment.payers, (limit,)), 10, 10)


async def test_many_first_holds_share_few_orders(process, alice):
    holds = (process.hold(alice.payment, 30_000) for _ in range(50))
    results = await asyncio.gather(*holds, return_exceptions=True)
    assert sum(isinstance(result, WalletEmpty) for result in results) == 47
    assert process.free(alice.id) == 10_000
    assert len(process.served) <= 3


async def test_a_waiter_that_is_cancelled_holds_nothing_and_disturbs_nobody(process, alice):
    process.store = "slow"
    leaving = asyncio.ensure_future(process.hold(alice.payment, 300))
    staying = asyncio.ensure_future(process.hold(alice.payment, 300))
    await settled()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    process.serve()
    assert (await staying).amount_nanos == 300
    assert process.funds.held() == {alice.id: 300}


async def test_an_order_that_is_not_answered(process, alice, clock, monkeypatch):
    monkeypatch.setattr(funds_module, "ORDER_WAIT_S", 0.05)
    process.store = "slow"
    with pytest.raises(StoreUnavailable):
        await process.hold(alice.payment, 300)
    clock.now += STORE_BACKOFF_S
    # No call waits after an order that was not answered in time.
    waiting = asyncio.ensure_future(process.hold(alice.payment, 300))
    await settled()
    assert waiting.done()
    with pytest.raises(StoreUnavailable):
        waiting.result()
    process.serve()
    clock.now += STORE_BACKOFF_S
    assert process.funds.try_hold(alice.payment, 300).amount_nanos == 300


async def test_what_was_not_confirmed_is_found_again(process, alice, clock):
    process.store = "mute"
    with pytest.raises(StoreUnavailable):
        await process.hold(alice.payment, 300)
    assert process.lease(alice.id) == 0
    assert lease_rows(process.db) == {(alice.id, process.id): 300 + HOLDS_AHEAD * 300}
    process.store = "up"
    process.funds.sweep()
    await settled()
    assert process.free(alice.id) == 300 + HOLDS_AHEAD * 300
    process.store = "mute"
    process.funds.recalled([alice.id])
    await settled()
    assert process.free(alice.id) == 0
    assert lease_rows(process.db) == {}
    process.store = "up"
    process.funds.sweep()
    await settled()
    assert (process.free(alice.id), process.lease(alice.id)) == (0, 0)


async def test_idle_leases_go_back_and_busy_ones_do_not(process, alice, bob, clock):
    open_hold = await process.hold(alice.payment, 10)
    with pytest.raises(WalletEmpty):
        await process.hold(bob.payment, 10)
    for _ in range(2):
        clock.now += LEASE_IDLE_S + 1
        process.funds.sweep()
        await settled()
    assert process.funds.held() == {alice.id: 10}
    process.end(open_hold, 4, alice.id)
    clock.now += LEASE_IDLE_S + 1
    process.funds.sweep()
    await settled()
    assert process.lease(alice.id) > 0, "given back before its charge was written"
    process.book()
    for _ in range(2):
        clock.now += LEASE_IDLE_S + 1
        process.funds.sweep()
        await settled()
    assert process.funds.held() == {} and lease_rows(process.db) == {}
    assert show(process.db, "alice").balance_nanos == 99_996


LIMITS = [{"key": 1000}, {"user": 1000}]


@pytest.mark.parametrize("limits", LIMITS)
async def test_changes_make_quotas_be_asked_again(db, process, alice, limits):
    payment = limited_payment(db, alice.id, **limits)
    limit = payment.limits[-1]
    await process.spend(payment, 100)
    assert process.lease(limit.id) > 0
    process.funds.reconsider({"somebody else"})
    await settled()
    assert process.lease(limit.id) > 0
    process.funds.reconsider({limit.ref})
    await settled()
    assert process.lease(limit.id) == 0
    assert process.lease(alice.id) > 0
    await process.spend(payment, 100)
    process.funds.reconsider(None)
    await settled()
    assert process.lease(limit.id) == 0


@pytest.mark.parametrize("limits", LIMITS)
async def test_what_was_ordered_before_a_change_goes_back_as_well(db, process, alice, limits):
    payment = limited_payment(db, alice.id, **limits)
    limit = payment.limits[-1]
    await process.hold(Payment(payment.payers), 100, 100)
    process.store = "slow"
    waiting = asyncio.ensure_future(process.hold(payment, 100))
    await settled()
    process.funds.reconsider({limit.ref})
    process.store = "up"
    process.serve()
    assert (await waiting).amount_nanos == 100
    assert lease_rows(db)[limit.id, process.id] == process.lease(limit.id)
    assert [order.give > 0 for order in process.served if order.account == limit] == [
        *(False, True, False)
    ]


async def test_a_hold_takes_over_another_of_the_same_payment(db, process, alice):
    """In the order of the payers, whichever was added first; both are settled once."""
    payment = limited_payment(db, alice.id, key=900, user=900)
    first = await process.hold(payment, 300)
    extra = await process.hold(payment, 500)
    assert not first.raised
    first.add(extra)
    assert (first.amount_nanos, first.raised, extra.settled) == (800, True, True)
    assert first.parts == (Charge("wallet", 800),)
    accounts = (alice.id, *(limit.id for limit in payment.limits))
    assert process.funds.held() == dict.fromkeys(accounts, 800)
    assert process.funds.settle(first, 700) == (Charge("wallet", 700),)
    assert process.funds.held() == dict.fromkeys(accounts, 0)
    with pytest.raises(RuntimeError):
        process.funds.settle(extra, 0)
