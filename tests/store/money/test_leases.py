"""Several processes share accounts: no nano is leased twice, and the last one can be spent."""

import asyncio
import contextlib
import random

import pytest

from store.db.database import discard, snapshot_read, transaction
from store.money import funds as funds_module
from store.money import lease_state, leases
from store.money import wallet as wallet_module
from store.money.accounts import Account, Payment, payment_of
from store.money.books import verify
from store.money.funds import QuotaUsed, WalletEmpty
from store.money.leases import Order, Verdict
from store.money.wallet import Movement, credit, debit, show
from store.values.errors import Refused, StoreUnavailable
from store.values.ids import now_ms
from store.values.usage_record import Charge
from tests.store.processes import Process, key_of, lease_rows, limited_payment, subscribe
from tests.support.stores import balances, insert, pairs
from tests.support.users import add_user

ROUNDS_MAX = 10


@pytest.fixture
def db(database):
    return database


@pytest.fixture
def alice(db):
    user_id = add_user(db, "alice")
    credit(db, "alice", Movement(1000, "paid"))
    return user_id


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(funds_module, "RECALL_RETRY_S", 0.005)
    monkeypatch.setattr(funds_module, "RECALL_WAIT_S", 3.0)


def wallet_of(user_id):
    return Account(user_id, "wallet", user_id, "wallet")


@pytest.fixture
def order(db, alice):
    """Return order(process, …), which returns the store's answer to an order about alice's
    wallet."""

    def carry_out(process_id, user=alice, **fields):
        orders = [Order(wallet_of(user), **fields)]
        [answer] = transaction(db, lambda: leases.carry_out(db, process_id, orders))
        return answer

    return carry_out


def test_money_is_lent_once(db, alice, order):
    one, two = Process(db).id, Process(db).id
    first = order(one, need=600, least=600)
    assert (first.verdict, first.lease, first.granted) == (Verdict.DONE, 600, 600)
    second = order(two, need=600, least=300)
    assert (second.verdict, second.granted, second.empty) == (Verdict.DONE, 400, True)
    third = order(two, need=600, least=1)
    assert (third.verdict, third.lease) == (Verdict.SHORT, 400)
    assert leases.recalled(db, one) == [alice] and leases.recalled(db, two) == []
    returned = order(one, give=250)
    assert (returned.verdict, returned.lease) == (Verdict.DONE, 350)
    assert leases.recalled(db, one) == []
    assert order(two, need=600, least=1).lease == 650
    view = show(db, "alice")
    assert (view.balance_nanos, view.leased_nanos, view.held_nanos) == (1000, 1000, 0)


def test_only_a_quarter_is_lent_ahead(db, order):
    process = Process(db).id
    answer = order(process, need=200, least=200, ahead=5000)
    assert answer.lease == 200 + 800 // 4 and not answer.empty
    assert order(process, ahead=10).lease == 410


def test_what_nobody_has_is_not_waited_for(db, order):
    one, two = Process(db).id, Process(db).id
    order(one, need=600, least=600)
    # All that is free is leased nevertheless: a smaller call may use it.
    answer = order(two, need=1001, least=1001)
    assert (answer.verdict, answer.lease) == (Verdict.DRY, 400)
    assert leases.recalled(db, one) == []
    stranger = order(two, user="nobody", need=1, least=1)
    assert (stranger.verdict, stranger.lease) == (Verdict.DRY, 0)


def test_a_recall_is_not_asked_of_itself_and_no_more_goes_back_than_there_is(db, order):
    process = Process(db).id
    order(process, need=1000)
    assert order(process, need=500, least=500).verdict is Verdict.DRY
    assert leases.recalled(db, process) == []
    assert [order(process, give=amount).lease for amount in (1999, 1)] == [0, 0]
    assert lease_rows(db) == {}


def spent(db):
    return pairs(db, "quotas", "account", "spent")


