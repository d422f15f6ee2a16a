"""`channel`: upstream accounts, listed and edited one by one, and tried by a real call.

`test` lies in channel_probe.py: it needs the event loop and the upstream client, which would make
every other verb slow.
"""

from commands.nouns import noun
from commands.subcommands import LazyVerb

command = noun(
    "channel",
    ("name", "enabled", "vendor", "family", "base_url", "groups", "models", "priority", "weight"),
)
command.add_command(
    LazyVerb("test", "commands.channel_probe", "Make a real call through a channel.")
)
