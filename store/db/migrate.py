"""Brings the schema to the version of this code, safely when several do it at once.

SQLite: each migration is one transaction under the write lock. MySQL commits at every DDL
statement, so its statements can be run twice, and a lease row (GET_LOCK would hold on one node of
a cluster only) lets one runner at a time work; it is renewed while that runner lives.
What concerns all records is done day by day, on MySQL with a transaction for each, so that a run
that is killed leaves little to repeat. Raw SQL: its own tables have no models, the rest is DDL. For
commands; workers only ask `pending`.
"""

import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import peewee

from store.db.database import discard, execute, is_mysql, place, snapshot_read, transaction
from store.db.migrations import ALL
from store.db.migrations.ddl import COLLATION_MARK, Days, Migration
from store.values.errors import StoreError, StoreUnavailable
from store.values.ids import now_ms

# MariaDB's name, then MySQL's, of the collation that compares bytes and does not pad.
COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
LEASE_S = 20
LEASE_RENEW_S = 5
LEASE_WAIT_S = 600
LEASE_POLL_S = 0.2
NEWEST_DAYS = 2
"""Days gone through again by a run that follows a killed one: their records may have grown."""

Report = Callable[[str], None]

_HISTORY = """CREATE TABLE IF NOT EXISTS "schema_migrations" (
  "name" VARCHAR(128) NOT NULL PRIMARY KEY, "applied_ms" BIGINT NOT NULL)"""
_LEASE = """CREATE TABLE IF NOT EXISTS "schema_lease" (
  "name" VARCHAR(32) NOT NULL PRIMARY KEY, "owner" VARCHAR(32) NOT NULL,
  "until_s" BIGINT NOT NULL)"""
_LEASE_ROW = """INSERT IGNORE INTO "schema_lease" ("name", "owner", "until_s")
  VALUES ('migrate', '', 0)"""
# The server's clock decides, so that clocks of several machines need not agree.
_LEASE_TAKE = f"""UPDATE "schema_lease" SET "owner" = ?, "until_s" = UNIX_TIMESTAMP() + {LEASE_S}
  WHERE "name" = 'migrate' AND ("owner" = ? OR "until_s" < UNIX_TIMESTAMP())"""
_LEASE_DROP = """UPDATE "schema_lease" SET "owner" = '', "until_s" = 0
  WHERE "name" = 'migrate' AND "owner" = ?"""


@dataclass(frozen=True, slots=True)
class Step:
    """One migration and when it was applied; None: not yet."""

    name: str
    applied_ms: int | None


def status(db: peewee.Database) -> list[Step]:
    """Every migration of this code in order, with the time it was applied here."""
    applied = _applied(db)
    return [Step(migration.name, applied.get(migration.name)) for migration in ALL]


def pending(db: peewee.Database) -> list[str]:
    """Names of the migrations that are still to be run; empty: the schema is up to date."""
    return [step.name for step in status(db) if step.applied_ms is None]


def behind(db: peewee.Database) -> str:
    """What to tell the operator of a schema that is behind, with the cure; empty: it is not."""
    names = ", ".join(pending(db))
    told = f"the schema of {place(db)} is behind (pending: {names}); run: ./sluice migrate up"
    return told if names else ""


def plan(db: peewee.Database) -> list[str]:
    """The SQL that `up` would run now, in order."""
    missing = set(pending(db))
    collation = _collation(db)
    return [
        _fill(statement, collation)
        for migration in ALL
        if migration.name in missing
        for statement in _statements(db, migration)
    ]


def up(db: peewee.Database, report: Report = lambda _: None) -> list[str]:
    """Run what is pending; the names this call applied. Idempotent, safe in parallel.

    `report` is told what is done next, like "0002_usage_rollups: day 3 of 30".
    """
    if is_mysql(db):
        return _up_mysql(db, report)
    _run_one(db, _HISTORY)
    return [m.name for m in ALL if transaction(db, functools.partial(_up_sqlite, db, m, report))]


def _applied(db: peewee.Database) -> dict[str, int]:
    def read() -> dict[str, int]:
        if not db.table_exists("schema_migrations"):
            return {}
        rows = execute(db, 'SELECT "name", "applied_ms" FROM "schema_migrations"')
        return dict(rows.fetchall())

    return snapshot_read(db, read)


def _up_sqlite(db: peewee.Database, migration: Migration, report: Report) -> bool:
    if migration.name in _applied(db):
        return False
    for statement in _counted(migration, migration.sqlite, report):
        execute(db, statement)
    if migration.days:
        for day in _counted_days(migration, _days(db), report):
            _run_day(db, migration.days.sqlite, day)
    _note(db, migration)
    return True


