"""The steps that replace a secret of the installation while gateways run. For `secrets`.

The new secret is first added as `upcoming`: every process accepts it, but none uses it for new
values. When all processes have loaded it, it becomes the newest, and the old one is kept until
nothing needs it. The next run can continue from the state after any step.
"""

import errno
import os
import signal
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import msgspec
import peewee

from commands.nouns.local_nodes import LocalNode, as_node, nodes_of_store
from commands.ops_port import ask_status
from commands.process.node import written_places
from conf import secrets
from conf.configuration import SECRETS_VARIABLE, Loaded
from store.db.database import database_ms, snapshot_read
from store.db.nodes import last_seen
from store.values.errors import Refused

NODE_ALIVE_MS = 60_000
"""A node seen more recently than this is running: nodes report every ten seconds."""
_CANNOT_BE_REPLACED = {errno.EROFS, errno.EBUSY}
"""Errors of a read-only mount, and of a file that is itself a mount."""
TAKEN_WITHIN_S = 60
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Nodes:
    """The gateways of the store. `reloaded`: the operator confirms that the others have the
    file."""

    loaded: Loaded
    db: peewee.Database
    reloaded: bool

    def take(self) -> None:
        """Reload the gateways of this machine that read the file, and wait until they have. Raises
        Refused if one does not, or if other nodes may not have the file."""
        mark = secrets.of(self.loaded).mark
        local = {
            node.name: (node.pid, as_node(self.loaded, node))
            for node in nodes_of_store(self.loaded, self.db)
            if node.pid and self._is_read_by(node)
        }
        self._require_others(local)
        for pid, loaded in local.values():
            if not self._has(loaded, mark):
                self._reload(pid, loaded, mark)

    def _is_read_by(self, node: LocalNode) -> bool:
        _, path = written_places(node.journal)
        return path is None or path.resolve() == self.loaded.secrets_path.resolve()

    def _reload(self, pid: int, loaded: Loaded, mark: str) -> None:
        try:
            os.kill(pid, signal.SIGHUP)
        except PermissionError:
            problem = f"process {pid} cannot be reloaded by this user"
            raise Refused([f"{problem}; reload it, then run this again"]) from None
        deadline = time.monotonic() + TAKEN_WITHIN_S
        while not self._has(loaded, mark):
            if time.monotonic() > deadline:
                why = "see its log, and run this again when that is fixed"
                raise Refused([f"process {pid} has not loaded the new secrets; {why}"])
            time.sleep(POLL_S)

    def _require_others(self, local: Container[str]) -> None:
        at_ms = database_ms(self.db)
        seen = snapshot_read(self.db, lambda: last_seen(self.db))
        remote = [
            name for name, ms in seen.items() if name not in local and at_ms - ms < NODE_ALIVE_MS
        ]
        if remote and not self.reloaded:
            names = ", ".join(sorted(remote))
            remedy = f"copy {self.loaded.secrets_path} to them, reload each (SIGHUP)"
            problem = f"other nodes are running, or were a minute ago: {names}; {remedy}"
            raise Refused([f"{problem}, then run this again with --nodes-reloaded"])

    def _has(self, loaded: Loaded, mark: str) -> bool:
        """Return whether all workers that take calls have the secrets of the file."""
        if not loaded.settings.ops.enabled and self.reloaded:
            return True
        try:
            workers = ask_status(loaded)["workers"]
        except Refused as error:
            error.add_note("without the ops port: reload it yourself, then use --nodes-reloaded")
            raise
        active = [worker for worker in workers if not worker["leaving"]]
        return bool(active) and all(
            worker.get("ready") and worker.get("secrets") == mark for worker in active
        )


def _replace(path: Path, changed: secrets.Secrets) -> None:
    """Write the file. Raises Refused, with nothing changed, if the file is a mount."""
    try:
        secrets.replace(path, changed)
    except OSError as error:
        if error.errno not in _CANNOT_BE_REPLACED:
            raise
        problem = (
            f"{path}: {error.strerror}: the file cannot be replaced here. Copy it into a"
            f" writable folder, set {SECRETS_VARIABLE} to the copy, run this again, and bring the"
            ' copy to where the file comes from (docs/operations.md, "Secrets on a'
            ' read-only mount"). Nothing has been changed'
        )
        raise Refused([problem]) from None


def add(loaded: Loaded, kind: str) -> bool:
    """Add a new secret as upcoming. Return False if a rotation is not finished."""
    stored = secrets.read(loaded.secrets_path)
    if kind in stored.upcoming or len(getattr(stored, secrets.KINDS[kind])) > 1:
        return False
    upcoming = {**stored.upcoming, kind: secrets.fresh()}
    _replace(loaded.secrets_path, msgspec.structs.replace(stored, upcoming=upcoming))
    return True


def promote(loaded: Loaded, kind: str) -> bool:
    """Make the upcoming secret the newest. Return False if there is none."""
    stored = secrets.read(loaded.secrets_path)
    if kind not in stored.upcoming:
        return False
    name = secrets.KINDS[kind]
    upcoming = dict(stored.upcoming)
    values = [upcoming.pop(kind), *getattr(stored, name)]
    changed = msgspec.structs.replace(stored, upcoming=upcoming, **{name: values})
    _replace(loaded.secrets_path, changed)
    return True


def remove_old(loaded: Loaded, kind: str) -> int:
    """Remove all but the newest secret. Return how many were removed."""
    stored = secrets.read(loaded.secrets_path)
    name = secrets.KINDS[kind]
    values = getattr(stored, name)
    if len(values) > 1:
        changed = msgspec.structs.replace(stored, **{name: values[:1]})
        _replace(loaded.secrets_path, changed)
    return len(values) - 1
