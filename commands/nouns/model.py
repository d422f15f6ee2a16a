"""`model`: models, listed and edited one by one."""

from commands.nouns.kinds import noun

command = noun("model", ("name", "enabled", "context_tokens", "max_output_tokens", "price"))
