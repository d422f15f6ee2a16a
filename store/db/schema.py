"""The schema of an empty database, made from the models of tables/, and comparisons with it.

Raw SQL. MySQL commits at every DDL statement, so a table is one statement with its indexes inside,
which can be run again. peewee has no defaults, partitions or collations. For migrations.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import peewee

from store.db import tables
from store.db.database import execute, is_mysql, place, quoted, snapshot_read
from store.db.tables.fields import Row
from store.values.errors import StoreError

COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""MariaDB's name, then MySQL's, of the collation that compares bytes and does not pad, so that "a"
and "a " are different names."""

ALERTS_ROW = (
    'INTO "upkeep" ("name", "owner", "node", "until_ms", "next_ms")'
    " VALUES ('alerts', '', '', 0, 0)"
)
WRITING_HOST_ROW = 'INTO "writing_host" ("name", "host", "epoch") VALUES (\'store\', \'\', 0)'
# Rows that must exist before anything is changed: the counter of changes, the day before which
# records were removed, the rows of the upkeep and of alerts, due at once, and the writing host.
FIRST_ROWS = (
    'INTO "versions" ("name", "version") VALUES (\'changes\', 0)',
    'INTO "versions" ("name", "version") VALUES (\'usage_pruned\', 0)',
    'INTO "upkeep" ("name", "owner", "node", "until_ms", "next_ms")'
    " VALUES ('upkeep', '', '', 0, 0)",
    ALERTS_ROW,
    WRITING_HOST_ROW,
)
_PARTITIONS = {
    "usage_records": ' PARTITION BY RANGE ("day") (PARTITION "pmax" VALUES LESS THAN MAXVALUE)'
}
_MYSQL_COLUMNS = (
    "SELECT column_name, column_type, is_nullable = 'YES', column_default"
    " FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?"
)
_MYSQL_COLLATION = (
    "SELECT table_collation FROM information_schema.tables"
    " WHERE table_schema = DATABASE() AND table_name = ?"
)

for _module in pkgutil.iter_modules(tables.__path__, f"{tables.__name__}."):
    importlib.import_module(_module.name)


Additions = Mapping[str, Sequence[str]]
"""Table names to the names of the added columns and indexes. Empty: the table itself is new."""
NOTHING_ADDED: Additions = {}


def all_tables(base: Any = Row) -> list[Any]:
    """Return the models of all tables."""
    subclasses = base.__subclasses__()
    return [table for model in subclasses for table in all_tables(model)] if subclasses else [base]


def create_all(db: peewee.Database) -> list[str]:
    """Return the statements that create missing tables, their indexes and first rows. Raises
    StoreError if the server has none of COLLATIONS."""
    insert = "INSERT IGNORE" if is_mysql(db) else "INSERT OR IGNORE"
    settings = _mysql_settings(db) if is_mysql(db) else ""
    statements = [text for table in all_tables() for text in _create(db, table, settings)]
    return statements + [f"{insert} {row}" for row in FIRST_ROWS]


def add(db: peewee.Database, added: Additions) -> list[str]:
    """Return the statements that add missing tables, columns and indexes, as the models describe
    them."""
    settings = _mysql_settings(db) if is_mysql(db) else ""
    return [
        text
        for table in all_tables()
        if (names := added.get(table._meta.table_name)) is not None
        for text in (_add_parts(db, table, names) if names else _create(db, table, settings))
    ]


def _add_parts(db: peewee.Database, table: Any, names: Sequence[str]) -> list[str]:
    """Return the statements for columns and indexes of a table."""
    name, expected = table._meta.table_name, _expected_columns(db, table)
    present = snapshot_read(db, lambda: _actual_columns(db, name))
    columns = [
        f'ALTER TABLE "{name}" ADD COLUMN {_column(column, expected[column])}'
        for column in names
        if column in expected and column not in present
    ]
    driver: Any = db
    present_indexes = {index.name for index in snapshot_read(db, lambda: driver.get_indexes(name))}
    indexes = [
        f'ALTER TABLE "{name}" ADD {_mysql_index(index)}'
        if is_mysql(db)
        else driver.get_sql_context().sql(index).query()[0]
        for index in table._meta.fields_to_index()
        if index._name in names and index._name not in present_indexes
    ]
    return columns + indexes


def differences(db: peewee.Database, later: Additions = NOTHING_ADDED) -> list[str]:
    """Return the differences between the tables of a database and the models, a phrase for each.
    Other tables and indexes do not count, nor what `later` steps add. Raises StoreUnavailable."""
    return snapshot_read(
        db,
        lambda: [
            text
            for table in all_tables()
            if later.get(name := table._meta.table_name) != ()
            for text in _differ(db, table, later.get(name, ()))
        ],
    )


