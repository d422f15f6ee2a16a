"""The tap of streams of the responses family. It renames the model in the few events that contain a
response.

Only the terminal event reports usage. Vendors may leave out deltas and send whole items, or leave
out the items, so output is estimated by the larger of both.
"""

from typing import Any

from adapters.family.codec import AnswerContext
from adapters.family.counts import MAX_USES, served_of
from adapters.family.empty_answer import item_has_content
from adapters.family.estimate import output_weight, tokens_of_weight
from adapters.family.reply import dicts, weight_of_items
from adapters.family.tap import Tap
from adapters.faults import Fault
from adapters.framing.sse import event_fields
from adapters.json.jsonio import DECODE_ERRORS, Struct, decoder, loads_loose
from adapters.responses.client import encode_stream_fault
from adapters.responses.encode_answer import blank_response
from adapters.responses.upstream import (
    HostedUse,
    hosted_uses,
    issued_by_event,
    read_failure,
    read_usage,
    weight_of_item,
)
from store.values.usage import NOT_REPORTED, Served, Usage

# Limit of the first response object, kept for the event of a failure. It repeats the client's
# instructions and tools, so a larger one is not worth its memory in every open stream.
MAX_STORED_BYTES = 65536


class _Delta(Struct, gc=False):
    """An event with a chunk of text."""

    type: str
    delta: str
    # An event with one of these fields is decoded in full.
    error: Any = None
    response: Any = None


_decode = decoder(_Delta)
_EVENT = b"event: response."
_DATA = b"data: {"

