"""The nodes of a store: when each was last heard of, by the database's clock. For writers and for
`books`."""

import peewee

from store.db.database import database_ms, execute, is_mysql, transaction

_SEEN = 'INSERT INTO "nodes" ("name", "seen_ms") VALUES (?, ?)'
_ON_SEEN = {
    True: ' ON DUPLICATE KEY UPDATE "seen_ms" = VALUES("seen_ms")',
    False: ' ON CONFLICT ("name") DO UPDATE SET "seen_ms" = excluded."seen_ms"',
}


def note_seen(db: peewee.Database, node: str) -> None:
    """A process of the node lives."""
    seen = _SEEN + _ON_SEEN[is_mysql(db)]
    transaction(db, lambda: execute(db, seen, (node, database_ms(db))))


def last_seen(db: peewee.Database) -> dict[str, int]:
    """Node name -> when it was last heard of, in ms; in the caller's transaction."""
    return dict(execute(db, 'SELECT "name", "seen_ms" FROM "nodes"').fetchall())
