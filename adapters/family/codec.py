"""The shape of a codec: the translation of a family to and from ``adapters.ir``.

A family has a codec for its clients (requests in, answers out) and one for its upstreams (requests
out, answers in). Sans-io; no codec knows another family. Imported by the families, and by
``adapters.translate``, which joins two of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from adapters.family import Framing
from adapters.family.opaque import PREFIX
from adapters.family.traits import Traits
from adapters.family.verdicts import Verdict
from adapters.faults import Condition, Fault, wrong_value
from adapters.ir.answer import Choice, Closed, Delta, Event, Opened, SlotKind
from adapters.ir.request import Feature, Request, Tool
from adapters.json.jsonio import Spans, Struct, replace_fields
from adapters.json.structure import Steps, T
from store.values.usage import NOT_REPORTED, Served, Usage

# The feature that a field of a request asks for; "": a feature that all families have.
Asking = Feature | Literal[""]


# Limit of events from one event of the wire format, which are created and written at once.
MAX_EVENTS_AT_ONCE = 8192


def bounded(values: list[T]) -> list[T]:
    """Return the list. Raises UPSTREAM_INVALID if it has more values than one event may have."""
    if len(values) > MAX_EVENTS_AT_ONCE:
        raise Fault(Condition.UPSTREAM_INVALID)
    return values


class Target(Struct, frozen=True):
    """The upstream model that a request is encoded for: its name, its traits, its maximum output
    tokens (None: not configured), and whether the vendor accepts ``stream_options``."""

    vendor: str
    model: str
    traits: Traits
    max_output_tokens: int | None = None
    stream_options: bool = True  # false: the vendor refuses the field, so usage is not requested


MAX_STOPS = 16
MAX_STOP_CHARS = 256


def stop_sequences(stops: str | Sequence[str], path: str) -> tuple[str, ...]:
    """Return the non-empty stop sequences of a translated request. The gateway looks for each in
    all text of the answer. Raises Fault INVALID_FIELD, with the field's path, if there are more
    than MAX_STOPS, or one is longer than MAX_STOP_CHARS."""
    places = (
        {path: stops}
        if isinstance(stops, str)
        else {f"{path}[{at}]": stop for at, stop in enumerate(stops[: MAX_STOPS + 1])}
    )
    if len(places) > MAX_STOPS:
        raise wrong_value(path, f"expected at most {MAX_STOPS} strings")
    for place, stop in places.items():
        if len(stop) > MAX_STOP_CHARS:
            raise wrong_value(place, f"expected at most {MAX_STOP_CHARS} characters")
    return tuple(filter(None, places.values()))


class Encoded(Struct, frozen=True):
    """A request for an upstream, and the facts needed to read its answer.

    ``names``: name of a tool as sent -> the client's tool, for tools whose name or kind the
    upstream's family does not have. A custom tool sent as a function has one string field,
    ``input``, in its arguments.
    ``output_tool``: the tool that stands for structured output; its arguments are the text.
    ``cut``: stop sequences that the upstream does not support, so the gateway must stop there.
    ``dropped``: features left out although the verdict is "map" (such as a fifth stop sequence).
    """

    body: bytes
    names: Mapping[str, Tool] = {}
    output_tool: str = ""
    cut: tuple[str, ...] = ()
    dropped: tuple[Feature, ...] = ()


class AnswerContext(Struct, frozen=True):
    """Facts of a call that its answer repeats: the model's public name, the gateway's ids and
    times, and an estimate of the input for frames sent before the upstream's count arrives.

    ``framing``: how the client's stream is cut.
    """

    model: str
    id: str  # [A-Za-z0-9]+; the family puts its prefix before it
    created_s: int
    input_tokens: int
    include_usage: bool
    framing: Framing = "sse"
    function_call: bool = False  # see ``Request``
    tool_search: bool = False  # see ``Request``
    # responses: the answer is a summary in place of the conversation, either as an item of a
    # response or as the object of the compaction endpoint
    compaction: Literal["", "item", "object"] = ""
    served: Served = NOT_REPORTED  # as the upstream reports it; in a stream known at the end

    @property
    def tier(self) -> str:
        """The tier in the words of all families except messages; empty if none was reported."""
        return "priority" if self.served.speed == "fast" else self.served.tier


class StreamDecoder(ABC):
    """Reader of the decoded events of one upstream stream, in order; made for one stream.

    The stream's tap reads the same events first and handles faults, usage, the answer's id and the
    end of the stream. Anything that ``adapters.ir`` cannot express is ignored.
    """

    def __init__(self) -> None:
        self._slots: dict[int, SlotKind] = {}  # open slots
        self._next_slot = 0

    @abstractmethod
    def read(self, name: str | None, data: dict[str, Any]) -> list[Event]:
        """Return the ``adapters.ir`` events for an event of the wire format, given its name, if
        any, and its data. Raises Fault UPSTREAM_INVALID if they are more than the limit."""

    def may_skip(self, event: Delta) -> bool:
        """Return true if events that differ from this one only in the text may pass unread. False
        for a slot whose text the decoder gathers."""
        return True

    def end(self) -> list[Event]:
        """Return the missing last events of a stream that ended well: all slots are closed."""
        return [self._close(slot) for slot in list(self._slots)]

    def _open(self, kind: SlotKind, **fields: Any) -> Opened:
        slot, self._next_slot = self._next_slot, self._next_slot + 1
        self._slots[slot] = kind
        return Opened(slot, kind, **fields)

    def _close(self, slot: int) -> Closed:
        del self._slots[slot]
        return Closed(slot)


class StreamEncoder(ABC):
    """Writer of one stream for a client; made for one stream. Frames are written whole."""

    def __init__(self, context: AnswerContext) -> None:
        self.context = context
        self.started = False  # the reader is inside an answer: ``begin`` was sent

    def note_served(self, served: Served) -> None:
        """Note the conditions that the upstream reported. Call before the last frames."""
        self.context = replace_fields(self.context, served=served)

    @property
    def last_number(self) -> int | None:
        """The number of the last frame, in families that number frames."""
        return None

    @abstractmethod
    def begin(self) -> bytes:
        """Return the first frames and set ``started``."""

    @abstractmethod
    def write(self, event: Event) -> bytes:
        """Return the frames of an event: mostly one, sometimes none."""

    @abstractmethod
    def repeat(self, text: bytes) -> bytes:
        """Return the same as ``write`` of a Delta without log probabilities. The last event must be
        such a Delta of the same text or reasoning slot. ``text``: the text as in a JSON string,
        plain ASCII without escapes."""

    @abstractmethod
    def end(self, usage: Usage | None) -> bytes:
        """Return the last frames of a complete answer. ``usage``: reported or estimated."""

    @abstractmethod
    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Return the last frames of a failed stream, even if it has not started."""