def _up_mysql(db: peewee.Database, report: Report) -> list[str]:
    if not pending(db):
        return []
    for statement in (_HISTORY, _LEASE, _LEASE_ROW):
        _run_one(db, statement)
    done = []
    report("waiting for another run to end")
    with _leased(db) as lost:
        collation = _collation(db)
        for name in pending(db):
            migration = next(m for m in ALL if m.name == name)
            for statement in _counted(migration, migration.mysql, report):
                _require(lost)
                _run_one(db, _fill(statement, collation))
            if migration.days:
                days = _days_left(db, migration.days)
                for day in _counted_days(migration, days, report):
                    _require(lost)
                    work = functools.partial(_run_day, db, migration.days.mysql, day)
                    transaction(db, work)
            transaction(db, functools.partial(_note, db, migration))
            done.append(name)
    return done


def _require(lost: threading.Event) -> None:
    if lost.is_set():
        raise StoreUnavailable("the lease of this migration was lost; run it again")


def _counted(migration: Migration, statements: Sequence[str], report: Report) -> Iterator[str]:
    for number, statement in enumerate(statements, 1):
        report(f"{migration.name}: statement {number} of {len(statements)}")
        yield statement


def _counted_days(migration: Migration, days: Sequence[int], report: Report) -> Iterator[int]:
    for number, day in enumerate(days, 1):
        report(f"{migration.name}: day {number} of {len(days)}")
        yield day


def _days(db: peewee.Database) -> list[int]:
    """The UTC days that have usage records, oldest first."""
    query = 'SELECT "day" FROM "usage_records" WHERE "day" > ? ORDER BY "day" LIMIT 1'
    days: list[int] = []
    while row := execute(db, query, (days[-1] if days else 0,)).fetchone():
        days.append(int(row[0]))
    return days


def _days_left(db: peewee.Database, steps: Days) -> list[int]:
    def read() -> list[int]:
        days = _days(db)
        done = {day for day in days if execute(db, steps.done, (day,)).fetchone()}
        return [day for day in days if day not in done or day in days[-NEWEST_DAYS:]]

    return snapshot_read(db, read)


def _run_day(db: peewee.Database, statements: Sequence[str], day: int) -> None:
    for statement in statements:
        execute(db, statement, (day,) * statement.count("?"))


def _run_one(db: peewee.Database, statement: str) -> None:
    transaction(db, lambda: execute(db, statement))


def _note(db: peewee.Database, migration: Migration) -> None:
    insert = 'INSERT INTO "schema_migrations" ("name", "applied_ms") VALUES (?, ?)'
    execute(db, insert, (migration.name, now_ms()))


def _statements(db: peewee.Database, migration: Migration) -> list[str]:
    mysql = is_mysql(db)
    statements = list(migration.mysql if mysql else migration.sqlite)
    if migration.days and db.table_exists("usage_records"):
        for day in snapshot_read(db, lambda: _days(db)):
            steps = migration.days.mysql if mysql else migration.days.sqlite
            statements += [statement.replace("?", str(day)) for statement in steps]
    return statements


def _fill(statement: str, collation: str) -> str:
    return statement.replace(COLLATION_MARK, collation)


def _collation(db: peewee.Database) -> str:
    if not is_mysql(db):
        return ""
    names = "', '".join(COLLATIONS)
    show = f"SHOW COLLATION WHERE \"Collation\" IN ('{names}')"
    found = {row[0] for row in snapshot_read(db, lambda: execute(db, show).fetchall())}
    for name in COLLATIONS:
        if name in found:
            return name
    raise StoreError(
        f"{place(db)}: the database server has no binary collation without padding for utf8mb4"
    )


@contextlib.contextmanager
def _leased(db: peewee.Database) -> Iterator[threading.Event]:
    """Hold the migration lease; yields an event that is set when it was lost."""
    owner = secrets.token_hex(8)
    give_up_at = time.monotonic() + LEASE_WAIT_S
    while not _take(db, owner):
        if time.monotonic() > give_up_at:
            raise StoreUnavailable(f"{place(db)}: another migration has been running for too long")
        time.sleep(LEASE_POLL_S)
    stop, lost = threading.Event(), threading.Event()
    renewer = threading.Thread(target=_renew, args=(db, owner, stop, lost), daemon=True)
    renewer.start()
    try:
        yield lost
    finally:
        stop.set()
        renewer.join()
        transaction(db, lambda: execute(db, _LEASE_DROP, (owner,)))


def _take(db: peewee.Database, owner: str) -> bool:
    return transaction(db, lambda: bool(execute(db, _LEASE_TAKE, (owner, owner)).rowcount == 1))


def _renew(db: peewee.Database, owner: str, stop: threading.Event, lost: threading.Event) -> None:
    try:
        while not stop.wait(LEASE_RENEW_S):
            if not _take(db, owner):
                lost.set()
                return
    except StoreError:
        lost.set()
    finally:
        discard(db)
