"""Usage records get one index by who called in place of two, also when they are there already."""

from store.db import migrate
from store.db.database import execute, is_mysql
from store.db.migrations import m0005_usage_caller as migration


def indexes(db):
    return {index.name: list(index.columns) for index in db.get_indexes("usage_records")}


def test_one_index_takes_the_place_of_two(before):
    assert {"usage_user", "usage_key"} <= set(indexes(before))
    migrate.up(before)
    found = indexes(before)
    assert found["usage_caller"] == ["user", "day", "id", "outcome", "key_id"]
    assert found["usage_recorded"] == ["recorded_ms", "id"]
    assert not {"usage_user", "usage_key"} & set(found)


def test_a_run_that_was_killed_before_it_was_noted_is_run_again(before):
    migrate.up(before)
    execute(before, 'DELETE FROM "schema_migrations" WHERE "name" = ?', (migration.MIGRATION.name,))
    assert migrate.up(before) == [migration.MIGRATION.name]
    assert "usage_caller" in indexes(before)


def test_mysql_writes_on_while_it_is_made():
    assert "LOCK=NONE" in migration.MIGRATION.mysql[0]


def test_pages_of_a_user_are_read_by_it(before):
    migrate.up(before)
    query = (
        'EXPLAIN {} SELECT * FROM "usage_records" WHERE "user" = ? AND "outcome" = ?'
        ' AND "day" = ? AND "id" >= ? AND "id" < ?'
    )
    text = query.format("" if is_mysql(before) else "QUERY PLAN")
    rows = execute(before, text, ("alice", "ok", 20260105, "0", "1")).fetchall()
    assert "usage_caller" in str(rows)
