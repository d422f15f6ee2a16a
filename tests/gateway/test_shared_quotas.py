"""Quotas and limits that two workers share: used to the last coin."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.support.coins import base, charges_of, paid, person
from tests.support.wallets import joined

CALLS, COINS = 30, 15
# name: who has the fifteen coins, and what one call too many meets
SHARED = {
    "of-both": (person("of-both", "4.5", plans={"both": {"quota": "10.5"}}), "E18"),
    "of-key": (person("of-key", "99", limit="15"), "E19"),
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    people = [made for made, _ in SHARED.values()]
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

    gateway.run("usage", "verify")
    gateway.run("books", "verify")


def said(gateway, name):
    """Whether a call was served, or the number of what it was refused for."""
    found = paid(gateway, name)
    return found if isinstance(found, str) else "ok"
