"""`group`: groups, listed and edited one by one."""

from commands.nouns.kinds import noun

command = noun(
    "group", ("name", "enabled", "multiplier", "models", "entries", "rpm", "tpm", "concurrency")
)
