"""Upstream answers of the generate_content family, both whole and streamed, decoded into
``adapters.ir``. A whole answer is a single chunk.

Consecutive texts form one slot, thoughts another; calls come whole. Tools that the vendor ran
itself (code, searches) produce no events, because the text reports their results. Source: the types
of the official SDK. Imported by this folder's ``__init__``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from adapters.family.codec import MAX_EVENTS_AT_ONCE, StreamDecoder
from adapters.family.gathered_answer import GatheredAnswer
from adapters.family.reply import dicts, text_field
from adapters.faults import Condition, Fault
from adapters.generate_content.parts import Place, sealed
from adapters.ir.answer import (
    MAX_CITATIONS,
    MAX_LOGPROBS,
    Choice,
    Cited,
    Delta,
    Event,
    Finish,
    Finished,
    Logprob,
    Pictured,
    Sealed,
    SlotKind,
)
from adapters.ir.parts import Citation
from adapters.json.jsonio import compact, loads_or_none
from adapters.json.structure import VALUES_AT_ONCE, Steps

MAX_CHOICES = 128  # more than any vendor sends; each has its own state

_FINISHES: dict[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "pause",
    "OTHER": "error",
    "MALFORMED_FUNCTION_CALL": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "TOO_MANY_TOOL_CALLS": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "MALFORMED_RESPONSE": "error",
    "FINISH_REASON_UNSPECIFIED": "stop",
}
# Reasons for a withheld answer, in addition to those that start with IMAGE_.
_WITHHELD = frozenset({
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "MODEL_ARMOR",
    "ESCALATION",
})  # fmt: skip


_PICTURE = re.compile(r"image/[a-z0-9.+-]{1,40}")


@dataclass(slots=True)
class _Candidate:
    """The open slot of one candidate."""

    slot: int = -1  # the open one, for texts or thoughts
    kind: SlotKind | None = None
    called: bool = False
    finished: bool = False
    ascii: bool = True  # the slot's text is ASCII so far: bytes are characters
    texts: list[str] | None = None  # texts of the slot, in whole answers
    cited: set[Citation] = field(default_factory=set)  # by the slot: some vendors repeat citations


class ChunkDecoder(StreamDecoder):
    """Decoder of one stream (see ``StreamDecoder``). ``whole``: for a whole answer, whose texts are
    kept to find the places of sources."""

    def __init__(self, *, whole: bool = False) -> None:
        super().__init__()
        self._whole = whole
        self._candidates: dict[int, _Candidate] = {}
        self._blocked = ""

    def read(self, name: str | None, data: dict[str, Any]) -> list[Event]:
        return list(islice(self.events(data), MAX_EVENTS_AT_ONCE + 1))

    def events(self, chunk: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a chunk."""
        for raw in dicts(chunk.get("candidates")):
            index = raw.get("index")
            index = index if type(index) is int and 0 <= index < MAX_CHOICES else 0
            candidate = self._candidates.setdefault(index, _Candidate())
            if not candidate.finished:
                yield from self._read_candidate(candidate, index, raw)
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._blocked = str(feedback["blockReason"])

    def end(self) -> list[Event]:
        """Return the last events; a blocked prompt has no candidates."""
        events: list[Event] = super().end()
        if self._blocked and not self._candidates:
            events.append(Finished("filter", detail=self._blocked))
        return events

    def _read_candidate(
        self, candidate: _Candidate, index: int, raw: dict[str, Any]
    ) -> Iterator[Event]:
        content = raw.get("content")
        logprobs = _logprobs(raw.get("logprobsResult"))
        for part in dicts(content.get("parts") if isinstance(content, dict) else None):
            if "toolCall" in part or "toolResponse" in part:
                continue  # calls of the vendor's own tools: the text reports the results
            signature = text_field(part, "thoughtSignature")
            text, call = part.get("text"), part.get("functionCall")
            if isinstance(call, dict):
                yield from self._call(candidate, index, call, signature)
            elif part.get("thought"):
                yield from self._say(candidate, index, ("reasoning", text), ())
                if signature:
                    yield from self._seal(candidate, index, "thought", signature)
            elif isinstance(text, str) or signature or "inlineData" in part:
                yield from self._picture(candidate, index, part.get("inlineData"))
                if text:
                    yield from self._say(candidate, index, ("text", text), logprobs)
                    logprobs = ()
                if signature:
                    yield from self._sources(candidate, raw)
                    yield from self._seal(candidate, index, "text", signature)
        yield from self._sources(candidate, raw)
        reason = raw.get("finishReason")
        if isinstance(reason, str) and reason:
            yield from self._close_open(candidate)
            candidate.finished = True
            yield _finished(reason, raw.get("finishMessage"), index, called=candidate.called)

    def _picture(self, candidate: _Candidate, index: int, data: object) -> Iterator[Event]:
        """Yield a picture of the answer; nothing for other media."""
        if not isinstance(data, dict):
            return
        mime, encoded = text_field(data, "mimeType"), text_field(data, "data")
        if encoded and _PICTURE.fullmatch(mime):
            yield from self._close_open(candidate)
            yield Pictured(mime, encoded, index)

    def _say(
        self,
        candidate: _Candidate,
        index: int,
        piece: tuple[SlotKind, Any],
        logprobs: tuple[Logprob, ...],
    ) -> Iterator[Event]:
        """Yield more of a text or thought, in its slot."""
        kind, text = piece
        if not isinstance(text, str) or not text:
            return
        if candidate.kind != kind:
            yield from self._close_open(candidate)
            yield from self._open_slot(candidate, index, kind)
        candidate.ascii = candidate.ascii and text.isascii()
        if candidate.texts is not None:
            candidate.texts.append(text)
        yield Delta(candidate.slot, text, logprobs)

    def _call(
        self, candidate: _Candidate, index: int, call: dict[str, Any], signature: str
    ) -> Iterator[Event]:
        if not (name := text_field(call, "name")):
            return
        if signature:
            yield from self._seal(candidate, index, "call", signature)
        yield from self._close_open(candidate)
        candidate.called = True
        opened = self._open("call", choice=index, id=text_field(call, "id"), name=name)
        yield opened
        yield Delta(opened.slot, _arguments(call.get("args")))
        yield self._close(opened.slot)

    def _seal(
        self, candidate: _Candidate, index: int, place: Place, signature: str
    ) -> Iterator[Event]:
        """Yield a signature. It ends an open thought, or else becomes a thought without text."""
        if candidate.kind != "reasoning":
            yield from self._close_open(candidate)
            yield from self._open_slot(candidate, index, "reasoning")
        yield Sealed(candidate.slot, sealed(place, signature))
        yield from self._close_open(candidate)

    def _open_slot(self, candidate: _Candidate, index: int, kind: SlotKind) -> Iterator[Event]:
        opened = self._open(kind, choice=index, summary=kind == "reasoning")
        candidate.slot, candidate.kind, candidate.ascii = opened.slot, kind, True
        candidate.texts = [] if self._whole and kind == "text" else None
        candidate.cited = set()
        yield opened

    def _close_open(self, candidate: _Candidate) -> Iterator[Event]:
        if candidate.kind is not None:
            candidate.kind = None
            yield self._close(candidate.slot)

    def _sources(self, candidate: _Candidate, raw: dict[str, Any]) -> Iterator[Event]:
        """Yield the sources of the open text; sources that come later have no text."""
        if candidate.kind != "text":
            return
        encoded = b""
        if not candidate.ascii and candidate.texts is not None:
            encoded = "".join(candidate.texts).encode(errors="replace")
        for url, title, start, end in (
            *_grounding(raw.pop("groundingMetadata", None)),
            *_citations(raw.pop("citationMetadata", None)),
        ):
            if len(candidate.cited) == MAX_CITATIONS:
                return
            placed = start is not None and end is not None and (candidate.ascii or encoded)
            places = (
                (_character(encoded, start), _character(encoded, end)) if placed else (None, None)
            )
            citation = Citation(url, title, *places)
            if citation not in candidate.cited:
                candidate.cited.add(citation)
                yield Cited(candidate.slot, citation)


