"""Roll-ups that are there get endpoints, error codes, groups and first bytes from the records."""

import pytest

from store.calls import rollups
from store.calls.usage_queries import Filters
from store.calls.usage_stats import stats
from store.db import migrate, migrations
from store.db.database import execute, insert_columns, is_mysql, transaction
from store.db.migrations import m0014_usage_rollups as migration
from store.db.tables.channels import FIRST_BYTE
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
            endpoint="/v1/messages" if number % 2 else "/" + "e" * 200,
            group=f"g{number % 3}",
            model="m",
            outcome="ok" if number % 4 else "refused",
            error_code=None if number % 4 else "rate_limit_exceeded",
            stream=bool(number % 5),
            ttft_ms=None if number % 7 == 0 else number * 30,
        )
        for number in range(count)
    ]


@pytest.fixture
def filled(before):
    """A database of the version before, with 60 records and their sums, the first day pruned."""
    migration_2 = next(one for one in migrations.ALL if one.name == "0002_usage_rollups")
    columns = columns_of(records(60), 1)
    transaction(before, lambda: insert_columns(before, "usage_records", columns))
    days = migration_2.days.mysql if is_mysql(before) else migration_2.days.sqlite
    for day in (20260105, 20260106, 20260107):
        for text in days:
            transaction(before, lambda text=text, day=day: execute(before, text, (day,)))
    pruned = 'UPDATE "versions" SET "version" = ? WHERE "name" = \'usage_pruned\''
    transaction(before, lambda: execute(before, pruned, (20260106,)))
    # one that came late stays until it is pruned next
    gone = 'DELETE FROM "usage_records" WHERE "day" = 20260105 AND "id" > ?'
    transaction(before, lambda: execute(before, gone, (ulid(MONDAY_MS, bytes(10)),)))
    return before


def test_the_sums_are_those_of_the_records(filled):
    assert migration.MIGRATION.name in migrate.up(filled)
    assert list(rollups.verify(filled)) == []
    before = stats(filled, ["day", "endpoint", "error_code"], Filters())
    assert len(list(rollups.rebuild(filled))) == 2
    assert stats(filled, ["day", "endpoint", "error_code"], Filters()) == before
    assert sum(row["calls"] for row in before) == 60


def test_sums_of_pruned_days_stay(filled):
    migrate.up(filled)
    [row] = stats(filled, ["endpoint", "error_code"], Filters(until_ms=MONDAY_MS + 86_400_000))
    assert (row["endpoint"], row["error_code"], row["calls"]) == (None, None, 29)


def test_a_run_that_was_killed_before_it_was_noted_is_run_again(filled):
    if not is_mysql(filled):
        pytest.skip("SQLite notes it in the same transaction")
    migrate.up(filled)
    execute(filled, 'DELETE FROM "schema_migrations" WHERE "name" = ?', (migration.MIGRATION.name,))
    assert migrate.up(filled) == [migration.MIGRATION.name]
    assert list(rollups.verify(filled)) == []


def test_a_gateway_of_the_version_before_goes_on_adding_on_mysql(filled):
    if not is_mysql(filled):
        pytest.skip("its records wait in its journal")
    migrate.up(filled)
    add = (
        'INSERT INTO "usage_by_day" ("day", "channel", "model", "outcome", "calls")'
        " VALUES (20260107, 'c', 'm', 'ok', 1) ON DUPLICATE KEY UPDATE"
        ' "calls" = "calls" + VALUES("calls")'
    )
    for _ in range(2):
        transaction(filled, lambda: execute(filled, add))
    found = stats(filled, ["channel"], Filters(channel="c"))
    assert [row["calls"] for row in found] == [2]


@pytest.mark.parametrize("column", ["client_request_id", "upstream_request_id"])
def test_ids_are_found_by_an_index(filled, column):
    migrate.up(filled)
    plan = "EXPLAIN" if is_mysql(filled) else "EXPLAIN QUERY PLAN"
    query = f'{plan} SELECT "id" FROM "usage_records" WHERE "{column}" = ?'
    rows = execute(filled, query, ("req_1",)).fetchall()
    assert "usage_client_id" in str(rows) or "usage_upstream_id" in str(rows)


def test_mysql_writes_on_while_the_indexes_are_made():
    assert sum("LOCK=NONE" in text for text in migration.MIGRATION.mysql) == 2


def test_it_knows_the_roll_ups():
    assert FIRST_BYTE == migration.FIRST_BYTE
    assert migration.ENDPOINT_CHARS == rollups.ENDPOINT_CHARS
    for table, used in zip(migration.TABLES, rollups.TABLES[:3], strict=True):
        assert table.name == used._meta.table_name
        assert tuple(table.primary) == used._meta.primary_key.field_names
