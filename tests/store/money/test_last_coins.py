"""The last coins of two plans at several processes with a slow store: no call is refused wrongly.

The times are those of a gateway, on a loop whose clock jumps to what is due next.
"""

import asyncio
import random
import selectors

import pytest

from store.calls.writer import RECALL_INTERVAL_S
from store.db.database import discard, open_database
from store.money.accounts import payment_of
from store.money.funds import QuotaUsed
from store.values.ids import now_ms
from tests.store.processes import Process, key_of, lease_rows, subscribe
from tests.support.stores import sqlite_store
from tests.support.users import add_user

SLOWEST_ORDER_S = 0.2
CALLS, QUOTAS, COST = 30, (750, 750), 100  # the last of 15 calls needs what is left of both
CALL_S = 0.05
TRIALS = 15


class Jumping(selectors.DefaultSelector):
    """Waits for nothing; `now_s` goes on by what it should have waited."""

    now_s = 1000.0

    def select(self, timeout=None):
        self.now_s += timeout or 0
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._jumping = Jumping()
        super().__init__(self._jumping)

    def time(self):
        return self._jumping.now_s


class SlowProcess(Process):
    """Its orders take some time, and what others want is looked for now and then."""

    def __init__(self, db, rng):
        super().__init__(db, asyncio.get_running_loop().time)
        self._rng = rng

    def _send(self, order):
        self.orders.append(order)
        if len(self.orders) == 1:
            delay_s = self._rng.uniform(0, SLOWEST_ORDER_S)
            asyncio.get_running_loop().call_later(delay_s, self.serve)
        return True

    async def work(self):
        await asyncio.sleep(self._rng.uniform(0, RECALL_INTERVAL_S))
        while True:
            self.look()
            self.book()
            await asyncio.sleep(RECALL_INTERVAL_S + self._rng.uniform(0, SLOWEST_ORDER_S))


@pytest.fixture
def db(tmp_path):
    made = open_database(sqlite_store(tmp_path / "sluice.db"))
    yield made
    discard(made)


def subscribed(db, name):
    """(user id, who pays): a user with a subscription for each of QUOTAS."""
    user_id = add_user(db, name)
    plans = [(quota, f"{name}-{place}") for place, quota in enumerate(QUOTAS)]
    terms = tuple(subscribe(db, user_id, quota, plan) for quota, plan in plans)
    return user_id, payment_of(key_of(user_id, "plan_only", subscriptions=terms), now_ms())


async def served(db, name, count, rng):
    """How many of CALLS at once were served by so many processes."""
    user_id, payment = subscribed(db, name)
    processes = [SlowProcess(db, rng) for _ in range(count)]
    working = [asyncio.ensure_future(process.work()) for process in processes]

    async def call(process):
        try:
            hold = await process.hold(payment, COST)
        except QuotaUsed:
            return False
        await asyncio.sleep(CALL_S)
        process.end(hold, COST, payment, user_id)
        return True

    outcomes = await asyncio.gather(*(call(processes[n % count]) for n in range(CALLS)))
    for work in working:
        work.cancel()
    for process in processes:
        process.end_process()
    return sum(outcomes)


@pytest.mark.parametrize("count", [2, 3])
def test_no_call_is_refused_while_there_is_money_for_it(db, count):
    async def main():
        rng = random.Random(count)
        return [await served(db, f"u{trial}", count, rng) for trial in range(TRIALS)]

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        assert runner.run(main()) == [sum(QUOTAS) // COST] * TRIALS
    assert lease_rows(db) == {}
