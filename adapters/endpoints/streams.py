"""Streamed answers of endpoints: the tap of their events, and the bridge for raw bytes."""

from collections.abc import Callable, Mapping
from typing import Any

from adapters.bridge import NativeBridge, TapBridge
from adapters.family.estimate import output_weight
from adapters.family.tap import Tap
from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps
from adapters.openai import error_of
from adapters.upstream_errors.read import read_embedded_error
from store.values.usage import NOT_REPORTED, Served, Usage

_ENDS = (".completed", ".done")  # endings of the type of a last event
_EVENTS = (b"data:", b"event:", b": ", b":\n")  # first bytes of an event stream

UsageReader = Callable[[Mapping[str, Any]], Usage | None]


class EndpointTap(Tap):
    """The tap of one stream of completions, pictures, speech or transcription."""

    __slots__ = ("_drop_usage", "_pictures", "_read_usage", "reported", "usage")

    def __init__(
        self, public: str, upstream_model: str, drop_usage: bool, read_usage: UsageReader
    ) -> None:
        super().__init__(public, upstream_model)
        self._drop_usage, self._read_usage = drop_usage, read_usage
        self._pictures = 0
        self.usage: Usage | None = None
        self.reported: object | None = None

    @property
    def served(self) -> Served:
        return NOT_REPORTED

    @property
    def whole(self) -> bool:
        """True after [DONE], or after a last event."""
        return self.fault is None and (self.ended or self.finished)

    @property
    def output_units(self) -> int:
        """Estimated tokens of text, or the number of pictures so far."""
        return self._pictures or super().output_units

    def feed(self, event: bytes) -> bytes | None:
        """Read one event; return the bytes to send for it."""
        return self._feed_any(event)

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Encode the last event of a failed stream, in the form of OpenAI's clients."""
        return b"data: " + dumps({"error": error_of(fault)}) + b"\n\n"

    def _read_event(self, name: str | None, data: dict[str, Any], event: bytes) -> bytes | None:
        kind = data.get("type") or name
        if data.get("error") or kind == "error":
            return self._failed(read_embedded_error(data).fault)
        self.accepted = self.started = True
        if not self.upstream_id and isinstance(data.get("id"), str):
            self.upstream_id = data["id"] or None
        if data.get("usage") is not None:
            usage = self._read_usage(data)
            self.usage = usage or self.usage
            self.reported = data["usage"]
        choices = data.get("choices")
        if isinstance(choices, list):
            self._read_choices(choices)
            if self._drop_usage and not choices and data.get("usage") is not None:
                return None
        elif isinstance(kind, str) and kind.endswith(_ENDS):
            self.finished = True
            self._pictures += "b64_json" in data or "url" in data
        elif isinstance(data.get("delta"), str):
            self._weight += output_weight(data["delta"])
        return self._renamed(event) if self._renaming else event

    def _read_choices(self, choices: list[Any]) -> None:
        for choice in choices:
            if isinstance(choice, dict):
                text = choice.get("text")
                self._weight += output_weight(text) if isinstance(text, str) else 0
                self.finished = self.finished or bool(choice.get("finish_reason"))

    def _read_marker(self, event: bytes) -> bytes | None:
        if not self.accepted:
            return self._failed(Fault(Condition.UPSTREAM_INVALID))  # an empty answer
        self.ended = True
        return event


class BytesBridge(TapBridge):
    """A bridge for an answer without events: each byte passes as it arrives. If the answer turns
    out to have events, it goes through the tap."""

    __slots__ = ("_events", "_passed")

    def __init__(self, tap: EndpointTap, max_event_bytes: int) -> None:
        super().__init__(tap)
        self._events: NativeBridge | None = NativeBridge(tap, max_event_bytes)
        self._passed = False

    started = False
    end_seen = False
    last_number: int | None = None
    at_boundary = False  # the gateway may write nothing between the bytes

    accepted = property(lambda self: self._passed or self._tap.accepted)
    whole = property(lambda self: self._passed or self._tap.whole)

    def watch(self, on_issued: Callable[[list[str]], None], *, stored: bool) -> None:
        """Hand out no ids: these answers do not name stored objects."""

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        return b""

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        return chunk if self._passed else None

    def feed(self, chunk: bytes) -> bytes:
        """See ``Bridge``."""
        if not self._passed and not self._tap.accepted and not chunk.startswith(_EVENTS):
            self._passed = self.aligned = bool(chunk)
            self._events = None
        if self._events is None:
            return chunk
        sent = self._events.feed(chunk)
        self.busy, self.ended = self._events.busy, self._events.ended
        return sent

    def close(self) -> bytes:
        """See ``Bridge``. The last event may lack its blank line."""
        return b"" if self._events is None else self._events.close()
