"""`plan`: the quotas of subscriptions, listed and edited one by one."""

from commands.nouns.kinds import noun

command = noun(
    "plan",
    ("name", "enabled", "quota", "window", "days", "id"),
    "A quota is spent anew in each window (day, week, month; UTC). `days` is how long a new"
    " subscription lasts; those that are there keep their end.",
)