async def test_a_plans_last_coins_are_split_with_the_wallet(db, alice):
    process = Process(db)
    key = key_of(alice, subscriptions=(subscribe(db, alice, 100),))
    payment = payment_of(key, now_ms())
    first = await process.hold(payment, 80)
    assert process.funds.settle(first, 0) == ()
    hold = await process.hold(payment, 150)
    window = payment.payers[0].id
    assert hold.parts == (Charge("subscription:gold", 100, window), Charge("wallet", 50))
    record = process.end(hold, 130, alice)
    assert record.charges == (Charge("subscription:gold", 100, window), Charge("wallet", 30))
    process.book()
    assert spent(db) == {window: 100}
    assert show(db, "alice").balance_nanos == 970
    process.end_process()
    assert lease_rows(db) == {} and verify(db) == []


@pytest.mark.parametrize(
    ("limits", "smaller"),
    [
        *(({"key": 300}, 0), ({"user": 300}, 0), ({"key": 300, "user": 300}, 0)),
        *(({"key": 300, "user": 500}, 0), ({"key": 500, "user": 300}, 1)),
    ],
)
async def test_a_limit_counts_what_others_pay(db, alice, limits, smaller):
    process = Process(db)
    payment = limited_payment(db, alice, **limits)
    hold = await process.hold(payment, 200)
    process.end(hold, 180, alice)
    # 120 of the limit are left, although the wallet has more.
    hold = await process.hold(payment, 200, 100)
    assert hold.amount_nanos == 120
    process.end(hold, 115, alice)
    with pytest.raises(QuotaUsed) as refused:
        await process.hold(payment, 200, 100)
    assert refused.value.account == payment.limits[smaller]
    process.book()
    assert spent(db) == dict.fromkeys((limit.id for limit in payment.limits), 295)
    assert show(db, "alice").balance_nanos == 1000 - 295
    process.end_process()
    assert lease_rows(db) == {} and verify(db) == []


def test_windows_long_over_are_forgotten(db):
    ends_ms = now_ms()
    rows = [("S:day:1", 5, ends_ms), ("S:day:2", 6, ends_ms + 1), ("K:never:0", 7, None)]
    for account, nanos, end in rows:
        insert(db, "quotas", account=account, spent=nanos, ends_ms=end)
    leases.forget_ended(db, ends_ms + leases.QUOTA_KEPT_MS)
    assert len(spent(db)) == 3
    leases.forget_ended(db, ends_ms + leases.QUOTA_KEPT_MS + 1)
    assert spent(db) == {"S:day:2": 6, "K:never:0": 7}


async def test_a_plan_that_is_used_up(db, alice):
    process = Process(db)
    subscription = subscribe(db, alice, 100)
    only = payment_of(key_of(alice, "plan_only", subscriptions=(subscription,)), now_ms())
    hold = await process.hold(only, 500, 100)
    assert hold.amount_nanos == 100
    with pytest.raises(QuotaUsed) as refused:
        await process.hold(only, 500, 100)
    assert refused.value.account == only.payers[0]
    none = payment_of(key_of(alice, "plan_only"), now_ms())
    with pytest.raises(QuotaUsed) as refused:
        await process.hold(none, 1)
    assert refused.value.account is None
    wallet_only = key_of(alice, "wallet_only", subscriptions=(subscription,))
    with pytest.raises(WalletEmpty):
        await process.hold(payment_of(wallet_only, now_ms()), 2000, 2000)


async def test_a_process_gives_back_what_another_needs(db, alice):
    rich, poor = Process(db), Process(db)
    payment = payment_of(key_of(alice), now_ms())
    await rich.spend(payment, 1000)
    assert rich.free(alice) == 1000
    waiting = asyncio.ensure_future(poor.hold(payment, 400))
    assert (await answered(waiting, rich)).amount_nanos == 400
    assert sum(lease_rows(db).values()) <= 1000


async def test_what_is_recalled_while_an_order_is_on_its_way_goes_back_after_it(
    db, alice, two_payers
):
    plan, wallet = two_payers.payers
    rich, poor = await hoarding(db, wallet), await hoarding(db, plan)
    calls = [asyncio.ensure_future(p.hold(two_payers, 2000)) for p in (rich, poor)]
    await served([rich, poor])
    await asyncio.sleep(5 * funds_module.RECALL_RETRY_S)
    rich.look()
    assert rich.orders and not any(order.give for order in rich.orders)
    await served([rich])
    assert (wallet.id, rich.id) not in lease_rows(db)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_money_that_runs_in_calls_is_not_recalled(db, alice, monkeypatch):
    monkeypatch.setattr(funds_module, "RECALL_WAIT_S", 0.1)
    rich, poor = Process(db), Process(db)
    payment = payment_of(key_of(alice), now_ms())
    hold = await rich.hold(payment, 700)
    waiting = asyncio.ensure_future(poor.hold(payment, 400))
    with pytest.raises(WalletEmpty):
        await answered(waiting, rich)
    rich.end(hold, 700, alice)
    rich.book()
    assert (await poor.hold(payment, 300)).amount_nanos == 300


