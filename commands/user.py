"""`user`: users, listed and edited one by one."""

from commands.nouns import noun

command = noun("user", ("name", "role", "enabled", "order", "id"))
