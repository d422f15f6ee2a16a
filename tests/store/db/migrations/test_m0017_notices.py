"""Notices and the address of audited changes: gateways of the version before go on writing."""

import pytest

from store.db import audit
from store.db.database import execute, is_mysql, transaction
from store.db.migrations import m0017_notices as migration

OLD = """INSERT INTO "audit_log" ("id", "at_ms", "actor", "action", "kind", "name")
  VALUES ('a', 1, 'cli', 'create', 'user', 'x')"""


def test_rows_of_the_version_before_have_no_address(database):
    transaction(database, lambda: execute(database, OLD))
    [row] = audit.entries(database, 5)
    assert (row["name"], row["address"]) == ("x", None)


def test_it_can_be_run_again_on_mysql(database):
    if not is_mysql(database):
        pytest.skip("one transaction on SQLite")
    for statement in migration.MIGRATION.mysql[1:] * 2:  # the table is made if it is not there
        execute(database, statement)
