"""The schema of the first migration equals that of the models, on both databases."""

import pytest

from store.db import schema
from store.db.database import discard, execute, is_mysql, open_database, transaction
from store.db.schema import all_tables
from tests.support.stores import select


@pytest.fixture
def modelled(database, request, tmp_path):
    """Yield a database whose tables peewee has created from the models."""
    if is_mysql(database):
        db = open_database(request.getfixturevalue("mariadb").fresh_url())
        collation = f"ALTER DATABASE {db.database} COLLATE {schema.COLLATIONS[0]}"
        transaction(db, lambda: execute(db, collation))
    else:
        db = open_database(f"sqlite:///{tmp_path}/models.db")
    with db.bind_ctx(all_tables()):
        db.create_tables(all_tables())
    yield db
    discard(db)


def columns(db):
    """Return (table, column) -> type and whether it may be NULL, as the database reports them."""
    return {
        (table._meta.table_name, name): found[:2]
        for table in all_tables()
        for name, found in schema._actual_columns(db, table._meta.table_name).items()
    }


def keys(db):
    """Return the columns of each primary key, and name, columns and kind of each index."""
    names = [table._meta.table_name for table in all_tables()]
    primary = {name: tuple(db.get_primary_keys(name)) for name in names}
    indexes = {
        (name, index.name, tuple(index.columns), bool(index.unique))
        for name in names
        for index in db.get_indexes(name)
        if index.name != "PRIMARY" and not index.name.startswith("sqlite_")
    }
    return primary, indexes


def test_the_step_makes_what_the_models_say(database, modelled):
    assert len(columns(database)) > 400 and len(keys(database)[1]) > 30
    assert columns(database) == columns(modelled)
    assert keys(database) == keys(modelled)
    assert schema.differences(database) == []


def test_every_table_has_a_model(database):
    made = {name for name in database.get_tables() if not name.startswith("schema_")}
    assert made == {table._meta.table_name for table in all_tables()}


def test_every_statement_can_be_run_twice(database):
    execute(database, 'UPDATE "versions" SET "version" = 7')
    for statement in schema.create_all(database):
        execute(database, statement)
    assert {row[0] for row in execute(database, 'SELECT "version" FROM "versions"')} == {7}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('DROP TABLE "plans"', "table plans is missing"),
        ('ALTER TABLE "plans" ADD COLUMN "more" BIGINT', "plans.more is ("),
        ('ALTER TABLE "plans" DROP COLUMN "disabled"', "plans.disabled is None, not ("),
        ('DROP INDEX "plans_name"', "index plans_name of plans is missing"),
    ],
)
def test_what_differs_is_named(database, change, message):
    if change.startswith("DROP INDEX") and is_mysql(database):
        change += ' ON "plans"'
    execute(database, change)
    (difference,) = schema.differences(database)
    assert message in difference


@pytest.mark.databases("mariadb")  # SQLite compares bytes
def test_a_table_that_compares_otherwise_differs(database):
    execute(database, 'ALTER TABLE "plans" COLLATE utf8mb4_general_ci')
    assert schema.differences(database) == ["the collation of plans is utf8mb4_general_ci"]


def test_names_compare_byte_by_byte(database):
    insert = (
        'INSERT INTO "users" ("id", "name", "role", "spend_order", "created_ms")'
        " VALUES (?, ?, 'member', 'x', 1)"
    )
    for name in ("a", "A", "a ", "ä", "a\u0308"):
        execute(database, insert, (name, name))
    for name in ("a", "A", "a "):
        for column in ("name", "id"):
            query = f'SELECT "name" FROM "users" WHERE "{column}" = ?'
            assert [row[0] for row in execute(database, query, (name,)).fetchall()] == [name]


@pytest.mark.databases("mariadb")  # SQLite has no partitions
def test_usage_records_are_partitioned_by_day_on_mysql(database):
    query = (
        "SELECT partition_method, partition_expression, partition_description"
        " FROM information_schema.partitions"
        " WHERE table_schema = DATABASE() AND table_name = 'usage_records'"
    )
    [(method, expression, limit)] = execute(database, query).fetchall()
    assert (method, expression.strip('`"'), limit) == ("RANGE", "day", "MAXVALUE")


@pytest.mark.databases("mariadb")
def test_every_table_has_a_primary_key(database):
    """None is auto-incremented: a cluster's hosts would give out such numbers in no order."""
    text = (
        "SELECT t.table_name FROM information_schema.tables t LEFT JOIN"
        " information_schema.columns c ON c.table_schema = t.table_schema AND"
        " c.table_name = t.table_name AND c.column_key = 'PRI'"
        " WHERE t.table_schema = DATABASE() AND (c.column_key IS NULL OR c.extra <> '')"
    )
    assert select(database, text) == []
