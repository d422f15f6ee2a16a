"""`plan`: the quotas of subscriptions, listed and edited one by one."""

from commands.nouns.kinds import noun

command = noun(
    "plan",
    ("name", "enabled", "quota", "window", "days", "id"),
    "The quota starts afresh in each window (day, week, month; UTC). `days` is how long a new"
    " subscription lasts; existing ones keep their end.",
)
