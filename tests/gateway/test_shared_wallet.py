"""Processes that share a wallet: they admit exactly as many calls as there is money for."""

import collections
import contextlib
import threading
import time
from decimal import Decimal

import pytest

from store.db.database import discard, execute, open_database, snapshot_read
from tests.support.client import Connection, wait_until
from tests.support.dialects import ALL, check_refusal
from tests.support.documents import document
from tests.support.gateway import Gateway
from tests.support.load import MODEL, NAME, channels_of, check_record, names_in, send
from tests.support.upstream import ScriptedUpstream
from tests.support.wallets import owners, secret_of

CALLS, PAID = 200, 100
PRICE = {"input": "0", "output": "0", "call": "0.01"}
MONEY = "1.00"
SLOW = "[[demo first_ms=200]]"
POLL_S = 0.005
PATIENCE_S = 30


def content(vendor):
    made = document([MODEL], channels_of(vendor))
    return {**made, **owners(["owner"], MONEY), "model": [{"name": MODEL, "price": PRICE}]}


class Lowest:
    """The lowest balance ever seen in the store, watched by a thread."""

    def __init__(self, url):
        self.balance = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(url,), daemon=True)
        self._thread.start()

    def _watch(self, url):
        db = open_database(url)
        query = 'SELECT MIN("balance") FROM "wallets"'
        while not self._over.wait(POLL_S):
            ((balance,),) = snapshot_read(db, lambda: execute(db, query).fetchall())
            self.balance = balance if self.balance is None else min(self.balance, balance)
        discard(db)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@pytest.fixture
def vendor(tmp_path):
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as upstream:
        yield upstream


@pytest.fixture
def two_nodes(mariadb, vendor, tmp_path):
    settings = {"log.level": "info", "store.url": mariadb.fresh_url()}
    first = Gateway(tmp_path / "node", settings)
    second = first.sibling("second")
    with contextlib.ExitStack() as stack:
        for gateway in (first, second):
            stack.callback(gateway.close)
        yield first, second


def spend_all(gateways, shares, vendor, log_path):
    """Make 200 calls at once on a wallet for 100; `shares`: how many of ten calls each gateway
    gets."""
    first = gateways[0]
    first.apply(content(vendor))
    for gateway in gateways:
        gateway.start()
    turns = [gateway for gateway, share in zip(gateways, shares, strict=True) for _ in range(share)]
    with Lowest(first.settings["store.url"]) as lowest:
        answers, took_s = call_at_once([turns[n % len(turns)].port for n in range(CALLS)])
        wait_until(lambda: len(first.usage()) >= CALLS, 20, step_s=0.3)
    paid = [answer for _, answer in answers if answer.status == 200]
    print(f"{len(paid)} of {len(answers)} calls were served, in {took_s:.1f} s")
    for family, answer in answers:
        if answer.status != 200:
            check_refusal(answer, family, "E18")
    assert (len(paid), len(names_in(log_path))) == (PAID, PAID)
    assert all(answer.whole for answer in paid)
    assert lowest.balance == 0, "the wallet's lowest balance"
    check_spent(first, first.usage())


def call_at_once(ports):
    """Make one call on each port, all sent before any is answered; return [(family, answer)],
    seconds."""
    with contextlib.ExitStack() as stack:
        calls = [
            (ALL[n % len(ALL)], stack.enter_context(Connection(port, patience_s=PATIENCE_S)))
            for n, port in enumerate(ports)
        ]
        began = time.monotonic()
        for number, (family, connection) in enumerate(calls):
            stream = number // len(ALL) % 2 == 0
            send(connection, family, f"call-shared-{number}", SLOW, stream, secret_of("owner"))
        answers = [(family, connection.read()) for family, connection in calls]
        return answers, time.monotonic() - began


def check_spent(gateway, records):
    names = [record["client_request_id"] for record in records]
    assert len(names) == len(set(names)) == CALLS and all(map(NAME.fullmatch, names))
    for record in records:
        check_record(record)
    codes = collections.Counter(record["error_code"] for record in records)
    assert codes == {None: PAID, "insufficient_quota": CALLS - PAID}
    assert sum(Decimal(record["cost"]) for record in records) == Decimal(MONEY)
    gateway.run("usage", "verify")
    gateway.run("books", "verify")


@pytest.mark.parametrize("shares", [(1, 9), pytest.param((5, 5), marks=pytest.mark.long)])
def test_two_nodes_spend_the_last_coins_exactly(two_nodes, shares, vendor, tmp_path):
    spend_all(two_nodes, shares, vendor, tmp_path / "vendor.log")
