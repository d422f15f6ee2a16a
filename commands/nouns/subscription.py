"""`subscription`: users' rights to plans, listed and edited one by one."""

from commands.nouns.kinds import noun
from operations.edits import with_use

command = noun(
    "subscription",
    ("user", "plan", "enabled", "starts_at", "expires_at", "spent", "resets_at", "id"),
    "USER/PLAN may also be written as PLAN user=USER when it is made, and be the id later."
    " starts_at is now unless given, expires_at so many days later as the plan says.",
    with_use,
)
