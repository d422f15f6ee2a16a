"""The tap of streams of the chat completions family.

It reads leniently what vendors send (comments, no [DONE], usage in many places, null deltas) and
changes only the model's name. An event with nothing but usage is left out unless requested.
"""

from typing import Any

from adapters.chat_completions.call_ids import StreamedCallIds
from adapters.chat_completions.client import encode_stream_fault
from adapters.chat_completions.upstream import read_usage, weight_of_message
from adapters.family.counts import served_of
from adapters.family.estimate import ASCII_WEIGHT, output_weight
from adapters.family.tap import TemplateTap
from adapters.faults import Condition, Fault
from adapters.framing.event_template import EventTemplate
from adapters.json.jsonio import DECODE_ERRORS, Struct, decoder, dumps
from adapters.upstream_errors.read import read_embedded_error
from store.values.usage import Served, Usage


class _Function(Struct, gc=False):
    arguments: str | None = None
    name: Any = None


class _Call(Struct, gc=False):
    function: _Function | None = None
    id: Any = None


class _Delta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    # Rare: an event with one of these fields is decoded in full.
    reasoning: Any = None
    refusal: Any = None
    function_call: Any = None
    audio: Any = None


class _Choice(Struct, gc=False):
    index: int | None = 0
    delta: _Delta | None = None
    finish_reason: str | None = None
    usage: Any = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice]
    usage: Any = None
    error: Any = None
    x_groq: Any = None
    service_tier: Any = None


_decode = decoder(_Chunk)
_PREFIX = b"data: {"
_ERROR_WORDS = frozenset({"message", "msg", "detail", "title", "code"})