def in_thread(db, work):
    def run():
        try:
            return work()
        finally:
            discard(db)

    return asyncio.get_running_loop().run_in_executor(None, run)


async def test_a_debit_has_back_what_is_not_held(db, alice):
    process = Process(db)
    payment = payment_of(key_of(alice), now_ms())
    await process.spend(payment, 900)
    hold = await process.hold(payment, 300)
    assert show(db, "alice").leased_nanos >= 900
    taking = in_thread(db, lambda: debit(db, "alice", Movement(700, "back to the bank")))
    assert (await answered(taking, process)).balance_after_nanos == 300
    process.end(hold, 300, alice)
    process.end_process()
    assert show(db, "alice").balance_nanos == 0 and verify(db) == []


async def test_a_debit_of_what_runs_in_calls_is_refused(db, alice, monkeypatch):
    monkeypatch.setattr(wallet_module, "RECALL_WAIT_S", 0.2)
    process = Process(db)
    payment = payment_of(key_of(alice), now_ms())
    await process.hold(payment, 900)
    taking = in_thread(db, lambda: debit(db, "alice", Movement(500, "too much")))
    with pytest.raises(Refused, match=r"gateways have 0\.0000009 for running calls"):
        await answered(taking, process)
    assert show(db, "alice").balance_nanos == 1000


async def answered(waiting, process):
    """Wait for a future while a process looks for recalled leases; return its result."""
    while not waiting.done():
        await asyncio.sleep(0.002)
        process.look()
    return waiting.result()


async def looked_after(processes):
    """Do the work of the processes' threads until cancelled."""
    while True:
        for process in processes:
            process.look()
            process.book()
        await asyncio.sleep(0.003)


async def shared_by_all(payment, user_id, callers, cost):
    """Return how many of the callers, each a process, could pay; all call at once."""

    async def call(process):
        try:
            hold = await process.hold(payment, cost)
        except (WalletEmpty, QuotaUsed):
            return False
        await asyncio.sleep(random.random() / 50)
        process.end(hold, cost, user_id)
        return True

    processes = set(callers)
    working = asyncio.ensure_future(looked_after(processes))
    passed = await asyncio.gather(*map(call, callers))
    working.cancel()
    for process in processes:
        process.end_process()
    return sum(passed)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("limits", [{}, {"key": 2000}, {"user": 2000}, {"key": 2000, "user": 2000}])
