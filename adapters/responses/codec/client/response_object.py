"""The response object that clients get, its output items and its usage.

Everything that the official SDK's types require is there, and the counts that Codex dies without.
Imported by ``encode_answer`` and ``encode_stream``.
"""

from collections.abc import Iterable
from typing import Any

from adapters.family.codec import Asked
from adapters.ir.answer import Choice, Finish, Logprob
from adapters.ir.parts import Citation
from adapters.ir.usage import Usage
from adapters.responses.annotations import annotation

# What a refusal says when the vendor has no words for it.
REFUSED = "The model declined to answer."
_INCOMPLETE = {
    "length": "max_output_tokens",
    "context_full": "max_output_tokens",
    "filter": "content_filter",
}
_FAILED = {"code": "server_error", "message": "The model failed before it had answered."}


def blank_response(asked: Asked) -> dict[str, Any]:
    """The object as an answer begins."""
    return {
        "id": f"resp_{asked.id}",
        "object": "response",
        "created_at": asked.created_s,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": asked.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
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


def ending(finish: Finish, said_something: bool) -> dict[str, Any]:
    """The fields that say how an answer ended."""
    reason = _INCOMPLETE.get(finish)
    if reason is not None:
        return {"status": "incomplete", "incomplete_details": {"reason": reason}}
    if finish == "error" and not said_something:
        return {"status": "failed", "error": _FAILED}
    return {"status": "completed"}


def refusal_text(finish: Finish, detail: str, refused: bool) -> str:
    """What must still be said as a refusal at the end of an answer; empty when nothing."""
    return (detail or REFUSED) if finish == "refusal" and not refused else ""


def usage_object(usage: Usage) -> dict[str, Any]:
    """Input with what the cache has, output with reasoning; every count is there, also zeros."""
    written = usage.cache_write_tokens + usage.cache_write_1h_tokens
    given = usage.input_tokens + usage.cache_read_tokens + written
    output = usage.output_tokens + usage.reasoning_tokens
    details: dict[str, Any] = {
        "cached_tokens": usage.cache_read_tokens,
        "cache_write_tokens": written,
    }
    if usage.cache_write_1h_tokens:
        details["cache_write_tokens_details"] = {
            "ttl_30m_tokens": usage.cache_write_tokens,
            "ttl_12h_tokens": usage.cache_write_1h_tokens,
        }
    return {
        "input_tokens": given,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": given + output,
    }


def logprobs_of(logprobs: Iterable[Logprob]) -> list[dict[str, Any]]:
    """Tokens with their probabilities, each with its bytes."""
    return [
        {**_token(one), "top_logprobs": [_token(other) for other in one.top]} for one in logprobs
    ]


def _token(one: Logprob) -> dict[str, Any]:
    encoded = one.token.encode(errors="replace")
    return {"token": one.token, "bytes": list(encoded), "logprob": one.logprob}


def text_part(text: str, citations: Iterable[Citation], choice: Choice | None) -> dict[str, Any]:
    """A part of a message; ``choice`` when its log probabilities are those of this text."""
    return {
        "type": "output_text",
        "annotations": [annotation(one) for one in citations],
        "logprobs": logprobs_of(choice.logprobs) if choice is not None else [],
        "text": text,
    }
