"""What translated answers leave in a client's history that no vendor of this family has made.

A thought of another family's upstream is shown as a thinking block whose signature is the wrapped
state of its maker, or UNSIGNED when it has none; a source that was cited has UNSIGNED in place of
the vendor's index. Both begin alike, so that they are found, and are taken out before a vendor of
this family sees them. Imported by the
codec's ``__init__``.
"""

from collections.abc import Callable
from typing import Any

from adapters.json.jsonio import Spans, dumps, elements, loads, replace
from adapters.messages.codec.blocks.citations import UNSIGNED

_MARK = UNSIGNED.encode()
_THOUGHTS = ("thinking", "redacted_thinking")


def without_foreign(spans: Spans, upstream_model: str) -> bytes:
    """A body of this family without them, for an upstream of this family.

    Thinking by a budget is turned off when the turn that is going on has lost its thoughts: the
    vendor would refuse to go on.
    """
    return _without(spans, _MARK, is_foreign)


def without_reasoning(spans: Spans, upstream_model: str) -> bytes:
    """A body of this family without any thoughts, of whoever; the same when there are none."""
    return _without(spans, b'thinking"', _is_thought)


def _is_thought(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") in _THOUGHTS


def _without(spans: Spans, mark: bytes, is_out: Callable[[object], bool]) -> bytes:
    """The body without the blocks that ``is_out`` tells; only turns with ``mark`` are read."""
    place = spans.get("messages")
    found = elements(spans.body[place.start : place.end]) if place is not None else None
    if place is None or not found:
        return spans.body
    turns: list[bytes] = []
    lost = False  # the turn that is going on has lost a thought
    for raw in found:
        text = bytes(raw)
        if mark not in text:
            lost = lost and _goes_on(text)
            turns.append(text)
        else:
            kept, without_thoughts = _cleaned(text, is_out)
            lost = without_thoughts or (lost and _goes_on(text))
            if kept:  # else it had nothing else; the vendor joins neighbours of one role
                turns.append(kept)
    if turns == [bytes(raw) for raw in found]:
        return spans.body
    edits = {place: b"[" + b",".join(turns) + b"]"}
    thinking = spans.get("thinking")
    if lost and thinking is not None and _by_budget(spans.value("thinking")):
        edits[thinking] = b'{"type":"disabled"}'
    return replace(spans.body, edits)


def is_foreign(block: object) -> bool:
    """Whether a content block is a thought that another family's upstream has made."""
    if not isinstance(block, dict):
        return False
    name = {"thinking": "signature", "redacted_thinking": "data"}.get(str(block.get("type")))
    value = block.get(name) if name else None
    return isinstance(value, str) and value.startswith(UNSIGNED)


def _goes_on(turn: bytes) -> bool:
    """Whether a round of tools is not over with this turn: it is the assistant's or has results."""
    return b'"assistant"' in turn or b'"tool_result"' in turn


def _cleaned(text: bytes, is_out: Callable[[object], bool]) -> tuple[bytes, bool]:
    """A turn without what is out (empty: nothing is left), and whether it calls tools without
    the thoughts that it had."""
    turn = loads(text)
    content = turn.get("content") if isinstance(turn, dict) else None
    if not isinstance(content, list):
        return text, False
    kept = [_without_sources(block) for block in content if not is_out(block)]
    if kept == content:
        return text, False
    lost = len(kept) < len(content) and _calls(kept)
    return (dumps(turn | {"content": kept}) if kept else b""), lost


def _without_sources(block: object) -> object:
    if not isinstance(block, dict) or not isinstance(block.get("citations"), list):
        return block
    own = [
        source
        for source in block["citations"]
        if not (isinstance(source, dict) and source.get("encrypted_index") == UNSIGNED)
    ]
    return {name: value for name, value in block.items() if name != "citations"} | (
        {"citations": own} if own else {}
    )


def _calls(blocks: list[Any]) -> bool:
    return any(isinstance(block, dict) and block.get("type") == "tool_use" for block in blocks)


def _by_budget(thinking: object) -> bool:
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"
