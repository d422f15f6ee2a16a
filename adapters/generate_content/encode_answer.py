"""Answers for clients of the generate_content family: whole answers, counts, and streams as events
or as elements of one JSON array. In a stream, calls wait for the end of their slot and are whole.

Imported by this folder's ``__init__``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from adapters.family.codec import AnswerContext, StreamEncoder
from adapters.faults import Fault
from adapters.generate_content.client import encode_stream_fault
from adapters.generate_content.parts import call_part, is_whole, signature
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Event,
    Finish,
    Finished,
    Logprob,
    Opened,
    Sealed,
)
from adapters.ir.parts import Citation, Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import dumps, dumps_text
from adapters.json.structure import VALUES_AT_ONCE, Steps
from store.values.usage import Usage

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
_MODALITIES = ("IMAGE", "VIDEO", "AUDIO")
_CUT: tuple[Finish, ...] = ("length", "context_full")


def encode_answer(
    choices: tuple[Choice, ...], usage: Usage, context: AnswerContext
) -> Steps[bytes]:
    """Return the body of an answer, in steps (see ``ClientCodec``)."""
    candidates: list[dict[str, Any]] = []
    for index, choice in enumerate(choices):
        candidates.append((yield from _whole_candidate(choice, index)))
    return dumps({
        "candidates": candidates,
        "usageMetadata": usage_fields(usage, context.tier),
        **base_fields(context),
    })  # fmt: skip


def encode_count(tokens: int) -> bytes:
    """Return the body of the answer to a request that counts tokens."""
    return dumps({"totalTokens": tokens})


def base_fields(context: AnswerContext) -> dict[str, Any]:
    """Return the fields that every answer and every chunk has."""
    return {"modelVersion": context.model, "responseId": context.id}


def usage_fields(usage: Usage, tier: str) -> dict[str, Any]:
    """Return ``usageMetadata``; the prompt includes the cache, the output excludes thoughts."""
    fields: dict[str, Any] = {
        "promptTokenCount": usage.inputs,
        "candidatesTokenCount": usage.outputs - usage.reasoning_tokens,
        "totalTokenCount": usage.inputs + usage.outputs,
    }
    if cached := usage.cache_read_tokens + usage.more_of("cache_read"):
        fields["cachedContentTokenCount"] = cached
    if usage.reasoning_tokens:
        fields["thoughtsTokenCount"] = usage.reasoning_tokens
    if usage.more:
        fields |= _details(usage)
    if tier:
        fields["serviceTier"] = "standard" if tier == "default" else tier
    return fields


def _details(usage: Usage) -> dict[str, Any]:
    """Return the tokens by modality, for each count that includes more than text."""
    more = dict(usage.more)
    cached = {"AUDIO": more.get("cache_read_audio", 0)}
    prompt = {kind: more.get(f"input_{kind.lower()}", 0) for kind in _MODALITIES}
    prompt["AUDIO"] += cached["AUDIO"]
    output = {kind: more.get(f"output_{kind.lower()}", 0) for kind in _MODALITIES}
    text = usage.inputs - sum(prompt.values()), usage.output_tokens, usage.cache_read_tokens
    names = ("promptTokensDetails", "candidatesTokensDetails", "cacheTokensDetails")
    return {
        name: [
            {"modality": kind, "tokenCount": tokens}
            for kind, tokens in {"TEXT": texts, **counts}.items()
            if tokens
        ]
        for name, texts, counts in zip(names, text, (prompt, output, cached), strict=True)
        if any(counts.values())
    }


def finish_fields(finish: Finish, detail: str) -> dict[str, str]:
    """Return ``finishReason``, and the vendor's message on why it withheld or failed."""
    message = detail if finish in ("filter", "refusal", "error") else ""
    return {"finishReason": _REASONS[finish]} | ({"finishMessage": message} if message else {})


def keeps_broken_calls(finish: Finish) -> bool:
    """Return true if a call with truncated arguments is shown: unless the answer itself was cut."""
    return finish not in _CUT


