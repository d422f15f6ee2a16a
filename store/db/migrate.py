"""Upgrading the schema to the version of this code, safe when several processes do it at once.

SQLite: each step is one transaction under the write lock. MySQL commits at every DDL statement, so
its statements can be run twice. A lease row lets one runner at a time work and is renewed while
that runner lives (GET_LOCK would hold on only one node of a cluster). Raw SQL, since its own tables
have no models and the rest is DDL. For commands; workers only call `pending`.
"""

import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import peewee

from store.db import schema
from store.db.database import discard, execute, is_mysql, place, snapshot_read, transaction
from store.db.migrations import ALL, BRIDGE_VERSION, FIRST, FORERUNNERS, Migration
from store.values.errors import StoreError, StoreUnavailable
from store.values.ids import now_ms

LEASE_S = 20
LEASE_RENEW_S = 5
LEASE_WAIT_S = 600
LEASE_POLL_S = 0.2
SHOWN_DIFFERENCES = 3

Report = Callable[[str], None]

_HISTORY = """CREATE TABLE IF NOT EXISTS "schema_migrations" (
  "name" VARCHAR(128) NOT NULL PRIMARY KEY, "applied_ms" BIGINT NOT NULL)"""
_LEASE = """CREATE TABLE IF NOT EXISTS "schema_lease" (
  "name" VARCHAR(32) NOT NULL PRIMARY KEY, "owner" VARCHAR(32) NOT NULL,
  "until_s" BIGINT NOT NULL)"""
_LEASE_ROW = """INSERT IGNORE INTO "schema_lease" ("name", "owner", "until_s")
  VALUES ('migrate', '', 0)"""
# The server's clock decides, so the clocks of several machines need not agree.
_LEASE_TAKE = f"""UPDATE "schema_lease" SET "owner" = ?, "until_s" = UNIX_TIMESTAMP() + {LEASE_S}
  WHERE "name" = 'migrate' AND ("owner" = ? OR "until_s" < UNIX_TIMESTAMP())"""
_LEASE_DROP = """UPDATE "schema_lease" SET "owner" = '', "until_s" = 0
  WHERE "name" = 'migrate' AND "owner" = ?"""


@dataclass(frozen=True, slots=True)
class AppliedStep:
    """A step and when it was applied (None: not yet)."""

    name: str
    applied_ms: int | None


class SchemaTooOld(StoreError):
    """A schema of a version that this code cannot upgrade."""


def status(db: peewee.Database) -> list[AppliedStep]:
    """Return every step of this code in order. Raises SchemaTooOld, as all functions below do."""
    applied = _applied(db)
    return [AppliedStep(migration.name, applied.get(migration.name)) for migration in ALL]


def is_new(db: peewee.Database) -> bool:
    """Return whether no version has created a schema here."""
    return not _applied(db)


def pending(db: peewee.Database) -> list[str]:
    """Return the names of the pending steps, empty if the schema is up to date."""
    return [step.name for step in status(db) if step.applied_ms is None]


def behind(db: peewee.Database) -> str:
    """Return a message for the operator if the schema is behind, with the remedy, or an empty text.
    Raises StoreUnavailable, never SchemaTooOld."""
    try:
        names = ", ".join(pending(db))
    except SchemaTooOld as error:
        return str(error)
    text = f"the schema of {place(db)} is behind (pending: {names}); run: ./sluice migrate up"
    return text if names else ""


def plan(db: peewee.Database) -> list[str]:
    """Return the SQL that `up` would run now, in order."""
    applied = set(_applied(db))
    return [text for migration in _missing(applied) for text in _statements(db, migration, applied)]


