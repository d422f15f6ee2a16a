"""Translation of channels and groups: columns that old rows and old gateways need not know."""

import pytest

from store.db.database import execute, is_mysql
from store.db.migrations import m0011_translation as migration

GROUP = """INSERT INTO "groups" ("id", "name", "multiplier_ppm", "models", "entries", "disabled")
  VALUES ('g', 'default', 1, '[]', '[]', 0)"""
CHANNEL = """INSERT INTO "channels"
  ("id", "name", "vendor", "family", "base_url", "groups", "models", "priority", "weight",
   "enabled")
  VALUES ('c', 'main', 'demo', 'messages', 'http://x', '[]', '{}', 0, 1, 1)"""


def test_a_gateway_of_the_version_before_writes_rows_that_are_translated(database):
    execute(database, GROUP)
    execute(database, CHANNEL)
    [group] = execute(database, 'SELECT "translate" FROM "groups"').fetchall()
    [channel] = execute(database, 'SELECT "translate", "options" FROM "channels"').fetchall()
    assert (tuple(group), tuple(channel)) == ((1,), (1, None))


def test_it_can_be_run_again_on_mysql(database):
    if not is_mysql(database):
        pytest.skip("one transaction on SQLite")
    for statement in migration.MIGRATION.mysql * 2:
        execute(database, statement)
