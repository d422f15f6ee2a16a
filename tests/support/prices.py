"""Prices for tests: seven amounts in nanos, in the order of the store's columns."""

from store.values.meters import COLUMN_METERS
from store.values.pricing import Prices, plain_rate


def rate_of(*amounts):
    """Return a plain rate with these amounts."""
    return plain_rate(dict(zip(COLUMN_METERS, amounts, strict=True)))


def prices_of(*amounts):
    """Return prices that consist of just this rate."""
    return Prices(rate_of(*amounts))
