"""Taps of streams of the generate_content family, as events and as elements of one JSON array.

Every chunk is a separate answer with the new parts. Any chunk may report usage, which is
cumulative: the last value of each number counts. An event stream has no end marker, so the finish
reasons decide about its end; an array ends with its bracket.
"""

from typing import Any

from adapters.family.counts import served_of
from adapters.family.estimate import output_weight
from adapters.family.tap import Tap
from adapters.faults import Fault
from adapters.generate_content.client import encode_stream_fault
from adapters.generate_content.upstream import (
    MODEL_FIELD,
    Grounding,
    read_served,
    read_usage,
    renamed,
    weight_of_candidate,
)
from adapters.json.jsonio import (
    DECODE_ERRORS,
    Raw,
    Span,
    Struct,
    decoder,
    loads_loose,
    loads_or_none,
    locate,
)
from adapters.upstream_errors.read import read_embedded_error
from store.values.usage import NOT_REPORTED, Served, Usage


class _Part(Struct, gc=False):
    text: str | None = None
    functionCall: Any = None  # rare: sends the chunk onto the general path


class _Content(Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(Struct, gc=False):
    content: _Content
    index: int | None = 0
    finishReason: Any = None
    groundingMetadata: Any = None


class _Chunk(Struct, gc=False):
    candidates: list[_Candidate]
    usageMetadata: Raw = Raw()
    responseId: Any = None
    promptFeedback: Any = None
    error: Any = None


_decode_chunk = decoder(_Chunk)
_PREFIX = b"data: {"
_KEY = b'"modelVersion"'
_BACKSLASH = 92
_BLANKS = b" \t\r\n"
_BLANKS_AND_BOM = _BLANKS + b"\xef\xbb\xbf"
_DIGITS = b"0123456789"
# Fields that identify an answer; a first chunk without any of them is something else.
_ANSWER_FIELDS = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "responseId", MODEL_FIELD}
)


class _MergedUsage:
    """Usage as the chunks report it: for every field the last value that is not null.

    Vendors repeat it in each chunk. It is parsed on demand: while only digits change from one
    report to the next, the later one replaces all earlier ones.
    """

    __slots__ = ("_fields", "_last", "_shape")

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._last = b""  # not merged yet
        self._shape = b""  # of the last one: its text without digits

    def note(self, text: bytes) -> None:
        """Store the JSON text of one usage object that a parser has accepted."""
        shape = text.translate(None, _DIGITS)
        if shape != self._shape:
            self._merge_last()
            self._shape = shape
        self._last = text

    def merge(self, usage: object) -> None:
        """Merge the usage of one chunk."""
        self._merge_last()
        if isinstance(usage, dict):
            self._fields.update((k, v) for k, v in usage.items() if v is not None)

    def read(self) -> dict[str, Any]:
        """Return the merged usage."""
        self._merge_last()
        return self._fields

    def _merge_last(self) -> None:
        text, self._last = self._last, b""
        if not text:
            return
        try:
            usage = loads_loose(text)
        except ValueError:  # odd bytes in skipped parts: nothing that counts
            return
        if isinstance(usage, dict):
            self._fields.update((k, v) for k, v in usage.items() if v is not None)


