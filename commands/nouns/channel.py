"""`channel`: upstream accounts, listed and edited one by one, and tested by a real call.

`test` lies in channel_probe.py: it needs the event loop and the upstream client, which would make
every other verb slow.
"""

from collections import defaultdict
from pathlib import Path

import click
import peewee

from adapters.registry import LOSSES
from commands.edits import editor, print_outcome
from commands.nouns.kinds import Objects, noun
from commands.output import data_options, print_json
from commands.store_access import actor, opened_store
from commands.subcommands import LazyVerb
from store.admin.export import show
from store.catalog.keys_aside import reinstate, with_keys_aside
from store.channels.status import Status, of_channels, to_public, worst
from store.db.database import database_ms
from store.values.usage_record import rfc3339


def _with_status(db: peewee.Database, found: Objects) -> Objects:
    """Each channel with the worst state of its models, and its status for each of them."""
    by_name: defaultdict[str, list[Status]] = defaultdict(list)
    for status in of_channels(db, database_ms(db), LOSSES):
        by_name[status.name].append(status)
    found = with_keys_aside(db, found)
    return [{**channel, **_status(by_name[channel["name"]])} for channel in found]


def _status(models: list[Status]) -> dict[str, object]:
    first = worst(models)
    return {
        "state": first.state if first else None,
        "since": rfc3339(first.since_ms) if first and first.since_ms else None,
        "reason": first.reason if first else None,
        "entries": {name: how for one in models for name, how in (one.entries or {}).items()},
        "status": [to_public(one) for one in models],
    }


command = noun(
    "channel",
    (
        *("name", "enabled", "draining", "state", "reason", "since", "vendor", "family"),
        *("base_url", "groups", "models", "priority", "weight", "keys_aside", "entries"),
    ),
    complete=_with_status,
    json_only=("status",),
)
command.add_command(
    LazyVerb("test", "commands.nouns.channel_probe", "Make a real call through a channel.")
)


@command.command("drain")
@click.argument("name")
@data_options
def drain(name: str, config: Path | None, as_json: bool) -> None:
    """Stop new calls to a channel; calls in flight finish. `enable` reverts it.

    Unlike with disable, its models stay listed (503 while no other channel serves them), and
    responses stored there can still be fetched and continued.
    """
    with opened_store(config) as access:
        outcome = editor(access).drain(name)
    as_before = "" if outcome.changes else ", as before"
    state = f'channel "{name}": draining{as_before}; no new calls, calls in flight finish'
    print_outcome(outcome, as_json, state=state)


@command.command("reinstate")
@click.argument("name")
@click.option("--key", type=click.IntRange(1), help="Position of the key.  [default: all of them]")
@data_options
def reinstate_keys(name: str, key: int | None, config: Path | None, as_json: bool) -> None:
    """Use upstream keys again that were put aside because their vendor refused them."""
    with opened_store(config) as access:
        count = reinstate(access.db, show(access.db, "channel", name), key, actor())
    if as_json:
        print_json({"channel": name, "reinstated": count})
    else:
        click.echo(f'channel "{name}": {count} {"key" if count == 1 else "keys"} reinstated')
