"""The nodes of this machine that share a configuration file and differ by environment or --set.

Their journal folders lie beside each other; each holds the node's name and the places that only the
node knows, so that they are told apart while the store is away, too. Imported by commands only.
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
    """A node that has run on this machine. `pid`: its first process; None: it does not run."""

    name: str
    journal: Path
    pid: int | None

    def __str__(self) -> str:
        state = "" if self.pid else ", not running"
        return f"{self.name} ({self.journal.name}{state})"


def local_nodes(loaded: Loaded) -> list[LocalNode]:
    """The node of the configuration's journal.dir, once it has a name, and those beside it; first
    those that run."""
    own = Path(loaded.settings.journal.dir)
    folders = {own, *(path.parent for path in own.parent.glob(f"*/{node.NAME_FILE}"))}
    nodes = [
        LocalNode(name, folder, node.holder_of(folder))
        for folder in folders
        if (name := node.written_name(folder))
    ]
    return sorted(nodes, key=lambda one: (one.pid is None, one.name, one.journal))


def nodes_of_store(loaded: Loaded, db: peewee.Database) -> list[LocalNode]:
    """The node of the configuration, and those beside it that have served from the store. Raises
    StoreUnavailable."""
    own = Path(loaded.settings.journal.dir)
    seen = snapshot_read(db, lambda: last_seen(db))
    return [one for one in local_nodes(loaded) if one.journal == own or one.name in seen]


def of_node(loaded: Loaded, name: str | None) -> Loaded:
    """The configuration with journal.dir and the ops port of the node that a command means.

    `name` None: the node of the configuration as it is, with a note of others that run. Refused: it
    does not run and others are here, or nobody here has this name.
    """
    nodes = local_nodes(loaded)
    if name is None:
        own = Path(loaded.settings.journal.dir)
        others = [one for one in nodes if one.journal != own]
        running = [str(one) for one in others if one.pid]
        here = [one for one in nodes if one.journal == own]
        if others and not (here and (here[0].pid or not running)):
            raise Refused(
                [
                    f"no node runs on {own} (journal.dir); nodes beside it: {_listed(others)};"
                    f" name one with --node NAME; {which(loaded.path)}"
                ]
            )
        if running:
            note(f"also on this machine: {', '.join(running)}; --node NAME means one of them")
        return loaded
    for one in nodes:
        if one.name == name:
            return as_node(loaded, one)
    raise Refused(
        [f"no node {name!r} beside journal.dir; there are: {_listed(nodes)}; {which(loaded.path)}"]
    )


def as_node(loaded: Loaded, one: LocalNode) -> Loaded:
    """The configuration as the node has it: its journal.dir and its ops port."""
    settings = loaded.settings
    journal = msgspec.structs.replace(settings.journal, dir=str(one.journal))
    ops = msgspec.structs.replace(settings.ops, **node.written_places(one.journal)[0])
    return msgspec.structs.replace(
        loaded, settings=msgspec.structs.replace(settings, journal=journal, ops=ops)
    )


def _listed(nodes: list[LocalNode]) -> str:
    return ", ".join(map(str, nodes)) or "none"
