"""The journal folder of this node: held by one `serve` at a time, and home of the node's name.

Standard library only; used by the supervisor. The lock is flock, so it ends with the process,
however that ends.
"""

import fcntl
import os
import re
from pathlib import Path

LOCK_NAME = "serve.lock"
NAME_FILE = "node"
FOLDER_MODE = 0o700
MAX_NAME_CHARS = 64


class StartError(Exception):
    """The gateway cannot start; the message names the setting and what to do."""


def claim(folder: Path) -> int:
    """Lock the folder, made when missing, for the life of the process; the lock's descriptor."""
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"journal.dir {folder}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise StartError(
            f"journal.dir {folder} is in use by another gateway (process {holder or 'unknown'});"
            " every node needs a folder of its own"
        ) from None
    os.truncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def name_of(folder: Path) -> str:
    """The node's name, made at the first start; the folder has to be claimed."""
    path = folder / NAME_FILE
    try:
        if not path.exists():
            fresh = path.with_suffix(".new")  # so that a crash leaves no empty name
            fresh.write_text(_made_name() + "\n", encoding="utf-8")
            fresh.replace(path)
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"journal.dir: {path}: {error}") from None


def _made_name() -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", os.uname().nodename) or "node"
    return f"{host[: MAX_NAME_CHARS - 7]}-{os.urandom(3).hex()}"
