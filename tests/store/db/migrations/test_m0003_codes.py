"""Redeem codes: every statement can be run again, and a digest is there once."""

import pytest

from store.db.database import execute, is_mysql, transaction
from store.db.migrations import m0003_codes
from store.values.errors import Conflict

INSERT = (
    'INSERT INTO "codes" ("id", "digest", "pepper_id", "last_four", "amount", "created_ms")'
    " VALUES (?, ?, 'p', 'abcd', 1, 0)"
)


def test_every_statement_can_be_run_twice(database):
    transaction(database, lambda: execute(database, INSERT, ("a", bytes(32))))
    if is_mysql(database):
        statements = [s.format(nopad_bin="utf8mb4_nopad_bin") for s in m0003_codes.MIGRATION.mysql]
    else:
        statements = m0003_codes.MIGRATION.sqlite
    for statement in statements:
        execute(database, statement)
    assert execute(database, 'SELECT "id" FROM "codes"').fetchall()[0][0] == "a"


def test_two_codes_cannot_be_the_same(database):
    transaction(database, lambda: execute(database, INSERT, ("a", bytes(32))))
    with pytest.raises(Conflict):
        transaction(database, lambda: execute(database, INSERT, ("b", bytes(32))))
