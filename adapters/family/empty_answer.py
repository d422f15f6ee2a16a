"""Empty answers: a plain stop without text, call, thought, picture, refusal or usage.

Relays send them in place of an error. Whole they fail over, a stream ends in an error event, and
neither costs anything. Looked for only where no text was weighed. Imported by the readers of whole
answers and by the taps of streams.
"""

from typing import Any

from adapters.faults import Condition, Fault
from store.values.usage import Usage

NO_USAGE = Usage()

# Fields that every piece of an answer has, empty or not.
_LABELS = frozenset({"role", "type", "index", "id", "status", "object", "phase"})
_MAX_DEPTH = 8  # of what is looked into: deeper ones are content


def has_content(piece: object, depth: int = _MAX_DEPTH) -> bool:
    """Return true when a decoded piece of an answer (message, delta, block, item, content) has more
    than its labels: anything but null, false, 0 and empty strings, arrays and objects."""
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
    """Return true when an output item of the responses family has content: a message or reasoning
    with some, or anything that is neither."""
    return item.get("type") not in ("message", "reasoning") or has_content(item)


def counts_nothing(usage: Usage | None, reported: object) -> bool:
    """Return true when no usage was reported, or one of zeros; one that cannot be read is some."""
    return not has_content(reported) if usage is None else usage == NO_USAGE


def empty_answer() -> Fault:
    """Return the fault of an answer of nothing."""
    return Fault(Condition.UPSTREAM_INVALID, "The upstream sent an empty answer.")
