"""Upstream answers of the messages family, both whole and streamed, decoded leniently into
``adapters.ir``.

Blocks of the vendor's own tools are not shown, because the text reports their results. Block
numbers are the vendor's; slots are numbered here. Imported by this folder's ``__init__``.
"""

from typing import Any

from adapters.family.codec import StreamDecoder
from adapters.family.reply import loads_answer, text_field
from adapters.faults import Condition, Fault
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Event,
    Finish,
    Finished,
    Sealed,
    SlotKind,
)
from adapters.ir.parts import Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import Struct, compact
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.messages.parts import decode_citation, decode_citations, sealed_data, sealed_thought

FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "tool_use": "tools",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
    "model_context_window_exceeded": "context_full",
}
_REFUSED = "The model declined to answer."


def decode_answer(body: bytes) -> Steps[tuple[Choice, ...]]:
    """Return the one choice of a message, in steps."""
    message = loads_answer(body)
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        raise Fault(Condition.UPSTREAM_INVALID)
    parts: list[Part] = []
    for place, block in enumerate(content):
        if not place % VALUES_AT_ONCE:
            yield False
        if (part := _part(block)) is not None:
            parts.append(part)
    finish, detail = finish_of(message.get("stop_reason"), message.get("stop_details"))
    if finish == "refusal":
        parts.append(Refusal(detail))
    stop = message.get("stop_sequence")
    return (Choice(tuple(parts), finish, stop if isinstance(stop, str) else None, detail),)


def finish_of(reason: object, details: object) -> tuple[Finish, str]:
    """Return why an answer ended, and the vendor's explanation of a refusal."""
    finish = FINISHES.get(reason, "stop") if isinstance(reason, str) else "stop"
    if finish != "refusal":
        return finish, ""
    fields = details if isinstance(details, dict) else {}
    texts = [fields.get(name) for name in ("explanation", "category")]
    return finish, next((text for text in texts if isinstance(text, str) and text), _REFUSED)


def arguments_text(value: object) -> str:
    """Return the arguments of a call as text; "{}" if they are no object. Raises Fault
    UPSTREAM_INVALID if the object cannot be written."""
    try:
        return compact(value) if isinstance(value, dict) else "{}"
    except OverflowError:
        raise Fault(Condition.UPSTREAM_INVALID) from None


def _part(block: object) -> Part | None:
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    if kind == "text":
        text = text_field(block, "text")
        citations = decode_citations(block.get("citations"))
        return Text(text, citations=citations) if text else None
    if kind == "thinking":
        thinking, signature = text_field(block, "thinking"), text_field(block, "signature")
        opaque = sealed_thought(thinking, signature) if signature else ""
        return Reasoning(thinking, opaque=opaque) if thinking or opaque else None
    if kind == "redacted_thinking":
        data = text_field(block, "data")
        return Reasoning("", opaque=sealed_data(data)) if data else None
    if kind == "tool_use":
        arguments = arguments_text(block.get("input"))
        return ToolCall(text_field(block, "id"), text_field(block, "name"), arguments)
    return None


