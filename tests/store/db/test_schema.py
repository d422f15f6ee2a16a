"""The models and what the migrations make are one schema, on both databases."""

import pytest

from store.db.database import discard, execute, is_mysql, open_database
from tests.support.models import ALL

MYSQL_COLUMNS = (
    "SELECT column_name, column_type, is_nullable = 'YES', column_default"
    " FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?"
)


@pytest.fixture
def modelled(database, request, tmp_path):
    """A database whose tables are made from the models alone."""
    if is_mysql(database):
        db = open_database(request.getfixturevalue("mariadb").fresh_url())
    else:
        db = open_database(f"sqlite:///{tmp_path}/models.db")
    with db.bind_ctx(ALL):
        db.create_tables(ALL)
    yield db
    discard(db)


def columns(db, table):
    """Name -> type and whether it may be NULL."""
    if is_mysql(db):
        rows = execute(db, MYSQL_COLUMNS, (table,)).fetchall()
        return {name: (kind, bool(null)) for name, kind, null, _ in rows}
    rows = execute(db, f'PRAGMA table_info("{table}")').fetchall()
    # All whole numbers of SQLite are of one type, however it is spelt.
    return {row[1]: ("INTEGER" if "INT" in row[2] else row[2], not row[3]) for row in rows}


def defaults(db, table):
    """Name -> the default of the column, as text; those without one left out."""
    if is_mysql(db):
        rows = [(row[0], row[3]) for row in execute(db, MYSQL_COLUMNS, (table,)).fetchall()]
    else:
        rows = [(row[1], row[4]) for row in execute(db, f'PRAGMA table_info("{table}")').fetchall()]
    return {name: value.strip("'") for name, value in rows if value not in (None, "NULL")}


def keys(db, table):
    """The columns of the primary key, then those of each index with whether it is unique."""
    primary = tuple(db.get_primary_keys(table))
    indexes = {(tuple(one.columns), one.unique) for one in db.get_indexes(table)}
    return primary, indexes - {(primary, True)}


def test_columns(database, modelled):
    for model in ALL:
        table = model._meta.table_name
        assert columns(database, table) == columns(modelled, table), table


def test_a_column_that_has_a_default_has_the_models(database):
    for model in ALL:
        table = model._meta.table_name
        said = {
            field.column_name: str(int(field.default) if field.default != "" else "")
            for field in model._meta.sorted_fields
            if field.default is not None
        }
        assert defaults(database, table) == said, table


def test_keys_and_indexes(database, modelled):
    for model in ALL:
        table = model._meta.table_name
        assert keys(database, table) == keys(modelled, table), table


def test_every_table_has_a_model(database):
    made = {name for name in database.get_tables() if not name.startswith("schema_")}
    assert made == {model._meta.table_name for model in ALL}
