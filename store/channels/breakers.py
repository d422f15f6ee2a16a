"""The open circuits of running workers, for others to see.

Each worker has circuit breakers of its own, in memory; its writer stores the open ones here, so
that commands and the Hub can explain why a channel gets no calls. Workers read nothing back. The
rows of a process are removed with its journal: when it ends, or when the journal is adopted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import peewee
from peewee import JOIN, fn

from store.db.database import insert_rows, select_rows, transaction
from store.db.tables.channels import ChannelBreaker as Row
from store.db.tables.usage import JournalRow

ROWS_MAX = 200
"""Rows that one process writes at a time, which is once a second."""

KEPT_MS = 3_600_000
"""How long after its cool-down a row stays when neither its process nor its node came back."""

Name = tuple[str, str, str]
"""Channel id, model (empty: all models), fingerprint of the upstream key (empty: it has none)."""

Open = tuple[str, int, int]
"""Reason, when it opened and when its cool-down ends (ms): by the monotonic clock of the worker, so
that neither moves with a wall clock; in the row by the database's."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """One open circuit of one process. `fingerprint`: of the upstream key, "" without one."""

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
    """Write what has changed since `shown`, at most ROWS_MAX rows, and note it there. `offset_ms`:
    the database's clock less that of `now`."""
    removed = [name for name in shown if name not in now][:ROWS_MAX]
    room = ROWS_MAX - len(removed)
    new = [(name, row) for name, row in now.items() if shown.get(name) != row][:room]
    if not (removed or new):
        return

    rows = [
        {
            **dict(zip(("channel_id", "model", "fingerprint"), name, strict=True)),
            "journal_id": journal_id,
            "reason": reason,
            "since_ms": since_ms + offset_ms,
            "until_ms": until_ms + offset_ms,
        }
        for name, (reason, since_ms, until_ms) in sorted(new)
    ]

    def work() -> None:
        own = Row.journal_id == journal_id
        for channel_id, model, fingerprint in sorted(removed):
            pair = (Row.channel_id == channel_id) & (Row.model == model)
            Row.delete().where(own & pair & (Row.fingerprint == fingerprint)).execute(db)
        insert_rows(db, Row, rows, replace=("reason", "since_ms", "until_ms"))

    transaction(db, work)
    for name in removed:
        del shown[name]
    shown.update(new)


def forget(db: peewee.Database, journal_id: str) -> None:
    """Remove the rows of a process that is gone, in the caller's transaction."""
    Row.delete().where(Row.journal_id == journal_id).execute(db)


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove what ended so long ago that its process is dead."""
    delete = Row.delete().where(Row.until_ms < at_ms - KEPT_MS)
    transaction(db, lambda: delete.execute(db))


def all_open(db: peewee.Database) -> list[Breaker]:
    """Return the open circuits of all processes, in the caller's transaction."""
    node = fn.COALESCE(JournalRow.node, "")
    query = Row.select(
        *(node, Row.journal_id, Row.channel_id, Row.model, Row.fingerprint),
        *(Row.reason, Row.since_ms, Row.until_ms),
    ).join(JournalRow, JOIN.LEFT_OUTER, on=(JournalRow.id == Row.journal_id))
    return [Breaker(*row) for row in select_rows(db, query)]
