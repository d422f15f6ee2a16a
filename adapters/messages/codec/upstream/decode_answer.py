"""Whole answers of upstreams of the messages family, read leniently into the hub's words.

Blocks of the vendor's own tools are not shown: the text says what they have found. Imported by
``decode_stream`` and this folder's ``__init__``.
"""

from adapters.family.reply import loads_answer
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Finish
from adapters.ir.parts import Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import compact
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.messages.codec.blocks.citations import decode_citations
from adapters.messages.codec.upstream.thoughts import sealed_data, sealed_thought

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
    """The one choice of a message, in steps."""
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


def decode_count(body: bytes) -> int:
    """The tokens that a vendor has counted."""
    tokens = loads_answer(body)["input_tokens"]
    assert isinstance(tokens, int)
    return tokens


def finish_of(reason: object, details: object) -> tuple[Finish, str]:
    """Why an answer has ended, and what a vendor says of a refusal."""
    finish = FINISHES.get(reason, "stop") if isinstance(reason, str) else "stop"
    if finish != "refusal":
        return finish, ""
    said = details if isinstance(details, dict) else {}
    texts = [said.get(name) for name in ("explanation", "category")]
    return finish, next((text for text in texts if isinstance(text, str) and text), _REFUSED)


def text_of(value: object) -> str:
    """A string; of anything else none."""
    return value if isinstance(value, str) else ""


def arguments_text(value: object) -> str:
    """The arguments of a call as text; an object that cannot be written is none."""
    try:
        return compact(value) if isinstance(value, dict) else "{}"
    except OverflowError:
        raise Fault(Condition.UPSTREAM_INVALID) from None


def _part(block: object) -> Part | None:
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    if kind == "text":
        text = text_of(block.get("text"))
        citations = decode_citations(block.get("citations"))
        return Text(text, citations=citations) if text else None
    if kind == "thinking":
        thinking, signature = text_of(block.get("thinking")), text_of(block.get("signature"))
        opaque = sealed_thought(thinking, signature) if signature else ""
        return Reasoning(thinking, opaque=opaque) if thinking or opaque else None
    if kind == "redacted_thinking":
        data = text_of(block.get("data"))
        return Reasoning("", opaque=sealed_data(data)) if data else None
    if kind == "tool_use":
        arguments = arguments_text(block.get("input"))
        return ToolCall(text_of(block.get("id")), text_of(block.get("name")), arguments)
    return None
