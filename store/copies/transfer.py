"""A copy of all rows of a store in another database, from SQLite to MySQL or back.

For stores that are not in use. All or nothing: until everything is copied and verified, the target
has a mark and no counter of changes, so that no gateway starts on it. An interrupted run is
repeated from the beginning. Raw SQL: every column of every table is copied as the driver returns
it, whatever it means.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import peewee
import pymysql.cursors
from peewee import fn

from store.copies import restored
from store.db import database, migrate, partitions
from store.db.database import is_mysql, place, transaction
from store.db.nodes import NODE_ALIVE_MS, last_seen
from store.db.schema import all_tables
from store.db.tables.system import Mark, UpkeepRow, Version, WritingHostRow
from store.db.tables.usage import UsageRow
from store.values.errors import Refused, StoreError
from store.values.ids import DAY_MS, day_begin_ms

BATCH_ROWS = 1000
CHANGES = "changes"
MARK = "copy_unfinished"
"""The row of `versions` in a target whose copy is unfinished."""

_NOT_COPIED = (Version, WritingHostRow, Mark)  # see _copy_versions; the rest is of one place

Report = Callable[[str], None]


def copy(source: peewee.Database, target: peewee.Database, report: Report) -> dict[str, int]:
    """Copy everything. Return the number of rows of each table. Creates the schema of the target.

    Raises Refused if the source is in use or behind, or if the target contains other data, and
    StoreError if it failed; the target is then unusable until the copy is repeated. `report` is
    called with the progress.
    """
    _check_source(source)
    migrate.up(target, report)
    _clear(target)
    if is_mysql(target):
        _make_days(source, target)
    transaction(target, functools.partial(_copy_versions, source, target, last=False))
    counts = {
        _name(table): _copy_table(source, target, table, report)
        for table in all_tables()
        if table not in _NOT_COPIED
    }
    report("verifying")
    _verify(source, target, counts)
    transaction(target, functools.partial(_copy_versions, source, target, last=True))
    return counts


def _check_source(source: peewee.Database) -> None:
    if waiting := migrate.behind(source):
        raise Refused([waiting])
    # Journals of dead processes can be adopted in the copy, which includes their offsets.
    alive_ms = database.database_ms(source) - NODE_ALIVE_MS
    seen = last_seen(source)
    running = {n for n in restored.unfinished(source).values() if seen.get(n, 0) > alive_ms}
    if running:
        nodes = ", ".join(sorted(running))
        raise Refused(
            [
                f"{place(source)} is used, or was less than a minute ago, by: {nodes}; stop the"
                " gateways, and wait until they have ended"
            ]
        )


def _clear(target: peewee.Database) -> None:
    """Make sure that the target is empty, or contains only the remains of an earlier copy."""
    is_mark = Version.name == MARK
    begun = database.first_row(target, Version.select(Version.version).where(is_mark))
    filled = [
        _name(table)
        for table in all_tables()
        if table not in (*_NOT_COPIED, UpkeepRow) and _has_rows(target, table)
    ]
    if filled and begun is None:
        raise Refused([f"{place(target)} is not empty: {', '.join(filled[:3])}"])

    def mark() -> None:
        Version.delete().execute(target)
        Version.insert(name=MARK, version=0).execute(target)

    transaction(target, mark)
    for name in (*filled, _name(UpkeepRow)):
        delete = f'TRUNCATE TABLE "{name}"' if is_mysql(target) else f'DELETE FROM "{name}"'
        transaction(target, functools.partial(database.execute, target, delete))


def _has_rows(db: peewee.Database, table: Any) -> bool:
    query = f'SELECT 1 FROM "{_name(table)}" LIMIT 1'
    return database.snapshot_read(db, lambda: database.execute(db, query).fetchone()) is not None


def _make_days(source: peewee.Database, target: peewee.Database) -> None:
    """Create a partition for each day of the source while the table is empty, when it is fast."""
    row = database.first_row(source, UsageRow.select(fn.MIN(UsageRow.day), fn.MAX(UsageRow.day)))
    first, last = row or (None, None)
    if first is not None and last is not None:
        ahead = (day_begin_ms(last) - day_begin_ms(first)) // DAY_MS
        partitions.make_days(target, first, ahead)


def _copy_table(
    source: peewee.Database, target: peewee.Database, table: Any, report: Report
) -> int:
    names, name, copied = _columns(table), _name(table), 0
    total = _count(source, table)
    for rows in _portions(source, table):
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        transaction(target, functools.partial(database.insert_columns, target, name, columns))
        copied += len(rows)
        report(f"{name}: {copied} of {total} rows")
    return copied


def _portions(db: peewee.Database, table: Any) -> Iterator[list[tuple[Any, ...]]]:
    """Yield all rows of a table in their stored order, reading as needed."""
    driver: Any = db
    kind = (pymysql.cursors.SSCursor,) if is_mysql(db) else ()
    cursor = driver.connection().cursor(*kind)
    listed = ", ".join(f'"{name}"' for name in _columns(table))
    try:
        cursor.execute(f'SELECT {listed} FROM "{_name(table)}"')
        while rows := list(cursor.fetchmany(BATCH_ROWS)):
            yield rows
    finally:
        cursor.close()


def _verify(source: peewee.Database, target: peewee.Database, counts: dict[str, int]) -> None:
    """Raise StoreError if rows are missing or were added meanwhile, or if the books differ."""
    for table in all_tables():
        if table in _NOT_COPIED:
            continue
        name = _name(table)
        source_rows, target_rows = _count(source, table), _count(target, table)
        if not source_rows == target_rows == counts[name]:
            raise StoreError(
                f"{name}: {source_rows} rows in {place(source)}, {target_rows} in {place(target)}:"
                " was one of them used during the copy? Repeat it"
            )
    if faults := restored.faults(target):
        raise StoreError(f"the copy is not right: {'; '.join(faults[:3])}")


def _copy_versions(source: peewee.Database, target: peewee.Database, *, last: bool) -> None:
    """Copy all counters except that of changes. With `last`, copy only that one and remove the
    mark."""
    counter = Version.name == CHANGES
    query = Version.select(Version.name, Version.version).where(counter if last else ~counter)
    for name, version in database.select_rows(source, query):
        Version.insert(name=name, version=version).execute(target)
    if last:
        Version.delete().where(Version.name == MARK).execute(target)


def _count(db: peewee.Database, table: Any) -> int:
    query = f'SELECT COUNT(*) FROM "{_name(table)}"'
    return int(database.snapshot_read(db, lambda: database.execute(db, query).fetchone())[0])


def _columns(table: Any) -> list[str]:
    return [field.column_name for field in table._meta.sorted_fields]


def _name(table: Any) -> str:
    return str(table._meta.table_name)