class ChatTap(TemplateTap):
    """The tap of one chat completions stream."""

    __slots__ = (
        "_call_ids",
        "_calls_begin",
        "_drop_usage",
        "_finished_choices",
        "_last_choice",
        "_new_head",
        "_old_head",
        "_settled",
        "_tier",
        "reported",
        "usage",
    )

    def __init__(self, public: str, upstream_model: str, drop_usage: bool) -> None:
        super().__init__(public, upstream_model)
        self._drop_usage = drop_usage
        self._call_ids: StreamedCallIds | None = None
        self._calls_begin = False  # calls start or continue in the current event
        self._old_head = b""  # of the last renamed event: everything through the model's value
        self._new_head = b""
        self._settled = False  # the first event with choices, and so the id, was read in full
        self._last_choice = 0
        self._finished_choices: set[int] = set()
        self._tier: object = None  # of the last event that had a tier
        self.usage: Usage | None = None
        self.reported: object | None = None

    @property
    def served(self) -> Served:
        return served_of(self._tier)

    @property
    def whole(self) -> bool:
        """True if [DONE], which may be missing, or the finish of every choice was seen."""
        return self.fault is None and (self.ended or self.finished)

    def feed(self, event: bytes) -> bytes | None:
        """Read one event; return the bytes to send for it."""
        # Nearly all events are one line with a plain delta. Others are decoded in full.
        if not (
            self._settled
            and event.startswith(_PREFIX)
            and event.find(b"\n") == len(event) - 2
            and self._read_delta(event)
        ):
            return self._feed_any(event)
        return self._renamed(event) if self._renaming else event

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        """Read an event that differs from the last only in its text, as nearly all do."""
        chars = self._template.text_length(chunk)
        if chars < 0:
            return None
        self._weight += ASCII_WEIGHT * chars
        return self._renamed(chunk) if self._renaming else chunk

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Encode the last event of a failed stream."""
        return encode_stream_fault(fault)

    def _read_delta(self, event: bytes) -> bool:
        """Count the text of a plain delta. Return False if the event is anything else."""
        try:
            chunk = _decode(event[6:])
        except DECODE_ERRORS:
            return False
        if len(chunk.choices) != 1 or not (chunk.usage is chunk.error is chunk.x_groq is None):
            return False
        choice = chunk.choices[0]
        delta = choice.delta
        if choice.finish_reason or choice.index or delta is None or choice.usage is not None:
            return False
        if chunk.service_tier is not None and chunk.service_tier != self._tier:
            return False
        if not (delta.reasoning is delta.refusal is delta.function_call is delta.audio is None):
            return False
        if delta.tool_calls:
            if any(map(_lacks_id, delta.tool_calls)):
                return False
            self.has_content = True
        if delta.content:
            self._weight += output_weight(delta.content)
            if not (delta.reasoning_content or delta.tool_calls):
                self._template.learn(event, delta.content)
        if delta.reasoning_content:
            self._weight += output_weight(delta.reasoning_content)
        for call in delta.tool_calls or ():
            if call.function is not None and call.function.arguments:
                self._weight += output_weight(call.function.arguments)
        # Until the stream has content, every event is decoded in full.
        return bool(self._weight) or self.has_content

    def _read_event(self, name: str | None, chunk: dict[str, Any], event: bytes) -> bytes | None:
        if _is_error(chunk, name) or (not self.accepted and _is_other_error(chunk)):
            return self._failed(read_embedded_error(chunk).fault)
        self.accepted = self.started = True
        self._read(chunk)
        if self._calls_begin:
            event = self._with_call_ids(chunk) or event
        if self._drop_usage and chunk.get("choices") == [] and chunk.get("usage") is not None:
            return None
        return self._renamed(event) if self._renaming else event

    def _read(self, chunk: dict[str, Any]) -> None:
        # Some vendors first send an event with the prompt's filter results, whose id is "".
        if not self.upstream_id and isinstance(chunk.get("id"), str):
            self.upstream_id = chunk["id"] or None
        tier = chunk.get("service_tier")
        if tier is not None and tier != self._tier:
            self._tier = tier
            self._template = EventTemplate()  # events with the old tier differ from these
        usage = chunk.get("usage")
        choices = chunk.get("choices")
        self._settled = self._settled or bool(choices)
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._read_choice(choice)
                usage = usage if usage is not None else choice.get("usage")
        groq = chunk.get("x_groq")
        if usage is None and isinstance(groq, dict):
            usage = groq.get("usage")
        if usage is not None:
            self._read_usage(usage)

    def _read_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        self._weight += weight_of_message(delta)
        if not (self._weight or self.has_content):
            self._look_for_content(delta, choice.get("message"))
        if isinstance(delta, dict):
            if isinstance(delta.get("audio"), dict):
                self._hand_out(delta["audio"].get("id"))
            self._calls_begin = self._calls_begin or bool(delta.get("tool_calls"))
        index = choice.get("index")
        if not isinstance(index, int):
            index = 0
        self._last_choice = max(self._last_choice, index)
        if choice.get("finish_reason"):
            self._finished_choices.add(index)
            self.stops_plainly = self.stops_plainly and choice["finish_reason"] == "stop"
        self.finished = len(self._finished_choices) > self._last_choice

    def _with_call_ids(self, chunk: dict[str, Any]) -> bytes | None:
        """Return the event with an id for each call that starts without one; None if there is
        none."""
        self._calls_begin = False
        if self._call_ids is None:
            self._call_ids = StreamedCallIds()
        return self._call_ids.complete(chunk)

    def _read_usage(self, usage: object) -> None:
        # Repeated usage is cumulative: only the last readable one counts.
        counts = read_usage(usage)
        if counts is not None:
            self.usage = counts
        if counts is not None or self.usage is None:
            self.reported = usage

    def _read_marker(self, event: bytes) -> bytes | None:
        if not self.accepted:
            return self._failed(Fault(Condition.UPSTREAM_INVALID))  # an empty answer
        return self._end(event)

    def _renamed(self, event: bytes) -> bytes | None:
        """Return the event with the model's public name; every other byte stays."""
        old = self._old_head
        # The same bytes through the value mean the same place, unless a second "model" follows
        # (inside strings its quotes are escaped). With such a key the event is parsed again.
        if old and event.startswith(old) and event.find(b'"model"', len(old)) < 0:
            return self._new_head + event[len(old) :]
        try:
            place = self._place_of_model(event)
        except Fault as fault:
            return self._failed(fault)
        if place is None:
            return event
        self._old_head = event[: place.end]
        self._new_head = event[: place.start] + dumps(self._public)
        return self._new_head + event[place.end :]


def _lacks_id(call: _Call) -> bool:
    """Return true for the start of a call without an id."""
    return not call.id and call.function is not None and bool(call.function.name)


def _is_error(chunk: dict[str, Any], name: str | None) -> bool:
    """Return true if an event reports, in the family's form, that the upstream failed."""
    return bool(chunk.get("error")) or name == "error"


def _is_other_error(chunk: dict[str, Any]) -> bool:
    """Return true if a first event is an error of another shape."""
    return "choices" not in chunk and not _ERROR_WORDS.isdisjoint(chunk)
