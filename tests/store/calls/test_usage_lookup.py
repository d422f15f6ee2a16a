"""Look-up of a call by any of its ids."""

from fractions import Fraction

import pytest

from store.calls.usage_queries import MATCHES_MAX, cost_lines, find
from store.values.pricing import cost_nanos, prices_json
from tests.support.prices import rate_of
from tests.support.usage_records import NOW_MS, record, store

pytestmark = pytest.mark.databases("sqlite")

PRICES = rate_of(2 * 10**9, 8 * 10**9, 5 * 10**8, 3, 32 * 10**8, 9 * 10**9, 7)


def test_matches_are_bounded(database):
    store(database, [record(n, NOW_MS + n, client_request_id="same") for n in range(50)])
    found = find(database, "same")
    assert len(found) == MATCHES_MAX
    assert [row["id"] for row in found] == sorted((row["id"] for row in found), reverse=True)


def row_of(**counts):
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
    return {"usage_source": "reported", "prices": prices_json(PRICES, names), "receipt": None,
            **{f"{name}_tokens": counts.get(name, 0) for name in names}}  # fmt: skip


def test_the_lines_of_a_cost_add_up_to_it():
    counts = {"input": 1_234_567, "output": 89, "cache_write": 1, "reasoning": 5}
    row = row_of(**counts)
    lines = cost_lines(row)
    assert [line["meter"] for line in lines] == [*counts, "call"]
    line = {"meter": "input", "model": None, "count": 1_234_567, "price": "2"}
    assert lines[0] == line | {"amount": "2.469134"}
    assert lines[2]["amount"] == "0.000000000000003" and lines[-1]["count"] == 1
    nanos = sum(Fraction(line["amount"]) for line in lines) * 10**9
    made = record(1, NOW_MS, **{f"{name}_tokens": count for name, count in counts.items()})
    assert -(-nanos.numerator // nanos.denominator) == cost_nanos(made.usage, PRICES, 1_000_000)


def test_what_was_not_charged_has_no_lines():
    assert cost_lines(row_of(input=5) | {"usage_source": "none"}) == []
    assert cost_lines(row_of(input=5) | {"prices": None}) == []