def _create(db: peewee.Database, table: Any, settings: str) -> list[str]:
    meta = table._meta
    parts = [_column(name, form) for name, form in _expected_columns(db, table).items()]
    parts.append(f"PRIMARY KEY ({quoted(_primary_key(table))})")
    if is_mysql(db):
        parts += map(_mysql_index, meta.fields_to_index())
    lines = ",\n  ".join(parts)
    text = f'CREATE TABLE IF NOT EXISTS "{meta.table_name}" (\n  {lines}\n){settings}'
    if is_mysql(db):
        return [text + _PARTITIONS.get(meta.table_name, "")]
    driver: Any = db
    indexes = [driver.get_sql_context().sql(index).query()[0] for index in meta.fields_to_index()]
    return [text, *indexes]


def _mysql_settings(db: peewee.Database) -> str:
    names = "', '".join(COLLATIONS)
    show = f"SHOW COLLATION WHERE \"Collation\" IN ('{names}')"
    available = {row[0] for row in snapshot_read(db, lambda: execute(db, show).fetchall())}
    for name in COLLATIONS:
        if name in available:
            return f" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {name}"
    raise StoreError(
        f"{place(db)}: the database server has no binary collation without padding for utf8mb4"
    )


def _mysql_index(index: Any) -> str:
    columns = ", ".join(
        f'"{part.field.column_name}"({part.chars})'
        if hasattr(part, "chars")
        else f'"{part.column_name}"'
        for part in index._expressions
    )
    return f'{"UNIQUE " * index._unique}KEY "{index._name}" ({columns})'


def _column(name: str, form: tuple[str, bool, str | None]) -> str:
    kind, nullable, default = form
    return f'"{name}" {kind}{"" if nullable else " NOT NULL"}{_default_clause(default)}'


def _default_clause(default: str | None) -> str:
    if default is None:
        return ""
    return f" DEFAULT {default}" if default.isdigit() else f" DEFAULT '{default}'"


def _primary_key(table: Any) -> tuple[str, ...]:
    return tuple(field.column_name for field in table._meta.get_primary_keys())


def _expected_columns(db: Any, table: Any) -> dict[str, tuple[str, bool, str | None]]:
    """Return type, nullability and default of each column."""
    context = db.get_sql_context()
    return {
        field.column_name: (field.ddl_datatype(context).sql, field.null, _default(field))
        for field in table._meta.sorted_fields
    }


def _default(field: Any) -> str | None:
    default = field.default
    return default if default is None or isinstance(default, str) else str(int(default))


def _actual_columns(db: peewee.Database, name: str) -> dict[str, tuple[str, bool, str | None]]:
    if is_mysql(db):
        rows = execute(db, _MYSQL_COLUMNS, (name,)).fetchall()
    else:
        listed = execute(db, f'PRAGMA table_info("{name}")').fetchall()
        rows = [(row[1], row[2], not row[3], row[4]) for row in listed]
    return {
        column: (_plain(db, kind), bool(null), None if text in (None, "NULL") else text.strip("'"))
        for column, kind, null, text in rows
    }


def _plain(db: peewee.Database, kind: str) -> str:
    """Return a type as the models write it. MariaDB gives integers a width; SQLite has one integer
    type, whatever its name."""
    kind = re.sub(r"INT\(\d+\)", "INT", kind.upper())
    return "INTEGER" if kind == "INT" or ("INT" in kind and not is_mysql(db)) else kind


def _differ(db: Any, table: Any, later: Sequence[str]) -> Iterator[str]:
    name = table._meta.table_name
    expected, actual = _expected_columns(db, table), _actual_columns(db, name)
    if not actual:
        yield f"table {name} is missing"
        return
    for column in sorted((expected.keys() | actual.keys()) - set(later)):
        if expected.get(column) != actual.get(column):
            yield f"{name}.{column} is {actual.get(column)}, not {expected.get(column)}"
    if tuple(db.get_primary_keys(name)) != _primary_key(table):
        yield f"the primary key of {name} is not {quoted(_primary_key(table))}"
    actual_indexes = {(tuple(index.columns), bool(index.unique)) for index in db.get_indexes(name)}
    for index in table._meta.fields_to_index():
        columns = tuple(getattr(part, "field", part).column_name for part in index._expressions)
        if (columns, index._unique) not in actual_indexes and index._name not in later:
            yield f"index {index._name} of {name} is missing"
    if is_mysql(db):
        collation = execute(db, _MYSQL_COLLATION, (name,)).fetchone()[0]
        if collation not in COLLATIONS:
            yield f"the collation of {name} is {collation}"
