"""Leases of the upkeep and of the alerts, and the results of their last runs, in a row for each, by
the database's clock. Also the last success of the jobs that operators start.

The first process that finds a run due takes the lease and renews it while it works. If that process
dies, the lease expires and another one takes over (ADR 0023).
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
from store.values.usage_record import rfc3339_or_none

INTERVAL_MS = 3_600_000
RETRY_MS = 300_000
"""The time to the next run after one that failed."""
LEASE_MS = 60_000
TROUBLE_CHARS = 1000

BACKUP, BOOKS_VERIFY = "backup", "books_verify"
"""Jobs that operators start."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that one process does for all: the name of its row, and the time to the next run after
    one that succeeded or failed."""

    name: str
    interval_ms: int
    retry_ms: int


UPKEEP = Job("upkeep", INTERVAL_MS, RETRY_MS)
ALERTS = Job("alerts", 15_000, 15_000)


@dataclass(frozen=True, slots=True)
class UpkeepState:
    """The last run and the next one. Times are in ms by the database's clock, None if there was
    none.

    `running`: a process of `node` is running it now. `removed`: what the last finished run removed,
    by kind. `trouble`: why it failed, empty if it did not.
    """

    running: bool
    node: str
    begun_ms: int | None
    ended_ms: int | None
    next_ms: int
    removed: Mapping[str, int]
    trouble: str


class Lost(Exception):
    """A lease that another process has taken over."""


@in_snapshot
def state(db: peewee.Database) -> UpkeepState | None:
    """Return the last run and the next one, or None if the row is missing. Raises
    StoreUnavailable."""
    row: UpkeepRow | None = UpkeepRow.select().where(_is(UPKEEP)).bind(db).first()
    if row is None:
        return None
    running = bool(row.owner) and row.until_ms >= database_ms(db)
    times = (row.begun_ms, row.ended_ms, row.next_ms)
    return UpkeepState(running, row.node, *times, row.removed or {}, row.trouble or "")


def to_public(upkeep: UpkeepState) -> dict[str, Any]:
    """Return the state as commands and interfaces show it."""
    times = (upkeep.begun_ms, upkeep.ended_ms, upkeep.next_ms)
    begun_at, ended_at, next_at = (rfc3339_or_none(at) for at in times)
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
    """Return when the last run of a job ended, in ms, or None if there was none."""
    row = first_row(db, UpkeepRow.select(UpkeepRow.ended_ms).where(_is(job)))
    return None if row is None else row[0]


@in_transaction
def take(db: peewee.Database, owner: str, node: str, job: Job = UPKEEP) -> bool:
    """Start a run if one is due and no other process is running it. Return whether this process got
    it."""
    at_ms = database_ms(db)
    # A time further in the future than any run is set came from a clock that has since gone back.
    due = (UpkeepRow.next_ms <= at_ms) | (UpkeepRow.next_ms > at_ms + job.interval_ms)
    values = {"owner": owner, "node": node, "until_ms": at_ms + LEASE_MS, "begun_ms": at_ms}
    update = UpkeepRow.update(values).where(_is(job), due, UpkeepRow.until_ms < at_ms)
    return bool(update.execute(db))


@in_transaction
def renew(db: peewee.Database, owner: str, job: Job = UPKEEP) -> None:
    """Renew the lease for another LEASE_MS. Raises Lost if another process has it."""
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
    """End a run, with what it removed or why it failed. Does nothing if another process has the
    lease."""
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
    """Leave an unfinished run to another process."""
    UpkeepRow.update(owner="", until_ms=0).where(_is(job), UpkeepRow.owner == owner).execute(db)


@in_transaction
def note_done(db: peewee.Database, job: str) -> None:
    """Note that BACKUP or BOOKS_VERIFY has just succeeded. Raises StoreUnavailable."""
    at_ms = database_ms(db)
    row = {"name": job, "owner": "", "node": "", "until_ms": 0, "ended_ms": at_ms, "next_ms": 0}
    insert_rows(db, UpkeepRow, [row], replace=("ended_ms",))


def last_done(db: peewee.Database) -> dict[str, int]:
    """Return the last success of each job that operators start, in ms by the database's clock,
    without jobs that never succeeded. Raises StoreUnavailable."""
    query = UpkeepRow.select(UpkeepRow.name, UpkeepRow.ended_ms).where(
        UpkeepRow.name << (BACKUP, BOOKS_VERIFY)
    )
    return dict(select_rows(db, query))
