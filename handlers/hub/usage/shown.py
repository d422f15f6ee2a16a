"""Records as people may see them: an administrator all of it, a member nothing of the channels.

A member's record has no channel, upstream name, upstream id or node, and of its attempts no channel
and in place of what an upstream said the condition that it stands for.
"""

from collections.abc import Mapping
from typing import Any

from handlers.hub.usage.attempts import details
from handlers.hub.web.strings import strings
from store.calls.usage_lookup import cost_lines
from store.values.usage_record import to_public

HIDDEN = ("channel", "upstream_model", "upstream_request_id", "node")
_OF_ATTEMPTS = ("status", "error", "ms", "dropped")
_WORDS = strings("en")


def public(row: Mapping[str, Any], *, admin: bool) -> dict[str, Any]:
    """The public form of a row: all fields; hidden ones are None."""
    record = to_public(row)
    if admin:
        return record
    record |= dict.fromkeys(HIDDEN)
    record["attempts"] = [
        {name: attempt[name] for name in _OF_ATTEMPTS if name in attempt} | {"detail": said or None}
        for attempt, said in zip(record["attempts"] or (), details(row, _WORDS), strict=True)
    ]
    return record


def whole(row: dict[str, Any], *, admin: bool) -> dict[str, Any]:
    """The same with the lines that its cost is made of, and its refund."""
    return {
        **public(row, admin=admin),
        "cost_lines": cost_lines(row),
        "refund": row["refund"],
    }
