"""The journal folder of this node: locked by one `serve` at a time; it also has the node's name.

Standard library only; used by the supervisor. The lock is flock, so it ends with the process, for
whatever reason that ends.
"""

import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

LOCK_NAME = "serve.lock"
MAX_LOCK_BYTES = 64
DRAINING = "draining"
PARKED_NAME = "parked.ndjson"  # store/calls/writer.py writes it; this module must not import store
PARKED_COUNT_BYTES = 16 * 1024 * 1024
NAME_FILE = "node"
PLACES_FILE = "places.json"
OPS_FIELDS = ("enabled", "host", "port")
FOLDER_MODE = 0o700
MAX_NAME_CHARS = 64


class StartError(Exception):
    """An error that prevents the start. The message names the setting and the remedy."""


class PortTaken(StartError):
    """An error for a port that another process listens on. The remedy depends on the start
    command."""

    def __init__(self, section: str, host: str, port: int) -> None:
        super().__init__(f"{section}.port {port} on {host} is in use by another program or gateway")
        self.section = section
        self.port = port


def claim(folder: Path) -> int:
    """Lock the folder for the life of the process, creating it if it is missing. Return the lock's
    descriptor."""
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"journal.dir {folder}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        written = os.pread(lock, MAX_LOCK_BYTES, 0).decode("ascii", "replace")
        os.close(lock)
        raise StartError(f"journal.dir {folder} is in use {_holder(written)}") from None
    os.truncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def tell_draining(lock: int) -> None:
    """Record in the lock file that the holder is draining, for others that want the folder."""
    os.pwrite(lock, f"{os.getpid()} {DRAINING}".encode(), 0)


def _holder(written: str) -> str:
    pid, _, state = written.strip().partition(" ")
    if state == DRAINING:
        return (
            f"by a gateway that is still draining: process {pid} ends with its last call, or after"
            f" server.drain_timeout_s; to end it at once: kill {pid}"
        )
    return (
        f"by another gateway (process {pid or 'unknown'}); end that one, or give this one a folder"
        " of its own: every node needs one"
    )


def name_of(folder: Path) -> str:
    """Return the node's name, creating it at the first start. The folder has to be claimed."""
    path = folder / NAME_FILE
    try:
        if not path.exists():
            _put(path, _made_name() + "\n")  # a crash leaves no empty file
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"journal.dir: {path}: {error}") from None


def written_name(folder: Path) -> str:
    """Return the node's name from its journal folder; "" if it never started or is not readable."""
    try:
        return (folder / NAME_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def holder_of(folder: Path) -> int | None:
    """Return the pid of the first process of the gateway that runs on the folder. None if there is
    no such process, or if it is in another container and not visible from here."""
    path = folder / LOCK_NAME
    try:
        pid = int(path.read_bytes()[:MAX_LOCK_BYTES].split()[0])
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, ValueError, IndexError):
        return None
    # Read from /proc: taking the lock as a test would keep a gateway from starting.
    return pid if re.search(rf" FLOCK .* {pid} \S+:{inode} ", locks) else None


def tell_places(folder: Path, ops: Mapping[str, object], secrets: Path) -> None:
    """Write the fields `enabled`, `host`, `port` of the ops port and the path of the secrets for
    commands, which do not know the node's --set options and environment. The folder has to be
    claimed.
    """
    path = folder / PLACES_FILE
    places = {"ops": {name: ops[name] for name in OPS_FIELDS}, "secrets": str(secrets)}
    try:
        _put(path, json.dumps(places))
    except OSError as error:
        raise StartError(f"journal.dir: {path}: {error}") from None


def written_places(folder: Path) -> tuple[dict[str, object], Path | None]:
    """Return what `tell_places` wrote; empty and None if that is missing or was lost in a power
    cut."""
    try:
        places = json.loads((folder / PLACES_FILE).read_bytes())
        return {name: places["ops"][name] for name in OPS_FIELDS}, Path(places["secrets"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}, None


def parked_in(folder: Path) -> int:
    """Return the number of parked lines and records of the journal, counted up to a limit."""
    try:
        with open(folder / PARKED_NAME, "rb") as file:
            return file.read(PARKED_COUNT_BYTES).count(b"\n")
    except OSError:  # there is none, or it is unreadable, which a worker logs
        return 0


def _put(path: Path, text: str) -> None:
    """Write the whole file or nothing."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _made_name() -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", os.uname().nodename) or "node"
    return f"{host[: MAX_NAME_CHARS - 7]}-{os.urandom(3).hex()}"
