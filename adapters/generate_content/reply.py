"""Whole answers of the generate-content family, and what they share with the stream: usage, text
and the model's name.

``promptTokenCount`` includes cache reads and excludes tokens of tool results;
``candidatesTokenCount`` excludes thoughts; the hub's counts are disjoint. Fields that are zero may
be absent. Imported by this folder's ``stream`` and ``upstream``.
"""

from collections.abc import Iterator
from typing import Any

from adapters.family import Answer, Operation
from adapters.family.estimate import output_weight
from adapters.family.reply import (
    AnswerReader,
    Fields,
    embedded_fault,
    read_count,
)
from adapters.generate_content.request import MODELS
from adapters.ir.usage import MAX_TOKENS, Usage, token_count
from adapters.json.jsonio import (
    Raw,
    Struct,
    decoder,
    dumps,
    loads_or_none,
    locate,
    replace,
)

MODEL_FIELD = "modelVersion"


class _Reply(Struct):
    """The fields that are read of a whole answer; the candidates stay undecoded."""

    candidates: list[Raw]
    usageMetadata: Any = None
    responseId: Any = None
    error: Any = None


_decode = decoder(_Reply)


def read(body: bytes, public: str, upstream_model: str, operation: Operation) -> Answer:
    """Read a whole answer (see ``family.UpstreamSide``); a prompt that was blocked is an answer
    without candidates."""
    if operation.job == "count":
        return read_count(body, "totalTokens")
    return _READER.read(body, public, upstream_model)


def _rename(body: bytes, public: str, upstream_model: str) -> bytes:
    place = locate(body, MODEL_FIELD)
    if place is None:
        return body
    name = renamed(body[place.start : place.end], public, upstream_model)
    return body if name is None else replace(body, {place: name})


def renamed(value: bytes, public: str, upstream_model: str) -> bytes | None:
    """The JSON value to put in place of ``modelVersion``; None when it names no model of ours.

    Only the name that the upstream was asked for is replaced: a version behind it says more.
    """
    version = loads_or_none(value)
    if not isinstance(version, str):
        return None
    if version.removeprefix(MODELS) != upstream_model.removeprefix(MODELS):
        return None
    return dumps(MODELS + public if version.startswith(MODELS) else public)


def _fields(body: bytes) -> Fields | None:
    reply = _decode(body)
    if reply.error is not None or not reply.candidates:
        return None
    return reply.responseId, reply.usageMetadata, [*reply.candidates]


def _odd_fields(answer: Any) -> Fields:
    if not isinstance(answer, dict) or answer.get("error") or not _is_answer(answer):
        raise embedded_fault(answer)
    candidates = answer.get("candidates")
    listed = candidates if isinstance(candidates, list) else []
    return answer.get("responseId"), answer.get("usageMetadata"), listed


def _is_answer(answer: dict[str, Any]) -> bool:
    candidates = answer.get("candidates")
    if isinstance(candidates, list) and candidates:
        return True
    return any(isinstance(answer.get(name), dict) for name in ("promptFeedback", "usageMetadata"))


def weight_of_candidate(candidate: dict[str, Any]) -> int:
    """The output weight of a candidate, whatever of it is there and readable."""
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    weight = 0
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            weight += sum(output_weight(text) for text in _texts(part))
    return weight


def _texts(part: dict[str, Any]) -> Iterator[str]:
    if isinstance(part.get("text"), str):
        yield part["text"]
    call = part.get("functionCall")
    if not isinstance(call, dict):
        return
    for name in ("args", "partialArgs"):
        if call.get(name):
            try:
                yield dumps(call[name]).decode("ascii")
            except OverflowError:  # an infinity or a depth that cannot be written
                continue


def read_usage(usage: object) -> Usage | None:
    """The counts of a usage object; None when prompt or output cannot be read.

    Output that is not said is what the total leaves for it. Details that are missing or cannot be
    meant count as 0, and cache reads are never more than the prompt.
    """
    if not isinstance(usage, dict):
        return None
    prompt = token_count(usage.get("promptTokenCount"))
    output = token_count(usage.get("candidatesTokenCount"))
    total = token_count(usage.get("totalTokenCount"))
    tools = token_count(usage.get("toolUsePromptTokenCount")) or 0
    thoughts = token_count(usage.get("thoughtsTokenCount")) or 0
    if prompt is None or (output is None and total is None):
        return None
    if output is None:
        output = max((total or 0) - prompt - tools - thoughts, 0)
    cached = min(token_count(usage.get("cachedContentTokenCount")) or 0, prompt)
    return Usage(
        input_tokens=min(prompt - cached + tools, MAX_TOKENS),
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
    )


_READER = AnswerReader(_fields, _odd_fields, read_usage, weight_of_candidate, _rename)
