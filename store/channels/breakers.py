"""The open breakers of running workers, where others can see them.

Workers learn of channels each for itself, in memory; the writer of each shows here what is open, so
that commands and the Hub can tell why a channel is left alone. Nothing is read back by workers. The
rows of a process go with its journal: when it ends, or when the journal is adopted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import peewee

from store.db.database import execute, executemany, is_mysql, transaction

ROWS_MAX = 200
"""Rows that one process writes at a time, which is once a second."""

KEPT_MS = 3_600_000
"""How long after its end a row may stay when its process, and then its node, never came back."""

Name = tuple[str, str, str]
"""Channel id, model (empty: all models), fingerprint of the upstream key (empty: it has none)."""

Open = tuple[str, int, int]
"""Reason, since when and until when it is left alone at least (ms): by the monotonic clock of its
worker, so that neither moves with a wall clock, and by the database's in its row."""

_INSERT = (
    'INSERT INTO "channel_breakers" ("journal_id", "channel_id", "model", "fingerprint",'
    ' "reason", "since_ms", "until_ms") VALUES (?, ?, ?, ?, ?, ?, ?)'
)
_ON_BREAKER = {
    True: ' ON DUPLICATE KEY UPDATE "reason" = VALUES("reason"),'
    ' "since_ms" = VALUES("since_ms"), "until_ms" = VALUES("until_ms")',
    False: ' ON CONFLICT ("journal_id", "channel_id", "model", "fingerprint") DO UPDATE SET'
    ' "reason" = excluded."reason", "since_ms" = excluded."since_ms",'
    ' "until_ms" = excluded."until_ms"',
}
_DELETE = (
    'DELETE FROM "channel_breakers" WHERE "journal_id" = ? AND "channel_id" = ? AND "model" = ?'
    ' AND "fingerprint" = ?'
)


@dataclass(frozen=True, slots=True)
class Breaker:
    """One open breaker of one process. `fingerprint`: of the upstream key, "" without one."""

    node: str
    journal_id: str
    channel_id: str
    model: str
    fingerprint: str
    reason: str
    since_ms: int
    until_ms: int


def show(
    db: peewee.Database,
    journal_id: str,
    shown: dict[Name, Open],
    now: Mapping[Name, Open],
    offset_ms: int = 0,
) -> None:
    """Write what has changed since `shown`, at most ROWS_MAX rows, and note it there.

    `offset_ms`: the database's clock less that of `now`.
    """
    gone = [name for name in shown if name not in now][:ROWS_MAX]
    room = ROWS_MAX - len(gone)
    new = [(name, row) for name, row in now.items() if shown.get(name) != row][:room]
    if not (gone or new):
        return

    def work() -> None:
        if gone:
            executemany(db, _DELETE, [(journal_id, *name) for name in sorted(gone)])
        if new:
            rows = [
                (journal_id, *name, reason, since_ms + offset_ms, until_ms + offset_ms)
                for name, (reason, since_ms, until_ms) in sorted(new)
            ]
            executemany(db, _INSERT + _ON_BREAKER[is_mysql(db)], rows)

    transaction(db, work)
    for name in gone:
        del shown[name]
    shown.update(new)


def forget(db: peewee.Database, journal_id: str) -> None:
    """Remove the rows of a process that is gone, in the caller's transaction."""
    execute(db, 'DELETE FROM "channel_breakers" WHERE "journal_id" = ?', (journal_id,))


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove what ended so long ago that its process cannot live."""
    delete = 'DELETE FROM "channel_breakers" WHERE "until_ms" < ?'
    transaction(db, lambda: execute(db, delete, (at_ms - KEPT_MS,)))


def all_open(db: peewee.Database) -> list[Breaker]:
    """What all processes show, in the caller's transaction."""
    query = (
        'SELECT COALESCE(j."node", \'\'), b."journal_id", b."channel_id", b."model",'
        ' b."fingerprint", b."reason", b."since_ms", b."until_ms" FROM "channel_breakers" b'
        ' LEFT JOIN "journals" j ON j."id" = b."journal_id"'
    )
    return [Breaker(*row) for row in execute(db, query).fetchall()]
