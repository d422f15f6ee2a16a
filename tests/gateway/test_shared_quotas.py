"""Quotas and limits that two workers share: used to the last coin, and right after a kill."""

import contextlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from store.db.database import discard, execute, open_database, snapshot_read
from store.money import leases
from store.money.accounts import quota_at
from store.values.ids import now_ms
from store.values.pricing import format_money, parse_money
from tests.support.client import Connection, wait_until
from tests.support.coins import WORDS, base, charges_of, of_plan, paid, person
from tests.support.dialects import ALL, GENERATE, MESSAGES, ask, credentials, path_of, text_of
from tests.support.journal import marked
from tests.support.wallets import Wallets, cost_of, joined, secret_of

CALLS, COINS = 30, 15
TINY = "0.00002"
ENDLESS = "[[demo ms=50 chunks=4000]]"
KILLED = {family: f"killed-{family}".replace("_", "-") for family in ALL}
# name: who has the fifteen coins, and what one call too many meets
SHARED = {
    "of-both": (person("of-both", "4.5", plans={"both": {"quota": "10.5"}}), "E18"),
    "of-key": (person("of-key", "99", limit="15"), "E19"),
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    people = [made for made, _ in SHARED.values()]
    people += [person(n, "10", plans={n: {"quota": TINY}}, limit="5") for n in KILLED.values()]
    return launch(joined(base(vendor), *people), {"server.workers": 2}, shared=False)


def charged(gateway, records):
    """What each payer has paid for records, in coins."""
    sums = Counter()
    for record in records:
        for to, amount in charges_of(record):
            sums[to] += Decimal(amount)
    return {to: format(amount.normalize(), "f") for to, amount in sums.items()}


@pytest.mark.parametrize("name", SHARED)
def test_the_last_coins_are_shared_exactly(gateway, name):
    _, refusal = SHARED[name]
    with ThreadPoolExecutor(CALLS) as pool:
        outcomes = list(pool.map(said, [gateway] * CALLS, [name] * CALLS))
    assert Counter(outcomes) == {"ok": COINS, refusal: CALLS - COINS}
    expected = {
        "of-both": {"subscription:both": "10.5", "wallet": "4.5"},
        "of-key": {"wallet": "15"},
    }[name]
    records = gateway.usage(user=name)
    assert charged(gateway, records) == expected
    listed = json.loads(gateway.run("subscription", "list", "--json"))
    shown = {f"subscription:{one['plan']}": one["spent"] for one in listed if one["user"] == name}
    assert shown == {to: amount for to, amount in expected.items() if to != "wallet"}


def said(gateway, name):
    """Whether a call was served, or the number of what it was refused for."""
    found = paid(gateway, name)
    return found if isinstance(found, str) else "ok"


# ---- killed while calls run ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def lost(gateway):
    """The records of calls that two payers had money for when all processes were killed."""
    streams = set()
    with contextlib.ExitStack() as stack:
        for family, name in KILLED.items():
            connection = stack.enter_context(Connection(gateway.port))
            headers = credentials(family, secret_of(name))
            body = ask(family, WORDS, ENDLESS, stream=True)
            connection.request("POST", path_of(family, WORDS, True), headers, body)
            answer = connection.read_head()
            while not text_of(family, b"".join(answer.pieces)):
                answer.pieces.append(connection.read_chunk())
            streams.add(answer.call_id)
        assert wait_until(lambda: streams <= marked(gateway), 20)
        assert lent(gateway, KILLED[GENERATE])["plan"] > 0
        gateway.kill()
    gateway.start()
    return {name: gateway.tail.find(user=name) for name in KILLED.values()}


def lent(gateway, name):
    """What processes have leased of a person's plan, limit and wallet, in nanos."""
    ids = {
        "plan": """SELECT s."id" FROM "subscriptions" s JOIN "users" u ON u."id" = s."user_id"
          WHERE u."name" = ?""",
        "limit": """SELECT k."id" FROM "api_keys" k JOIN "users" u ON u."id" = k."user_id"
          WHERE u."name" = ?""",
        "wallet": 'SELECT "id" FROM "users" WHERE "name" = ?',
    }
    windows = {"plan": "month", "limit": "never"}
    db = open_database(f"sqlite:///{gateway.folder}/sluice.db")

    def read():
        found = {}
        for kind, query in ids.items():
            [(owner,)] = execute(db, query, (name,)).fetchall()
            window = windows.get(kind)
            account = owner if window is None else quota_at(owner, window, now_ms())[0]
            found[kind] = leases.lent(db, account)[0]
        return found

    try:
        return snapshot_read(db, read)
    finally:
        discard(db)


@pytest.mark.parametrize("family", ALL)
def test_a_call_that_was_lost_is_split_as_its_hold_was(gateway, lost, family):
    name = KILLED[family]
    record = lost[name]
    assert (record["outcome"], record["usage_source"]) == ("gateway_lost", "estimated")
    assert Decimal(record["cost"]) == cost_of(record)
    rest = format_money(parse_money(record["cost"]) - parse_money(TINY))
    assert charges_of(record) == [of_plan(name, TINY), ("wallet", rest)]
    with contextlib.closing(Wallets(gateway)) as wallets:
        wallets.check(name, "10", [{"cost": rest}])
    assert wait_until(lambda: not any(lent(gateway, name).values())), "a lease stayed"
    [key] = [k for k in json.loads(gateway.run("key", "list", "--json")) if k["user"] == name]
    assert key["spent"] == record["cost"]


def test_the_books_are_right(gateway, lost):
    gateway.run("usage", "verify")
    gateway.run("books", "verify")
    assert said(gateway, KILLED[MESSAGES]) == "ok"
