"""The tap of streams of the messages family. It reads events and renames the model in the first.

The counts in ``message_delta`` are totals that replace those of ``message_start``, if present.
"""

from typing import Any

from adapters.family.estimate import ASCII_WEIGHT, output_weight
from adapters.family.tap import TemplateTap
from adapters.faults import Condition, Fault
from adapters.json.jsonio import DECODE_ERRORS, Struct, decoder
from adapters.messages.client import encode_stream_fault
from adapters.messages.upstream import has_container, read_served, read_usage, stops_plainly
from adapters.upstream_errors.read import read_embedded_error
from store.values.usage import Served, Usage


class _Delta(Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None


class _Block(Struct, gc=False):
    """A content_block_delta event."""

    type: str
    delta: _Delta


_decode_delta = decoder(_Block)
_DELTA = "content_block_delta"
_PREFIX = b"event: content_block_delta\ndata: {"
_DATA = len(_PREFIX) - 1


class MessagesTap(TemplateTap):
    """The tap of one messages stream, whose first event alone has the model's name."""

    model_path = ("message", "model")
    __slots__ = ("_container", "_reported")

    def __init__(self, public: str, upstream_model: str) -> None:
        super().__init__(public, upstream_model)
        self._reported: dict[str, Any] = {}
        self._container = False  # the answer ran code in a container

    @property
    def reported(self) -> object | None:
        """Usage as reported, with later values in place of earlier ones; None if there is none."""
        return self._reported or None

    @property
    def usage(self) -> Usage | None:
        """The usage reported so far. Before message_delta its output is that of message_start,
        which counts only the first token or two; for a broken stream ``output_units`` is closer."""
        return read_usage(self._reported, container=self._container)

    @property
    def served(self) -> Served:
        return read_served(self._reported)

    def feed(self, event: bytes) -> bytes | None:
        """Read one event; return the bytes to send for it."""
        # Nearly all events are a content_block_delta on two lines. Others take the general path.
        if (
            self.started
            and event.startswith(_PREFIX)
            and event.find(b"\n", _DATA) == len(event) - 2
            and self._read_delta(event)
        ):
            return event
        return self._feed_any(event)

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        """Read a chunk that is one event and differs from the last only in its text, as nearly all
        do."""
        chars = self._template.text_length(chunk)
        if chars < 0:
            return None
        self._weight += ASCII_WEIGHT * chars
        return chunk

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Return the last event of a failed stream."""
        return encode_stream_fault(fault, request_id)

    def _read_delta(self, event: bytes) -> bool:
        """Count the text of a delta. Return False if the event is anything else."""
        try:
            block = _decode_delta(event[_DATA:])
        except DECODE_ERRORS:
            return False
        if block.type != _DELTA:
            return False
        delta = block.delta
        text = delta.text or delta.thinking or delta.partial_json
        if text:
            self._weight += output_weight(text)
            self._template.learn(event, text)
        return bool(self._weight) or self.has_content

    def _read_event(self, name: str | None, data: dict[str, Any], event: bytes) -> bytes | None:
        kind = data.get("type")
        if kind == "error" or name == "error" or (data.get("error") and not isinstance(kind, str)):
            return self._failed(read_embedded_error(data).fault)
        if not self.accepted and not isinstance(kind, str):
            return self._failed(read_embedded_error(data).fault)
        self.accepted = True
        return self._read(kind, data, event)

    def _read(self, kind: object, data: dict[str, Any], event: bytes) -> bytes | None:
        if kind == "message_start":
            return self._start(data, event)
        if kind == _DELTA:
            self._weight += _weight_of_delta(data.get("delta"))
            if not (self._weight or self.has_content):
                self._look_for_content(data.get("delta"))
        elif kind == "content_block_start":
            if not (self._weight or self.has_content):
                self._look_for_content(data.get("content_block"))
        elif kind == "message_delta":
            self._merge(data.get("usage"))
            delta = data.get("delta")
            if isinstance(delta, dict):
                self._hand_out_container(delta)
                self.finished = self.finished or bool(delta.get("stop_reason"))
                plain = stops_plainly(delta.get("stop_reason"))
                self.stops_plainly = self.stops_plainly and plain
        elif kind == "message_stop":
            if not self.started:
                return self._failed(Fault(Condition.UPSTREAM_INVALID))  # an empty answer
            return self._end(event)
        return event

    def _start(self, data: dict[str, Any], event: bytes) -> bytes | None:
        self.started = True
        message = data.get("message")
        if not isinstance(message, dict):
            return event
        if isinstance(message.get("id"), str):
            self.upstream_id = message["id"]
        self._hand_out_container(message)
        self._look_for_content(message.get("content"))
        self._merge(message.get("usage"))
        return self._renamed(event) if self._renaming else event

    def _hand_out_container(self, holder: dict[str, Any]) -> None:
        container = holder.get("container")
        if isinstance(container, dict):
            self._container = self._container or has_container(container)
            self._hand_out(container.get("id"))

    def _merge(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._reported.update((k, v) for k, v in usage.items() if v is not None)


def _weight_of_delta(delta: object) -> int:
    if not isinstance(delta, dict):
        return 0
    texts = (delta.get(name) for name in ("text", "thinking", "partial_json"))
    return sum(output_weight(text) for text in texts if isinstance(text, str))