def _character(encoded: bytes, at_byte: int | None) -> int | None:
    """Return the character offset for a byte offset. For ASCII text, ``encoded`` is empty and both
    are the same."""
    return len(encoded[:at_byte].decode(errors="ignore")) if encoded else at_byte


def _finished(reason: str, message: object, index: int, *, called: bool) -> Finished:
    word = reason.upper()
    withheld = word in _WITHHELD or word.startswith("IMAGE_")
    finish: Finish = "filter" if withheld else _FINISHES.get(word, "error")
    if called and finish in ("error", "pause"):
        finish = "tools"  # the calls before it can be answered
    if finish in ("stop", "length", "tools"):
        return Finished(finish, index)
    return Finished(finish, index, detail=message if isinstance(message, str) else reason)


def _arguments(args: object) -> str:
    try:
        return compact(args if isinstance(args, dict) else {})
    except OverflowError:  # an infinity, or nested too deeply to be written
        return "{}"


def _logprobs(result: object) -> tuple[Logprob, ...]:
    if not isinstance(result, dict):
        return ()
    chosen = dicts(result.get("chosenCandidates"))[:MAX_LOGPROBS]
    listed = dicts(result.get("topCandidates"))[:MAX_LOGPROBS]
    tops = [dicts(each.get("candidates")) for each in listed]
    tops += [[]] * (len(chosen) - len(tops))
    return tuple(
        Logprob(logprob.token, logprob.logprob, tuple(map(_logprob, top)))
        for logprob, top in zip(map(_logprob, chosen), tops, strict=False)
    )


