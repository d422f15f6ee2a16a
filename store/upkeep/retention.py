"""The data that the upkeep creates ahead and removes, in batches that block no writer for long.

Ledger, wallets, audit log, keys and users are never touched. Removals can be repeated: a run that
was killed starts again.
"""

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import fn

from store.alerts.outbox import KEEP_MS, WAITING
from store.calls.rollups import DAILY, DAY_HOURS, complete_callers
from store.calls.stored_responses import forget_expired
from store.catalog import wrong_paths
from store.channels import breakers, probes, status_sums
from store.db import audit, partitions
from store.db.database import database_ms, first_row, select_rows, transaction
from store.db.tables.alerts import AlertMessage, AlertRule, AlertState
from store.db.tables.hub import Session
from store.db.tables.system import Mark
from store.db.tables.usage import JournalRow, UsageByChannel, UsageByKey, UsageByRate
from store.hub import drafts, invites
from store.hub.sessions import IDLE_MS, LIFETIME_MS
from store.money import leases
from store.values.ids import DAY_MS, day_at

PORTION_ROWS = 500

Pause = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Keep:
    """The number of days for which records, sums and journals are kept (0: forever)."""

    record_days: int = 0
    sum_days: int = 0
    journal_days: int = 0


def run(db: peewee.Database, keep: Keep, node: str, pause: Pause) -> dict[str, int]:
    """Create the partitions of the coming days and remove expired data. Return the removed numbers
    by kind. `pause` is called after each batch. Its exceptions end the run, as StoreError does."""
    removed: Counter[str] = Counter()
    at_ms = database_ms(db)
    partitions.keep_ahead(db)
    leases.forget_ended(db, at_ms)
    breakers.forget_old(db, at_ms)
    probes.forget_old(db, at_ms)
    status_sums.forget_empty(db)
    wrong_paths.forget_old(db, at_ms)
    drafts.forget_old(db, at_ms)
    invites.forget_old(db, at_ms)
    pause()
    if 0 < partitions.callers_since(db) <= day_at(at_ms):
        complete_callers(db, pause)
    while forget_expired(db, at_ms):
        pause()
    if keep.record_days:
        removed += _records(db, _day_before(at_ms, keep.record_days), node, pause)
    if keep.sum_days:
        # `usage verify` compares the records with the sums of their days, so those must stay.
        before = min(_day_before(at_ms, keep.sum_days), partitions.pruned_before(db))
        removed["sums"] += _sums(db, before, pause)
    if keep.journal_days:
        old = JournalRow.finished_ms < at_ms - keep.journal_days * DAY_MS
        removed["journals"] += _in_portions(db, JournalRow, JournalRow.id, old, pause)
    forget_alerts(db, at_ms)
    marks = Mark.delete().where(fn.ABS(Mark.at_ms) < at_ms - DAY_MS)
    transaction(db, functools.partial(marks.execute, db))
    over = (Session.seen_ms < at_ms - IDLE_MS) | (Session.created_ms < at_ms - LIFETIME_MS)
    removed["sessions"] += _in_portions(db, Session, Session.digest, over, pause)
    return {kind: count for kind, count in removed.items() if count}


def forget_alerts(db: peewee.Database, at_ms: int) -> None:
    """Remove messages older than KEEP_MS, and objects that have been quiet for that long or whose
    rule was removed."""
    before_ms = at_ms - KEEP_MS
    old = AlertMessage.delete().where(
        AlertMessage.made_ms < before_ms, AlertMessage.status != WAITING
    )
    quiet = AlertState.delete().where(
        AlertState.firing == False,  # noqa: E712 - SQL
        AlertState.fired_ms < before_ms,
    )
    removed = AlertState.delete().where(AlertState.rule_id.not_in(AlertRule.select(AlertRule.id)))
    for delete in (old, quiet, removed):
        transaction(db, functools.partial(delete.execute, db))


def _day_before(at_ms: int, days: int) -> int:
    return day_at(max(0, at_ms - days * DAY_MS))


def _records(db: peewee.Database, before: int, node: str, pause: Pause) -> Counter[str]:
    oldest = partitions.next_day(db, 0)
    if oldest is not None and oldest < before:
        text = f"{before // 10_000}-{before // 100 % 100:02d}-{before % 100:02d}"
        audit.write(db, audit.Act(f"upkeep:{node}"[:128], "prune", "usage", text))
    pruned = partitions.prune(db, before, pause)
    return Counter({"partitions": pruned.partitions, "records": pruned.records})


def _sums(db: peewee.Database, before: int, pause: Pause) -> int:
    """Remove sums hour by hour. An hour has a row for each combination of key, model and
    outcome."""
    removed = 0
    hourly: tuple[Any, ...] = (UsageByKey, UsageByChannel)
    for table in hourly:
        while (day := _first_day(db, table)) is not None and day < before:
            for hour in range(DAY_HOURS):
                delete = table.delete().where(table.day == day, table.hour == hour)
                removed += transaction(db, functools.partial(delete.execute, db))
            pause()
    daily: tuple[Any, ...] = (*(table for table, _ in DAILY), UsageByRate)
    for table in daily:
        while (day := _first_day(db, table)) is not None and day < before:
            of_day = table.delete().where(table.day == day)
            removed += transaction(db, functools.partial(of_day.execute, db))
            pause()
    return removed


def _first_day(db: peewee.Database, table: Any) -> int | None:
    row = first_row(db, table.select(fn.MIN(table.day)))
    return None if row is None else row[0]


def _in_portions(db: peewee.Database, table: Any, key: Any, where: Any, pause: Pause) -> int:
    removed = 0
    first_keys = table.select(key).where(where).order_by(key).limit(PORTION_ROWS)
    while keys := [row[0] for row in select_rows(db, first_keys)]:
        delete = table.delete().where(key.in_(keys), where)
        removed += transaction(db, functools.partial(delete.execute, db))
        pause()
    return removed
