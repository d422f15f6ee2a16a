"""Whole answers for clients: a response object with its output items, and a count.

Imported by this folder's ``__init__``.
"""

from typing import Any

from adapters.family.codec import Asked
from adapters.ir.answer import Choice
from adapters.ir.parts import Part, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.responses.codec.client.response_object import (
    blank_response,
    ending,
    refusal_text,
    text_part,
    usage_object,
)
from adapters.responses.kept import THOUGHT_ID


def encode_answer(choices: tuple[Choice, ...], usage: Usage, asked: Asked) -> Steps[bytes]:
    """A whole answer, in steps (see ``family.codec.ClientCodec``); the family has one choice."""
    choice = choices[0] if choices else Choice(())
    output = yield from _output(choice, asked)
    closing = ending(choice.finish, bool(output))
    if output and output[-1]["type"] == "message" and closing["status"] == "incomplete":
        output[-1]["status"] = "incomplete"  # the answer was cut in it
    response = {
        **blank_response(asked),
        **closing,
        "output": output,
        "usage": usage_object(usage),
    }
    return dumps(response)


def encode_count(tokens: int) -> bytes:
    """The answer to a request to count tokens."""
    return dumps({"object": "response.input_tokens", "input_tokens": tokens})


def _output(choice: Choice, asked: Asked) -> Steps[list[dict[str, Any]]]:
    output: list[dict[str, Any]] = []
    message: list[dict[str, Any]] | None = None  # the content of the message that is last
    logprobs: Choice | None = choice  # they are those of the first text
    refused = any(isinstance(part, Refusal) for part in choice.parts)
    last = refusal_text(choice.finish, choice.detail, refused)
    for place, part in enumerate((*choice.parts, *([Refusal(last)] if last else []))):
        if not place % VALUES_AT_ONCE:
            yield False
        if not isinstance(part, Text | Refusal):
            message = None
            item = _item(part, f"{asked.id}_{len(output)}")
            if item is not None:
                output.append(item)
        elif part.text:
            if message is None:
                message = []
                output.append(_message(f"{asked.id}_{len(output)}", message))
            if isinstance(part, Refusal):
                message.append({"type": "refusal", "refusal": part.text})
            else:
                message.append(text_part(part.text, part.citations, logprobs))
                logprobs = None
    return output


def _message(name: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{name}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def _item(part: Part, name: str) -> dict[str, Any] | None:
    """The item of a thought or a call; None for what answers do not have."""
    if isinstance(part, Reasoning):
        return _reasoning(part, name)
    if not isinstance(part, ToolCall):
        return None
    kind, prefix, field = (
        ("custom_tool_call", "ctc", "input")
        if part.custom
        else ("function_call", "fc", "arguments")
    )
    item = {
        "id": f"{prefix}_{name}",
        "type": kind,
        "status": "completed",
        "call_id": part.id,
        "name": part.name,
        field: part.arguments if part.custom else part.arguments or "{}",
    }
    return {**item, "namespace": part.namespace} if part.namespace else item


def _reasoning(part: Reasoning, name: str) -> dict[str, Any] | None:
    if not part.text and not part.opaque:
        return None
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    item = {"id": f"{THOUGHT_ID}{name}", "type": "reasoning", "summary": summary}
    return {**item, "encrypted_content": part.opaque} if part.opaque else item
