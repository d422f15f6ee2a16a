"""The nodes of a store: when each was last heard of. For writers and for `books`."""

import peewee

from store.database import execute, is_mysql, transaction
from store.ids import now_ms

_SEEN = 'INSERT INTO "nodes" ("name", "seen_ms") VALUES (?, ?)'
_ON_SEEN = {
    True: ' ON DUPLICATE KEY UPDATE "seen_ms" = VALUES("seen_ms")',
    False: ' ON CONFLICT ("name") DO UPDATE SET "seen_ms" = excluded."seen_ms"',
}


def note_seen(db: peewee.Database, node: str) -> None:
    """A process of the node lives."""
    transaction(db, lambda: execute(db, _SEEN + _ON_SEEN[is_mysql(db)], (node, now_ms())))


def last_seen(db: peewee.Database) -> dict[str, int]:
    """Node name -> when it was last heard of, in ms; in the caller's transaction."""
    return dict(execute(db, 'SELECT "name", "seen_ms" FROM "nodes"').fetchall())
