"""The nodes of a store: when each was last seen, by the database's clock. For writers and for
`books`."""

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
