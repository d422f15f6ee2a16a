"""`user`: users, listed and edited one by one."""

from commands.nouns.kinds import noun

command = noun("user", ("name", "role", "enabled", "order", "id"))