def up(db: peewee.Database, report: Report = lambda _: None) -> list[str]:
    """Run the pending steps. Return the names of those that this call applied. Idempotent, safe in
    parallel.

    A store with the schema of the previous version is compared with the models and then accepted.
    `report` is called with the next action, like "0001_schema: statement 3 of 40". Raises
    StoreError if the schema is not the one that its version created.
    """
    if is_mysql(db):
        return _up_mysql(db, report)
    _run_one(db, _HISTORY)
    done: list[str] = []
    while names := transaction(db, functools.partial(_next_sqlite, db, report)):
        done += names
    return done


def _applied(db: peewee.Database) -> dict[str, int]:
    def read() -> dict[str, int]:
        if not db.table_exists("schema_migrations"):
            return {}
        rows = execute(db, 'SELECT "name", "applied_ms" FROM "schema_migrations"')
        return dict(rows.fetchall())

    applied = snapshot_read(db, read)
    if applied and FIRST.name not in applied and not applied.keys() >= set(FORERUNNERS):
        raise SchemaTooOld(
            f"{place(db)} has schema {len(applied)}, too old for this version: upgrade to"
            f" {BRIDGE_VERSION} first and run its ./sluice migrate up"
        )
    return applied


def _missing(applied: Iterable[str]) -> list[Migration]:
    return [migration for migration in ALL if migration.name not in applied] if applied else [FIRST]


def _next_sqlite(db: peewee.Database, report: Report) -> list[str]:
    """Apply the next step. Return its name, along with those of steps that a new store does not
    need."""
    applied = set(_applied(db))
    for migration in _missing(applied)[:1]:
        for statement in _counted(db, migration, applied, report):
            execute(db, statement)
        return _note(db, migration, applied)
    return []


def _up_mysql(db: peewee.Database, report: Report) -> list[str]:
    if not pending(db):
        return []
    for statement in (_HISTORY, _LEASE, _LEASE_ROW):
        _run_one(db, statement)
    done: list[str] = []
    report("waiting for another run to end")
    with _leased(db) as lost:
        while missing := _missing(applied := set(_applied(db))):
            for statement in _counted(db, missing[0], applied, report):
                if lost.is_set():
                    raise StoreUnavailable("the lease of this migration was lost; run it again")
                _run_one(db, statement)
            done += transaction(db, functools.partial(_note, db, missing[0], applied))
    return done


def _counted(
    db: peewee.Database, migration: Migration, applied: Collection[str], report: Report
) -> Iterator[str]:
    statements = _statements(db, migration, applied)
    for number, statement in enumerate(statements, 1):
        report(f"{migration.name}: statement {number} of {len(statements)}")
        yield statement


def _statements(
    db: peewee.Database, migration: Migration, applied: Collection[str]
) -> Sequence[str]:
    """Return the statements of a step here: none for FIRST if the previous version has created the
    schema."""
    if migration is not FIRST or not applied:
        return migration.statements(db)
    later: dict[str, tuple[str, ...]] = {}
    for step in ALL:
        for table, columns in step.added.items():
            later[table] = (*later.get(table, ()), *columns)
    if faults := schema.differences(db, later):
        raise StoreError(
            f"{place(db)} does not have the schema of {BRIDGE_VERSION}, so nothing was changed:"
            f" {'; '.join(faults[:SHOWN_DIFFERENCES])}"
        )
    return []


def _note(db: peewee.Database, migration: Migration, applied: Collection[str]) -> list[str]:
    """Note a step as applied. On a new store, note all of them, since FIRST has created the newest
    schema."""
    names = [step.name for step in ALL] if migration is FIRST and not applied else [migration.name]
    insert = 'INSERT INTO "schema_migrations" ("name", "applied_ms") VALUES (?, ?)'
    for name in names:
        execute(db, insert, (name, now_ms()))
    return names


def _run_one(db: peewee.Database, statement: str) -> None:
    transaction(db, lambda: execute(db, statement))


@contextlib.contextmanager
def _leased(db: peewee.Database) -> Iterator[threading.Event]:
    """Hold the migration lease. Yields an event that is set when the lease is lost."""
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
