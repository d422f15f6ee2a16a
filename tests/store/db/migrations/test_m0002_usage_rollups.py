"""Roll-ups of a store that has records already are filled by the migration."""

import pytest

from store.calls import rollups
from store.db import migrate, migrations
from store.db.database import execute, insert_columns, is_mysql, transaction
from store.db.migrations import m0002_usage_rollups as migration
from store.values.ids import ulid
from store.values.usage_record import columns_of
from tests.support.usage_records import usage_record

MONDAY_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z
NAMES = ("user_id", "user", "key_id", "key_name", "group", "endpoint", "family")
STEP_MS = 50 * 60_000


def records(count):
    return [
        usage_record(
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
    columns = columns_of(records(60), 1)
    transaction(empty_database, lambda: insert_columns(empty_database, "usage_records", columns))
    own = [one for one in migrations.ALL if one.name <= migration.MIGRATION.name]
    monkeypatch.setattr(migrate, "ALL", tuple(own))
    return empty_database


def faults(db, monkeypatch):
    """What the code of today finds in the sums, with the schema of today."""
    monkeypatch.setattr(migrate, "ALL", migrations.ALL)
    migrate.up(db)
    return list(rollups.verify(db))


def contents(db):
    return [contents_of(db, table.name) for table in migration.TABLES]


def contents_of(db, table):
    return sorted(tuple(row) for row in execute(db, f'SELECT * FROM "{table}"').fetchall())


def test_it_sums_up_what_is_there(filled, monkeypatch):
    migrate.up(filled)
    assert [sum(row[-8] for row in rows) for rows in contents(filled)] == [60] * 3
    assert faults(filled, monkeypatch) == []


def test_it_goes_on_where_a_run_that_was_killed_ended(filled, monkeypatch):
    real, gone_through = migrate._run_day, []

    def dying(db, statements, day):
        if len(gone_through) == 1:
            execute(db, statements[0], (day,))
            raise KeyboardInterrupt
        real(db, statements, day)
        gone_through.append(day)

    monkeypatch.setattr(migrate, "_run_day", dying)
    monkeypatch.setattr(migrate, "NEWEST_DAYS", 1)
    with pytest.raises(KeyboardInterrupt):
        migrate.up(filled)
    assert gone_through == [20260105]
    assert migration.MIGRATION.name in migrate.pending(filled)
    # On SQLite all of a migration is one transaction.
    assert filled.table_exists("usage_by_key") == is_mysql(filled)
    if is_mysql(filled):
        assert {row[0] for row in contents_of(filled, "usage_by_key")} == {20260105}
    monkeypatch.setattr(migrate, "_run_day", real)
    told = []
    migrate.up(filled, told.append)
    days = 2 if is_mysql(filled) else 3
    assert [text for text in told if "day" in text] == [
        f"0002_usage_rollups: day {number} of {days}" for number in range(1, days + 1)
    ]
    assert sum(row[4] for row in contents(filled)[2]) == 60
    assert faults(filled, monkeypatch) == []


def test_the_newest_days_are_gone_through_again(filled):
    if not is_mysql(filled):
        pytest.skip("on SQLite all days are")
    migrate.up(filled)
    assert migrate._days_left(filled, migration.MIGRATION.days) == [20260106, 20260107]


def test_the_plan_shows_the_statements_of_each_day(filled):
    plan = migrate.plan(filled)
    fills = [text for text in plan if text.startswith('INSERT INTO "usage_by_')]
    assert len(fills) == 3 * 3
    assert all("?" not in text for text in plan)
    assert sum('"day" = 20260106 ' in text for text in fills) == 3


def test_every_statement_can_be_run_twice(filled):
    migrate.up(filled)
    before = contents(filled)
    statements = migration.MIGRATION.mysql if is_mysql(filled) else migration.MIGRATION.sqlite
    for statement in statements:
        text = statement.replace("{nopad_bin}", "utf8mb4_nopad_bin")
        transaction(filled, lambda text=text: execute(filled, text))
    days = migration.MIGRATION.days
    for statement in days.mysql if is_mysql(filled) else days.sqlite:
        transaction(filled, lambda text=statement: execute(filled, text, (20260105,)))
    assert contents(filled) == before


def test_it_knows_the_sums_of_the_roll_ups():
    assert migration.SUMS == rollups.SUMS
    for table, used in zip(migration.TABLES, rollups.TABLES[:3], strict=True):
        assert table.name == used._meta.table_name
