"""usage_by_rate: calls by rate and unpriced uses, equal from the writer and from a rebuild."""

import random

import pytest

from store.calls import rate_sums, rollups
from store.db import migrate
from store.db.database import execute, snapshot_read
from store.db.partitions import prune
from store.upkeep import retention
from store.values.usage import Served
from store.values.usage_record import Receipt
from tests.support.stores import change
from tests.support.usage_records import DAY_MS, MONDAY_MS, record_at, store

FLEX = "*0.5 input=2 output=8 ?tier=flex"
LONG = "input=4 output=12 ?tier=flex ?input_over=272000"
SEARCHED = Receipt(None, Served("default"), (("web_search", 3), ("tier.priority", 1)))


def record(at_ms=MONDAY_MS, **fields):
    return record_at(
        at_ms, **({"usage_source": "reported", "model": "m", "cost_nanos": 10} | fields)
    )


def contents(db):
    query = (
        'SELECT "day", "model", "rate", "meter", "calls", "uses", "cost_nanos" FROM usage_by_rate'
    )
    return sorted(snapshot_read(db, lambda: list(map(tuple, execute(db, query).fetchall()))))


def many(count):
    chance = random.Random(3)
    choices = {
        **{
            "model": ["m", None, "é" * 300],
            "cost_nanos": range(99),
            "usage_source": ["none", "reported"],
        },
        "receipt": [
            Receipt(),
            Receipt(FLEX),
            Receipt(LONG),
            SEARCHED,
            Receipt(None, Served("flex")),
        ],
    }
    return [
        record(
            MONDAY_MS + chance.randrange(2 * DAY_MS),
            **{name: chance.choice(values) for name, values in choices.items()},
        )
        for _ in range(count)
    ]


def test_calls_count_at_their_rate_and_what_had_no_price_by_its_name(database):
    store(
        database,
        [
            record(),
            record(usage_source="none", cost_nanos=0),
            record(receipt=Receipt(FLEX, Served("flex")), cost_nanos=5),
            record(receipt=Receipt(LONG, Served("flex"), (("maps", 1),)), cost_nanos=7),
            record(receipt=SEARCHED),
        ],
    )
    store(database, [record(MONDAY_MS + DAY_MS, receipt=SEARCHED, usage_source="estimated")])
    assert contents(database) == [
        (20260105, "m", "", "", 2, 0, 20),
        (20260105, "m", "", "tier.priority", 1, 1, 0),
        (20260105, "m", "", "web_search", 1, 3, 0),
        (20260105, "m", "tier=flex", "", 1, 0, 5),
        (20260105, "m", "tier=flex,input_over=272000", "", 1, 0, 7),
        (20260105, "m", "tier=flex,input_over=272000", "maps", 1, 1, 0),
        (20260106, "m", "", "", 1, 0, 10),
        (20260106, "m", "", "tier.priority", 1, 1, 0),
        (20260106, "m", "", "web_search", 1, 3, 0),
    ]


def test_batches_give_the_same_sums_as_a_rebuild(database, monkeypatch):
    monkeypatch.setattr(rate_sums, "PAGE_ROWS", 7)
    records = many(120)
    for start in range(0, 120, 30):
        store(database, records[start : start + 30])
    assert list(rollups.verify(database)) == []
    before = contents(database)
    assert len({row[2] for row in before}) == 3 and len({row[1] for row in before}) == 3
    list(rollups.rebuild(database))
    assert contents(database) == before


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "UPDATE usage_by_rate SET uses = 4 WHERE meter = ?",
            ", m web_search: uses 4, by the records 3",
        ),
        (
            "DELETE FROM usage_by_rate WHERE meter = ?",
            ", m web_search: calls 0, by the records 1, uses 0",
        ),
    ],
)
def test_verify_names_what_differs_and_a_rebuild_repairs_it(database, statement, fault):
    store(database, [record(receipt=SEARCHED), record()])
    change(database, statement, "web_search")
    [found] = rollups.verify(database)
    assert found.startswith(f"usage_by_rate of 20260105{fault}")
    list(rollups.rebuild(database))
    assert list(rollups.verify(database)) == []


def test_calls_of_older_versions_are_no_fault_until_a_rebuild_has_counted_them(database):
    store(database, [record()])
    change(database, "DELETE FROM usage_by_rate WHERE meter = ?", "")
    change(database, "DELETE FROM schema_migrations WHERE name = ?", "0002_prices")
    migrate.up(database)
    assert rate_sums.exact_since(database) > 20260105
    assert list(rollups.verify(database)) == []
    list(rollups.rebuild(database))
    assert rate_sums.exact_since(database) == 0 and len(contents(database)) == 1
    change(database, "DELETE FROM usage_by_rate WHERE meter = ?", "")
    assert len(list(rollups.verify(database))) == 1


def test_sums_outlive_records_until_they_are_old_themselves(database):
    store(database, [record()])
    prune(database, 20260106)
    assert list(rollups.rebuild(database)) == [] and len(contents(database)) == 1
    retention.run(database, retention.Keep(sum_days=1), "node", lambda: None)
    assert contents(database) == []
