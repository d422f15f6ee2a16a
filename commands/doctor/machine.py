"""Checks of this machine: secrets, disks, descriptors, the journal, limits, the store."""

import importlib
import os
import re
import resource
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peewee

from commands.doctor.findings import Finding, failed, ok, skipped, warning
from commands.ops_port import ask_status
from commands.process.node import holder_of, parked_in
from conf import secrets
from conf.configuration import ConfigError, Loaded
from conf.store_url import SQLITE
from store.db import cluster, migrate
from store.db.database import database_ms, discard, is_mysql, open_database, place
from store.values.errors import Refused, StoreError

MIB = 1024 * 1024
DISK_FAILED_BYTES = 256 * MIB
DISK_WARNED_BYTES = 2048 * MIB
FILES_FAILED = 1024
FILES_WARNED = 8192
FILES_OF_STREAM = 3  # the client, its upstream, and a kept connection
BACKLOG_WARNED_BYTES = 64 * MIB
READ_TIMEOUT_S = 5.0
CLOCK_FAILED_MS = 2000
FLOW_CONTROL_WARNED = 0.1
LEAST_REDIS = 7
TRIES = 3
"""Readings of the clock; the fastest one counts."""

_OPEN_FILES = re.compile(r"^Max open files\s+(\S+)\s+(\S+)", re.MULTILINE)


def look(loaded: Loaded) -> list[Finding]:
    """Check this machine."""
    journal = Path(loaded.settings.journal.dir)
    findings = [*_secrets(loaded), *_space("disk", "journal.dir", journal)]
    url = loaded.settings.store.url
    if url.startswith(SQLITE):
        folder = Path(url.removeprefix(SQLITE)).parent
        if _existing(folder).stat().st_dev != _existing(journal).stat().st_dev:
            findings += _space("disk", "the folder of store.url", folder)
    return [*findings, _open_files(journal), *_limits(loaded), *_running(loaded)]


def _secrets(loaded: Loaded) -> list[Finding]:
    try:
        secrets.of(loaded)
    except ConfigError as error:
        return [failed("secrets", fault, "as it says") for fault in error.faults]
    findings = [_rights("secrets", loaded.secrets_path)]
    for kind in secrets.read(loaded.secrets_path).upcoming:
        message = f"the rotation of {kind} is not finished: the new secret is not in use yet"
        remedy = f"continue it: ./sluice secrets rotate {kind}"
        findings.append(warning("secrets", message, remedy))
    if loaded.path is not None and "@" in loaded.settings.store.url:
        findings.append(_rights("secrets", loaded.path))
    return findings


def _rights(check: str, path: Path) -> Finding:
    """Check that no other user may read a file that contains secrets."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        remedy = f"chmod 600 {path}"
        return warning(check, f"{path} contains secrets and others may read it ({mode:o})", remedy)
    return ok(check, f"{path} is readable by its owner only")


def _space(check: str, what: str, folder: Path) -> list[Finding]:
    existing = _existing(folder)
    free = shutil.disk_usage(existing).free
    message = f"{what} {folder}: {free // MIB} MiB free"
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = f"give it to the user that runs the gateway: chown USER {existing}"
        return [failed(check, f"{what} {existing} is not writable for this user", remedy)]
    if free < DISK_FAILED_BYTES:
        return [failed(check, message, "free space: calls fail when the journal cannot grow")]
    if free < DISK_WARNED_BYTES:
        remedy = "free space (./sluice usage prune --older-than 90d) or add a disk"
        return [warning(check, message, remedy)]
    return [ok(check, message)]


def _existing(folder: Path) -> Path:
    """Return a folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _open_files(journal: Path) -> Finding:
    """Check the limit of the running gateway, else of this shell, from which it would be
    started."""
    limit, whose = _limit_of_gateway(journal)
    if limit is None:
        limit, whose = resource.getrlimit(resource.RLIMIT_NOFILE)[1], "this shell's"
    if limit == resource.RLIM_INFINITY:
        return ok("open files", f"{whose} limit: none")
    message = f"{whose} limit is {limit}, enough for {limit // FILES_OF_STREAM} streams per process"
    remedy = "raise it: LimitNOFILE=65536 in the unit, or ulimit -n 65536"
    if limit < FILES_FAILED:
        return failed("open files", message, remedy)
    if limit < FILES_WARNED:
        return warning("open files", message, remedy)
    return ok("open files", message)


def _limit_of_gateway(journal: Path) -> tuple[int | None, str]:
    """Return the limit of the process that holds the journal folder; None if there is none."""
    pid = holder_of(journal)
    try:
        findings = _OPEN_FILES.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
        return (int(findings[1]), f"process {pid}'s") if findings else (None, "")
    except OSError:  # there is no process, or it has just ended
        return None, ""


def _limits(loaded: Loaded) -> list[Finding]:
    """Check the server that counts limits for all nodes, if there is one."""
    if not loaded.settings.limits.url:
        return []
    remote: Any = importlib.import_module("handlers.relay.limits.remote")
    try:
        version = remote.server_version(loaded.settings.limits.url)
    except (OSError, ValueError, KeyError, remote.RedisError) as error:
        remedy = "start it, or correct limits.url; until then limits.fallback applies"
        return [failed("limits", f"limits.url does not answer: {error}", remedy)]
    if int(version.partition(".")[0]) < LEAST_REDIS:
        remedy = f"use Redis {LEAST_REDIS} or newer, or Valkey"
        return [failed("limits", f"limits.url is Redis {version}", remedy)]
    return [ok("limits", f"limits.url answers, Redis {version}")]


