"""One call by an id that somebody has of it."""

from fractions import Fraction

import pytest

from store.calls.usage_lookup import MATCHES_MAX, cost_lines, find
from store.values.ids import ulid
from store.values.pricing import Prices, cost_nanos
from tests.support.usage_records import NOW_MS, record, store

pytestmark = pytest.mark.databases("sqlite")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PRICES = Prices(2 * 10**9, 8 * 10**9, 5 * 10**8, 3, 32 * 10**8, 9 * 10**9, 7)


@pytest.fixture
def db(database):
    """Calls of some days, one each six hours, with ids of client and vendor."""
    made = [
        record(n, NOW_MS - n * 6 * HOUR_MS, client_request_id=f"c{n % 10}",
               upstream_request_id=f"v{n}")
        for n in range(40)
    ]  # fmt: skip
    store(database, made)
    return database


def ids(rows):
    return [(row["client_request_id"], row["upstream_request_id"]) for row in rows]


def test_each_id_finds_its_call(db):
    [row] = find(db, record(7, NOW_MS - 42 * HOUR_MS).id, NOW_MS)  # no time counts
    assert row["upstream_request_id"] == "v7"
    assert ids(find(db, "v7")) == [("c7", "v7")]
    assert ids(find(db, "c7", NOW_MS - DAY_MS * 5)) == [("c7", "v7"), ("c7", "v17")]
    assert ids(find(db, "c7")) == [("c7", f"v{n}") for n in (7, 17, 27, 37)]
    assert find(db, "c") == []
    assert find(db, ulid(NOW_MS, b"x" * 10)) == []


def test_matches_are_bounded(database):
    store(database, [record(n, NOW_MS + n, client_request_id="same") for n in range(50)])
    found = find(database, "same")
    assert len(found) == MATCHES_MAX
    assert [row["id"] for row in found] == sorted((row["id"] for row in found), reverse=True)


def row_of(**counts):
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
    return {"usage_source": "reported", "prices": PRICES.json,
            **{f"{name}_tokens": counts.get(name, 0) for name in names}}  # fmt: skip


def test_the_lines_of_a_cost_add_up_to_it():
    counts = {"input": 1_234_567, "output": 89, "cache_write": 1, "reasoning": 5}
    row = row_of(**counts)
    lines = cost_lines(row)
    assert [line["class"] for line in lines] == [*counts, "call"]
    assert lines[0] == {"class": "input", "tokens": 1_234_567, "price": "2", "amount": "2.469134"}
    assert lines[2]["amount"] == "0.000000000000003" and lines[-1]["tokens"] is None
    nanos = sum(Fraction(line["amount"]) for line in lines) * 10**9
    made = record(1, NOW_MS, **{f"{name}_tokens": count for name, count in counts.items()})
    assert -(-nanos.numerator // nanos.denominator) == cost_nanos(made.usage, PRICES, 1_000_000)


def test_what_was_not_charged_has_no_lines():
    assert cost_lines(row_of(input=5) | {"usage_source": "none"}) == []
    assert cost_lines(row_of(input=5) | {"prices": None}) == []
