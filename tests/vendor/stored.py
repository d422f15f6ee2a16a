"""The responses that the responses vendor has stored.

Bounded in number and in bytes, lost with the process. Knows neither HTTP nor a request's shape.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

STORED_MAX = 100
STORED_BYTES_MAX = 64 * 1024 * 1024


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


@dataclass(slots=True)
class Stored:
    """A response, and the facts that a later response needs to continue it."""

    response: bytes  # JSON
    items: bytes  # JSON of its input, each item with an id
    context_tokens: int
    open_calls: tuple[str, ...]  # call ids that have no result yet
    item_ids: frozenset[str]
    background: bool
    waiting: bool  # in the background, and not retrieved yet
    size_bytes: int


class Shelf:
    """The latest stored responses; the oldest are dropped first."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Stored] = OrderedDict()
        self._bytes = 0

    def put(self, response: dict[str, Any], items: list[dict[str, Any]]) -> None:
        """Store a finished response, unless it alone exceeds the bound in bytes."""
        usage = response["usage"] or {}
        background = bool(response["background"])
        encoded, encoded_items = _encode(response), _encode(items)
        entry = Stored(
            response=encoded,
            items=encoded_items,
            context_tokens=usage.get("total_tokens", 0),
            open_calls=tuple(item["call_id"] for item in response["output"] if "call_id" in item),
            item_ids=frozenset(item["id"] for item in (*items, *response["output"])),
            background=background,
            waiting=background,
            size_bytes=len(encoded) + len(encoded_items),
        )
        self.drop(response["id"])
        self._found[response["id"]] = entry
        self._bytes += entry.size_bytes
        while len(self._found) > STORED_MAX or self._bytes > STORED_BYTES_MAX:
            _, oldest = self._found.popitem(last=False)
            self._bytes -= oldest.size_bytes

    def get(self, name: str) -> Stored | None:
        return self._found.get(name)

    def drop(self, name: str) -> bool:
        """Delete a response. Return False if there was none."""
        entry = self._found.pop(name, None)
        if entry is not None:
            self._bytes -= entry.size_bytes
        return entry is not None

    def item(self, name: str) -> dict[str, Any] | None:
        """Return an item of the input or the output of a stored response."""
        for entry in self._found.values():
            if name in entry.item_ids:
                items: list[dict[str, Any]] = json.loads(entry.items)
                items += json.loads(entry.response)["output"]
                return next(item for item in items if item["id"] == name)
        return None
