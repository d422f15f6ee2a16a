"""Groups of users and wrong paths: columns that old rows and old gateways need not know."""

import pytest

from store.admin.export import show
from store.db.database import execute, is_mysql
from store.db.migrations import m0013_hub_keys as migration
from store.db.migrations.ddl import COLLATION_MARK

USER = """INSERT INTO "users" ("id", "name", "role", "spend_order", "disabled", "created_ms")
  VALUES ('u', 'alice', 'member', 'plan_first', 0, 1)"""


def test_a_user_made_by_the_version_before_has_the_default_group(database):
    execute(database, USER)
    assert show(database, "user", "alice")["groups"] == ["default"]


def test_it_can_be_run_again_on_mysql(database):
    if not is_mysql(database):
        pytest.skip("one transaction on SQLite")
    for statement in migration.MIGRATION.mysql * 2:
        execute(database, statement.replace(COLLATION_MARK, "utf8mb4_nopad_bin"))
