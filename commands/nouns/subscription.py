"""`subscription`: users' rights to plans, listed and edited one by one."""

from commands.nouns.kinds import noun
from operations.edits import with_use

command = noun(
    "subscription",
    ("user", "plan", "enabled", "starts_at", "expires_at", "spent", "resets_at", "id"),
    "create also accepts PLAN user=USER for USER/PLAN, the other verbs also accept the id."
    " starts_at defaults to now, expires_at to as many days later as the plan's `days`.",
    with_use,
)