class _ChunkTap(Tap):
    """The base of the taps of both framings: reading chunks and renaming the model in them."""

    model_path = (MODEL_FIELD,)

    __slots__ = (
        "_blocked",
        "_done",
        "_grounding",
        "_new_tail",
        "_old_tail",
        "_open",
        "_upstream_model",
        "_usage",
    )

    def __init__(self, public: str, upstream_model: str) -> None:
        super().__init__(public, upstream_model)
        self._upstream_model = upstream_model
        self._old_tail = b""  # of the last chunk, from the model's key on
        self._new_tail = b""
        self._open: set[int] = set()  # candidates without a finish reason
        self._done: set[int] = set()
        self._blocked = False
        self._usage = _MergedUsage()
        self._grounding = Grounding()

    @property
    def reported(self) -> object | None:
        """Usage as reported, with later values in place of earlier ones; None if there is none."""
        return self._usage.read() or None

    @property
    def usage(self) -> Usage | None:
        """The usage reported so far."""
        return read_usage(self._usage.read(), self._grounding.uses)

    @property
    def served(self) -> Served:
        served = read_served(self._usage.read())
        return served_of(self.head_tier) if served is NOT_REPORTED else served

    def _read_plain(self, data: bytes) -> bool:
        """Count the text of a chunk that continues one candidate; false for any other chunk."""
        try:
            chunk = _decode_chunk(data)
        except DECODE_ERRORS:
            return False
        if len(chunk.candidates) != 1 or not (chunk.error is chunk.promptFeedback is None):
            return False
        candidate = chunk.candidates[0]
        if candidate.finishReason is not None or candidate.index not in self._open:
            return False
        if candidate.groundingMetadata is not None:
            return False
        weight = 0
        for part in candidate.content.parts or ():
            if part.functionCall is not None:
                return False
            if part.text:
                weight += output_weight(part.text)
        if not (weight or self._weight or self.has_content):
            return False  # until the stream has content, chunks are decoded in full
        self._weight += weight
        if chunk.usageMetadata:
            self._usage.note(bytes(chunk.usageMetadata))
        if self.upstream_id is None and isinstance(chunk.responseId, str):
            self.upstream_id = chunk.responseId or None
        return True

    def _read_data(self, name: str | None, data: bytes, event: bytes) -> bytes | None:
        chunk = loads_or_none(data)
        if not isinstance(chunk, dict) or chunk.get("error"):
            return self._failed(read_embedded_error(chunk).fault)
        return self._read_event(name, chunk, event)

    def _read_event(self, name: str | None, chunk: dict[str, Any], piece: bytes) -> bytes | None:
        if not self.accepted and _ANSWER_FIELDS.isdisjoint(chunk):
            return self._failed(read_embedded_error(chunk).fault)
        sent = self._renamed(piece) if self._renaming else piece
        if self.fault is None:
            self._read(chunk)
            self.accepted = self.started = True
        return sent

    def _read(self, chunk: dict[str, Any]) -> None:
        if self.upstream_id is None and isinstance(chunk.get("responseId"), str):
            self.upstream_id = chunk["responseId"] or None
        self._usage.merge(chunk.get("usageMetadata"))
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._blocked, self.stops_plainly = True, False
        candidates = chunk.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict):
                self._read_candidate(candidate)
        # Every candidate so far has its finish reason, or the prompt was blocked.
        self.finished = not self._open and (bool(self._done) or self._blocked)

    def _read_candidate(self, candidate: dict[str, Any]) -> None:
        self._weight += weight_of_candidate(candidate)
        if not (self._weight or self.has_content):
            self._look_for_content(candidate.get("content"))
        index = candidate.get("index")
        if not isinstance(index, int):
            index = 0
        if "groundingMetadata" in candidate:
            self._grounding.note(index, candidate["groundingMetadata"])
        if finish := candidate.get("finishReason"):
            self.stops_plainly = self.stops_plainly and finish == "STOP"
            self._open.discard(index)
            self._done.add(index)
        elif index not in self._done:
            self._open.add(index)

    def _renamed(self, piece: bytes) -> bytes | None:
        """Return the piece with the model's public name; every other byte stays."""
        old = self._old_tail
        # The same bytes, from the one before a key up to the end of good JSON, mean the same place:
        # quotes and brackets pair the same way from the end, and the key's quote is not escaped. A
        # second key before it may be a duplicate: then the piece is parsed again.
        if old and piece.endswith(old) and piece.find(_KEY, 0, len(piece) - len(old)) < 0:
            return piece[: -len(old)] + self._new_tail
        try:
            place = self._place_of_model(piece)
        except Fault as fault:
            return self._failed(fault)
        if place is None:
            return piece
        start, end = place.start, place.end
        value = piece[start:end]
        name = renamed(value, self._public, self._upstream_model) or value
        tail = piece.rfind(_KEY, 0, start) - 1
        if tail >= 0 and piece[tail] != _BACKSLASH:
            self._old_tail = piece[tail:]
            self._new_tail = piece[tail:start] + name + piece[end:]
        return piece[:start] + name + piece[end:] if name is not value else piece


class EventTap(_ChunkTap):
    """The tap of one stream of server-sent events."""

    __slots__ = ()

    @property
    def whole(self) -> bool:
        """True if every candidate has its finish reason; the body then simply ends."""
        return self.fault is None and self.finished

    def feed(self, event: bytes) -> bytes | None:
        """Read one event; return the bytes to send for it."""
        # Nearly all events are one line, text of a known candidate. Others take the general path.
        if (
            self._open
            and event.startswith(_PREFIX)
            and event.find(b"\n") >= len(event) - 3
            and self._read_plain(event[6:])
        ):
            return self._renamed(event) if self._renaming else event
        return self._feed_any(event)

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Return the last event of a failed stream, followed by the bare object, as Google sends
        it: some clients recognize a failure only by the one, some only by the other."""
        error = encode_stream_fault(fault)
        return b"data: %b\r\n\r\n%b\n" % (error, error)

    def _read_marker(self, event: bytes) -> None:
        """Drop the marker that some servers send, because this family's clients break on it."""


class ElementTap(_ChunkTap):
    """The tap of one streamed JSON array, fed element by element with the bytes before each."""

    framing = "json_array"
    __slots__ = ("_closed",)

    def __init__(self, public: str, upstream_model: str) -> None:
        super().__init__(public, upstream_model)
        self._closed = False  # the closing bracket was seen

    @property
    def whole(self) -> bool:
        """True after the closing bracket, without which no client can read the array."""
        return self.fault is None and self._closed

    def feed(self, event: bytes) -> bytes | None:
        """Read one piece of the array; return the bytes to send for it."""
        text = event.lstrip(_BLANKS if self.accepted else _BLANKS_AND_BOM)
        if self._closed:
            return self._behind(event, text)
        mark = text[:1]
        if self.accepted and text == b"]":
            # Not ended yet: vendors also end the last line, and the body must be passed on exactly.
            if not self.judge_end():
                return None
            self._closed = True
            return event
        if mark != (b"," if self.accepted else b"["):
            return self._failed(_fault_of(text))
        data = text[1:]
        if self._open and self._read_plain(data):
            return self._renamed(event) if self._renaming else event
        return self._read_data(None, data, event)

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Return the last element of a failed array, with the closing bracket if it is still
        open."""
        if self._closed:
            return b""
        return (b"," if self.accepted else b"[") + encode_stream_fault(fault) + b"]"

    def _behind(self, event: bytes, text: bytes) -> bytes | None:
        """Return the white space after the bracket; anything else ends the answer."""
        if not text:
            return event
        self.ended = True
        return None

    def _place_of_model(self, piece: bytes) -> Span | None:
        skipped = piece.index(b"," if self.accepted else b"[") + 1
        place = locate(piece[skipped:], MODEL_FIELD)
        if place is None:
            return None
        return Span(skipped + place.start, skipped + place.end)


TAPS: dict[str, type[EventTap | ElementTap]] = {"sse": EventTap, "json_array": ElementTap}


def _fault_of(text: bytes) -> Fault:
    """Return the fault for text in place of an element; only an error is readable."""
    return read_embedded_error(loads_or_none(text)).fault