def content(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a candidate; readers fail on one without parts."""
    return {"parts": parts or [{"text": ""}], "role": "model"}


def logprobs_fields(logprobs: Iterable[Logprob]) -> dict[str, Any]:
    """Return ``logprobsResult``; empty if there are none."""
    listed = list(logprobs)
    if not listed:
        return {}
    top = [
        {"candidates": [_logprob(each) for each in logprob.top or (logprob,)]} for logprob in listed
    ]
    chosen = [_logprob(logprob) for logprob in listed]
    return {"logprobsResult": {"topCandidates": top, "chosenCandidates": chosen}}


def grounding_fields(sources: list[tuple[Citation, int | None, int | None]]) -> dict[str, Any]:
    """Return ``groundingMetadata``: sources, with the bytes of their texts if known."""
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


def _whole_candidate(choice: Choice, index: int) -> Steps[dict[str, Any]]:
    parts = yield from _parts(choice)
    return {
        "content": content(parts),
        **finish_fields(choice.finish, choice.detail),
        "index": index,
        **grounding_fields(_sources_of(choice.parts)),
        **logprobs_fields(choice.logprobs),
    }


def _parts(choice: Choice) -> Steps[list[dict[str, Any]]]:
    """Return the parts. Opaque state goes onto the next call, or else the text before a thought."""
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


def _sources_of(parts: tuple[Part, ...]) -> list[tuple[Citation, int | None, int | None]]:
    """Return the sources with their places in the whole text, in bytes."""
    sources: list[tuple[Citation, int | None, int | None]] = []
    before = 0
    for part in parts:
        if not isinstance(part, Text):
            continue
        for citation in part.citations:
            start, end = citation.start, citation.end
            if start is None or end is None:
                sources.append((citation, None, None))
            else:
                sources.append((
                    citation,
                    before + _size(part.text[:start]),
                    before + _size(part.text[:end]),
                ))  # fmt: skip
        before += _size(part.text)
    return sources


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


@dataclass(slots=True)
class _Slot:
    """An open slot: a call with its arguments so far, or a text with its start."""

    opened: Opened
    base_bytes: int  # of the candidate's text before the slot
    pieces: list[str] = field(default_factory=list)
    ascii: bool = True  # so far: characters are bytes


@dataclass(slots=True)
class _Candidate:
    """The state of a choice, held for its last chunk or the next part that carries it."""

    pending: str = ""  # opaque state that waits for a part
    broken: list[dict[str, Any]] = field(default_factory=list)  # calls whose arguments are no JSON
    sources: list[tuple[Citation, int | None, int | None]] = field(default_factory=list)
    text_bytes: int = 0
    finish: Finished | None = None


class ChunkEncoder(StreamEncoder):
    """Encoder of one stream (see ``StreamEncoder``)."""

    def __init__(self, context: AnswerContext) -> None:
        super().__init__(context)
        self._array = context.framing == "json_array"
        self._sent = False
        self._ended = False
        self._slots: dict[int, _Slot] = {}
        self._candidates: dict[int, _Candidate] = {}
        self._behind = b',"index":%%d}],%b' % dumps(base_fields(context))[1:].replace(b"%", b"%%")
        self._around = b"", b""  # the bytes before and after the text of the last Delta
        self._thoughts = _Candidate()  # for thoughts, which count as no text
        self._last = self._thoughts  # candidate of the last Delta

    def begin(self) -> bytes:
        """Return nothing: a stream of this family starts with its first part."""
        self.started = True
        return b""

    def write(self, event: Event) -> bytes:
        if isinstance(event, Delta):
            return self._delta(event)
        if isinstance(event, Opened):
            return self._open(event)
        if isinstance(event, Closed):
            return self._close(self._slots.pop(event.slot))
        if isinstance(event, Sealed):
            return self._seal(self._slots[event.slot], event.opaque)
        if isinstance(event, Cited):
            self._cite(self._slots[event.slot], event.citation)
        elif isinstance(event, Finished):  # pictures never come from other families
            self._candidate(event.choice).finish = event
        return b""

    def repeat(self, text: bytes) -> bytes:
        before, behind = self._around
        self._last.text_bytes += len(text)
        return before + text + behind

    def end(self, usage: Usage | None) -> bytes:
        """Return the last chunk, with each candidate's finish, and the usage."""
        chunk: dict[str, Any] = {
            "candidates": [
                self._last_of(index, candidate)
                for index, candidate in sorted(self._candidates.items())
                if candidate.finish is not None
            ]
        }
        if usage is not None:
            chunk["usageMetadata"] = usage_fields(usage, self.context.tier)
        self._ended = True
        last = self._frame(dumps(chunk | base_fields(self.context)))
        return last + b"]" if self._array else last

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Return an error chunk. In an event stream the bare object follows it, as in this family's
        own streams: some clients recognize a failure only by the one, some only by the other."""
        if self._ended:
            return b""
        error = encode_stream_fault(fault)
        if self._array:
            return self._frame(error) + b"]"
        return self._frame(error) + error + b"\n"

    def _candidate(self, choice: int) -> _Candidate:
        candidate = self._candidates.get(choice)
        if candidate is None:
            candidate = self._candidates[choice] = _Candidate()
        return candidate

    def _open(self, event: Opened) -> bytes:
        candidate = self._candidate(event.choice)
        self._slots[event.slot] = _Slot(event, candidate.text_bytes)
        # Pending state belongs to the parts before this thought.
        return self._flush(event.choice) if event.kind == "reasoning" else b""

    def _delta(self, event: Delta) -> bytes:
        slot = self._slots[event.slot]
        kind, choice = slot.opened.kind, slot.opened.choice
        if kind == "call":
            slot.pieces.append(event.text)
            return b""
        if not event.text and not event.logprobs:
            return b""
        text = dumps_text(event.text)
        thought = kind == "reasoning"
        self._last = candidate = self._candidate(choice)
        if not thought:
            slot.ascii = slot.ascii and event.text.isascii()
            candidate.text_bytes += len(event.text.encode(errors="replace"))
        else:
            self._last = self._thoughts
        if event.logprobs:
            part = {"text": event.text}
            return self._chunk(choice, [part], logprobs_fields(event.logprobs))
        before = self._lead() + b'{"candidates":[{"content":{"parts":[{"text":"'
        behind = b'","thought":true}' if thought else b'"}'
        behind += b'],"role":"model"}' + self._behind % choice
        behind += b"" if self._array else b"\r\n\r\n"
        first, self._sent = not self._sent, True
        self._around = (b",\r\n" + before[1:] if self._array and first else before), behind
        return before + text[1:-1] + behind

    def _close(self, slot: _Slot) -> bytes:
        opened = slot.opened
        if opened.kind != "call":
            return b""
        candidate = self._candidate(opened.choice)
        arguments = "".join(slot.pieces)
        call = ToolCall(opened.id, opened.name, arguments, opened.custom)
        part = call_part(call, opened.name)
        if not call.custom and not is_whole(arguments):
            candidate.broken.append(part)  # whether the answer was cut is known at the end
            return b""
        if candidate.pending:
            part["thoughtSignature"] = signature(candidate.pending)
            candidate.pending = ""
        return self._chunk(opened.choice, [part], {})

    def _seal(self, slot: _Slot, opaque: str) -> bytes:
        choice = slot.opened.choice
        flushed = self._flush(choice)
        self._candidate(choice).pending = opaque
        return flushed

    def _flush(self, choice: int) -> bytes:
        """Return pending state on an empty text."""
        candidate = self._candidate(choice)
        if not candidate.pending:
            return b""
        part = {"text": "", "thoughtSignature": signature(candidate.pending)}
        candidate.pending = ""
        return self._chunk(choice, [part], {})

    def _cite(self, slot: _Slot, citation: Citation) -> None:
        start, end = citation.start, citation.end
        placed = slot.ascii and start is not None and end is not None
        self._candidate(slot.opened.choice).sources.append((
            citation,
            slot.base_bytes + start if placed and start is not None else None,
            slot.base_bytes + end if placed and end is not None else None,
        ))  # fmt: skip

    def _last_of(self, index: int, candidate: _Candidate) -> dict[str, Any]:
        finish = candidate.finish
        assert finish is not None
        parts = candidate.broken if keeps_broken_calls(finish.finish) else []
        if candidate.pending:
            parts = [*parts, {"text": "", "thoughtSignature": signature(candidate.pending)}]
        return {
            "content": content(parts),
            **finish_fields(finish.finish, finish.detail),
            "index": index,
            **grounding_fields(candidate.sources),
        }

    def _chunk(self, choice: int, parts: list[dict[str, Any]], more: dict[str, Any]) -> bytes:
        candidate = {"content": content(parts), "index": choice, **more}
        return self._frame(dumps({"candidates": [candidate], **base_fields(self.context)}))

    def _frame(self, data: bytes) -> bytes:
        lead = self._lead()
        self._sent = True
        return lead + data if self._array else lead + data + b"\r\n\r\n"

    def _lead(self) -> bytes:
        if not self._array:
            return b"data: "
        return b",\r\n" if self._sent else b"["
