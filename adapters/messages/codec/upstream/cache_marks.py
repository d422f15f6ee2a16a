"""Cache marks for upstreams, ``cache_control`` on tools and blocks.

An upstream takes MAX_MARKS of them. Clients of other families cannot mark what should be cached;
for them the end of the tools, of the system text and of the conversation are marked, since the next
call begins with the same. Imported by this folder's ``encode_request``.
"""

from typing import Any

from adapters.ir.parts import CacheMark

MAX_MARKS = 4
# What other families keep for half an hour is kept for five minutes here, all above for an hour.
_SHORT_MAX_S = 1800
_FIELD = "cache_control"


def with_mark(block: dict[str, Any], mark: CacheMark | None) -> dict[str, Any]:
    """The block for an upstream, marked if ``mark`` is one."""
    if mark is None:
        return block
    written = {"type": "ephemeral"}
    if mark.ttl_s is not None:
        written["ttl"] = "5m" if mark.ttl_s <= _SHORT_MAX_S else "1h"
    return block | {_FIELD: written}


def limit_marks(body: dict[str, Any]) -> None:
    """Take away marks beyond MAX_MARKS: the last ones stay, and the last of the system text."""
    marked = _marked(body)
    if len(marked) <= MAX_MARKS:
        return
    system = [block for block in body.get("system", ()) if _FIELD in block][-1:]
    others = [block for block in marked if not any(block is one for one in system)]
    for block in others[: len(others) - (MAX_MARKS - len(system))]:
        del block[_FIELD]


def mark_by_rule(body: dict[str, Any]) -> None:
    """Mark what the next call will begin with, unless something is marked, or the request is a
    single question, which would pay for the writing alone."""
    messages = body["messages"]
    talk = any(message["role"] == "assistant" for message in messages)
    if not (talk or body.get("tools")) or _marked(body):
        return
    users = [message for message in messages if message["role"] == "user"]
    for blocks in (body.get("tools"), body.get("system"), users[-1]["content"] if users else ()):
        if blocks:
            blocks[-1][_FIELD] = {"type": "ephemeral"}


def _marked(body: dict[str, Any]) -> list[dict[str, Any]]:
    """All marked blocks, in the order in which the vendor reads them."""
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    for message in body["messages"]:
        blocks += message["content"]
    return [block for block in blocks if _FIELD in block]