_KINDS: dict[str, SlotKind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "call",
}
# type of a delta with text -> its kind of block and the field with the text
_DELTAS: dict[str, tuple[str, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("tool_use", "partial_json"),
}


class _Block(Struct):
    """An open block. ``input``: arguments in its start event, used if no more follow."""

    slot: int
    kind: SlotKind
    pieces: list[str]  # text of a thought
    signature: str = ""
    data: str = ""
    input: dict[str, Any] | None = None
    has_arguments: bool = False


class MessagesDecoder(StreamDecoder):
    """Decoder of one stream (see ``family.codec.StreamDecoder``)."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[object, _Block] = {}  # open blocks, by the vendor's number

    def read(self, name: str | None, data: dict[str, Any]) -> list[Event]:
        kind = data.get("type")
        index = _index(data.get("index"))
        if kind == "content_block_delta":
            delta = data.get("delta")
            return self._delta(index, delta) if isinstance(delta, dict) else []
        if kind == "content_block_start":
            block = data.get("content_block")
            return self._start(index, block) if isinstance(block, dict) else []
        if kind == "content_block_stop":
            return self._stop(index)
        if kind == "message_delta":
            delta = data.get("delta")
            return self._finish(delta) if isinstance(delta, dict) else []
        return []

    def may_skip(self, event: Delta) -> bool:
        """Return false for thoughts, which are gathered to be sent back with their signature."""
        return self._slots.get(event.slot) != "reasoning"

    def end(self) -> list[Event]:
        return self._close_all()

    def _start(self, index: object, block: dict[str, Any]) -> list[Event]:
        kind = _KINDS.get(text_field(block, "type"))
        events = self._stop(index)  # for a vendor that did not close it
        if kind is None:
            return events
        fields = {}
        if kind == "call":
            fields = {"id": text_field(block, "id"), "name": text_field(block, "name")}
        opened = self._open(kind, **fields)
        arguments = block.get("input")
        opened_block = self._blocks[index] = _Block(opened.slot, kind, [])
        if kind == "reasoning":
            opened_block.signature = text_field(block, "signature")
            opened_block.data = text_field(block, "data")
        elif kind == "call":
            opened_block.input = arguments if isinstance(arguments, dict) else None
        fields_of = {"text": "text", "reasoning": "thinking"}
        first = text_field(block, fields_of.get(kind, ""))
        return [*events, opened, *([self._text(opened_block, first)] if first else ())]

    def _delta(self, index: object, delta: dict[str, Any]) -> list[Event]:
        kind = text_field(delta, "type")
        if kind in _DELTAS:
            of, field = _DELTAS[kind]
            events: list[Event] = []
            if index not in self._blocks and of != "tool_use":
                events = self._start(index, {"type": of})  # for a vendor that sends no start
            block = self._blocks.get(index)
            if block is None or block.kind != _KINDS[of]:
                return events
            text = text_field(delta, field)
            return [*events, self._text(block, text)] if text else events
        block = self._blocks.get(index)
        if block is None:
            return []
        if kind == "signature_delta" and block.kind == "reasoning":
            block.signature = text_field(delta, "signature")
        elif kind == "citations_delta" and block.kind == "text":
            citation = decode_citation(delta.get("citation"))
            return [Cited(block.slot, citation)] if citation is not None else []
        return []

    def _text(self, block: _Block, text: str) -> Delta:
        if block.kind == "reasoning":
            block.pieces.append(text)
        block.has_arguments = True
        return Delta(block.slot, text)

    def _stop(self, index: object) -> list[Event]:
        block = self._blocks.pop(index, None)
        if block is None:
            return []
        events: list[Event] = []
        if block.kind == "call" and not block.has_arguments:
            events.append(Delta(block.slot, arguments_text(block.input)))
        if block.signature:
            thought = sealed_thought("".join(block.pieces), block.signature)
            events.append(Sealed(block.slot, thought))
        elif block.data:
            events.append(Sealed(block.slot, sealed_data(block.data)))
        closed: Closed = self._close(block.slot)
        return [*events, closed]

    def _close_all(self) -> list[Event]:
        return [event for index in list(self._blocks) for event in self._stop(index)]

    def _finish(self, delta: dict[str, Any]) -> list[Event]:
        reason = delta.get("stop_reason")
        if not isinstance(reason, str):
            return []
        events = self._close_all()
        finish, detail = finish_of(reason, delta.get("stop_details"))
        if finish == "refusal":
            opened = self._open("refusal")
            events += [opened, Delta(opened.slot, detail), self._close(opened.slot)]
        stop = delta.get("stop_sequence")
        events.append(Finished(finish, 0, stop if isinstance(stop, str) else None, detail))
        return events


def _index(value: object) -> object:
    """Return a block's number, or None if it is unreadable."""
    return value if isinstance(value, int | str) else None
