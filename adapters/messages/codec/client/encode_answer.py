"""Answers for clients of the messages family: whole ones, counts, and what streams share with them.

Source: the answer types of the official SDKs, which want every field of usage. Imported by
``encode_stream`` and this folder's ``__init__``.
"""

from typing import Any

from adapters.family.codec import Asked
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Finish, Finished
from adapters.ir.parts import Part, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.messages.codec.blocks.arguments import arguments_of
from adapters.messages.codec.blocks.call_ids import fit_id
from adapters.messages.codec.blocks.citations import UNSIGNED, encode_citation

STOP_REASONS: dict[Finish, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tools": "tool_use",
    "filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
    "context_full": "model_context_window_exceeded",
    "error": "end_turn",  # of a model that has failed in what it had begun
}


def encode_answer(choices: tuple[Choice, ...], usage: Usage, asked: Asked) -> Steps[bytes]:
    """A whole answer, in steps; raises Fault UPSTREAM_FAILED when the model has failed and said
    nothing."""
    choice = choices[0] if choices else Choice(())
    content: list[dict[str, Any]] = []
    for place, part in enumerate(choice.parts):
        if not place % VALUES_AT_ONCE:
            yield False
        if (block := _block(part)) is not None:
            content.append(block)
    if len(content) > 1 and content[-1].get("thinking") == "" and content[-2]["type"] == "text":
        del content[-1]  # a bare signature: clients look for the answer in the last block
    if choice.finish == "error" and not content:
        raise Fault(Condition.UPSTREAM_FAILED)
    finished = Finished(choice.finish, 0, choice.stop_sequence, choice.detail)
    message = message_head(asked) | {"content": content} | stop_fields(finished)
    return dumps(message | {"usage": usage_fields(usage)})


def encode_count(tokens: int) -> bytes:
    """The answer to a request to count tokens."""
    return dumps({"input_tokens": tokens})


def message_head(asked: Asked) -> dict[str, Any]:
    """The fields that every message begins with."""
    return {"id": f"msg_{asked.id}", "type": "message", "role": "assistant", "model": asked.model}


def stop_fields(finished: Finished) -> dict[str, Any]:
    """Why the message has ended."""
    reason = STOP_REASONS[finished.finish]
    fields: dict[str, Any] = {"stop_reason": reason, "stop_sequence": finished.stop_sequence}
    if reason == "refusal":
        fields["stop_details"] = {
            "type": "refusal",
            "category": None,
            "explanation": finished.detail or None,
        }
    return fields


def usage_fields(usage: Usage) -> dict[str, Any]:
    """All counts: input without what the cache was read or written for, output with thinking."""
    short, long = usage.cache_write_tokens, usage.cache_write_1h_tokens
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": short + long,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": short,
            "ephemeral_1h_input_tokens": long,
        },
        "output_tokens": usage.output_tokens + usage.reasoning_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "service_tier": "standard",
    }


def call_block(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call of a tool."""
    return {"type": "tool_use", "id": fit_id(call_id), "name": name, "input": arguments}


def _block(part: Part) -> dict[str, Any] | None:
    """None for what the family has no block for, and for empty text."""
    if isinstance(part, Text | Refusal):
        if not part.text:
            return None
        block: dict[str, Any] = {"type": "text", "text": part.text}
        if isinstance(part, Text) and part.citations:
            block["citations"] = [encode_citation(each) for each in part.citations]
        return block
    if isinstance(part, Reasoning):
        signature = part.opaque or UNSIGNED
        return {"type": "thinking", "thinking": part.text, "signature": signature}
    if isinstance(part, ToolCall):
        return call_block(part.id, part.name, arguments_of(part.arguments))
    return None
