"""Encoding of whole answers for clients of the responses family, and of the response object that
streams share with them.

It has all fields that the official SDK's types require, and the counts without which Codex fails.
"""

from collections.abc import Iterable
from typing import Any

from adapters.family.codec import AnswerContext
from adapters.ir.answer import Choice, Finish, Logprob, Opened
from adapters.ir.parts import Citation, Media, Part, Reasoning, Refusal, Text, ToolCall
from adapters.ir.request import TOOL_SEARCH
from adapters.json.jsonio import dumps, loads_or_none
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.responses.reasoning_state import THOUGHT_ID
from store.values.usage import Usage


def encode_answer(
    choices: tuple[Choice, ...], usage: Usage, context: AnswerContext
) -> Steps[bytes]:
    """Encode a whole answer, in steps. The family has only one choice."""
    choice = choices[0] if choices else Choice(())
    output = yield from _output(choice, context)
    closing = finish_fields(choice.finish, bool(output))
    if output and output[-1]["type"] == "message" and closing["status"] == "incomplete":
        output[-1]["status"] = "incomplete"  # the answer was cut inside this message
    if context.compaction == "object":
        compacted = {
            "id": f"resp_{context.id}",
            "object": "response.compaction",
            "created_at": context.created_s,
            "output": output,
            "usage": encode_usage(usage),
        }
        return dumps(compacted)
    response = {
        **blank_response(context),
        **closing,
        "output": output,
        "usage": encode_usage(usage),
    }
    return dumps(response)


def encode_count(tokens: int) -> bytes:
    """Encode the answer to a request that counts tokens."""
    return dumps({"object": "response.input_tokens", "input_tokens": tokens})


def _output(choice: Choice, context: AnswerContext) -> Steps[list[dict[str, Any]]]:
    output: list[dict[str, Any]] = []
    message: list[dict[str, Any]] | None = None  # the content of the last item, if it is a message
    logprobs: Choice | None = choice  # has the log probabilities of the first text
    refused = any(isinstance(part, Refusal) for part in choice.parts)
    last = refusal_text(choice.finish, choice.detail, refused)
    for place, part in enumerate((*choice.parts, *([Refusal(last)] if last else []))):
        if not place % VALUES_AT_ONCE:
            yield False
        if not isinstance(part, Text | Refusal):
            message = None
            item = _item(part, f"{context.id}_{len(output)}", context)
            if item is not None:
                output.append(item)
        elif part.text:
            if message is None:
                message = []
                output.append(_message(f"{context.id}_{len(output)}", message))
            if isinstance(part, Refusal):
                message.append({"type": "refusal", "refusal": part.text})
            else:
                message.append(encode_text(part.text, part.citations, logprobs))
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


def _item(part: Part, name: str, context: AnswerContext) -> dict[str, Any] | None:
    """Encode the item of a thought, a call or a picture; None for parts that answers do not
    have."""
    if isinstance(part, Reasoning):
        if context.compaction:
            return {"id": f"cmp_{name}", "type": "compaction", "encrypted_content": part.opaque}
        return _reasoning(part, name)
    if isinstance(part, Media):
        picture = {"id": f"ig_{name}", "type": "image_generation_call", "status": "completed"}
        return {**picture, "result": part.data}
    if not isinstance(part, ToolCall):
        return None
    if is_tool_search(part, context):
        arguments = search_arguments(part.arguments)
        return {"id": f"tsc_{name}", **search_call(part.id, "completed", arguments)}
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


def is_tool_search(call: ToolCall | Opened, context: AnswerContext) -> bool:
    """Return true for a call of the client-side search for tools."""
    return context.tool_search and call.name == TOOL_SEARCH and not call.namespace


def search_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a search for tools, which are an object in this family."""
    arguments = loads_or_none(text.encode(errors="replace")) if text else None
    return arguments if isinstance(arguments, dict) else {}


def search_call(call_id: str, status: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the item of a client-side search for tools, without its id."""
    return {
        "type": "tool_search_call",
        "status": status,
        "call_id": call_id,
        "execution": "client",
        "arguments": arguments,
    }


def _reasoning(part: Reasoning, name: str) -> dict[str, Any] | None:
    if not part.text and not part.opaque:
        return None
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    item = {"id": f"{THOUGHT_ID}{name}", "type": "reasoning", "summary": summary}
    return {**item, "encrypted_content": part.opaque} if part.opaque else item


# The text of a refusal if the vendor sends none.
REFUSED = "The model declined to answer."
_INCOMPLETE = {
    "length": "max_output_tokens",
    "context_full": "max_output_tokens",
    "filter": "content_filter",
}
_FAILED = {"code": "server_error", "message": "The model failed before it had answered."}


def blank_response(context: AnswerContext) -> dict[str, Any]:
    """Return the response object at the start of an answer."""
    return {
        "id": f"resp_{context.id}",
        "object": "response",
        "created_at": context.created_s,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": context.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": context.tier or "default",
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
    }


def finish_fields(finish: Finish, has_output: bool) -> dict[str, Any]:
    """Return the fields that describe how an answer ended."""
    reason = _INCOMPLETE.get(finish)
    if reason is not None:
        return {"status": "incomplete", "incomplete_details": {"reason": reason}}
    if finish == "error" and not has_output:
        return {"status": "failed", "error": _FAILED}
    return {"status": "completed"}


def refusal_text(finish: Finish, detail: str, refused: bool) -> str:
    """Return the refusal text to add at the end of an answer; empty if none is needed."""
    return (detail or REFUSED) if finish == "refusal" and not refused else ""


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Encode usage. Input includes the cache, output includes reasoning; zeros are also written."""
    details: dict[str, Any] = {
        "cached_tokens": usage.cache_read_tokens + usage.more_of("cache_read"),
        "cache_write_tokens": usage.written,
    }
    if usage.cache_write_1h_tokens:
        details["cache_write_tokens_details"] = {
            "ttl_30m_tokens": usage.cache_write_tokens,
            "ttl_12h_tokens": usage.cache_write_1h_tokens,
        }
    return {
        "input_tokens": usage.inputs,
        "input_tokens_details": details,
        "output_tokens": usage.outputs,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.inputs + usage.outputs,
    }


def encode_logprobs(logprobs: Iterable[Logprob]) -> list[dict[str, Any]]:
    """Encode tokens with their probabilities, each with its bytes."""
    return [
        {**_token(token), "top_logprobs": [_token(other) for other in token.top]}
        for token in logprobs
    ]


def _token(logprob: Logprob) -> dict[str, Any]:
    encoded = logprob.token.encode(errors="replace")
    return {"token": logprob.token, "bytes": list(encoded), "logprob": logprob.logprob}


def encode_text(text: str, citations: Iterable[Citation], choice: Choice | None) -> dict[str, Any]:
    """Encode a text of a message. ``choice``: set if its log probabilities belong to this text."""
    return {
        "type": "output_text",
        "annotations": [encode_citation(citation) for citation in citations],
        "logprobs": encode_logprobs(choice.logprobs) if choice is not None else [],
        "text": text,
    }


def encode_citation(citation: Citation) -> dict[str, Any]:
    """Encode a source of a text."""
    return {
        "type": "url_citation",
        "url": citation.url,
        "title": citation.title,
        "start_index": citation.start or 0,
        "end_index": citation.end or 0,
    }