@dataclass(frozen=True, slots=True)
class ClientCodec:
    """The codec of a family's client side."""

    # Decode the whole request, in steps, with a yield after each turn (fields, stream, target of
    # the path). Raises Fault INVALID_FIELD, FIELD_MISSING with the path in ``param``.
    decode_request: Callable[[Spans, bool, str | None], Steps[Request]]
    # Encode a whole answer, in steps.
    encode_answer: Callable[[tuple[Choice, ...], Usage, AnswerContext], Steps[bytes]]
    open_encoder: Callable[[AnswerContext], StreamEncoder]
    encode_count: Callable[[int], bytes]  # the answer to a request that counts tokens
    # Return a client's body, for an upstream of its own family, without the opaque state of other
    # families (``adapters.family.opaque``) that translated answers left in it. The vendor would
    # refuse that state. Called only if the body has some (fields, the model's name upstream).
    without_foreign: Callable[[Spans, str], bytes]
    # The sign of such a body: ``adapters.family.opaque.PREFIX`` as the family writes it.
    foreign_mark: bytes = PREFIX.encode()
    # Return a client's body without any opaque reasoning, for an upstream of its own family that
    # refused some; the same bytes if there is none (fields, the model's name at the upstream).
    # None: the family's own wire format has none.
    without_reasoning: Callable[[Spans, str], bytes] | None = None
    # All request fields that the family's clients know.
    fields: Mapping[str, Asking] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpstreamCodec:
    """The codec of a family's upstream side."""

    # Return the verdict on a feature, for a model with these traits.
    verdict: Callable[[Feature, Traits], Verdict]
    # Encode the body, in steps, with a yield after each turn (request, target, whether it is a
    # count). Raises Fault UNSUPPORTED, INVALID_FIELD with the client's path in ``param``.
    encode_request: Callable[[Request, Target, bool], Steps[Encoded]]
    # Decode the choices of a whole answer that ``read_answer`` accepted, in steps. Raises
    # Fault UPSTREAM_INVALID.
    decode_answer: Callable[[bytes], Steps[tuple[Choice, ...]]]
    open_decoder: Callable[[], StreamDecoder]
    # Return the token count in a body that ``read_answer`` accepted. None: no such endpoint.
    decode_count: Callable[[bytes], int] | None = None


@dataclass(frozen=True, slots=True)
class Codecs:
    """Both codecs of a family."""

    client: ClientCodec
    upstream: UpstreamCodec
