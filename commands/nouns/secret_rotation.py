"""The steps by which a secret of the installation is replaced while gateways run. For `secrets`.

The new one is first added as `upcoming`: every process accepts it and none makes anything with it.
When all have taken it, it becomes the newest, and the old one stays beside it until nothing needs
it. Each step leaves a state from which the next run goes on.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import peewee

from commands.ops_port import ask_status
from commands.process.node import LOCK_NAME, MAX_LOCK_BYTES
from conf import secrets
from conf.configuration import Loaded
from store.db.database import database_ms, snapshot_read
from store.db.nodes import last_seen
from store.values.errors import Refused

NODE_ALIVE_MS = 60_000
"""A node that was seen so lately runs: it says so every ten seconds."""
TAKEN_WITHIN_S = 60
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Nodes:
    """The gateways of the store. `reloaded`: the operator says that the others have the file."""

    loaded: Loaded
    db: peewee.Database
    reloaded: bool

    def take(self) -> None:
        """Reload this node's gateway, if one runs, and wait until it knows the file. Refused when
        it does not, or when other nodes may not know it."""
        self._require_others()
        mark = secrets.of(self.loaded).mark
        pid = self._pid()
        if pid is None:
            return
        if self._has(mark):
            return
        try:
            os.kill(pid, signal.SIGHUP)
        except PermissionError:
            raise Refused(
                [f"process {pid} cannot be reloaded by this user; reload it, then run this again"]
            ) from None
        deadline = time.monotonic() + TAKEN_WITHIN_S
        while not self._has(mark):
            if time.monotonic() > deadline:
                why = "see its log; run this again when it is mended"
                raise Refused([f"process {pid} has not taken the new secrets; {why}"])
            time.sleep(POLL_S)

    def _require_others(self) -> None:
        own = self._own_name()
        at_ms = database_ms(self.db)
        seen = snapshot_read(self.db, lambda: last_seen(self.db))
        others = [name for name, ms in seen.items() if name != own and at_ms - ms < NODE_ALIVE_MS]
        if others and not self.reloaded:
            raise Refused(
                [
                    f"other nodes run: {', '.join(sorted(others))}; copy {self.loaded.secrets_path}"
                    " to them, reload each (SIGHUP), then run this again with --nodes-reloaded"
                ]
            )

    def _own_name(self) -> str:
        try:
            path = Path(self.loaded.settings.journal.dir) / "node"
            return path.read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def _pid(self) -> int | None:
        """The process that holds the journal folder; None: none runs here."""
        try:
            with open(Path(self.loaded.settings.journal.dir) / LOCK_NAME, "rb") as lock:
                pid = int(lock.read(MAX_LOCK_BYTES).split()[0])
            return pid if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        except (OSError, ValueError, IndexError):
            return None

    def _has(self, mark: str) -> bool:
        """Whether all workers that take calls have the secrets of the file."""
        if not self.loaded.settings.ops.enabled and self.reloaded:
            return True
        try:
            workers = ask_status(self.loaded)["workers"]
        except Refused as error:
            error.add_note("without the ops port: reload it yourself, then --nodes-reloaded")
            raise
        staying = [one for one in workers if not one["leaving"]]
        return bool(staying) and all(
            one.get("ready") and one.get("secrets") == mark for one in staying
        )


def add(loaded: Loaded, kind: str) -> bool:
    """Add a new secret as upcoming; False when a rotation is on its way already."""
    found = secrets.read(loaded.secrets_path)
    if kind in found.upcoming or len(getattr(found, secrets.KINDS[kind])) > 1:
        return False
    upcoming = {**found.upcoming, kind: secrets.fresh()}
    secrets.replace(loaded.secrets_path, msgspec.structs.replace(found, upcoming=upcoming))
    return True


def promote(loaded: Loaded, kind: str) -> bool:
    """Make the upcoming secret the newest; False when there is none."""
    found = secrets.read(loaded.secrets_path)
    if kind not in found.upcoming:
        return False
    name = secrets.KINDS[kind]
    upcoming = dict(found.upcoming)
    values = [upcoming.pop(kind), *getattr(found, name)]
    changed = msgspec.structs.replace(found, upcoming=upcoming, **{name: values})
    secrets.replace(loaded.secrets_path, changed)
    return True


def is_upcoming(loaded: Loaded, kind: str) -> bool:
    """Whether a rotation has added a secret that is not used yet."""
    return kind in secrets.read(loaded.secrets_path).upcoming


def has_old(loaded: Loaded, kind: str) -> bool:
    """Whether there is an older secret beside the newest."""
    return len(getattr(secrets.read(loaded.secrets_path), secrets.KINDS[kind])) > 1


def remove_old(loaded: Loaded, kind: str) -> int:
    """Leave the newest secret alone; how many went."""
    found = secrets.read(loaded.secrets_path)
    name = secrets.KINDS[kind]
    values = getattr(found, name)
    if len(values) > 1:
        changed = msgspec.structs.replace(found, **{name: values[:1]})
        secrets.replace(loaded.secrets_path, changed)
    return len(values) - 1
