"""Whole answers of the generate-content family, and what they share with the stream: usage, text
and the model's name.

``promptTokenCount`` includes cache reads and excludes tokens of tool results;
``candidatesTokenCount`` excludes thoughts; the hub's counts are disjoint. Fields that are zero may
be absent. Imported by this folder's ``stream`` and ``__init__``.
"""

from collections.abc import Iterator
from typing import Any

from adapters.family import Answer
from adapters.family.estimate import output_weight, tokens_of_weight
from adapters.family.ir import MAX_TOKENS, Usage, token_count
from adapters.faults import Condition, Fault
from adapters.generate_content.request import MODELS
from adapters.json.jsonio import (
    DECODE_ERRORS,
    Raw,
    Struct,
    decoder,
    dumps,
    loads_loose,
    locate,
    replace,
)
from adapters.upstream_errors.read import read_embedded_error

MODEL_FIELD = "modelVersion"


class _Reply(Struct):
    """The fields that are read of a whole answer; the candidates stay undecoded."""

    candidates: list[Raw]
    usageMetadata: Any = None
    responseId: Any = None
    error: Any = None


_decode = decoder(_Reply)


def read(body: bytes, public: str, upstream_model: str) -> Answer:
    """Read a whole answer: usage, id, and the model's public name in place of the upstream's.

    Raises Fault E30 when it is no answer, or the condition of an error that stands in its place. A
    prompt that was blocked is an answer without candidates.
    """
    upstream_id, usage, candidates = _fields(body)
    units = 0
    counts = read_usage(usage)
    if counts is None:
        units = tokens_of_weight(sum(_weight_of_any(candidate) for candidate in candidates))
    if public != upstream_model:
        place = locate(body, MODEL_FIELD)
        if place is not None:
            name = renamed(body[place.start : place.end], public, upstream_model)
            body = body if name is None else replace(body, {place: name})
    return Answer(body, counts, usage, upstream_id if isinstance(upstream_id, str) else None, units)


def read_count(body: bytes) -> Answer:
    """Read the answer to a request to count tokens; it costs nothing and is passed as it is."""
    try:
        answer = loads_loose(body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    if not isinstance(answer, dict) or token_count(answer.get("totalTokens")) is None:
        raise read_embedded_error(answer).fault
    return Answer(body, None, None, None)


def renamed(value: bytes, public: str, upstream_model: str) -> bytes | None:
    """The JSON value to put in place of ``modelVersion``; None when it names no model of ours.

    Only the name that the upstream was asked for is replaced: a version behind it says more.
    """
    try:
        version = loads_loose(value)
    except ValueError:
        return None
    if not isinstance(version, str):
        return None
    if version.removeprefix(MODELS) != upstream_model.removeprefix(MODELS):
        return None
    return dumps(MODELS + public if version.startswith(MODELS) else public)


def _fields(body: bytes) -> tuple[object, object | None, list[Any]]:
    """Id, usage and candidates; a candidate is a Raw, or decoded when the body was odd."""
    try:
        if not body.isascii():
            body.decode()  # what is skipped is not checked by the decoder
        reply = _decode(body)
    except DECODE_ERRORS:
        return _odd_fields(body)
    if reply.error is not None or not reply.candidates:
        return _odd_fields(body)
    return reply.responseId, reply.usageMetadata, list(reply.candidates)


def _odd_fields(body: bytes) -> tuple[object, object | None, list[Any]]:
    try:
        answer = loads_loose(body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    if not isinstance(answer, dict) or answer.get("error") or not _is_answer(answer):
        raise read_embedded_error(answer).fault
    candidates = answer.get("candidates")
    return (
        answer.get("responseId"),
        answer.get("usageMetadata"),
        candidates if isinstance(candidates, list) else [],
    )


def _is_answer(answer: dict[str, Any]) -> bool:
    candidates = answer.get("candidates")
    if isinstance(candidates, list) and candidates:
        return True
    return any(isinstance(answer.get(name), dict) for name in ("promptFeedback", "usageMetadata"))


def _weight_of_any(candidate: Any) -> int:
    try:
        if isinstance(candidate, Raw):
            candidate = loads_loose(bytes(candidate))
    except ValueError:  # nested deeper than the loose reader goes
        return 0
    return weight_of_candidate(candidate) if isinstance(candidate, dict) else 0


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
