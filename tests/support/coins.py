"""Calls that cost one coin each, for tests of who pays: users with wallets, plans and limits."""

from decimal import Decimal

from tests.support.client import exchange
from tests.support.dialects import ALL, CHAT, REFUSALS, ask, credentials, path_of
from tests.support.documents import PRICE, channel
from tests.support.wallets import joined, owners, secret_of

COIN, FREE, WORDS = "coin", "free", "words"
MODELS = [
    {"name": COIN, "price": {"input": "0", "output": "0", "call": "1"}},
    {"name": FREE, "price": {"input": "0", "output": "0"}},
    {"name": WORDS, "price": PRICE},
]
EVER, LONG_AGO = "2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
WALLET = ("wallet", "1")
NAMES = {row.code: number for number, row in REFUSALS.items()}


def base(vendor):
    """Return the models and their channels."""
    models = dict.fromkeys((COIN, FREE, WORDS), "demo-small")
    return {
        "model": MODELS,
        "group": [{"name": "all"}],
        "channel": [channel(f"coins-{f}", f, vendor.url, models) for f in ALL],
    }


def person(name, balance="0", order="plan_first", plans=None, user=(), **key):
    """Return a user with a key, and a subscription for each item of `plans`: {name: its fields}."""
    made = owners([name], balance, **key)
    made["user"][0] |= {"order": order, **dict(user)}
    for plan, fields in (plans or {}).items():
        made = joined(made, subscription(name, plan, **fields))
    return made


def subscription(user, plan, quota="10", window="month", *, offered=True, **fields):
    """Return a plan, enabled if `offered`, and the user's subscription to it."""
    term = {"starts_at": LONG_AGO, "expires_at": EVER, **fields}
    return {
        "plan": [{"name": plan, "quota": quota, "window": window, "enabled": offered}],
        "subscription": [{"user": user, "plan": plan, **term}],
    }


def of_plan(name, amount="1"):
    """Return a subscription's charge as a pair, in the form of `charges_of`."""
    return (f"subscription:{name}", amount)


def call(gateway, name, family=CHAT, model=COIN, *, stream=False, prompt="Say something."):
    """Make one call as a user and return its answer. `name` may also be another key of the user."""
    path, headers = path_of(family, model, stream), credentials(family, secret_of(name))
    return exchange(gateway.port, "POST", path, headers, ask(family, model, prompt, stream))


def paid(gateway, name, **how):
    """Return who paid for a call, as pairs (to, amount); for a refusal, its number in the
    protocol."""
    answer = call(gateway, name, **how)
    record = gateway.record(answer.call_id)
    if answer.status != 200:
        check_free_refusal(record)
        return NAMES[record["error_code"]]
    return charges_of(record)


def charges_of(record):
    """Return a record's charges as pairs; checks that they add up to the cost and that `billed_to`
    is the first."""
    charges = [(charge["to"], charge["amount"]) for charge in record["charges"]]
    assert sum(Decimal(amount) for _, amount in charges) == Decimal(record["cost"])
    assert record["billed_to"] == (charges[0][0] if charges else None)
    return charges


def check_free_refusal(record):
    assert (record["outcome"], record["attempts"]) == ("refused", [])
    assert (record["cost"], record["charges"], record["billed_to"]) == ("0", [], None)
    assert record["usage_source"] == "none"
