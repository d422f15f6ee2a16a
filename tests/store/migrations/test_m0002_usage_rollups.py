"""Roll-ups of a store that has records already are filled by the migration."""

import pytest

from store import migrate, migrations, rollups
from store.books import _INSERT_RECORD
from store.database import execute, executemany, is_mysql, transaction
from store.ids import ulid
from store.migrations import m0002_usage_rollups as migration
from store.usage import UsageRecord, row_of

MONDAY_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z
NAMES = ("user_id", "user", "key_id", "key_name", "group", "endpoint", "family")
STEP_MS = 50 * 60_000


def records(count):
    return [
        UsageRecord(
            id=ulid(MONDAY_MS + number * STEP_MS, number.to_bytes(10)),
            started_ms=MONDAY_MS + number * STEP_MS,
            **dict.fromkeys(NAMES, f"n{number % 2}"),
            model=None if number % 3 == 0 else "m" * 256,
            channel=None if number % 5 == 0 else "main",
            input_tokens=number,
            cost_nanos=2 * number,
        )
        for number in range(count)
    ]


@pytest.fixture
def filled(empty_database, monkeypatch):
    """A database of the version before, with 60 records over three days."""
    before = [one for one in migrations.ALL if one.name < migration.MIGRATION.name]
    monkeypatch.setattr(migrate, "ALL", tuple(before))
    migrate.up(empty_database)
    rows = [row_of(record, 1) for record in records(60)]
    transaction(empty_database, lambda: executemany(empty_database, _INSERT_RECORD, rows))
    monkeypatch.setattr(migrate, "ALL", migrations.ALL)
    return empty_database


def contents(db):
    return [
        sorted(tuple(row) for row in execute(db, f'SELECT * FROM "{table.name}"').fetchall())
        for table in migration.TABLES
    ]


def test_it_sums_up_what_is_there(filled):
    migrate.up(filled)
    by_migration = contents(filled)
    assert all(by_migration) and list(rollups.verify(filled)) == []
    assert len(list(rollups.rebuild(filled))) == 3
    assert contents(filled) == by_migration


def test_every_statement_can_be_run_twice(filled):
    migrate.up(filled)
    before = contents(filled)
    statements = migration.MIGRATION.mysql if is_mysql(filled) else migration.MIGRATION.sqlite
    for statement in statements:
        text = statement.replace("{nopad_bin}", "utf8mb4_nopad_bin")
        transaction(filled, lambda text=text: execute(filled, text))
    assert contents(filled) == before


def test_it_knows_the_sums_of_the_roll_ups():
    assert migration.SUMS == rollups.SUMS
    assert [table.name for table in migration.TABLES] == [table.name for table in rollups.TABLES]
    for table, used in zip(migration.TABLES, rollups.TABLES, strict=True):
        assert tuple(table.primary) == used.key
