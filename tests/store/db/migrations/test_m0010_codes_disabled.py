"""Codes that were revoked are disabled; the others stay as they are."""

import pytest

from store.db import migrate
from store.db.database import execute, is_mysql, transaction
from store.db.migrations import m0010_codes_disabled as migration
from store.money import codes

INSERT = (
    'INSERT INTO "codes" ("id", "digest", "pepper_id", "last_four", "amount", "created_ms",'
    " \"revoked_ms\") VALUES (?, ?, 'p', 'abcd', 1, 0, ?)"
)


@pytest.fixture
def filled(before):
    for code_id, revoked_ms in (("a", None), ("b", 7)):
        row = (code_id, code_id.encode() * 32, revoked_ms)
        transaction(before, lambda row=row: execute(before, INSERT, row))
    return before


def disabled(db):
    return {code.id: code.disabled_ms for code in codes.list_codes(db)}


def test_codes_keep_when_they_were_ended(filled):
    [*statements] = migrate.plan(filled)
    assert any("revoked_ms" in text and "disabled_ms" in text for text in statements)
    assert migration.MIGRATION.name in migrate.up(filled)
    assert disabled(filled) == {"a": None, "b": 7}
    columns = {column.name: column for column in filled.get_columns("codes")}
    assert "revoked_ms" not in columns and columns["disabled_ms"].null
    assert codes.enable(filled, ["a", "b"], "olga") == 1
    assert disabled(filled) == {"a": None, "b": None}


def test_a_run_that_was_killed_before_it_was_noted_is_run_again(filled):
    if not is_mysql(filled):
        pytest.skip("SQLite notes it in the same transaction")
    migrate.up(filled)
    execute(filled, 'DELETE FROM "schema_migrations" WHERE "name" = ?', (migration.MIGRATION.name,))
    assert migrate.up(filled) == [migration.MIGRATION.name]
    assert disabled(filled) == {"a": None, "b": 7}
