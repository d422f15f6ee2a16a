"""The nodes of this machine that share a configuration file and differ by environment or --set.

Their journal folders are siblings. Each contains the node's name and its own settings, so nodes can
be told apart even while the store is unreachable. Imported by commands only.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import peewee

from commands.output import note
from commands.process import node
from conf.configuration import Loaded, which
from store.db.database import snapshot_read
from store.db.nodes import last_seen
from store.values.errors import Refused


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node that has run on this machine. `pid`: its first process, None if it is not running."""

    name: str
    journal: Path
    pid: int | None

    def __str__(self) -> str:
        state = "" if self.pid else ", not running"
        return f"{self.name} ({self.journal.name}{state})"


def local_nodes(loaded: Loaded) -> list[LocalNode]:
    """Return the node of journal.dir, if it has a name, and its siblings; running ones first."""
    own = Path(loaded.settings.journal.dir)
    folders = {own, *(path.parent for path in own.parent.glob(f"*/{node.NAME_FILE}"))}
    nodes = [
        LocalNode(name, folder, node.holder_of(folder))
        for folder in folders
        if (name := node.written_name(folder))
    ]
    return sorted(nodes, key=lambda entry: (entry.pid is None, entry.name, entry.journal))


def nodes_of_store(loaded: Loaded, db: peewee.Database) -> list[LocalNode]:
    """Return the configured node, and its siblings that served the store. Raises
    StoreUnavailable."""
    own = Path(loaded.settings.journal.dir)
    seen = snapshot_read(db, lambda: last_seen(db))
    return [entry for entry in local_nodes(loaded) if entry.journal == own or entry.name in seen]


def of_node(loaded: Loaded, name: str | None) -> Loaded:
    """Return the configuration with journal.dir and the ops port of the node that a command means.

    `name` None: return the configuration unchanged, and print a note about other running nodes.
    Raises Refused if its node is not running and there are others here, or if no node here has the
    name.
    """
    nodes = local_nodes(loaded)
    if name is None:
        own = Path(loaded.settings.journal.dir)
        siblings = [entry for entry in nodes if entry.journal != own]
        running = [str(entry) for entry in siblings if entry.pid]
        own_node = [entry for entry in nodes if entry.journal == own]
        if siblings and not (own_node and (own_node[0].pid or not running)):
            problem = f"no node runs on {own} (journal.dir); sibling nodes: {_listed(siblings)}"
            raise Refused([f"{problem}; name one with --node NAME; {which(loaded.path)}"])
        if running:
            note(f"also on this machine: {', '.join(running)}; --node NAME selects one")
        return loaded
    for entry in nodes:
        if entry.name == name:
            return as_node(loaded, entry)
    problem = f"no node {name!r} beside journal.dir; there are: {_listed(nodes)}"
    raise Refused([f"{problem}; {which(loaded.path)}"])


def as_node(loaded: Loaded, entry: LocalNode) -> Loaded:
    """Return the configuration with the node's journal.dir and ops port."""
    settings = loaded.settings
    journal = msgspec.structs.replace(settings.journal, dir=str(entry.journal))
    ops = msgspec.structs.replace(settings.ops, **node.written_places(entry.journal)[0])
    return msgspec.structs.replace(
        loaded, settings=msgspec.structs.replace(settings, journal=journal, ops=ops)
    )


def _listed(nodes: list[LocalNode]) -> str:
    return ", ".join(map(str, nodes)) or "none"
