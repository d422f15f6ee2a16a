"""A whole answer for a client, and what it shares with the chunks of a stream: usage, the reasons
why an answer ended, sources. Imported by this folder's ``__init__`` and ``encode_stream``."""

from collections.abc import Iterable
from typing import Any

from adapters.family.codec import Asked
from adapters.generate_content.codec.wire.parts import call_part, is_whole, signature
from adapters.ir.answer import Choice, Finish, Logprob
from adapters.ir.parts import Citation, Part, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps
from adapters.json.structure import VALUES_AT_ONCE, Steps

_REASONS: dict[Finish, str] = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "length": "MAX_TOKENS",
    "tools": "STOP",
    "filter": "SAFETY",
    "refusal": "SAFETY",
    "pause": "STOP",
    "context_full": "MAX_TOKENS",
    "error": "OTHER",
}
_CUT: tuple[Finish, ...] = ("length", "context_full")


def encode_answer(choices: tuple[Choice, ...], usage: Usage, asked: Asked) -> Steps[bytes]:
    """The body of an answer, in steps (see ``ClientCodec``)."""
    candidates: list[dict[str, Any]] = []
    for index, choice in enumerate(choices):
        candidates.append((yield from _candidate(choice, index)))
    return dumps({
        "candidates": candidates,
        "usageMetadata": usage_fields(usage),
        **base_fields(asked),
    })  # fmt: skip


def encode_count(tokens: int) -> bytes:
    """The body of an answer to a request to count tokens."""
    return dumps({"totalTokens": tokens})


def base_fields(asked: Asked) -> dict[str, Any]:
    """What each answer and each chunk has."""
    return {"modelVersion": asked.model, "responseId": asked.id}


def usage_fields(usage: Usage) -> dict[str, int]:
    """``usageMetadata``: what was read from a cache is part of the prompt, thoughts are not part of
    the output."""
    prompt = usage.input_tokens + usage.cache_read_tokens
    prompt += usage.cache_write_tokens + usage.cache_write_1h_tokens
    fields = {"promptTokenCount": prompt, "candidatesTokenCount": usage.output_tokens}
    fields["totalTokenCount"] = prompt + usage.output_tokens + usage.reasoning_tokens
    if usage.cache_read_tokens:
        fields["cachedContentTokenCount"] = usage.cache_read_tokens
    if usage.reasoning_tokens:
        fields["thoughtsTokenCount"] = usage.reasoning_tokens
    return fields


def finish_fields(finish: Finish, detail: str) -> dict[str, str]:
    """``finishReason``, and the vendor's own words of why it withheld something or failed."""
    told = detail if finish in ("filter", "refusal", "error") else ""
    return {"finishReason": _REASONS[finish]} | ({"finishMessage": told} if told else {})


def keeps_broken_calls(finish: Finish) -> bool:
    """Whether a call whose arguments break off is shown: not that of an answer that was cut."""
    return finish not in _CUT


def content(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of a candidate; one without parts offends readers."""
    return {"parts": parts or [{"text": ""}], "role": "model"}


def logprobs_fields(logprobs: Iterable[Logprob]) -> dict[str, Any]:
    """``logprobsResult``; empty when there are none."""
    listed = list(logprobs)
    if not listed:
        return {}
    top = [{"candidates": [_logprob(each) for each in one.top or (one,)]} for one in listed]
    chosen = [_logprob(one) for one in listed]
    return {"logprobsResult": {"topCandidates": top, "chosenCandidates": chosen}}


def grounding_fields(sources: list[tuple[Citation, int | None, int | None]]) -> dict[str, Any]:
    """``groundingMetadata``: sources, each with the bytes of the text it is for, if known."""
    if not sources:
        return {}
    places: dict[str, int] = {}
    chunks: list[dict[str, Any]] = []
    supports: list[dict[str, Any]] = []
    for citation, start, end in sources:
        if citation.url not in places:
            places[citation.url] = len(chunks)
            chunks.append({"web": {"uri": citation.url, "title": citation.title or citation.url}})
        if start is not None and end is not None:
            place = places[citation.url]
            segment = {"startIndex": start, "endIndex": end}
            supports.append({"segment": segment, "groundingChunkIndices": [place]})
    fields: dict[str, Any] = {"groundingChunks": chunks}
    return {"groundingMetadata": fields | ({"groundingSupports": supports} if supports else {})}


def _logprob(logprob: Logprob) -> dict[str, Any]:
    return {"token": logprob.token, "logProbability": logprob.logprob}


def _candidate(choice: Choice, index: int) -> Steps[dict[str, Any]]:
    parts = yield from _parts(choice)
    return {
        "content": content(parts),
        **finish_fields(choice.finish, choice.detail),
        "index": index,
        **grounding_fields(_sources(choice.parts)),
        **logprobs_fields(choice.logprobs),
    }


def _parts(choice: Choice) -> Steps[list[dict[str, Any]]]:
    """The parts of an answer. Opaque state goes with the next call, else with the text before the
    next thought."""
    parts: list[dict[str, Any]] = []
    pending = ""
    for place, part in enumerate(choice.parts):
        if not place % VALUES_AT_ONCE:
            yield False
        if isinstance(part, Reasoning):
            if pending:
                _seal_text(parts, pending)
            if part.text:
                parts.append({"text": part.text, "thought": True})
            pending = part.opaque
        elif isinstance(part, (Text, Refusal)):
            if part.text:
                parts.append({"text": part.text})
        elif isinstance(part, ToolCall):
            if not keeps_broken_calls(choice.finish) and not is_whole(part.arguments):
                continue
            sealed = {"thoughtSignature": signature(pending)} if pending else {}
            parts.append(call_part(part, part.name) | sealed)
            pending = ""
    if pending:
        _seal_text(parts, pending)
    return parts


def _seal_text(parts: list[dict[str, Any]], opaque: str) -> None:
    last = parts[-1] if parts else {}
    if "text" not in last or last.get("thought") or "thoughtSignature" in last:
        last = {"text": ""}
        parts.append(last)
    last["thoughtSignature"] = signature(opaque)


def _sources(parts: tuple[Part, ...]) -> list[tuple[Citation, int | None, int | None]]:
    """The sources with their places in all of the text, in bytes."""
    found: list[tuple[Citation, int | None, int | None]] = []
    before = 0
    for part in parts:
        if not isinstance(part, Text):
            continue
        for citation in part.citations:
            start, end = citation.start, citation.end
            if start is None or end is None:
                found.append((citation, None, None))
            else:
                found.append((
                    citation,
                    before + _size(part.text[:start]),
                    before + _size(part.text[:end]),
                ))  # fmt: skip
        before += _size(part.text)
    return found


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))
