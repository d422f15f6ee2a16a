"""The hosts of a store for display and selection: their states, the writing host, lost outcomes.

For commands, metrics and checks. Sessions find their host in mysql.
"""

from collections.abc import Mapping
from typing import Any

import peewee

from store.db import audit
from store.db.database import execute, first_row, in_transaction, is_mysql, snapshot_read
from store.db.mysql import HostState, MySql
from store.db.tables.system import WritingHostRow
from store.values.errors import Refused

WRITING, PRIMARY, AWAY = "writing", "primary", "away"
"""The states of a host, for the metric. AWAY includes hosts that have no majority or are
read-only."""

_IS_STORE = WritingHostRow.name == "store"
_METHOD = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_OSU_method')"


def states(db: peewee.Database) -> list[HostState]:
    """Return the current state of each host, empty for SQLite. Takes up to 2 s for each host."""
    return [db.hosts.look(host) for host in db.hosts.all] if isinstance(db, MySql) else []


def watched(db: peewee.Database) -> Mapping[str, str]:
    """Return the state of each host by name, as the watch of this process last saw it, or empty
    without a watch."""
    if not isinstance(db, MySql):
        return {}
    current = db.hosts.current.name
    return {
        name: (WRITING if name == current else PRIMARY) if state.serves else AWAY
        for name, state in list(db.hosts.states.items())
    }


def writing_host(db: peewee.Database) -> str:
    """Return the name of the writing host in the row, or an empty text if none was chosen."""
    row = first_row(db, WritingHostRow.select(WritingHostRow.host).where(_IS_STORE))
    return str(row[0]) if row else ""


def move_to(db: peewee.Database, name: str, actor: str) -> str:
    """Make a host of `store.url` the writing one. Return the previous one. All processes follow
    within 2 s. Raises Refused if it is not one of the hosts or cannot be written to."""
    by_name = {state.name: state for state in states(db)}
    if len(by_name) < 2:
        raise Refused(["store.url names one host: there is nothing to choose"])
    if name not in by_name:
        raise Refused([f'"{name}" is not a host of store.url: {", ".join(by_name)}'])
    state = by_name[name]
    if not state.serves:
        problem = state.error or ("it is read-only" if state.primary else "it has no majority")
        raise Refused([f"{name} cannot be written to: {problem}"])
    return _move(db, name, actor)


@in_transaction
def _move(db: peewee.Database, name: str, actor: str) -> str:
    before = writing_host(db)
    values = {"host": name, "epoch": WritingHostRow.epoch + 1}
    WritingHostRow.update(values).where(_IS_STORE).execute(db)
    audit.write(db, audit.Act(actor, "set", "store", "writer", {"host": before}, {"host": name}))
    return before


def to_public(state: HostState, writing: str) -> dict[str, Any]:
    """Return a host as commands show it."""
    return {
        "host": state.name,
        "writes": state.name == writing,
        "state": state.error or ("primary" if state.primary else "no majority"),
        "read_only": not state.writable if not state.error else None,
        "cluster_size": state.size,
        "sync": state.comment or None,
        "flow_control": state.paused,
    }


def alters_in_total_order(db: peewee.Database) -> bool:
    """Return whether all hosts of a cluster apply a change of a table at the same time."""
    if not is_mysql(db):
        return False
    values = dict(snapshot_read(db, lambda: execute(db, _METHOD).fetchall()))
    return values.get("wsrep_on") == "ON" and values.get("wsrep_OSU_method", "TOI") == "TOI"
