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

command = Noun("store", help="Show the database's hosts; choose the writing one.")


@command.command()
@on_store
def hosts(access: Access, as_json: bool) -> None:
    """Show each host of store.url as it says now, and which one is written to.

    flow_control: the part of the time in which the cluster stopped its writes.
    """
    writing = cluster.writing_host(access.db)
    rows = [cluster.to_public(state, writing) for state in cluster.states(access.db)]
    print_table(rows, COLUMNS, as_json)


@command.command()
@click.argument("host")
@on_store
def writer(access: Access, host: str, as_json: bool) -> None:
    """Have all processes write to HOST (as store.url names it, with its port); they follow in 2 s.

    After a host was lost and has come back nobody returns to it without this.
    """
    before = cluster.move_to(access.db, host, actor())
    text = f"the store is written to at {host}" + (f", before at {before}" if before else "")
    print_result(as_json, {"host": host, "before": before or None}, text)


@command.command()
@click.argument("mark")
@on_store
def mark(access: Access, mark: str, as_json: bool) -> int:
    """Show whether the change with this MARK was made; exit code 1 when it was not.

    A command that lost the database while its change was committed prints its mark. Kept for a day.
    """
    at_ms = outcome(access.db, mark)
    at = rfc3339_or_none(at_ms)
    text = f"it was made at {at}" if at else f"{place(access.db)} has no such change"
    print_result(as_json, {"mark": mark, "at": at}, text)
    return 0 if at else FAILED
