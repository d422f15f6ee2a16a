"""Databases with the schema of this code, made once in a process and then copied or used again."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from store.db import schema
from store.db.database import discard, execute, open_database, transaction
from store.db.migrate import up

_SHAPE = (  # of a database that no test has altered, and that nobody is connected to
    "SELECT (SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()),"
    " (SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()),"
    " (SELECT COUNT(DISTINCT table_collation) FROM information_schema.tables"
    " WHERE table_schema = DATABASE()),"
    " (SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = DATABASE()),"
    ' (SELECT COUNT(*) FROM "schema_migrations"),'
    " (SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE())"
)


def sqlite_store(path):
    """Makes a SQLite file with the schema; its URL."""
    shutil.copyfile(_template(), path)
    return f"sqlite:///{path}"


@functools.cache
def _template():
    folder = tempfile.mkdtemp(prefix="sluice-template-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "template.db"
    db = open_database(f"sqlite:///{path}")
    up(db)
    discard(db)  # the last connection: all is in the one file now
    return path


class MariaDbStores:
    """Databases on a server: one that a test leaves behind is emptied for the next one."""

    def __init__(self, mariadb):
        self._mariadb = mariadb
        self._free = []
        self._shape = None

    def take(self):
        """The URL of a database with the schema."""
        if self._free:
            return self._free.pop()
        url = self._mariadb.fresh_url()
        db = open_database(url)
        up(db)
        self._shape = execute(db, _SHAPE).fetchone()
        discard(db)
        return url

    def give_back(self, url):
        """Empties it; where its tables were altered or are still used, it is not used again."""
        db = open_database(url)
        try:
            if execute(db, _SHAPE).fetchone() == self._shape:
                transaction(db, lambda: _empty(db))
                self._free.append(url)
        finally:
            discard(db)


def _empty(db):
    names = [table._meta.table_name for table in schema.all_tables()]
    exist = [f"SELECT '{name}' FROM DUAL WHERE EXISTS (SELECT 1 FROM \"{name}\")" for name in names]
    for (name,) in execute(db, " UNION ALL ".join(exist)).fetchall():
        execute(db, f'DELETE FROM "{name}"')
    for row in schema.FIRST_ROWS:
        execute(db, f"INSERT {row}")
