"""Prices of tests: seven amounts in nanos, in the order of the columns of the store."""

from store.values.meters import COLUMN_METERS
from store.values.pricing import Prices, plain_rate


def rate_of(*amounts):
    """Return the plain rate of these amounts."""
    return plain_rate(dict(zip(COLUMN_METERS, amounts, strict=True)))


def prices_of(*amounts):
    """Return prices that have nothing but this rate."""
    return Prices(rate_of(*amounts))
