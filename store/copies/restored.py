"""Completion of a copy of store and journals: the journals are applied, and all leases end."""

from collections.abc import Iterable
from pathlib import Path

import peewee

from store.calls import rollups, usage_queries
from store.calls.adoption import find_orphans
from store.calls.source import JournalSource
from store.channels import breakers
from store.db import audit
from store.db.database import execute, in_transaction, is_mysql, select_rows, snapshot_read
from store.db.tables.usage import JournalRow
from store.money import books, leases
from store.values.errors import Refused

SHOWN_PROGRAMS = 5


# Programs inside a database. No migration creates any.
_SQLITE_PROGRAMS = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
_MYSQL_PROGRAMS = """
SELECT 'trigger', trigger_name FROM information_schema.triggers WHERE trigger_schema = DATABASE()
UNION ALL
SELECT 'view', table_name FROM information_schema.views WHERE table_schema = DATABASE()
UNION ALL
SELECT 'routine', routine_name FROM information_schema.routines WHERE routine_schema = DATABASE()
UNION ALL
SELECT 'event', event_name FROM information_schema.events WHERE event_schema = DATABASE()
"""


def refuse_programs(db: peewee.Database) -> None:
    """Raise Refused if a store from elsewhere contains triggers, views, routines or events. They
    would run with the rights of every gateway and command that uses it."""
    text = _MYSQL_PROGRAMS if is_mysql(db) else _SQLITE_PROGRAMS
    rows = snapshot_read(db, lambda: execute(db, text).fetchall())
    if rows:
        names = ", ".join(f"{kind} {name!r}" for kind, name in rows[:SHOWN_PROGRAMS])
        raise Refused([f"the store of the backup holds {names}: no gateway makes these"])


def apply_journals(db: peewee.Database, folder: Path, node: str) -> int:
    """Book what the journals in a folder have and the store has not, and remove them. Return how
    many. Calls that were running become `gateway_lost`, as after a crash. Can be repeated after a
    failure."""
    count = 0
    for orphan in find_orphans(folder, ()):
        source = JournalSource(db, orphan.reader, node, lambda *_: None)
        end = 0
        if source.resolve():
            end = orphan.close_open_calls(source.position, node)
            source.park_damaged(orphan.damaged)
        while source.apply(end):
            pass
        source.finish()
        orphan.remove()
        count += 1
    return count


def unfinished(db: peewee.Database) -> dict[str, str]:
    """Return the node of each process that has not ended properly, by the id of its journal."""
    query = JournalRow.select(JournalRow.id, JournalRow.node)
    return dict(select_rows(db, query.where(JournalRow.finished_ms.is_null())))


@in_transaction
def give_up(db: peewee.Database, journal_ids: Iterable[str], actor: str) -> None:
    """Take back the leases of processes whose journals are not here. If such a journal appears
    after all, its records are still booked, without a lease."""
    for journal_id in sorted(journal_ids):
        leases.give_all_back(db, journal_id)
        breakers.forget(db, journal_id)
    audit.write(db, audit.Act(actor, "restore", "store", ""))


def faults(db: peewee.Database) -> list[str]:
    """Return the findings of `books verify` and `usage verify`, one sentence each."""
    differences = books.verify(db)
    differences += [f"{call_id}: {fault}" for call_id, fault in usage_queries.verify(db)]
    return differences + list(rollups.verify(db))
