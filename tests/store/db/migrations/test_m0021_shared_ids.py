"""Shared ids of channels: a column that old rows and old gateways need not know."""

import pytest

from store.db.database import execute, is_mysql
from store.db.migrations import m0021_shared_ids as migration

CHANNEL = """INSERT INTO "channels"
  ("id", "name", "vendor", "family", "base_url", "groups", "models", "priority", "weight",
   "enabled")
  VALUES ('c', 'main', 'demo', 'messages', 'http://x', '[]', '{}', 0, 1, 1)"""


def test_a_gateway_of_the_version_before_writes_rows_that_share_nothing(database):
    execute(database, CHANNEL)
    [row] = execute(database, 'SELECT "shared_ids" FROM "channels"').fetchall()
    assert tuple(row) == (None,)


def test_it_can_be_run_again_on_mysql(database):
    if not is_mysql(database):
        pytest.skip("one transaction on SQLite")
    for statement in migration.MIGRATION.mysql * 2:
        execute(database, statement)