def _logprob(candidate: dict[str, Any]) -> Logprob:
    value = candidate.get("logProbability")
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e9
    return Logprob(
        text_field(candidate, "token"), float(value) if valid and value is not None else 0.0
    )


_Source = tuple[str, str, int | None, int | None]


def _grounding(metadata: object) -> Iterator[_Source]:
    """Yield the pages of a search, with the bytes of the text that each supports."""
    if not isinstance(metadata, dict):
        return
    pages = [_page(chunk) for chunk in dicts(metadata.get("groundingChunks"))]
    named: set[int] = set()
    for support in dicts(metadata.get("groundingSupports")):
        segment = support.get("segment")
        start, end = _segment(segment if isinstance(segment, dict) else {})
        places = support.get("groundingChunkIndices")
        for place in places if isinstance(places, list) else ():
            if type(place) is int and 0 <= place < len(pages) and pages[place][0]:
                named.add(place)
                yield (*pages[place], start, end)
    for place, (url, title) in enumerate(pages):
        if url and place not in named:
            yield url, title, None, None


def _citations(metadata: object) -> Iterator[_Source]:
    if not isinstance(metadata, dict):
        return
    for name in ("citations", "citationSources"):
        for source in dicts(metadata.get(name)):
            if url := text_field(source, "uri"):
                yield url, text_field(source, "title"), *_segment(source)


def _page(chunk: dict[str, Any]) -> tuple[str, str]:
    web = chunk.get("web")
    return (text_field(web, "uri"), text_field(web, "title")) if isinstance(web, dict) else ("", "")


def _segment(source: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return start and end in bytes. A start of 0 may be absent."""
    start, end = source.get("startIndex", 0), source.get("endIndex")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        return None, None
    return start, end


def decode_answer(body: bytes) -> Steps[tuple[Choice, ...]]:
    """Return the candidates, in steps; for a blocked prompt, one without parts."""
    chunk = loads_or_none(body)
    if not isinstance(chunk, dict):
        raise Fault(Condition.UPSTREAM_INVALID)
    decoder = ChunkDecoder(whole=True)
    choices = GatheredAnswer()
    for place, event in enumerate(decoder.events(chunk)):
        if not place % VALUES_AT_ONCE:
            yield False
        choices.take(event)
    for event in decoder.end():
        choices.take(event)
    return choices.choices()
