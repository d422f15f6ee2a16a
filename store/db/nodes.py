"""The nodes of a store: when each was last seen, by the database's clock, and what its processes
report. For writers and for commands."""

from collections.abc import Sequence
from dataclasses import dataclass

import peewee
from peewee import fn

from store.db.database import database_ms, in_snapshot, in_transaction, insert_rows, select_rows
from store.db.tables.system import Node
from store.db.tables.usage import JournalRow
from store.values.ids import now_ms

NODE_ALIVE_MS = 60_000
"""A node silent for this long is away."""
SERVING_MS = 10_000
"""A node silent for this long does not serve: its share of limits goes to the others."""
DRAINING = "draining"
"""The state of a process that takes no new calls and is about to end."""
HANGING = "its loop stands still"
"""The state of a process whose threads still report."""
_TEXT_CHARS = 128


@dataclass(frozen=True, slots=True)
class Process:
    """The state that a process of a node reports. `version` includes the revision of its code
    (conf/version.py), so that two installations of a version differ. `not_ready` is why it takes no
    calls, "" if it does. `backlog_bytes` is the part of its journal that is not yet in the
    store."""

    version: str
    backlog_bytes: int
    not_ready: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as its processes reported it. `lead_ms`: how far the database's clock is ahead of the
    node's; None, as `versions` is empty, if no process runs. `unfinished`: one of its processes is
    running, or did not end properly."""

    name: str
    seen_ms: int
    alive: bool
    unfinished: bool
    versions: Sequence[str]
    lead_ms: int | None
    processes: int
    ready: int
    not_ready: Sequence[str]
    backlog_bytes: int


@in_transaction
def note_seen(
    db: peewee.Database, node: str, journal_id: str = "", process: Process | None = None
) -> None:
    """Note that a process of the node is alive, and what it reports."""
    at_ms = database_ms(db)
    insert_rows(db, Node, [{"name": node, "seen_ms": at_ms}], replace=["seen_ms"])
    if process is not None:
        JournalRow.update(
            seen_ms=at_ms,
            lead_ms=at_ms - now_ms(),
            version=process.version,
            backlog_bytes=process.backlog_bytes,
            not_ready=process.not_ready[:_TEXT_CHARS],
        ).where(JournalRow.id == journal_id).execute(db)


@in_snapshot
def states(db: peewee.Database) -> list[NodeState]:
    """Return every node that has ever served from the store, by name. Processes that ended properly
    do not count; the others' `backlog_bytes` are records to adopt. Raises StoreUnavailable."""
    alive_ms = database_ms(db) - NODE_ALIVE_MS
    query = JournalRow.select().where(JournalRow.finished_ms.is_null())
    rows: dict[str, list[JournalRow]] = {}
    for row in query.order_by(JournalRow.id).bind(db):
        rows.setdefault(row.node, []).append(row)
    seen = sorted(last_seen(db).items())
    return [_state(name, at_ms, alive_ms, rows.get(name, [])) for name, at_ms in seen]


def _state(name: str, seen_ms: int, alive_ms: int, rows: Sequence[JournalRow]) -> NodeState:
    running = [row for row in rows if row.seen_ms is not None and row.seen_ms >= alive_ms]
    leads = [int(row.lead_ms or 0) for row in running]
    return NodeState(
        name=name,
        seen_ms=seen_ms,
        alive=seen_ms >= alive_ms,
        unfinished=bool(rows),
        versions=sorted({row.version or "" for row in running}),
        lead_ms=max(leads, key=abs, default=None),
        processes=len(running),
        ready=sum(not row.not_ready for row in running),
        not_ready=sorted({row.not_ready for row in running if row.not_ready}),
        backlog_bytes=sum(row.backlog_bytes or 0 for row in rows),
    )


def serving(db: peewee.Database) -> int:
    """Return the number of nodes with a process that takes calls, by the database's clock. Raises
    StoreUnavailable."""
    since_ms = database_ms(db) - SERVING_MS
    query = JournalRow.select(JournalRow.node).distinct()
    alive = JournalRow.finished_ms.is_null() & (JournalRow.seen_ms >= since_ms)
    return len(select_rows(db, query.where(alive & (JournalRow.not_ready != DRAINING))))


def hanging(db: peewee.Database) -> list[tuple[str, int]]:
    """Return the nodes with processes that hang, by name, with the number of these processes: their
    loop stands still, or they are silent and no other process has finished their work yet. Nodes
    that are away are excluded. Raises StoreUnavailable."""
    at_ms, seen_ms = database_ms(db), JournalRow.seen_ms
    silent = (seen_ms < at_ms - SERVING_MS) | (JournalRow.not_ready == HANGING)
    hang = JournalRow.finished_ms.is_null() & (seen_ms >= at_ms - NODE_ALIVE_MS) & silent
    query = JournalRow.select(JournalRow.node, fn.COUNT(JournalRow.id)).where(hang)
    return select_rows(db, query.group_by(JournalRow.node).order_by(JournalRow.node))


def last_seen(db: peewee.Database) -> dict[str, int]:
    """Return when each node was last seen, in ms by name, in the caller's transaction."""
    return dict(select_rows(db, Node.select(Node.name, Node.seen_ms)))
