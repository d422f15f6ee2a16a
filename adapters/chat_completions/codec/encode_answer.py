"""A whole answer for a client of the chat completions family, and what its streams share with it.

A message has one text, one reasoning text and a list of calls, so parts are brought together by
kind. Imported by ``encode_stream`` and this folder's ``__init__``.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from adapters.chat_completions.codec.reasoning_state import (
    FIELD,
    extra_content,
    joined_text,
    piece,
)
from adapters.family.codec import Asked
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Finish, Logprob
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps
from adapters.json.structure import VALUES_AT_ONCE, Steps

ID_PREFIX = "chatcmpl-"

_FINISH_REASONS: dict[Finish, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tools": "tool_calls",
    "filter": "content_filter",
    "refusal": "stop",
    "pause": "stop",
    "context_full": "length",
    "error": "stop",  # of an answer that has something; of another it is a fault
}


def encode_answer(choices: tuple[Choice, ...], usage: Usage, asked: Asked) -> Steps[bytes]:
    """The whole answer, in steps (see ``family.codec.ClientCodec``); raises Fault UPSTREAM_FAILED
    when the model failed before it said anything."""
    said: list[dict[str, Any]] = []
    for index, choice in enumerate(choices):
        said.append((yield from _choice(choice, index, asked)))
    return dumps(
        {
            "id": ID_PREFIX + asked.id,
            "object": "chat.completion",
            "created": asked.created_s,
            "model": asked.model,
            "choices": said,
            "usage": usage_of(usage),
        }
    )


def encode_count(tokens: int) -> bytes:
    """Never called: this family has no endpoint that counts tokens."""
    raise Fault(Condition.INTERNAL)


def model_failed() -> Fault:
    """What the client is told when the model ended with an error and said nothing before."""
    return Fault(Condition.UPSTREAM_FAILED, "The upstream model failed before it answered.")


def usage_of(usage: Usage) -> dict[str, Any]:
    """The family's usage object: prompt and completion include what is cached and reasoned."""
    written = usage.cache_write_tokens + usage.cache_write_1h_tokens
    prompt = usage.input_tokens + usage.cache_read_tokens + written
    completion = usage.output_tokens + usage.reasoning_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": written,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def logprobs_of(logprobs: Iterable[Logprob]) -> dict[str, Any]:
    """The family's ``logprobs`` of a choice."""
    return {
        "content": [
            {**_logprob(one), "top_logprobs": [_logprob(other) for other in one.top]}
            for one in logprobs
        ],
        "refusal": None,
    }


def annotation_of(citation: Citation, start: int, end: int) -> dict[str, Any]:
    """An annotation; ``start`` and ``end`` are where its text stands in the message, for a citation
    that does not say for which characters it is."""
    told = citation.start is not None and citation.end is not None
    return {
        "type": "url_citation",
        "url_citation": {
            "start_index": start + (citation.start or 0) if told else start,
            "end_index": start + (citation.end or 0) if told else end,
            "url": citation.url,
            "title": citation.title,
        },
    }


def finish_reason(finish: Finish, asked: Asked) -> str:
    """Why a choice ended, in the words of a client that knows tools, or only functions."""
    if finish == "tools" and asked.function_call:
        return "function_call"
    return _FINISH_REASONS[finish]


def call_ids(given: str, taken: set[str], asked: Asked) -> str:
    """The id of a call for the client: the upstream's where it has one of its own."""
    call_id = given
    if not call_id or call_id in taken:
        call_id = f"call_{asked.id}_{len(taken)}"
    taken.add(call_id)
    return call_id


def _choice(choice: Choice, index: int, asked: Asked) -> Steps[dict[str, Any]]:
    if choice.finish == "error" and not choice.parts:
        raise model_failed()
    thoughts = [part for part in choice.parts if isinstance(part, Reasoning)]
    reasoning, places = joined_text(thoughts)
    yield False
    texts = [part for part in choice.parts if isinstance(part, Text)]
    refusal = "".join(part.text for part in choice.parts if isinstance(part, Refusal))
    where = {id(part): place for part, place in zip(thoughts, places, strict=True)}
    calls, left = yield from _calls(choice, where, asked)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(text.text for text in texts),
        "refusal": refusal or None,
    }
    if not message["content"] and (calls or refusal):
        message["content"] = None
    if reasoning:
        message["reasoning_content"] = reasoning
    if left:
        message[FIELD] = " ".join(left)
    if annotations := _annotations(texts):
        message["annotations"] = annotations
    if calls and asked.function_call:
        message["function_call"] = calls[0]["function"]
    elif calls:
        message["tool_calls"] = calls
    return {
        "index": index,
        "message": message,
        "logprobs": logprobs_of(choice.logprobs) if choice.logprobs else None,
        "finish_reason": finish_reason(choice.finish, asked),
    }


def _calls(
    choice: Choice, where: dict[int, tuple[int, int]], asked: Asked
) -> Steps[tuple[list[dict[str, Any]], list[str]]]:
    """The calls, each with the opaque pieces since the last one, and the pieces behind all."""
    calls: list[dict[str, Any]] = []
    waiting: list[str] = []
    taken: set[str] = set()
    spoken = False
    for place, part in enumerate(choice.parts):
        if not place % VALUES_AT_ONCE:
            yield False
        spoken = spoken or isinstance(part, Text)
        if isinstance(part, Reasoning) and part.opaque:
            waiting.append(piece(part.opaque, where[id(part)], summary=part.summary, late=spoken))
        elif isinstance(part, ToolCall):
            call: dict[str, Any] = {"id": call_ids(part.id, taken, asked)}
            if part.custom:
                call["type"] = "custom"
                call["custom"] = {"name": part.name, "input": part.arguments}
            else:
                call["type"] = "function"
                call["function"] = {"name": part.name, "arguments": part.arguments or "{}"}
            if waiting:
                call["extra_content"] = extra_content(waiting)
                waiting = []
            calls.append(call)
    return calls, waiting


def _annotations(texts: Sequence[Text]) -> list[dict[str, Any]]:
    found, start = [], 0
    for text in texts:
        end = start + len(text.text)
        found += [annotation_of(citation, start, end) for citation in text.citations]
        start = end
    return found


def _logprob(one: Logprob) -> dict[str, Any]:
    data = one.token.encode(errors="replace")
    return {"token": one.token, "logprob": one.logprob, "bytes": list(data)}
