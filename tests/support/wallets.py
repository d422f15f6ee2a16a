"""Wallets for tests: an owner with money and a key for each case, and checks of what must be
left."""

from decimal import ROUND_CEILING, Decimal

from store.db.database import discard, open_database
from store.money import wallet
from store.values.pricing import format_money
from tests.support.client import wait_until

NANO = Decimal("1e-9")
# The counts of a record, by the name of their price.
COUNTS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "cache_write_1h": "cache_write_1h_tokens",
    "reasoning": "reasoning_tokens",
}
HELD_WITHIN_S = 5  # the displayed holds may be a second old


def secret_of(name):
    """Return the secret of an owner's key."""
    return f"sk-test-of-{name}-0123456789"


def owners(names, balance, **key):
    """Return users with a wallet and one key each, as parts of a document of `apply`."""
    return {
        "user": [{"name": name, "balance": balance} for name in names],
        "key": [
            {"user": name, "name": "main", "group": "all", "secret": secret_of(name), **key}
            for name in names
        ],
    }


def joined(*documents):
    """Return one document with the entries of all."""
    kinds = {kind: None for document in documents for kind in document}
    return {kind: [e for d in documents for e in d.get(kind, ())] for kind in kinds}


class Wallets:
    """The wallets of a gateway, as its store shows them."""

    def __init__(self, gateway):
        url = gateway.store_url
        self._db = open_database(str(url))

    def close(self):
        discard(self._db)

    def balance(self, name):
        """Return the balance as commands print it."""
        return format_money(wallet.show(self._db, name).balance_nanos)

    def held(self, name):
        return wallet.show(self._db, name).held_nanos

    def check(self, name, credit, records):
        """Check that exactly the costs of the records were taken from the credit, and that nothing
        is held."""
        left = Decimal(credit) - sum(Decimal(record["cost"]) for record in records)
        assert Decimal(self.balance(name)) == left
        assert wait_until(lambda: self.held(name) == 0, HELD_WITHIN_S), "a hold stayed"


def cost_of(record):
    """Return what a record must cost, by its own counts, prices and multiplier."""
    if record["usage_source"] == "none":
        return Decimal(0)
    prices, counts = record["prices"], COUNTS.items()
    tokens = sum(record[count] * Decimal(prices[name]) for name, count in counts if record[count])
    exact = (tokens / 10**6 + Decimal(prices.get("call", 0))) * Decimal(record["multiplier"])
    return exact.quantize(NANO, ROUND_CEILING)


def check_charged(record):
    """Check that cost, charges and payer of a record agree; return the cost."""
    cost = Decimal(record["cost"])
    assert cost == cost_of(record), record
    if cost:
        assert record["charges"] == [{"to": "wallet", "amount": record["cost"]}]
        assert record["billed_to"] == "wallet"
    else:
        assert (record["cost"], record["charges"], record["billed_to"]) == ("0", [], None)
    return cost


def check_free(record):
    """Check that nothing is counted or charged, because nothing was delivered."""
    assert check_charged(record) == 0
    assert record["usage_source"] == "none" and record["reported_usage"] is None
    assert [record[name] for name in COUNTS.values()] == [0] * len(COUNTS)
