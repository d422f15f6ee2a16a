"""Sums of days by user and by group are made from those by hour and key, also of pruned days."""

import pytest

from store.calls import rollups
from store.calls.usage_queries import Filters
from store.calls.usage_stats import stats
from store.db import migrate
from store.db.database import execute, insert_columns, is_mysql, transaction
from store.db.migrations import m0020_usage_by_user as migration
from store.values.ids import ulid
from store.values.usage_record import columns_of
from tests.support.usage_records import usage_record

MONDAY_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z
STEP_MS = 50 * 60_000
NAMES = ("user_id", "user", "key_id", "key_name", "family")


def records(count):
    return [
        usage_record(
            id=ulid(MONDAY_MS + number * STEP_MS, number.to_bytes(10)),
            started_ms=MONDAY_MS + number * STEP_MS,
            **dict.fromkeys(NAMES, f"n{number % 2}"),
            endpoint="/v1/messages",
            group=f"g{number % 3}",
            model="m" if number % 5 else None,
            outcome="ok" if number % 4 else "refused",
            error_code=None if number % 4 else "rate_limit_exceeded",
            stream=bool(number % 5),
            ttft_ms=None if number % 7 == 0 else number * 30,
        )
        for number in range(count)
    ]


@pytest.fixture
def filled(before, monkeypatch):
    """A database of the version before, with 60 records and their sums, the first day pruned."""
    columns = columns_of(records(60), 1)
    transaction(before, lambda: insert_columns(before, "usage_records", columns))
    monkeypatch.setattr(rollups, "DAILY", rollups.DAILY[:1])
    assert len(list(rollups.rebuild(before))) == 3
    monkeypatch.undo()
    pruned = 'UPDATE "versions" SET "version" = ? WHERE "name" = \'usage_pruned\''
    transaction(before, lambda: execute(before, pruned, (20260106,)))
    transaction(
        before, lambda: execute(before, 'DELETE FROM "usage_records" WHERE "day" = 20260105')
    )
    return before


def test_the_sums_are_those_of_the_records_and_of_pruned_days(filled):
    migrate.up(filled)
    assert list(rollups.verify(filled)) == []
    for by in (["day", "user"], ["user", "key_id", "group", "outcome"], ["group", "model"]):
        assert sum(row["calls"] for row in stats(filled, by, Filters())) == 60
    first = Filters(until_ms=MONDAY_MS + 86_400_000)
    assert {row["user"]: row["calls"] for row in stats(filled, ["user"], first)} == {
        **{"n0": 15, "n1": 14}
    }
    before = stats(filled, ["day", "group", "error_code"], Filters())
    assert len(list(rollups.rebuild(filled))) == 2
    assert stats(filled, ["day", "group", "error_code"], Filters()) == before


def test_a_run_that_was_killed_before_it_was_noted_is_run_again(filled):
    if not is_mysql(filled):
        pytest.skip("SQLite notes it in the same transaction")
    migrate.up(filled)
    execute(filled, 'DELETE FROM "schema_migrations" WHERE "name" = ?', (migration.MIGRATION.name,))
    assert migrate.up(filled) == [migration.MIGRATION.name]
    assert list(rollups.verify(filled)) == []
    assert sum(row["calls"] for row in stats(filled, ["user"], Filters())) == 60


def test_it_knows_the_roll_ups():
    for table, used in zip(migration.TABLES, rollups.TABLES[3:], strict=True):
        assert table.name == used._meta.table_name
        assert tuple(table.primary) == used._meta.primary_key.field_names
