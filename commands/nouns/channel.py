"""`channel`: upstream accounts, listed and edited one by one, and tested by a real call.

`test` is in channel_probe.py. It needs the event loop and the upstream client, which would slow
down every other verb.
"""

import click

from commands.edits import editor, print_outcome
from commands.nouns.kinds import noun
from commands.output import print_result
from commands.store_access import Access, actor, on_store
from commands.subcommands import LazyVerb
from operations.edits import reinstate_keys, with_status

command = noun(
    "channel",
    (
        *("name", "enabled", "draining", "state", "reason", "since", "vendor", "family"),
        *("base_url", "address", "groups", "models", "priority", "weight", "keys_aside"),
        "entries",
    ),
    complete=with_status,
    json_only=("status", "windows"),
)
command.add_command(
    LazyVerb("test", "commands.nouns.channel_probe", "Make a real call through a channel.")
)


@command.command("drain")
@click.argument("name")
@on_store
def drain(access: Access, name: str, as_json: bool) -> None:
    """Stop new calls to a channel; calls in flight finish. `enable` reverts it.

    Unlike with disable, its models stay listed (503 while no other channel serves them), and
    responses stored there can still be fetched and continued.
    """
    outcome = editor(access).drain(name)
    already = "" if outcome.changes else "already "
    state = f'channel "{name}": {already}draining; no new calls, calls in flight finish'
    print_outcome(outcome, as_json, state=state)


@command.command("reinstate")
@click.argument("name")
@click.option("--key", type=click.IntRange(1), help="Position of the key.  [default: all of them]")
@on_store
def reinstate(access: Access, name: str, key: int | None, as_json: bool) -> None:
    """Reinstate upstream keys that were suspended because the vendor refused them."""
    count = reinstate_keys(access.db, name, key, actor())
    text = f'channel "{name}": {count} {"key" if count == 1 else "keys"} reinstated'
    print_result(as_json, {"channel": name, "reinstated": count}, text)
