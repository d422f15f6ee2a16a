"""Limits of users and of upstream keys: columns that old rows and old gateways need not know."""

import pytest

from store.db.database import execute, is_mysql
from store.db.migrations import m0007_limits as migration

USER = """INSERT INTO "users" ("id", "name", "role", "spend_order", "disabled", "created_ms")
  VALUES ('u', 'alice', 'member', 'plan_first', 0, 0)"""


def test_a_gateway_of_the_version_before_writes_rows_without_limits(database):
    execute(database, USER)
    found = execute(database, 'SELECT "rpm", "tpm", "concurrency" FROM "users"').fetchall()
    assert [tuple(row) for row in found] == [(0, 0, 0)]


def test_it_can_be_run_again_on_mysql(database):
    if not is_mysql(database):
        pytest.skip("one transaction on SQLite")
    for statement in migration.MIGRATION.mysql * 2:
        execute(database, statement)


def test_columns_that_were_lost_in_the_middle_come_back_on_mysql(database):
    if not is_mysql(database):
        pytest.skip("one transaction on SQLite")
    names = ", ".join(f'DROP COLUMN "{name}"' for name, _ in migration.COLUMNS["channels"])
    execute(database, f'ALTER TABLE "channels" {names}')
    for statement in migration.MIGRATION.mysql:
        execute(database, statement)
    assert execute(database, 'SELECT "key_rpm", "key_tpm" FROM "channels"').fetchall() == ()