_DELTAS = frozenset(
    f"response.{name}.delta"
    for name in (
        "output_text",
        "refusal",
        "reasoning_text",
        "reasoning_summary_text",
        "function_call_arguments",
        "custom_tool_call_input",
        "mcp_call_arguments",
        "code_interpreter_call_code",
    )
)
_CREATED = "response.created"
_FAILED = "response.failed"
_COMPLETED = "response.completed"
_PIECES = ("delta", "part", "partial_image_b64")  # fields of events with part of the answer
_LAST = frozenset({_COMPLETED, "response.incomplete"})
# Fields of a response that clients can do without.
_OPTIONAL = frozenset(
    {
        *("max_tool_calls", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier"),
        *("text", "top_logprobs", "truncation", "user"),
    }
)


class ResponsesTap(Tap):
    """The tap of one responses stream; its events have the model's name in a response object."""

    model_path = ("response", "model")

    __slots__ = (
        "_created_at",
        "_first_response",
        "_hosted",
        "_item_weight",
        "_last_passed",
        "reported",
        "served",
        "usage",
    )

    def __init__(self, public: str, upstream_model: str) -> None:
        super().__init__(public, upstream_model)
        self._first_response = b""  # the data of the first event with a response
        self._created_at = 0  # of that response, in seconds
        self._last_passed = b""  # the last event with data that was passed on
        self._item_weight = 0  # of whole items; deltas are weighed separately
        self._hosted: set[HostedUse] = set()
        self.usage: Usage | None = None
        self.reported: object | None = None
        self.served: Served = NOT_REPORTED  # from the last event; earlier ones repeat the request

    @property
    def last_number(self) -> int | None:
        number = self._next_number()
        return number - 1 if number else None

    @property
    def output_units(self) -> int:
        """Estimated output tokens so far, from the deltas or the whole items."""
        return tokens_of_weight(max(self._weight, self._item_weight))

    def feed(self, event: bytes) -> bytes | None:
        """Read one event; return the bytes to send for it."""
        # Nearly all events are a delta. Others are decoded in full.
        if self.accepted and self._read_delta(event):
            self._last_passed = event
            return event
        return self._feed_any(event)

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Encode the last events of a failed stream, continuing its numbers and its response."""
        number = self._next_number()
        context = AnswerContext(self._public, request_id, self._created_at, 0, True)
        fields = blank_response(context).items()
        blank = {name: value for name, value in fields if name not in _OPTIONAL}
        blank["id"] = self.upstream_id or blank["id"]
        response = {**blank, **self._known_response(), "id": blank["id"]}
        if self._renaming:
            response["model"] = self._public
        try:
            return encode_stream_fault(fault, response, number)
        except OverflowError:  # an infinity, which the vendor may have sent
            return encode_stream_fault(fault, blank, number)

    def _read_delta(self, event: bytes) -> bool:
        """Count the text of a delta in a single data line. Return False for anything else."""
        start = 0
        if event.startswith(_EVENT):
            start = event.find(b"\n") + 1
            if not event.endswith(b".delta", 0, start - 1):
                return False
        if not event.startswith(_DATA, start) or event.find(b"\n", start) != len(event) - 2:
            return False
        try:
            delta = _decode(event[start + 6 :])
        except DECODE_ERRORS:
            return False
        if not (delta.error is delta.response is None):
            return False
        if delta.type in _DELTAS:
            self._weight += output_weight(delta.delta)
            return True
        return False

    def _read_event(self, name: str | None, data: dict[str, Any], event: bytes) -> bytes | None:
        kind = data.get("type")
        if not isinstance(kind, str):
            kind = None
        if kind == _FAILED:
            self._read_end(data.get("response"))
            return self._failed(read_failure(data))
        # SDKs raise an exception for every event with an error.
        if "error" in (kind, name) or data.get("error"):
            return self._failed(read_failure(data))
        if not self.accepted and kind is None:
            return self._failed(read_failure(data))
        self.accepted = True
        passed = self._read(kind, data, event)
        if passed is not None:
            self._last_passed = event
        return passed

    def _read(self, kind: str | None, data: dict[str, Any], event: bytes) -> bytes | None:
        response = data.get("response")
        passed: bytes | None = event
        self._hand_out(*issued_by_event(data, self.stored))
        if isinstance(response, dict):
            self._read_response(response, event)
            passed = self._renamed(event) if self._renaming else event
        if kind == _CREATED:
            self.started = True
        elif kind in _LAST:
            self._read_end(response)
            self.finished = self.fault is None
            self.stops_plainly = kind == _COMPLETED
            passed = self._end(passed)
        elif kind == "response.output_item.done":
            self._read_item(data.get("item"))
        elif kind in _DELTAS and isinstance(data.get("delta"), str):
            self._weight += output_weight(data["delta"])
        elif response is None and not (self._weight or self.has_content):
            self._look_for_content(*map(data.get, _PIECES))
            self._look_for_items([data.get("item")])
        return passed

    def _look_for_items(self, items: object) -> None:
        self.has_content = self.has_content or any(map(item_has_content, dicts(items)))

    def _read_response(self, response: dict[str, Any], event: bytes) -> None:
        if self.upstream_id is None and isinstance(response.get("id"), str):
            self.upstream_id = response["id"] or None
        if not self._created_at and type(response.get("created_at")) is int:
            self._created_at = response["created_at"]
        if not self._first_response and len(event) <= MAX_STORED_BYTES:
            self._first_response = event_fields(event)[1] or b""

    def _read_item(self, item: object) -> None:
        self._item_weight += weight_of_items([item], weight_of_item)
        if not (self._item_weight or self._weight):
            self._look_for_items([item])
        if len(self._hosted) < MAX_USES:
            self._hosted |= hosted_uses([item])

    def _read_end(self, response: object) -> None:
        """Read usage and output of the response in a terminal event."""
        if not isinstance(response, dict):
            return
        self.reported = response.get("usage")
        output = response.get("output")
        if not (self._item_weight or self._weight):
            self._look_for_items(output)
        self._hosted |= hosted_uses(output)
        self.usage = read_usage(self.reported, response.get("tool_usage"), self._hosted)
        self.served = served_of(response.get("service_tier"))
        if self.usage is None:
            weight = weight_of_items(output, weight_of_item) if isinstance(output, list) else 0
            self._item_weight = max(self._item_weight, weight)

    def _next_number(self) -> int:
        """Return the next sequence number; 0 if the vendor does not number events."""
        data = event_fields(self._last_passed)[1]
        try:
            number = loads_loose(data).get("sequence_number") if data else None
        except ValueError:  # only the delta's text was read, and less strictly
            number = None
        return number + 1 if type(number) is int and number >= 0 else 0

    def _known_response(self) -> dict[str, Any]:
        """Return the response object from the vendor's first event; empty if none was kept."""
        if not self._first_response:
            return {}
        response: dict[str, Any] = loads_loose(self._first_response)["response"]
        return response
