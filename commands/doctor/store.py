"""What `doctor` asks of the store: whether it answers, its schema, its clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import peewee

from commands.doctor.findings import Finding, failed, ok
from conf.configuration import Loaded
from conf.store_url import SQLITE
from store.db import migrate
from store.db.database import database_ms, discard, is_mysql, open_database, place
from store.values.errors import StoreError

READ_TIMEOUT_S = 5.0
CLOCK_FAILED_MS = 2000
TRIES = 3
"""Of the clock: the one that took least time is right."""


@contextmanager
def opened(loaded: Loaded, findings: list[Finding]) -> Iterator[peewee.Database | None]:
    """The store with what was found about it; None when nothing can be asked of it."""
    url = loaded.settings.store.url
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).is_file():
        told = f"{url.removeprefix(SQLITE)} (store.url) does not exist"
        findings.append(failed("store", told, f"make it: ./sluice init {loaded.config_dir}"))
        yield None
        return
    db = open_database(url, read_timeout_s=READ_TIMEOUT_S)
    try:
        usable = _look(db, findings)
        yield db if usable else None
    finally:
        discard(db)


def _look(db: peewee.Database, findings: list[Finding]) -> bool:
    try:
        findings.append(_clock(db))
        pending = migrate.pending(db)
    except migrate.SchemaTooOld as error:
        findings.append(failed("store", str(error), "see docs/operations.md, upgrade"))
        return False
    except StoreError as error:
        cure = "start the database, or correct store.url (host, user, password, name)"
        findings.append(failed("store", str(error), cure))
        return False
    if pending:
        told = f"{place(db)}: pending migrations: {', '.join(pending)}"
        findings.append(failed("store", told, "run: ./sluice migrate up"))
        return False
    findings.append(ok("store", f"{place(db)} answers, its schema is up to date"))
    return True


def _clock(db: peewee.Database) -> Finding:
    """How far this machine's clock is from the database's."""
    if not is_mysql(db):
        database_ms(db)
        return ok("clock", "SQLite has this machine's clock")
    lead = min((_lead(db) for _ in range(TRIES)), key=lambda one: one[0])[1]
    told = f"this machine's clock is {abs(lead)} ms {'behind' if lead > 0 else 'ahead of'}"
    told += " the database's"
    if abs(lead) > CLOCK_FAILED_MS:
        cure = "synchronise both by NTP: ids, days and windows go by the node's clock"
        return failed("clock", told, cure)
    return ok("clock", told)


def _lead(db: peewee.Database) -> tuple[float, int]:
    """How long the database took to tell its time, and how far that is ahead of ours."""
    begun_s, begun_ns = time.monotonic(), time.time_ns()
    theirs_ms = database_ms(db)
    took_s = time.monotonic() - begun_s
    return took_s, round(theirs_ms - begun_ns / 1e6 - took_s * 500)
