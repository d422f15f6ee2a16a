"""What makes a copy of store and journals whole: the journals applied, nothing lent any more."""

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


# What runs by itself in a database; no migration makes any.
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
    """Raise Refused when a store that came from elsewhere holds triggers, views, routines or
    events, which would run with the rights of every gateway and command that uses it."""
    text = _MYSQL_PROGRAMS if is_mysql(db) else _SQLITE_PROGRAMS
    rows = snapshot_read(db, lambda: execute(db, text).fetchall())
    if rows:
        names = ", ".join(f"{kind} {name!r}" for kind, name in rows[:SHOWN_PROGRAMS])
        raise Refused([f"the store of the backup holds {names}: no gateway makes these"])


def apply_journals(db: peewee.Database, folder: Path, node: str) -> int:
    """Book what journals in a folder hold and the store has not, and remove them; how many. Calls
    that were running become `gateway_lost`, as after a crash. Repeated, it goes on."""
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
    """Return the node of each process that has not ended in order, by the id of its journal."""
    query = JournalRow.select(JournalRow.id, JournalRow.node)
    return dict(select_rows(db, query.where(JournalRow.finished_ms.is_null())))


@in_transaction
def give_up(db: peewee.Database, journal_ids: Iterable[str], actor: str) -> None:
    """Take back what is lent to processes whose journals are not here. Were one of them to come
    back, its records would be booked all the same, without a lease."""
    for journal_id in sorted(journal_ids):
        leases.give_all_back(db, journal_id)
        breakers.forget(db, journal_id)
    audit.write(db, audit.Act(actor, "restore", "store", ""))


def faults(db: peewee.Database) -> list[str]:
    """Return the findings of `books verify` and `usage verify`, one sentence each."""
    differences = books.verify(db)
    differences += [f"{call_id}: {fault}" for call_id, fault in usage_queries.verify(db)]
    return differences + list(rollups.verify(db))
