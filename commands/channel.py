"""`channel`: upstream accounts, listed and edited one by one, and tried by a real call.

`test` lies in channel_probe.py: it needs the event loop and the upstream client, which would make
every other verb slow.
"""

import time
from collections import defaultdict

import peewee

from commands.nouns import Objects, noun
from commands.subcommands import LazyVerb
from store.channel_status import Status, of_channels, to_public, worst
from store.usage import rfc3339


def _with_status(db: peewee.Database, found: Objects) -> Objects:
    """Each channel with the worst state of its models, and its status for each of them."""
    by_name: defaultdict[str, list[Status]] = defaultdict(list)
    for status in of_channels(db, int(time.time() * 1000)):
        by_name[status.name].append(status)
    return [{**channel, **_status(by_name[channel["name"]])} for channel in found]


def _status(models: list[Status]) -> dict[str, object]:
    first = worst(models)
    return {
        "state": first.state if first else None,
        "since": rfc3339(first.since_ms) if first and first.since_ms else None,
        "reason": first.reason if first else None,
        "status": [to_public(one) for one in models],
    }


command = noun(
    "channel",
    (
        *("name", "enabled", "state", "reason", "since", "vendor", "family", "base_url"),
        *("groups", "models", "priority", "weight"),
    ),
    complete=_with_status,
    json_only=("status",),
)
command.add_command(
    LazyVerb("test", "commands.channel_probe", "Make a real call through a channel.")
)
