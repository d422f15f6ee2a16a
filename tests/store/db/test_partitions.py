"""Days of usage records: partitions created ahead, old days removed, also while others write."""

import logging

import pytest

from store.db import partitions
from store.db.database import discard, execute, is_mysql, open_database
from store.db.partitions import following_day, keep_ahead, make_days, prune, pruned_before
from store.values.errors import StoreError, StoreUnavailable
from tests.support import usage_records
from tests.support.stores import select
from tests.support.usage_records import DAY_MS, MONDAY_MS, record_at

MONDAY = 20260105


def store(db, days, each=3):
    at_ms = [MONDAY_MS + day * DAY_MS + n for day in days for n in range(each)]
    usage_records.store(db, map(record_at, at_ms))


def days_of(db):
    query = 'SELECT "day", COUNT(*) FROM "usage_records" GROUP BY "day" ORDER BY "day"'
    return dict(select(db, query))


@pytest.fixture
def mysql(database):
    if not is_mysql(database):
        pytest.skip("SQLite has no partitions")
    return database


@pytest.fixture
def another(database, database_url):
    """Return a second connection to the same database, as another node has."""
    db = open_database(database_url)
    yield db
    discard(db)


def test_days_are_made_ahead_and_only_once(mysql):
    assert (following_day(20261231), following_day(20280228)) == (20270101, 20280229)
    assert make_days(mysql, MONDAY, 2) == [20260105, 20260106, 20260107]
    assert make_days(mysql, MONDAY, 2) == []
    assert make_days(mysql, 20260107, 1) == [20260108]
    # the gateway was away for days: these have no partition, their records are in the next one
    assert make_days(mysql, 20260201, 0) == [20260201]
    names = list(partitions._limits(mysql))
    assert names == ["p20260105", "p20260106", "p20260107", "p20260108", "p20260201", "pmax"]


def test_records_of_any_day_find_their_place(mysql):
    store(mysql, [-3, 0, 1, 50])
    make_days(mysql, MONDAY, 2)
    store(mysql, [-3, 0, 1, 2, 50])
    assert days_of(mysql) == {20260102: 6, 20260105: 6, 20260106: 6, 20260107: 3, 20260224: 6}


def test_a_large_newest_partition_is_not_split_under_the_writers(mysql, caplog):
    store(mysql, [0], each=3)
    with caplog.at_level(logging.WARNING):
        assert make_days(mysql, MONDAY, 1, rows_max=2) == []
    assert "too large" in caplog.text
    assert make_days(mysql, MONDAY, 1, rows_max=3) == [20260105, 20260106]
    assert days_of(mysql) == {MONDAY: 3}


def test_a_busy_table_is_left_for_the_next_try(mysql, another, caplog, monkeypatch):
    monkeypatch.setattr(partitions, "DROP_ATTEMPTS", 2)
    make_days(mysql, MONDAY, 1)
    with another.atomic():
        execute(another, 'SELECT COUNT(*) FROM "usage_records"')
        with caplog.at_level(logging.WARNING):
            keep_ahead(mysql)
        assert "cannot be made now" in caplog.text
        with pytest.raises(StoreUnavailable):
            prune(mysql, 20260106)
    assert prune(mysql, 20260106).partitions == 1


def test_a_table_without_a_last_partition_is_refused(mysql):
    execute(mysql, 'ALTER TABLE "usage_records" REMOVE PARTITIONING')
    with pytest.raises(StoreError, match="pmax"):
        make_days(mysql, MONDAY, 1)
    store(mysql, [0, 1])
    assert prune(mysql, 20260106) == partitions.Pruned(0, 3)


def test_pruning_removes_whole_days(database, monkeypatch):
    monkeypatch.setattr(partitions, "DELETE_ROWS", 4)
    if is_mysql(database):
        make_days(database, MONDAY, 2)
    store(database, [-3, 0, 1, 2, 9])
    assert pruned_before(database) == 0
    removed = prune(database, 20260107)
    expected = (2, 0) if is_mysql(database) else (0, 9)
    assert (removed.partitions, removed.records) == expected
    assert days_of(database) == {20260107: 3, 20260114: 3}
    assert pruned_before(database) == 20260107
    # an earlier day is a no-op, and late records are removed the next time
    assert prune(database, 20260101) == partitions.Pruned(0, 0)
    assert pruned_before(database) == 20260107
    store(database, [0])
    assert prune(database, 20260107) == partitions.Pruned(0, 3)
