"""Table definitions written once and rendered as DDL for SQLite and for MySQL.

Only migrations import this. MySQL commits at every DDL statement, so each table is one statement
with its indexes inside, and can be run again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SQLITE = "sqlite"
MYSQL = "mysql"
# Filled in when the statement is run: the server's binary collation that does not pad, so that
# "a" and "a " are two names. MariaDB and MySQL call it differently.
COLLATION_MARK = "{nopad_bin}"

_TYPES: Mapping[str, Mapping[str, str]] = {
    SQLITE: {"DIGEST": "BLOB", "TEXT": "TEXT", "LONGTEXT": "TEXT", "ID": "VARCHAR(26)"},
    MYSQL: {"DIGEST": "BINARY(32)", "TEXT": "TEXT", "LONGTEXT": "MEDIUMTEXT", "ID": "VARCHAR(26)"},
}


@dataclass(frozen=True, slots=True)
class Table:
    """One table: columns as (name, type with NULL rule), keys and indexes as column tuples."""

    name: str
    columns: Sequence[tuple[str, str]]
    primary: Sequence[str]
    unique: Mapping[str, Sequence[str]] = field(default_factory=dict)
    indexes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered step: its name and its statements for each dialect, each safe to run twice."""

    name: str
    sqlite: Sequence[str]
    mysql: Sequence[str]
    days: "Days | None" = None


@dataclass(frozen=True, slots=True)
class Days:
    """Statements that go on for each UTC day of usage_records, oldest first, after all others.

    `?` is the day wherever it stands. `done` finds a row when a day has been gone through: on MySQL
    a day is one transaction, and a run that follows one that was killed goes on where that ended.
    """

    sqlite: Sequence[str]
    mysql: Sequence[str]
    done: str


def create(dialect: str, table: Table) -> list[str]:
    """The statements that make a table with its indexes, if they are not there yet."""
    parts = [f'"{name}" {_type(dialect, kind)}' for name, kind in table.columns]
    parts.append(f"PRIMARY KEY ({_names(table.primary)})")
    if dialect == SQLITE:
        return [_statement(table.name, parts), *_sqlite_indexes(table)]
    parts += [f'UNIQUE KEY "{name}" ({_names(cols)})' for name, cols in table.unique.items()]
    parts += [f'KEY "{name}" ({_names(cols)})' for name, cols in table.indexes.items()]
    tail = f" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {COLLATION_MARK}"
    return [_statement(table.name, parts) + tail + (f" {table.partition}" * bool(table.partition))]


def add_columns(dialect: str, table: str, columns: Sequence[tuple[str, str]]) -> list[str]:
    """The statements that add columns to a table; on MySQL all at once, if they are not there yet.

    SQLite has no such condition and needs none: a migration is one transaction there.
    """
    parts = [f'ADD COLUMN "{name}" {_type(dialect, kind)}' for name, kind in columns]
    if dialect == SQLITE:
        return [f'ALTER TABLE "{table}" {part}' for part in parts]
    there = (
        "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()"
        f" AND table_name = '{table}' AND column_name = '{columns[0][0]}'"
    )
    alter = f'ALTER TABLE "{table}" {", ".join(parts)}'
    return [
        # A session of its own would forget it: the next ones are run on the same connection.
        f"SET @alter = IF(({there}) = 0, '{alter}', 'DO 0')",
        "PREPARE add_columns FROM @alter",
        "EXECUTE add_columns",
        "DEALLOCATE PREPARE add_columns",
    ]


def _statement(name: str, parts: Sequence[str]) -> str:
    body = ",\n  ".join(parts)
    return f'CREATE TABLE IF NOT EXISTS "{name}" (\n  {body}\n)'


def _sqlite_indexes(table: Table) -> list[str]:
    kinds = (("UNIQUE ", table.unique), ("", table.indexes))
    return [
        f'CREATE {kind}INDEX IF NOT EXISTS "{name}" ON "{table.name}" ({_names(columns)})'
        for kind, indexes in kinds
        for name, columns in indexes.items()
    ]


def _type(dialect: str, kind: str) -> str:
    word, _, rest = kind.partition(" ")
    return f"{_TYPES[dialect].get(word, word)} {rest}".rstrip()


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
