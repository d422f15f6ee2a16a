"""The steps to set up a gateway, derived from the store's contents, and its nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from handlers.hub.web.admin import path_of
from handlers.hub.web.parts import At
from operations import first_steps
from store.calls.reading.overview import costs_set
from store.db import nodes
from store.db.database import first_row, in_snapshot, select_rows
from store.db.tables.channels import ChannelSums
from store.db.tables.usage import UsageByDay
from store.db.tables.users import ApiKey, User
from store.upkeep.lease import BACKUP, BOOKS_VERIFY, last_done

HERE, ALIVE, SILENT, LEFT = "here", "alive", "silent", "left"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the set-up. `name`: of its text; `href`: where to do it; `values`: of its note.
    `waits`: it is completed by others, not on a page."""

    name: str
    done: bool
    href: str = ""
    values: Mapping[str, Any] | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class SetUp:
    """All steps, open ones first; and whether any call was made."""

    steps: Sequence[Step]
    called: bool

    @property
    def done(self) -> int:
        """Return the number of completed steps."""
        return sum(step.done for step in self.steps)

    @property
    def complete(self) -> bool:
        """Return whether all steps are completed."""
        return self.done == len(self.steps)


@in_snapshot
def load_set_up(db: peewee.Database, *, addressed: bool, mailed: bool) -> SetUp:
    """Return the steps. `addressed`: the base URL is set; `mailed`: a mail server is set."""
    answered = first_row(db, _working().limit(1))
    called = first_row(db, UsageByDay.select(UsageByDay.day).limit(1)) is not None
    with_key = first_row(db, ApiKey.select(ApiKey.name).limit(1)) is not None
    enabled = User.disabled == False  # noqa: E712 - SQL
    admins = User.select(User.name).where(User.role == "admin", enabled).order_by(User.id).limit(2)
    names = [name for (name,) in select_rows(db, admins)]
    costs = costs_set(db)
    backup_ms = last_done(db).get(BACKUP)
    begun = first_steps.state(db).finished
    steps = [
        Step("address", addressed and bool(names), path_of("system")),
        Step(
            "channel",
            bool(answered),
            path_of("channels") if begun else "/first-run",
            {"name": answered[0]} if answered else None,
        ),
        Step("key", with_key, "/keys" if begun else "/first-run"),
        Step("call", called, "/?of=me", waits=True),
        Step(
            "admin", len(names) > 1, path_of("users"), _note(name=names[1] if names[1:] else None)
        ),
        Step("mail", mailed, path_of("system")),
        Step(
            *("cost", bool(costs) and all(costs.values()), path_of("channels")),
            {"done": sum(costs.values()), "all": len(costs)},
        ),
        Step("backup", backup_ms is not None, "", _note(at=backup_ms and At(backup_ms))),
    ]
    return SetUp(sorted(steps, key=lambda step: step.done), called)


def _note(**values: Any) -> Mapping[str, Any] | None:
    """Return the values of a note, or None if one is missing."""
    return values if all(values.values()) else None


def _working() -> Any:
    """Return a query for the channels that have answered a call or a probe."""
    answered = (ChannelSums.scope << ("channel", "probe")) & (ChannelSums.ok > 0)
    return ChannelSums.select(ChannelSums.name).where(answered)


# ---- nodes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node. `state`: HERE, ALIVE, SILENT or LEFT; `workers`: the number of ready workers. For
    this node also what its workers do; None: unknown."""

    name: str
    state: str
    seen_ms: int
    workers: int = 0
    ready: bool = True
    streams: int | None = None
    calls: int | None = None
    own_ms: float | None = None


@dataclass(frozen=True, slots=True)
class NodeLines:
    """The nodes in the store, the versions that they run, and when the books were last verified."""

    lines: Sequence[NodeLine]
    versions: Sequence[str]
    verified_ms: int | None


def node_lines(
    states: Sequence[nodes.NodeState], here: Mapping[str, Any], verified_ms: int | None
) -> NodeLines:
    """Return the nodes in the store. `here`: the state of this node from its ops port."""
    lines = []
    for node in states:
        ready, state = node.ready > 0, LEFT
        if node.alive:
            state = HERE if node.name == here["node"] else ALIVE
        elif node.unfinished:
            state = SILENT
        if state == HERE:
            own_ms = (here.get("overhead_ms") or {}).get("p50")
            workers = sum(bool(worker["ready"]) for worker in here["workers"])
            figures = (bool(here["ready"]), here["streams"], here["calls"], own_ms)
            lines.append(NodeLine(node.name, state, node.seen_ms, workers, *figures))
        else:
            lines.append(NodeLine(node.name, state, node.seen_ms, node.ready, ready))
    versions = sorted({version for node in states if node.alive for version in node.versions})
    return NodeLines(lines, versions, verified_ms)


def load_nodes(db: peewee.Database) -> tuple[list[nodes.NodeState], int | None]:
    """Return the nodes as they report themselves, and when the books were last verified."""
    return nodes.states(db), last_done(db).get(BOOKS_VERIFY)
