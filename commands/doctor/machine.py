"""What `doctor` looks at on this machine: secrets, disks, descriptors, the journal."""

import os
import re
import resource
import shutil
import stat
from pathlib import Path

from commands.doctor.findings import Finding, failed, ok, skipped, warning
from commands.ops_port import ask_status
from commands.process.node import holder_of, parked_in
from conf import secrets
from conf.configuration import ConfigError, Loaded
from conf.store_url import SQLITE
from store.values.errors import Refused

MIB = 1024 * 1024
DISK_FAILED_BYTES = 256 * MIB
DISK_WARNED_BYTES = 2048 * MIB
FILES_FAILED = 1024
FILES_WARNED = 8192
FILES_OF_STREAM = 3  # a client, its upstream, and one that is kept
BACKLOG_WARNED_BYTES = 64 * MIB

_OPEN_FILES = re.compile(r"^Max open files\s+(\S+)\s+(\S+)", re.MULTILINE)


def look(loaded: Loaded) -> list[Finding]:
    """All of this machine."""
    journal = Path(loaded.settings.journal.dir)
    found = [*_secrets(loaded), *_space("disk", "journal.dir", journal)]
    url = loaded.settings.store.url
    if url.startswith(SQLITE):
        folder = Path(url.removeprefix(SQLITE)).parent
        if _device(folder) != _device(journal):
            found += _space("disk", "the folder of store.url", folder)
    return [*found, _open_files(journal), *_running(loaded)]


# ---- secrets -------------------------------------------------------------------------------------


def _secrets(loaded: Loaded) -> list[Finding]:
    try:
        secrets.of(loaded)
    except ConfigError as error:
        return [failed("secrets", fault, "as it says") for fault in error.faults]
    found = [_rights("secrets", loaded.secrets_path)]
    for kind in secrets.read(loaded.secrets_path).upcoming:
        told = f"the rotation of {kind} is on its way: the new one is not used yet"
        found.append(warning("secrets", told, f"go on with it: ./sluice secrets rotate {kind}"))
    if loaded.path is not None and "@" in loaded.settings.store.url:
        found.append(_rights("secrets", loaded.path))
    return found


def _rights(check: str, path: Path) -> Finding:
    """Whether others may read a file that holds secrets."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        cure = f"chmod 600 {path}"
        return warning(check, f"{path} holds secrets and others may read it ({mode:o})", cure)
    return ok(check, f"{path} is in order, for its owner alone")


# ---- disk and descriptors ------------------------------------------------------------------------


def _space(check: str, what: str, folder: Path) -> list[Finding]:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    free = shutil.disk_usage(there).free
    told = f"{what} {folder}: {free // MIB} MiB free"
    if not os.access(there, os.W_OK | os.X_OK):
        cure = f"give it to the user that runs the gateway: chown USER {there}"
        return [failed(check, f"{what} {there} cannot be written by this user", cure)]
    if free < DISK_FAILED_BYTES:
        return [failed(check, told, "make room: calls are refused when the journal cannot grow")]
    if free < DISK_WARNED_BYTES:
        return [warning(check, told, "make room: ./sluice usage prune --older-than 90d, or a disk")]
    return [ok(check, told)]


def _device(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.stat().st_dev


def _open_files(journal: Path) -> Finding:
    """The limit of the running gateway, else of this shell, from which one would be started."""
    limit, whose = _limit_of_gateway(journal)
    if limit is None:
        limit, whose = resource.getrlimit(resource.RLIMIT_NOFILE)[1], "this shell's"
    if limit == resource.RLIM_INFINITY:
        return ok("open files", f"{whose} limit: none")
    told = f"{whose} limit is {limit}, enough for {limit // FILES_OF_STREAM} streams a process"
    cure = "raise it: LimitNOFILE=65536 in the unit, or ulimit -n 65536"
    if limit < FILES_FAILED:
        return failed("open files", told, cure)
    return warning("open files", told, cure) if limit < FILES_WARNED else ok("open files", told)


def _limit_of_gateway(journal: Path) -> tuple[int | None, str]:
    """The limit of the process that holds the journal folder; None without one."""
    pid = holder_of(journal)
    try:
        found = _OPEN_FILES.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
        return (int(found[1]), f"process {pid}'s") if found else (None, "")
    except OSError:  # there is none, or it has ended just now
        return None, ""


# ---- the running gateway -------------------------------------------------------------------------


def _running(loaded: Loaded) -> list[Finding]:
    journal = Path(loaded.settings.journal.dir)
    found = []
    if parked := parked_in(journal):
        cure = f"{journal}/parked.ndjson says what and why; move it away when that is settled"
        told = f"{parked} damaged lines or refused records are put aside"
        found.append(warning("journal", told, cure))
    try:
        status = ask_status(loaded)
    except Refused as error:
        return [
            *found,
            skipped("gateway", error.faults[0].partition(";")[0], "start it: ./sluice serve"),
        ]
    backlog = status["journal_backlog_bytes"]
    told = f"{backlog} bytes wait for the store"
    if backlog > BACKLOG_WARNED_BYTES:
        cure = "see what the store lacks: ./sluice status, and the log for `writer`"
        found.append(failed("journal", told, cure))
    else:
        found.append(ok("journal", told))
    if not status["ready"]:
        cure = "the log of the gateway says more"
        return [*found, failed("gateway", f"not ready: {status['reason']}", cure)]
    return [*found, ok("gateway", f"ready, {len(status['workers'])} workers")]
