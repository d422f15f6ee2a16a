"""Two writing hosts on purpose: the cluster decides what a real UPDATE locks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from store.db import changes, database
from store.db.database import insert_rows
from store.db.nodes import note_seen
from store.db.tables.system import Node
from store.money import leases
from store.money.accounts import Account
from store.money.books import verify
from store.money.leases import Order, Verdict
from store.money.wallet import Movement, credit
from tests.store.processes import limited_payment
from tests.support.stores import count, select
from tests.support.usage_records import BookedJournal
from tests.support.users import add_user

WALLETS = 200
PRICE = 1000


class Writer:
    """A gateway with a cluster node of its own, and a thread for all its work."""

    def __init__(self, url):
        self.db = database.open_database(url)
        self.pool = ThreadPoolExecutor(1)
        self.journal = self.run(lambda: BookedJournal(self.db).id)

    def run(self, work):
        return self.pool.submit(work).result()

    def lend(self, account, gate):
        def work():
            gate.wait(30)
            order = Order(account, need=PRICE, least=PRICE)
            lend = lambda: leases.carry_out(self.db, self.journal, [order])  # noqa: E731
            return database.transaction(self.db, lend)[0].verdict

        return self.pool.submit(work)

    def close(self):
        self.run(lambda: database.discard(self.db))
        self.pool.shutdown()


@pytest.fixture
def writers(galera, cluster_store):
    name = cluster_store.rpartition("/")[2]
    both = [Writer(galera.url_of(name, [node])) for node in galera.nodes[:2]]
    yield both
    for writer in both:
        writer.close()


def lend_by_both(writers, accounts):
    """Lease the price of a call from each account by both writers at once; return the verdicts of
    each pair, and how often a transaction was repeated."""
    pairs = []
    for account in accounts:
        gate = threading.Barrier(len(writers))
        pairs.append([one.result() for one in [w.lend(account, gate) for w in writers]])
    return pairs, sum(sum(database.repeated(writer.db).values()) for writer in writers)


def test_a_wallet_that_can_pay_one_call_is_lent_once(writers):
    db = writers[0].db
    note_seen(db, "web-1")
    users = [add_user(db, f"user{number}") for number in range(WALLETS)]
    for number in range(WALLETS):
        credit(db, f"user{number}", Movement(PRICE, "paid"))
    pairs, retries = lend_by_both(writers, [Account(u, "wallet", u, "wallet") for u in users])
    sums = select(db, 'SELECT "account", SUM("amount") FROM "leases" GROUP BY "account"')
    twice = [amount for _, amount in sums if amount > PRICE]
    print(f"\nlent twice: {len(twice)} of {WALLETS} wallets; repeated: {retries}")
    assert not twice and len(sums) == WALLETS
    assert all(pair.count(Verdict.DONE) == 1 for pair in pairs) and verify(db) == []


def test_a_spend_limit_is_lent_once(writers):
    db = writers[0].db
    limits = []
    for number in range(WALLETS // 4):
        user = add_user(db, f"user{number}")
        limits += limited_payment(db, user, key=PRICE).limits
    for limit in limits:  # so that the row exists
        rows = {"account": [limit.id], "spent": [0]}
        database.transaction(db, lambda rows=rows: database.insert_columns(db, "quotas", rows))
    pairs, _ = lend_by_both(writers, limits)
    assert all(pair.count(Verdict.DONE) == 1 for pair in pairs)


def test_what_is_judged_under_the_change_counter_is_done_once(writers):
    """Like the last two administrators, who must not both be removed."""
    rounds, db = 50, writers[0].db

    def add(writer, number):
        def work():
            changes.lock(writer.db)
            rows = select(writer.db, 'SELECT "name" FROM "nodes" WHERE "seen_ms" = ?', number)
            if not rows:
                name = f"{writer.journal} {number}"
                insert_rows(writer.db, Node, [{"name": name, "seen_ms": number}])

        return writer.pool.submit(lambda: database.transaction(writer.db, work))

    for number in range(rounds):
        for result in [add(writer, number) for writer in writers]:
            result.result()
    assert count(db, "nodes") == rounds
