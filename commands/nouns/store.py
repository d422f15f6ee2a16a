"""`store`: the hosts of the database, which of them is written to, and the outcome of a lost
commit.
"""

import click

from commands.output import FAILED, print_result, print_table
from commands.store_access import Access, actor, on_store
from commands.subcommands import Noun
from store.db import cluster
from store.db.database import outcome, place
from store.values.usage_record import rfc3339_or_none

COLUMNS = (
    *("host", "writes", "state", "read_only", "cluster_size", "sync"),
    "flow_control",
)

command = Noun("store", help="Show the database's hosts; choose the writing host.")


@command.command()
@on_store
def hosts(access: Access, as_json: bool) -> None:
    """Show the current state of each host of store.url, and the writing host.

    flow_control: the share of time in which the cluster paused writes.
    """
    writing = cluster.writing_host(access.db)
    rows = [cluster.to_public(state, writing) for state in cluster.states(access.db)]
    print_table(rows, COLUMNS, as_json)


@command.command()
@click.argument("host")
@on_store
def writer(access: Access, host: str, as_json: bool) -> None:
    """Make all processes write to HOST (as in store.url, with its port) within 2 s.

    A host that was lost and has come back is not written to again without this.
    """
    before = cluster.move_to(access.db, host, actor())
    text = f"the writing host is now {host}" + (f", was {before}" if before else "")
    print_result(as_json, {"host": host, "before": before or None}, text)


@command.command()
@click.argument("mark")
@on_store
def mark(access: Access, mark: str, as_json: bool) -> int:
    """Show whether the change with this MARK took effect; exit code 1 if it did not.

    A command that loses the database while it commits a change prints the mark. Marks are kept for
    a day.
    """
    at_ms = outcome(access.db, mark)
    at = rfc3339_or_none(at_ms)
    text = f"it took effect at {at}" if at else f"{place(access.db)} has no such change"
    print_result(as_json, {"mark": mark, "at": at}, text)
    return 0 if at else FAILED
