"""The nodes of a store: when each was last seen, by the database's clock, and the revision of its
code. For writers, for `books` and for the Hub."""

import peewee

from store.db.database import database_ms, insert_rows, select_rows, transaction
from store.db.tables.system import Node


def note_seen(db: peewee.Database, node: str) -> None:
    """Note that a process of the node is alive."""

    def work() -> None:
        insert_rows(db, Node, [{"name": node, "seen_ms": database_ms(db)}], replace=["seen_ms"])

    transaction(db, work)


def last_seen(db: peewee.Database) -> dict[str, int]:
    """Node name -> when it was last seen, in ms; in the caller's transaction."""
    return dict(select_rows(db, Node.select(Node.name, Node.seen_ms)))


def note_revision(db: peewee.Database, node: str, revision: str) -> None:
    """Note the revision of a node that was seen. Idempotent. Errors: `transaction`."""
    query = Node.update(revision=revision).where(Node.name == node)
    transaction(db, lambda: query.execute(db))


def revisions(db: peewee.Database) -> dict[str, str | None]:
    """Node name -> its revision, None for a node of a version that did not name it; in the
    caller's transaction."""
    return dict(select_rows(db, Node.select(Node.name, Node.revision)))