def _running(loaded: Loaded) -> list[Finding]:
    journal = Path(loaded.settings.journal.dir)
    findings = []
    if parked := parked_in(journal):
        message = f"{parked} damaged lines or refused records are parked"
        listing = f"{journal}/parked.ndjson"
        remedy = f"{listing} lists them with the reason; move it away when that is settled"
        findings.append(warning("journal", message, remedy))
    try:
        status = ask_status(loaded)
    except Refused as error:
        problem = error.faults[0].partition(";")[0]
        return [*findings, skipped("gateway", problem, "start it: ./sluice serve")]
    backlog = status["journal_backlog_bytes"]
    message = f"{backlog} bytes are not booked yet"
    remedy = "check the store: ./sluice status, and the log for `writer`"
    late = backlog > BACKLOG_WARNED_BYTES
    findings.append(failed("journal", message, remedy) if late else ok("journal", message))
    if not status["ready"]:
        remedy = "see the gateway's log"
        return [*findings, failed("gateway", f"not ready: {status['reason']}", remedy)]
    return [*findings, ok("gateway", f"ready, {len(status['workers'])} workers")]


@contextmanager
def open_store(loaded: Loaded, findings: list[Finding]) -> Iterator[peewee.Database | None]:
    """Open the store and add findings about it. Yield None if it is unusable."""
    url = loaded.settings.store.url
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).is_file():
        message = f"{url.removeprefix(SQLITE)} (store.url) does not exist"
        findings.append(failed("store", message, f"create it: ./sluice init {loaded.config_dir}"))
        yield None
        return
    db = open_database(url, read_timeout_s=READ_TIMEOUT_S)
    try:
        usable = _check_store(db, findings)
        yield db if usable else None
    finally:
        discard(db)


def _check_store(db: peewee.Database, findings: list[Finding]) -> bool:
    try:
        findings.append(_clock(db))
        pending = migrate.pending(db)
    except migrate.SchemaTooOld as error:
        findings.append(failed("store", str(error), "see docs/operations.md, upgrade"))
        return False
    except StoreError as error:
        remedy = "start the database, or correct store.url (host, user, password, name)"
        findings.append(failed("store", str(error), remedy))
        return False
    if pending:
        message = f"{place(db)}: pending migrations: {', '.join(pending)}"
        findings.append(failed("store", message, "run: ./sluice migrate up"))
        return False
    findings.append(ok("store", f"{place(db)} answers, its schema is up to date"))
    findings += _hosts(db)
    return True


def _hosts(db: peewee.Database) -> list[Finding]:
    """Check the hosts of a cluster. Returns no findings for a single server."""
    states, writing = cluster.states(db), cluster.writing_host(db)
    if len(states) < 2 and not any(state.size for state in states):
        return []
    findings = []
    for state in states:
        message = f"{state.name}{' (written to)' if state.name == writing else ''}"
        if not state.serves:
            problem = state.error or ("read-only" if state.primary else "without a majority")
            remedy = "start it, or see why it cannot reach the others: docs/operations.md, Galera"
            findings.append(warning("store hosts", f"{message}: {problem}", remedy))
            continue
        message += f": primary, {state.size or 1} in the cluster"
        if (state.paused or 0) > FLOW_CONTROL_WARNED:
            message += f", flow control stopped writes {state.paused:.0%} of the time"
            remedy = "one of the hosts cannot keep up: check its disk and load"
            findings.append(warning("store hosts", message, remedy))
        else:
            findings.append(ok("store hosts", message))
    if len(states) > 1 and writing not in {state.name for state in states}:
        message = f'the writing host "{writing}" is not in store.url'
        remedy = "use the same host names on all nodes, or run: ./sluice store writer HOST"
        findings.append(warning("store hosts", message, remedy))
    return findings


def _clock(db: peewee.Database) -> Finding:
    """Compare this machine's clock with the database's."""
    if not is_mysql(db):
        database_ms(db)
        return ok("clock", "SQLite uses this machine's clock")
    lead = min((_lead(db) for _ in range(TRIES)), key=lambda measured: measured[0])[1]
    message = f"this machine's clock is {abs(lead)} ms {'behind' if lead > 0 else 'ahead of'}"
    message += " the database's"
    if abs(lead) > CLOCK_FAILED_MS:
        remedy = "synchronise both with NTP: ids, days and windows use the node's clock"
        return failed("clock", message, remedy)
    return ok("clock", message)


def _lead(db: peewee.Database) -> tuple[float, int]:
    """Return the seconds that the database took, and the ms by which its clock is ahead of ours."""
    begun_s, begun_ns = time.monotonic(), time.time_ns()
    theirs_ms = database_ms(db)
    took_s = time.monotonic() - begun_s
    return took_s, round(theirs_ms - begun_ns / 1e6 - took_s * 500)
