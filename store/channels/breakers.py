"""The open circuits of running workers, for display by other processes.

Each worker has circuit breakers of its own, in memory. Its writer stores the open ones here, so
that commands and the Hub can explain why a channel gets no calls. Workers do not read them back.
The rows of a process are removed with its journal: when it ends, or when the journal is adopted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import peewee
from peewee import JOIN, fn

from store.db.database import insert_rows, select_rows, transaction
from store.db.tables.channels import ChannelBreaker as Row
from store.db.tables.usage import JournalRow

ROWS_MAX = 200
"""The most rows that a process writes at a time, which is once a second."""

KEPT_MS = 3_600_000
"""The time for which a row remains after its cool-down if neither its process nor its node came
back."""

Name = tuple[str, str, str]
"""Channel id, model (empty: all models), fingerprint of the upstream key (empty if there is
none)."""

Open = tuple[str, int, int]
"""Reason, and when it opened and its cool-down ends (ms). Times are by the worker's monotonic
clock, so that changes of its wall clock do not move them; in the row they are by the database's
clock."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """An open circuit of a process. `fingerprint` is that of the upstream key, "" if there is
    none."""

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
    """Write the changes since `shown`, at most ROWS_MAX rows, and update it. `offset_ms`: the
    database's clock minus that of `now`."""
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
    """Remove the rows of a process that has ended, in the caller's transaction."""
    Row.delete().where(Row.journal_id == journal_id).execute(db)


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove circuits that ended more than KEPT_MS ago, whose process must be dead."""
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
