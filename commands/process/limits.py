"""The cells in which a worker counts limits: its node's in shared memory, all nodes' in Redis."""

import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.configuration import ConfigError
from handlers.relay.limits.cells import IncompatibleMemory, SharedCells, private_cells

if TYPE_CHECKING:
    from handlers.relay.limits.remote import RemoteCells

log = logging.getLogger("sluice.worker")

SAVED_FILE = "limits"  # in the journal's folder


def node_cells(descriptor: int, journal_dir: str) -> SharedCells:
    """Return the cells of the node, with the buckets that the last run saved. Return private cells
    if the memory cannot be shared."""
    try:
        return SharedCells(descriptor, saved=Path(journal_dir) / SAVED_FILE)
    except IncompatibleMemory as error:
        log.error("%s; rate limits are counted in each worker apart until the next restart", error)
        return private_cells()


def save(cells: SharedCells) -> None:
    """Save the buckets for the next start. Blocks, so it must not run on the loop."""
    try:
        cells.save()
    except OSError as error:
        log.warning("limits are not saved, a restart would refill them: %s", error)


def remote_cells(url: str, worker: str) -> "RemoteCells | None":
    """Return the cells of all nodes if limits.url is set, else None. Raises ConfigError."""
    if not url:
        return None
    # Imported by name: the library takes memory that most gateways do not need.
    remote: Any = importlib.import_module("handlers.relay.limits.remote")
    try:
        cells: RemoteCells = remote.RemoteCells(remote.with_password(url), worker)
    except KeyError as error:
        raise ConfigError(f"limits.url: the variable {error} is not set") from None
    except ValueError as error:
        raise ConfigError(f"limits.url: {error}") from None
    return cells
