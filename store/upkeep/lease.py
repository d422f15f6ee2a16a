"""Leases of the upkeep and of the alerts, and results of their last runs: a row each, by the
database's clock; and when the jobs that operators start last went well.

A run is due at a moment. Whoever is first then takes the lease and renews it while it works; when
its process dies, the lease runs out and another one takes over (ADR 0023).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import peewee

from store.db.database import (
    database_ms,
    first_row,
    in_snapshot,
    in_transaction,
    insert_rows,
    select_rows,
)
from store.db.tables.system import UpkeepRow
from store.values.usage_record import rfc3339

INTERVAL_MS = 3_600_000
RETRY_MS = 300_000
"""After a run that failed."""
LEASE_MS = 60_000
TROUBLE_CHARS = 1000

BACKUP, BOOKS_VERIFY = "backup", "books_verify"
"""Jobs that operators start."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of one process of all: the name of its row, and how long after a run, or one that
    failed, the next is due."""

    name: str
    interval_ms: int
    retry_ms: int


UPKEEP = Job("upkeep", INTERVAL_MS, RETRY_MS)
ALERTS = Job("alerts", 15_000, 15_000)


@dataclass(frozen=True, slots=True)
class UpkeepState:
    """The last run and the next one; times in ms by the database's clock, None: there was none.

    `running`: a process of `node` is at it. `removed`: what the last run that ended has removed, by
    kind. `trouble`: why it failed, empty when it did not.
    """

    running: bool
    node: str
    begun_ms: int | None
    ended_ms: int | None
    next_ms: int
    removed: Mapping[str, int]
    trouble: str


class Lost(Exception):
    """Another process has taken the lease over."""


@in_snapshot
def state(db: peewee.Database) -> UpkeepState | None:
    """Return the last run and the next one; None: the row is missing. Raises StoreUnavailable."""
    row: UpkeepRow | None = UpkeepRow.select().where(_is(UPKEEP)).bind(db).first()
    if row is None:
        return None
    running = bool(row.owner) and row.until_ms >= database_ms(db)
    times = (row.begun_ms, row.ended_ms, row.next_ms)
    return UpkeepState(running, row.node, *times, row.removed or {}, row.trouble or "")


def to_public(upkeep: UpkeepState) -> dict[str, Any]:
    """Return the state as commands and interfaces show it."""
    times = (upkeep.begun_ms, upkeep.ended_ms, upkeep.next_ms)
    begun_at, ended_at, next_at = (None if at is None else rfc3339(at) for at in times)
    return {
        "running": upkeep.running,
        "node": upkeep.node or None,
        "begun_at": begun_at,
        "ended_at": ended_at,
        "next_at": next_at,
        "removed": dict(upkeep.removed),
        "trouble": upkeep.trouble or None,
    }


def _is(job: Job) -> Any:
    return UpkeepRow.name == job.name


def last_end(db: peewee.Database, job: Job) -> int | None:
    """Return when the last run of a job ended, in ms; None: there was none."""
    row = first_row(db, UpkeepRow.select(UpkeepRow.ended_ms).where(_is(job)))
    return None if row is None else row[0]


@in_transaction
def take(db: peewee.Database, owner: str, node: str, job: Job = UPKEEP) -> bool:
    """Begin a run when one is due and nobody is at it; whether it is this process's now."""
    at_ms = database_ms(db)
    # A moment further away than any run is set was set by a clock that has gone back since.
    due = (UpkeepRow.next_ms <= at_ms) | (UpkeepRow.next_ms > at_ms + job.interval_ms)
    values = {"owner": owner, "node": node, "until_ms": at_ms + LEASE_MS, "begun_ms": at_ms}
    update = UpkeepRow.update(values).where(_is(job), due, UpkeepRow.until_ms < at_ms)
    return bool(update.execute(db))


@in_transaction
def renew(db: peewee.Database, owner: str, job: Job = UPKEEP) -> None:
    """Keep the lease for another LEASE_MS. Lost: it is another's."""
    update = UpkeepRow.update(until_ms=database_ms(db) + LEASE_MS)
    if not update.where(_is(job), UpkeepRow.owner == owner).execute(db):
        raise Lost


@in_transaction
def finish(
    db: peewee.Database,
    owner: str,
    removed: Mapping[str, int],
    trouble: str = "",
    job: Job = UPKEEP,
) -> None:
    """End a run: what it removed, or why it failed; nothing when the lease is another's."""
    at_ms = database_ms(db)
    values = {
        "owner": "",
        "until_ms": 0,
        "ended_ms": at_ms,
        "next_ms": at_ms + (job.retry_ms if trouble else job.interval_ms),
        "removed": dict(removed),
        "trouble": trouble[:TROUBLE_CHARS] or None,
    }
    UpkeepRow.update(values).where(_is(job), UpkeepRow.owner == owner).execute(db)


@in_transaction
def give_back(db: peewee.Database, owner: str, job: Job = UPKEEP) -> None:
    """Leave a run that has not ended to another process."""
    UpkeepRow.update(owner="", until_ms=0).where(_is(job), UpkeepRow.owner == owner).execute(db)


@in_transaction
def note_done(db: peewee.Database, job: str) -> None:
    """Note that BACKUP or BOOKS_VERIFY has just gone well. Raises StoreUnavailable."""
    at_ms = database_ms(db)
    row = {"name": job, "owner": "", "node": "", "until_ms": 0, "ended_ms": at_ms, "next_ms": 0}
    insert_rows(db, UpkeepRow, [row], replace=("ended_ms",))


def last_done(db: peewee.Database) -> dict[str, int]:
    """Return when each job that operators start last went well, in ms by the database's clock;
    jobs that never did are missing. Raises StoreUnavailable."""
    query = UpkeepRow.select(UpkeepRow.name, UpkeepRow.ended_ms).where(
        UpkeepRow.name << (BACKUP, BOOKS_VERIFY)
    )
    return dict(select_rows(db, query))
