"""The change log, from which running gateways learn of administrative changes.

Every change takes the next number of one counter in its own transaction. The row lock on the
counter is held until commit, so numbers appear in the order of commits: a reader that has seen
number n has seen everything up to n. All administrative changes write it; the poll of a worker
reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import peewee

from store.db.database import first_row, in_snapshot, insert_rows, is_mysql, place, select_rows
from store.db.tables.system import ChangeRow, Version
from store.values.errors import StoreUnavailable
from store.values.ids import now_ms

CATALOG = "catalog"
"""The kind of changes to groups, models, prices and channels. A reader reloads the whole
snapshot."""
KEYS = "keys"
"""The kind of changes to keys and users. `ref` is the id of the key or of the user."""

CHANGE_LOG_KEPT = 10_000

_IS_COUNTER = Version.name == "changes"
_COUNTER = Version.select(Version.version).where(_IS_COUNTER)


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change: its number, its kind and the id of the changed object."""

    version: int
    kind: str
    ref: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes after a number. If not `complete`, rows are missing and everything may have
    changed."""

    version: int
    changes: tuple[LoggedChange, ...]
    complete: bool


def lock(db: peewee.Database) -> None:
    """Wait until no other administrative transaction runs, and exclude them until this one ends. It
    is the first step of a transaction that makes decisions on what it reads before it writes."""
    # SQLite's write transactions exclude each other anyway. An update, since the other hosts of a
    # cluster do not see the locks of SELECT … FOR UPDATE.
    if is_mysql(db):
        Version.update(locks=Version.locks + 1).where(_IS_COUNTER).execute(db)


def bump(db: peewee.Database, kind: str, refs: Sequence[str]) -> int:
    """Log a change of each ref. Return the newest number. Only inside a transaction, as its last
    step, since every other administrative transaction waits for the counter from then on."""
    if not db.in_transaction():
        raise ValueError("a change is logged in the transaction that makes it")
    Version.update(version=Version.version + len(refs)).where(_IS_COUNTER).execute(db)
    version = current_version(db)
    if refs:
        at_ms = now_ms()
        numbered = enumerate(refs, version - len(refs) + 1)
        rows = [{"version": n, "kind": kind, "ref": ref, "at_ms": at_ms} for n, ref in numbered]
        insert_rows(db, ChangeRow, rows)
        ChangeRow.delete().where(ChangeRow.version <= version - CHANGE_LOG_KEPT).execute(db)
    return version


def current_version(db: peewee.Database) -> int:
    """Return the number of the newest change."""
    row = first_row(db, _COUNTER)
    if row is None:
        raise StoreUnavailable(f"the schema of {place(db)} is not complete; run: migrate up")
    return int(row[0])


@in_snapshot
def read_changes(db: peewee.Database, since: int) -> Changes:
    """Return all changes after the number `since`, in order."""
    version = current_version(db)
    if version == since:
        return Changes(version, (), complete=True)
    query = ChangeRow.select(ChangeRow.version, ChangeRow.kind, ChangeRow.ref).where(
        ChangeRow.version > since
    )
    changes = tuple(
        LoggedChange(*row) for row in select_rows(db, query.order_by(ChangeRow.version))
    )
    # Every number has one row, so the count reveals a gap. A counter that went back means that the
    # database was restored or replaced, so nothing remembered is certain.
    return Changes(version, changes, complete=len(changes) == version - since)
