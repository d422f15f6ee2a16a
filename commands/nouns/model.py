"""`model`: models, listed and edited one by one."""

from commands.nouns.kinds import noun

command = noun(
    "model",
    ("name", "enabled", "context_tokens", "max_output_tokens", "price"),
    "With from=TIME (2027-01-01T00:00:00Z) set lets the prices that are given hold from then"
    " on, by the store's clock, in every worker; price_changes= takes back what is to come.",
)