async def test_the_last_coins_of_two_payers_are_shared_exactly(
    db, alice, two_payers, count, limits
):
    """Money for 25 calls of 80; two or more processes need the rest of plan and wallet."""
    payment = Payment(two_payers.payers, limited_payment(db, alice, **limits).limits)
    callers = [Process(db) for _ in range(count)] * (60 // count)
    assert await shared_by_all(payment, alice, callers, 80) == 25
    assert lease_rows(db) == {} and verify(db) == []


async def in_step(processes, calls, rounds):
    """Let all processes order, receive and return leases in step, until the calls have ended."""
    for _ in range(rounds):
        await served(processes)
        for process in processes:
            process.look()
        await served(processes)
        if all(call.done() for call in calls):
            return
        await asyncio.sleep(funds_module.RECALL_RETRY_S)


async def served(processes):
    for _ in range(6):
        await asyncio.sleep(0)
        for process in processes:
            process.serve()


@pytest.fixture
def two_payers(db, alice):
    """Return the payment by a plan and a wallet, with 1000 each."""
    key = key_of(alice, subscriptions=(subscribe(db, alice, 1000),))
    return payment_of(key, now_ms())


async def hoarding(db, account):
    """Return a process that has leased all of an account and holds nothing; from now on it is
    slow."""
    process = Process(db)
    hold = await process.hold(Payment((account,)), 1000, 1000)
    process.funds.settle(hold, 0)
    process.store = "slow"
    return process


@pytest.mark.parametrize("turned", [False, True])
async def test_coins_of_two_payers_do_not_go_round_between_two_that_wait(
    db, alice, two_payers, turned
):
    plan, wallet = two_payers.payers
    processes = [await hoarding(db, plan), await hoarding(db, wallet)]
    if turned:
        processes.reverse()
    calls = [asyncio.ensure_future(p.hold(two_payers, 2000)) for p in processes]
    await in_step(processes, calls, 20)
    assert sorted(call.done() for call in calls) == [False, True], "none, or one too many"
    place = [call.done() for call in calls].index(True)
    assert [part.amount_nanos for part in calls[place].result().parts] == [1000, 1000]
    processes[place].end(calls[place].result(), 2000, alice)
    processes[place].book()
    await in_step(processes, calls, 1000)
    with pytest.raises(WalletEmpty):
        calls[1 - place].result()
    for process in processes:
        process.end_process()
    assert lease_rows(db) == {} and verify(db) == []


@pytest.mark.parametrize("payers", [1, 2])
@pytest.mark.parametrize("limits", [{"key": 1000}, {"user": 1000}, {"key": 1000, "user": 1000}])
async def test_a_limits_last_coins_do_not_go_round_with_its_payers(
    db, alice, two_payers, payers, limits, monkeypatch
):
    monkeypatch.setattr(funds_module, "RECALL_WAIT_S", 60)  # no process gives up on a busy machine
    limited = limited_payment(db, alice, **limits)
    payment = Payment(two_payers.payers[-payers:], limited.limits)
    # Each account is completely leased to a process of its own.
    processes = [
        await hoarding(db, account) for account in (*payment.payers[::-1], *payment.limits)
    ]
    calls = [asyncio.ensure_future(p.hold(payment, 1000)) for p in processes]
    await in_step(processes, calls, 20)
    assert [call.done() for call in calls].count(True) == 1, "none, or one too many"
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_what_no_payer_has_alone_is_recalled_from_all(db, alice, two_payers):
    plan, wallet = two_payers.payers
    poor = Process(db)
    poor.store = "slow"
    processes = [poor, await hoarding(db, plan), await hoarding(db, wallet)]
    call = asyncio.ensure_future(poor.hold(two_payers, 1500))
    await in_step(processes, [call], 20)
    assert [part.amount_nanos for part in call.result().parts] == [1000, 500]


async def test_the_limit_is_named_when_it_is_what_runs_in_calls(db, alice, monkeypatch):
    monkeypatch.setattr(funds_module, "RECALL_WAIT_S", 0.1)
    payment = limited_payment(db, alice, key=600)
    busy, poor = Process(db), Process(db)
    await busy.hold(payment, 500)
    with pytest.raises(QuotaUsed) as refused:
        await poor.hold(payment, 300)
    assert refused.value.account == payment.limits[0]


@pytest.mark.parametrize(("of_key", "of_user"), [(400, 700), (700, 400), (500, 500)])
async def test_keys_of_a_user_spend_no_more_than_the_smaller_of_both_limits(
    db, alice, of_key, of_user
):
    """Two processes, a key with a limit of its own and one without; the wallet has more."""
    limited = limited_payment(db, alice, key=of_key, user=of_user)
    other = Payment(limited.payers, limited.limits[1:])
    own, of_all = limited.limits

    async def call(process, payment):
        total = 0
        for _ in range(12):
            with contextlib.suppress(QuotaUsed):
                hold = await process.hold(payment, 30, 1)
                await asyncio.sleep(random.random() / 100)
                process.end(hold, hold.amount_nanos, alice)
                total += hold.amount_nanos
        return total

    async def all_call(payment):
        return sum(await asyncio.gather(*(call(p, payment) for p in processes for _ in range(3))))

    processes = [Process(db), Process(db)]
    working = asyncio.ensure_future(looked_after(processes))
    assert await all_call(limited) == min(of_key, of_user)
    assert await all_call(other) == of_user - min(of_key, of_user)
    working.cancel()
    for process in processes:
        process.end_process()
    assert spent(db) == {own.id: min(of_key, of_user), of_all.id: of_user}
    assert show(db, "alice").balance_nanos == 1000 - of_user
    assert lease_rows(db) == {} and verify(db) == []


class World:
    """Three processes that call, book, crash and lose answers at random; no money may be lost."""

    def __init__(self, db, seed, payments):
        self.db = db
        self.rng = random.Random(seed)
        self.payments = payments  # (user id, payment)
        self.processes = [Process(db) for _ in range(3)]
        self.cost = self.refused = self.done = 0

    async def caller(self):
        rng = self.rng
        for _ in range(25):
            process = rng.choice(self.processes)
            user_id, payment = rng.choice(self.payments)
            wanted = rng.randrange(1, 400)
            try:
                hold = await process.hold(payment, wanted, rng.randrange(1, wanted + 1))
            except (WalletEmpty, QuotaUsed):
                self.refused += 1
                continue
            except StoreUnavailable:
                continue
            await asyncio.sleep(rng.random() / 100)
            if process not in self.processes:
                continue  # it died during this call: nothing was delivered or charged
            cost = rng.randrange(hold.amount_nanos + 1)
            process.end(hold, cost, user_id)
            self.cost += cost
            self.done += 1

    async def disturb(self):
        rng = self.rng
        while True:
            await asyncio.sleep(0.004)
            for process in self.processes:
                process.look()
                if rng.random() < 0.5:
                    process.book(rng.choice((1, 3, None)))
                process.store = rng.choices(("up", "away", "mute"), (8, 1, 1))[0]
                process.funds.sweep()
                if rng.random() < 0.3:
                    process.funds.prepare(rng.choice(self.processes).noted)
            if rng.random() < 0.03:
                self.processes.pop(rng.randrange(3)).end_process()  # its journal is adopted
                self.processes.append(Process(self.db))
            self.check()

    def check(self):
        """Check that no more is leased than there is."""

        def read():
            return [(leases.lent(self.db, user)[0], b) for user, b in balances(self.db).items()]

        assert all(0 <= lent <= balance for lent, balance in snapshot_read(self.db, read))


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))]
)
async def test_random_histories_never_lose_or_double_money(db, alice, seed, monkeypatch):
    monkeypatch.setattr(lease_state, "STORE_BACKOFF_S", 0.02)
    monkeypatch.setattr(funds_module, "RECALL_BACKOFF_S", 0.02)
    monkeypatch.setattr(funds_module, "RECALL_WAIT_S", 0.05)
    bob = add_user(db, "bob")
    credit(db, "bob", Movement(30_000, "paid"))
    subscription = subscribe(db, alice, 5_000)
    own = {"subscriptions": (subscription,)}
    payers = [key_of(alice, **own), key_of(alice, "wallet_first", **own)]
    payers += [key_of(bob), key_of(alice, "wallet_only")]
    payments = [(key.user_id, payment_of(key, now_ms())) for key in payers]
    payments += [(alice, limited_payment(db, alice, key=3_000, **own))]
    payments += [(bob, limited_payment(db, bob, key=3_000, user=4_000))]
    ((of_alice,), of_bob) = (payment.limits for _, payment in payments[-2:])
    limits = dict(zip((of_alice, *of_bob), (3_000, 3_000, 4_000), strict=True))
    world = World(db, seed, payments)
    disturbing = asyncio.ensure_future(world.disturb())
    for _ in range(ROUNDS_MAX):  # on a busy machine few calls get through
        await asyncio.gather(*(world.caller() for _ in range(12)))
        if world.done > 20 and world.refused:
            break
    disturbing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await disturbing
    for process in world.processes:
        process.end_process()
    assert world.done > 20 and world.refused > 0
    assert lease_rows(db) == {} and verify(db) == []
    quotas = spent(db)
    of_plan = sum(amount for account, amount in quotas.items() if account.startswith("S-"))
    assert of_plan <= 5_000
    assert all(quotas.get(limit.id, 0) <= most for limit, most in limits.items())
    left = show(db, "alice").balance_nanos + show(db, "bob").balance_nanos
    assert left == 31_000 - (world.cost - of_plan)
