"""Databases with the schema of this code, created once in a process and then copied or reused."""

import atexit
import functools
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from store.db import database, schema
from store.db.migrate import up
from store.values.errors import StoreError

# A database's structure and connections; the same again if nobody altered or still uses it.
_SHAPE = (
    "SELECT (SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()),"
    " (SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()),"
    " (SELECT COUNT(DISTINCT table_collation) FROM information_schema.tables"
    " WHERE table_schema = DATABASE()),"
    " (SELECT GROUP_CONCAT(partition_name) FROM information_schema.partitions"
    " WHERE table_schema = DATABASE()),"
    ' (SELECT COUNT(*) FROM "schema_migrations"),'
    " (SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE())"
)


def sqlite_store(path):
    """Create a SQLite file with the schema; return its URL."""
    shutil.copyfile(_template(), path)
    return f"sqlite:///{path}"


@functools.cache
def _template():
    folder = tempfile.mkdtemp(prefix="sluice-template-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "template.db"
    db = database.open_database(f"sqlite:///{path}")
    up(db)
    database.discard(db)  # the last connection: now everything is in the one file
    return path


class MariaDbStores:
    """Databases on a server; one that a test returns is emptied and reused."""

    def __init__(self, mariadb):
        self._mariadb = mariadb
        self._free = []
        self._shape = None

    def take(self):
        """Return the URL of a database with the schema."""
        if self._free:
            return self._free.pop()
        url = self._mariadb.fresh_url()
        db = database.open_database(url)
        up(db)
        self._shape = database.execute(db, _SHAPE).fetchone()
        database.discard(db)
        return url

    def give_back(self, url):
        """Empty a database; it is not reused if its tables were altered or are still in use."""
        db = database.open_database(url)
        try:
            if database.execute(db, _SHAPE).fetchone() == self._shape:
                database.transaction(db, lambda: _reset(db))
                self._free.append(url)
        finally:
            database.discard(db)


def select(db, text, *values):
    """Return the rows of a query as tuples, read in a snapshot of their own."""
    return [
        tuple(row)
        for row in database.snapshot_read(db, lambda: database.execute(db, text, values).fetchall())
    ]


def pairs(db, table, key, value):
    """Return two columns of a table as a dictionary."""
    return dict(select(db, f'SELECT "{key}", "{value}" FROM "{table}"'))


def balances(db):
    """Return each wallet's balance by the id of its user."""
    return pairs(db, "wallets", "user_id", "balance")


def count(db, table):
    return select(db, f'SELECT COUNT(*) FROM "{table}"')[0][0]


def change(db, text, *values):
    """Run a statement that must affect at least one row, in a transaction of its own."""
    assert database.transaction(db, lambda: database.execute(db, text, values)).rowcount > 0


def insert(db, table, **row):
    """Store one row, in a transaction of its own."""
    columns = {name: [value] for name, value in row.items()}
    database.transaction(db, lambda: database.insert_columns(db, table, columns))


def at_once(db, *works):
    """Run functions in threads, each with its own connection; return results or StoreErrors."""
    gate = threading.Barrier(len(works))

    def run(work):
        gate.wait(10)
        try:
            return work()
        except StoreError as error:
            return error
        finally:
            database.discard(db)

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def contents(db):
    """Return the columns of all tables that have rows, by the table's name, for `fill`."""
    columns = {}
    for table in _filled(db):
        names = [field.column_name for field in table._meta.sorted_fields]
        listed = ", ".join(f'"{name}"' for name in names)
        rows = database.execute(db, f'SELECT {listed} FROM "{table._meta.table_name}"').fetchall()
        columns[table._meta.table_name] = dict(zip(names, zip(*rows, strict=True), strict=True))
    return columns


def fill(db, columns_by_table):
    """Replace the whole content of the database by this, from a database of either kind."""
    _empty(db)
    for name, columns in columns_by_table.items():
        database.insert_columns(db, name, columns)


def _reset(db):
    _empty(db)
    for row in schema.FIRST_ROWS:
        database.execute(db, f"INSERT {row}")


def _empty(db):
    for table in _filled(db):
        database.execute(db, f'DELETE FROM "{table._meta.table_name}"')


def _filled(db):
    tables = {table._meta.table_name: table for table in schema.all_tables()}
    dual = " FROM DUAL" if database.is_mysql(db) else ""
    exist = [f"SELECT '{name}'{dual} WHERE EXISTS (SELECT 1 FROM \"{name}\")" for name in tables]
    rows = database.execute(db, " UNION ALL ".join(exist)).fetchall()
    return [tables[name] for (name,) in rows]
