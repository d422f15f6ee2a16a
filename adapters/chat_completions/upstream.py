"""The upstream side of the chat completions family: the edits of a request, and whole answers.

``prompt_tokens`` includes cache reads and writes, ``completion_tokens`` includes reasoning; the
counts of ``adapters.ir`` are disjoint.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from adapters.chat_completions.call_ids import AnsweredChoice, lacks_call_id, with_call_ids
from adapters.family import Operation, Peek, Vendor
from adapters.family.counts import (
    COST_FIELDS,
    NO_USES,
    Tokens,
    extras_of,
    kinds_of,
    served_of,
)
from adapters.family.empty_answer import NO_USAGE, has_content
from adapters.family.estimate import output_weight
from adapters.family.reading import optional_object
from adapters.family.reply import AnswerReader, Reply, embedded_fault
from adapters.json.jsonio import (
    DECODE_ERRORS,
    Raw,
    Span,
    Spans,
    Struct,
    decoder,
    dumps,
    replace,
)
from store.values.usage import MAX_TOKENS, Usage, token_count

_WITH_USAGE = b'"stream_options":{"include_usage":true}'


def edit_request(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body for the upstream; the same object if nothing changes."""
    edits: dict[Span, bytes] = {}
    model = spans.get("model")
    if model is not None and read.model != upstream_model:
        edits[model] = dumps(upstream_model)
    if read.stream and not read.include_usage and vendor.stream_options:
        options = spans.get("stream_options")
        if options is None:
            edits[Span(spans.opening, spans.opening)] = _WITH_USAGE + b","
        else:
            with_usage = {**optional_object(spans, "stream_options"), "include_usage": True}
            edits[options] = dumps(with_usage)
    return replace(spans.body, edits) if edits else spans.body


class _Answer(Struct):
    """The fields of a whole answer that are read."""

    id: Any = None
    error: Any = None
    choices: list[AnsweredChoice] | None = None
    usage: Any = None
    service_tier: Any = None


class _Choices(Struct):
    """The choices, undecoded."""

    choices: list[Raw]


_decode_answer = decoder(_Answer)
_decode_choices = decoder(_Choices)


def _fields(body: bytes) -> Reply | None:
    reply = _decode_answer(body)
    if not reply.choices:
        return None
    usage, served = read_usage(reply.usage), served_of(reply.service_tier)
    # Not needed if there is usage.
    items = _decode_choices(body).choices if usage is None or usage == NO_USAGE else []
    lacks = any(map(lacks_call_id, reply.choices))
    return Reply(reply.id, reply.usage, items, usage, served, lacks_ids=lacks)


def _odd_fields(answer: Any) -> Reply:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices:
        raise embedded_fault(answer)
    usage, served = answer.get("usage"), served_of(answer.get("service_tier"))
    return Reply(answer.get("id"), usage, choices, read_usage(usage), served, lacks_ids=True)


def _weight_of_choice(choice: dict[str, Any]) -> int:
    return weight_of_message(choice.get("message"))


def _choice_has_content(choice: dict[str, Any]) -> bool:
    finish = choice.get("finish_reason")
    return (bool(finish) and finish != "stop") or has_content(choice.get("message"))


def weight_of_message(message: object) -> int:
    """Return the output weight of all readable texts of a message or a delta."""
    if not isinstance(message, dict):
        return 0
    return sum(output_weight(text) for text in _texts(message))


def _texts(message: dict[str, Any]) -> Iterator[str]:
    yield from _strings(message.get("content"))
    # Some vendors send the same reasoning under both names.
    yield from _strings(message.get("reasoning_content") or message.get("reasoning"))
    yield from _strings(message.get("refusal"))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from _arguments(call.get("function"))
            yield from _arguments(call.get("custom"))
    yield from _arguments(message.get("function_call"))


def _arguments(function: object) -> Iterator[str]:
    if isinstance(function, dict):
        yield from _strings(function.get("arguments"))
        yield from _strings(function.get("input"))


def _strings(value: object) -> Iterator[str]:
    """Yield the text of a string, of a list of parts, or of an object in place of a string."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        texts = (part.get("text") if isinstance(part, dict) else part for part in value)
        yield from (text for text in texts if isinstance(text, str))
    elif isinstance(value, dict):
        try:
            yield dumps(value).decode("ascii")
        except OverflowError:  # an infinity, or nested too deeply to be written
            return


def read_usage(usage: object) -> Usage | None:
    """Return the counts of a usage object; None if prompt or completion is unreadable.

    Missing or implausible details count as 0, and a part is never larger than its whole.
    """
    if not isinstance(usage, dict):
        return None
    prompt = token_count(usage.get("prompt_tokens"))
    completion = token_count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    inputs = usage.get("prompt_tokens_details")
    inputs = inputs if isinstance(inputs, dict) else _NO_DETAILS
    outputs = usage.get("completion_tokens_details")
    outputs = outputs if isinstance(outputs, dict) else _NO_DETAILS
    cached = token_count(inputs.get("cached_tokens"))
    reasoning = token_count(outputs.get("reasoning_tokens")) or 0
    if reasoning and usage.get("total_tokens") == prompt + completion + reasoning:
        # xAI counts reasoning separately from the completion, and its total shows it.
        completion = min(completion + reasoning, MAX_TOKENS)
    tokens = Tokens(
        prompt,
        completion,
        cached=_cached_elsewhere(usage) if cached is None else cached,
        written=token_count(inputs.get("cache_write_tokens")) or 0,
        reasoning=reasoning,
        input_kinds=kinds_of(inputs),
        output_kinds=kinds_of(outputs),
    )
    if usage.keys().isdisjoint(_SELDOM):  # most vendors
        return tokens.usage()
    return tokens.usage(_uses(usage), extras_of(usage))


_NO_DETAILS: dict[str, Any] = {}
_SELDOM = ("num_search_queries", "num_sources_used", *COST_FIELDS)


def _uses(usage: dict[str, Any]) -> Mapping[str, int]:
    """Return Perplexity's web searches, or the sources that xAI bills."""
    searches = token_count(usage.get("num_search_queries"))
    if searches is None:
        searches = token_count(usage.get("num_sources_used"))
    return {"web_search": searches} if searches else NO_USES


def _cached_elsewhere(usage: dict[str, Any]) -> int:
    """Return the cached tokens where Moonshot and DeepSeek report them: next to the prompt's."""
    cached = token_count(usage.get("cached_tokens"))
    if cached is None:
        cached = token_count(usage.get("prompt_cache_hit_tokens"))
    return cached or 0


# A whole answer (see ``family.UpstreamSide``).
read_answer = AnswerReader(
    _fields, _odd_fields, _weight_of_choice, _choice_has_content, with_ids=with_call_ids
).read
_SPOKEN = b'"audio":'


class _Spoken(Struct, gc=False):
    id: str | None = None


class _SpokenMessage(Struct, gc=False):
    audio: _Spoken | None = None


class _SpokenChoice(Struct, gc=False):
    message: _SpokenMessage


class _SpokenAnswer(Struct, gc=False):
    choices: list[_SpokenChoice]


_decode_spoken = decoder(_SpokenAnswer)


def issued_ids(body: bytes, stored: bool) -> list[str]:
    """Return the ids that a whole answer hands out: those of recorded speech."""
    if body.find(_SPOKEN) < 0:  # not `in`, which raises and drops an exception
        return []
    try:
        messages = [choice.message for choice in _decode_spoken(body).choices]
    except DECODE_ERRORS:
        return []
    return [
        message.audio.id for message in messages if message.audio is not None and message.audio.id
    ]
