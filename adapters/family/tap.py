"""The base of the readers of streamed answers: their state, and the general path of an event.

A family's ``stream.py`` adds how it reads an event. Imported by the families and the bridges.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from adapters.family.empty_answer import counts_nothing, empty_answer, has_content
from adapters.family.estimate import ASCII_WEIGHT, tokens_of_weight
from adapters.faults import Condition, Fault
from adapters.framing.event_template import EventTemplate
from adapters.framing.sse import event_fields, is_idle, place_in_event
from adapters.json.jsonio import Span, dumps, loads_or_none, locate
from store.values.usage import Served, Usage


class Tap(ABC):
    """Reader of the events of one streamed answer as they pass, and editor of the few that need it.

    ``feed`` takes one complete event and returns the bytes to send: the same object if unchanged,
    None if the event is left out. After ``ended`` is true, nothing more is fed.
    """

    framing: Literal["sse", "json_array"] = "sse"
    model_path: tuple[str, ...] = ("model",)  # path of the model's name in an event
    __slots__ = (
        "_public",
        "_renaming",
        "_weight",
        "accepted",
        "empty",
        "ended",
        "fault",
        "finished",
        "has_content",
        "head_tier",
        "on_issued",
        "started",
        "stops_plainly",
        "stored",
        "upstream_id",
    )

    def __init__(self, public: str, upstream_model: str) -> None:
        self._public = public
        self._renaming = public != upstream_model
        self._weight = 0  # of the output so far
        self.accepted = False  # a data event that is no error was seen
        self.started = False  # the client has received the start of an answer
        self.finished = False  # the output is complete
        self.ended = False  # the family's last event was seen, or ``fault`` is set
        # the vendor's error event, or an unreadable event; not passed on
        self.fault: Fault | None = None
        self.upstream_id: str | None = None
        self.head_tier: str | None = None  # tier from the response headers (see ``UpstreamSide``)
        # called with the ids of stored objects in an event, other than the answer's own
        self.on_issued: Callable[[list[str]], None] | None = None
        self.stored = False  # the vendor stores the answer
        self.has_content = False  # content other than weighed text: calls, pictures, unread events
        self.stops_plainly = True  # no other reason to end was seen
        self.empty = False  # the fault is an empty answer

    @property
    @abstractmethod
    def usage(self) -> Usage | None:
        """The usage reported so far, disjoint."""

    @property
    @abstractmethod
    def reported(self) -> object | None:
        """The usage as the vendor reported it."""

    @property
    @abstractmethod
    def served(self) -> Served:
        """The conditions that the vendor has reported so far."""

    @property
    def whole(self) -> bool:
        """True if the upstream may end here and nothing is missing: the last event was seen."""
        return self.fault is None and self.ended

    @property
    def last_number(self) -> int | None:
        """The number of the last event, in families whose vendors number events."""
        return None

    @property
    def output_units(self) -> int:
        """Estimated output tokens so far: text, reasoning and tool arguments."""
        return tokens_of_weight(self._weight)

    @abstractmethod
    def feed(self, event: bytes) -> bytes | None:
        """Read one event; return the bytes to send for it."""

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        """Return ``feed`` of a chunk that is one event and differs from the last only in its text.
        Return None, and read nothing, if the chunk is anything else."""
        return None

    def fits(self, event: bytes) -> bool:
        """Return true if ``repeat_text`` would accept this event."""
        return False

    def repeat_text(self, chunk: bytes) -> bytes | None:
        """Return only the text of a chunk that ``feed_repeat`` would accept, as in a JSON string:
        plain ASCII without escapes. None for any other chunk."""
        return None

    def judge_end(self) -> bool:
        """Return true if the ended answer is a good one; otherwise fail with an empty answer."""
        if self.has_content or not self.stops_plainly or self.output_units:
            return True
        if not counts_nothing(self.usage, self.reported):
            return True
        self.empty = True
        self._failed(empty_answer())
        return False

    @abstractmethod
    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Return the last bytes of a failed stream, even if nothing was fed to it."""

    def _feed_any(self, event: bytes) -> bytes | None:
        """Read an event on the general path, which decodes all of it."""
        name, data = event_fields(event)
        if data is None or not (text := data.strip()):
            # An event without data fails in clients that decode the data of each event.
            return event if is_idle(event) else None
        if text == b"[DONE]":
            return self._read_marker(event)
        return self._read_data(name, data, event)

    def _read_marker(self, event: bytes) -> bytes | None:
        """Fail: the end marker of another family is invalid here."""
        return self._failed(Fault(Condition.UPSTREAM_INVALID))

    def _read_data(self, name: str | None, data: bytes, event: bytes) -> bytes | None:
        decoded = loads_or_none(data)
        if not isinstance(decoded, dict):
            return self._failed(Fault(Condition.UPSTREAM_INVALID))
        return self._read_event(name, decoded, event)

    @abstractmethod
    def _read_event(self, name: str | None, data: dict[str, Any], event: bytes) -> bytes | None:
        """Read an event by its name and decoded data; return the bytes to send for it."""

    def _end(self, event: bytes | None) -> bytes | None:
        """End with the family's last event; return it, or None after an empty answer."""
        self.ended = True
        return event if self.judge_end() else None

    def _look_for_content(self, *pieces: object) -> None:
        """Note content in decoded pieces of the answer; skipped once some was seen."""
        self.has_content = self.has_content or any(map(has_content, pieces))

    def _hand_out(self, *ids: object) -> None:
        """Report the ids that an event hands out; values that are no strings are ignored."""
        issued = [id_ for id_ in ids if isinstance(id_, str) and id_]
        if issued and self.on_issued is not None:
            self.on_issued(issued)

    def _failed(self, fault: Fault) -> bytes | None:
        self.fault = fault
        self.ended = True
        return None

    def _renamed(self, event: bytes) -> bytes | None:
        """Return the event with the model's public name; every other byte stays."""
        try:
            place = self._place_of_model(event)
        except Fault as fault:
            return self._failed(fault)
        if place is None:
            return event
        return event[: place.start] + dumps(self._public) + event[place.end :]

    def _place_of_model(self, event: bytes) -> Span | None:
        """Return the place of the model's name. Raises UPSTREAM_INVALID if it is ambiguous."""
        data = event_fields(event)[1] or b""
        place = locate(data, *self.model_path)
        if place is None or not data.startswith(b'"', place.start):
            return None
        start = place_in_event(event, place.start)
        return Span(start, start + place.end - place.start)


class TemplateTap(Tap):
    """The base of taps of families whose events differ from the last one only in their text."""

    __slots__ = ("_template",)

    def __init__(self, public: str, upstream_model: str) -> None:
        super().__init__(public, upstream_model)
        self._template = EventTemplate()

    def fits(self, event: bytes) -> bool:
        return self._template.text_length(event) >= 0

    def repeat_text(self, chunk: bytes) -> bytes | None:
        text = self._template.text(chunk)
        if text is not None:
            self._weight += ASCII_WEIGHT * len(text)
        return text
