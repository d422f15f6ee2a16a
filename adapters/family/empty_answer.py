"""Empty answers: a plain stop without text, call, thought, picture, refusal or usage.

Relays send them in place of an error. A whole empty answer fails over, an empty stream ends in an
error event, and neither costs anything. Looked for only if no text was weighed. Imported by the
readers of whole answers and by the taps of streams.
"""

from typing import Any

from adapters.faults import Condition, Fault
from store.values.usage import Usage

NO_USAGE = Usage()

# Fields that every piece of an answer has, even an empty one.
_LABELS = frozenset({"role", "type", "index", "id", "status", "object", "phase"})
_MAX_DEPTH = 8  # of the search: anything deeper counts as content


def has_content(piece: object, depth: int = _MAX_DEPTH) -> bool:
    """Return true if a decoded piece of an answer (message, delta, block, item, content) has more
    than its labels: anything except null, false, 0 and empty strings, arrays and objects."""
    if not piece or not isinstance(piece, dict | list):
        return bool(piece)
    if not depth:
        return True
    if isinstance(piece, list):
        return any(has_content(value, depth - 1) for value in piece)
    for name, value in piece.items():
        if value and name not in _LABELS and has_content(value, depth - 1):
            return True
    return False


def item_has_content(item: dict[str, Any]) -> bool:
    """Return true if an output item of the responses family has content: a message or reasoning
    that is not empty, or any other item."""
    return item.get("type") not in ("message", "reasoning") or has_content(item)


def counts_nothing(usage: Usage | None, reported: object) -> bool:
    """Return true if no usage or only zeros were reported; an unreadable report counts as usage."""
    return not has_content(reported) if usage is None else usage == NO_USAGE


def empty_answer() -> Fault:
    """Return the fault for an empty answer."""
    return Fault(Condition.UPSTREAM_INVALID, "The upstream sent an empty answer.")
