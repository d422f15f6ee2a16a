"""Channels get what they send and how they are reached; those that are there have none of it."""

import pytest

from store.db import migrate
from store.db.database import execute, is_mysql, transaction
from store.db.migrations import m0008_channels as migration

INSERT = (
    'INSERT INTO "channels" ("id", "name", "vendor", "family", "base_url", "groups", "models",'
    ' "priority", "weight", "rpm", "tpm", "concurrency", "enabled")'
    " VALUES (?, ?, 'demo', 'messages', 'http://x', '[]', '{}', 0, 1, 0, 0, 0, 1)"
)
NEW = 'SELECT "extra_headers", "proxy", "ca_file", "draining" FROM "channels" ORDER BY "id"'


def test_channels_of_before_and_of_older_gateways(before):
    transaction(before, lambda: execute(before, INSERT, ("a", "old")))
    migrate.up(before)
    transaction(before, lambda: execute(before, INSERT, ("b", "of an older gateway")))
    rows = execute(before, NEW).fetchall()
    assert [tuple(row) for row in rows] == [(None, None, None, 0)] * 2
    assert before.table_exists("keys_aside")


def test_a_run_that_was_killed_before_it_was_noted_is_run_again(before):
    if not is_mysql(before):
        pytest.skip("SQLite notes it in the same transaction")
    migrate.up(before)
    execute(before, 'DELETE FROM "schema_migrations" WHERE "name" = ?', (migration.MIGRATION.name,))
    assert migrate.up(before) == [migration.MIGRATION.name]
