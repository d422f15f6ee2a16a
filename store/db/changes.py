"""The change log: how running gateways learn of administrative changes.

Every change takes the next number of one counter in its own transaction. The row lock on the
counter is held until commit, so numbers appear in the order of commits: a reader that has seen
number n has seen everything up to n. Writers: all that administers. Readers: the poll of a worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import peewee

from store.db.database import execute, executemany, is_mysql, place, snapshot_read
from store.values.errors import StoreUnavailable
from store.values.ids import now_ms

CATALOG = "catalog"
"""Kind of changes to groups, models, prices and channels; a reader loads the whole snapshot."""
KEYS = "keys"
"""Kind of changes to keys and users; `ref` is the id of the key or of the user."""

CHANGE_LOG_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its number, its kind and the id of what changed."""

    version: int
    kind: str
    ref: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened after a number; not `complete`: rows are gone, take everything as changed."""

    version: int
    changes: tuple[Change, ...]
    complete: bool


def lock(db: peewee.Database) -> None:
    """Wait until no other administrative transaction runs, and keep them out until the end.

    As the first step of a transaction that judges what it reads before it writes.
    """
    # SQLite's write transactions exclude each other anyway.
    if is_mysql(db):
        query = 'SELECT "version" FROM "versions" WHERE "name" = \'changes\' FOR UPDATE'
        execute(db, query).fetchone()


def bump(db: peewee.Database, kind: str, refs: Sequence[str]) -> int:
    """Log a change of each ref; the newest number. Only inside a transaction, as its last step.

    Last, because every other administrative transaction waits for the counter from here on.
    """
    if not db.in_transaction():
        raise ValueError("a change is logged in the transaction that makes it")
    update = 'UPDATE "versions" SET "version" = "version" + ? WHERE "name" = \'changes\''
    execute(db, update, (len(refs),))
    version = _counter(db)
    if refs:
        at_ms = now_ms()
        first = version - len(refs) + 1
        insert = 'INSERT INTO "change_log" ("version", "kind", "ref", "at_ms") VALUES (?, ?, ?, ?)'
        executemany(db, insert, [(first + i, kind, ref, at_ms) for i, ref in enumerate(refs)])
        forget = 'DELETE FROM "change_log" WHERE "version" <= ?'
        execute(db, forget, (version - CHANGE_LOG_KEPT,))
    return version


def current_version(db: peewee.Database) -> int:
    """The number of the newest change."""
    return snapshot_read(db, lambda: _counter(db))


def read_changes(db: peewee.Database, since: int) -> Changes:
    """All changes after the number `since`, in order."""

    def read() -> Changes:
        version = _counter(db)
        if version == since:
            return Changes(version, (), complete=True)
        query = (
            'SELECT "version", "kind", "ref" FROM "change_log"'
            ' WHERE "version" > ? ORDER BY "version"'
        )
        changes = tuple(Change(*row) for row in execute(db, query, (since,)).fetchall())
        # Every number has one row, so a gap shows in the count. A counter that went back means
        # another database (restored, exchanged): nothing that was remembered is sure.
        return Changes(version, changes, complete=len(changes) == version - since)

    return snapshot_read(db, read)


def _counter(db: peewee.Database) -> int:
    row = execute(db, 'SELECT "version" FROM "versions" WHERE "name" = \'changes\'').fetchone()
    if row is None:
        raise StoreUnavailable(f"the schema of {place(db)} is not complete; run: migrate up")
    return int(row[0])
