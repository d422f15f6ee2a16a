"""Translation between a client of one family and an upstream of another, through ``adapters.ir``.

``Translator`` holds the codecs of two families; ``Translation`` serves one attempt and has the
functions of a ``Pairing``; ``TranslatedBridge`` carries one stream. Sans-io. Imported by
``codecs``; the relay sees a pairing and a bridge.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from msgspec.structs import replace

from adapters.bridge import EVENTS_AT_ONCE, PREAMBLE_LIMIT_BYTES, TapBridge
from adapters.family import Family, Operation, Peek, UpstreamAnswer, UpstreamSide, Vendor
from adapters.family.codec import (
    AnswerContext,
    ClientCodec,
    Encoded,
    StreamDecoder,
    StreamEncoder,
    Target,
    UpstreamCodec,
    bounded,
)
from adapters.family.opaque import Origin, unwrap
from adapters.family.tap import Tap
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.framing.sse import EventSplitter, IdlePiece, RawPiece, begins_events, event_fields
from adapters.ir.answer import Choice, Delta, Event, Finished
from adapters.ir.parts import Part, Reasoning, Turn
from adapters.ir.request import Request
from adapters.json.jsonio import Spans, loads_or_none
from adapters.json.structure import Steps, at_once, has_more_values
from adapters.large_answers import LARGE_BYTES, read_large
from adapters.reframe import GatheringEncoder, replay
from adapters.restore import Restorer
from adapters.summary import SummaryRestorer, with_instruction
from store.values.usage import NOT_REPORTED, Usage

MAX_ANSWER_VALUES = 2_000_000  # limit for a decoded answer, because decoding cannot be interrupted
MAX_DROPPED = 32  # fields listed for the client and in the record
MAX_DROPPED_CHARS = 96  # of each

_PIECE_BYTES = 65_536  # size of each step through a complete stream

_UNFIT = re.compile(r"[^!-+\--~]")  # unfit for a header list; paths may contain the client's names


@dataclass(frozen=True, slots=True)
class Translator:
    """The codecs with which upstreams of a family serve clients of another."""

    upstream: Family
    from_client: ClientCodec
    to_upstream: UpstreamCodec

    def decode(self, spans: Spans, stream: bool, target: str | None) -> Steps[Request]:
        """Decode the client's request, in steps; the result fits every upstream family. Raises
        Fault INVALID_FIELD, FIELD_MISSING."""
        return self.from_client.decode_request(spans, stream, target)

    def refusal(self, request: Request, traits: Traits) -> Fault | None:
        """Return UNSUPPORTED for the first feature without which the answer would be wrong. None if
        a model with these traits can take the request."""
        if not request.asks:
            return None
        verdict = self.to_upstream.verdict
        for ask in request.asks:
            if verdict(ask.feature, traits) == "refuse":
                return Fault(Condition.UNSUPPORTED, param=ask.path)
        return None

    @property
    def counts(self) -> bool:
        """True if upstreams of the family have an endpoint that counts tokens."""
        return self.to_upstream.decode_count is not None

    def begin(
        self,
        request: Request,
        target: Target,
        context: AnswerContext,
        origin: Origin,
        *,
        count: bool,
        without_reasoning: bool = False,
    ) -> "Steps[Translation]":
        """Start the translation of one attempt, in steps. ``without_reasoning``: leave out all
        opaque reasoning, because the upstream refused its own. Raises Fault UNSUPPORTED,
        INVALID_FIELD."""
        if request.compacts and not context.compaction:
            context = replace(context, compaction="item")
        if context.compaction:
            request = with_instruction(request)
        fit = without_opaque(request) if without_reasoning else restore_opaque(request, origin)
        encoded = yield from self.to_upstream.encode_request(fit, target, count)
        dropped = self._left_out(request, encoded, target.traits) if request.asks else ()
        if request.function_call or request.tool_search:
            context = replace(
                context, function_call=request.function_call, tool_search=request.tool_search
            )
        return Translation(self, encoded, context, origin, dropped, sealed=has_opaque(fit))

    def _left_out(self, request: Request, encoded: Encoded, traits: Traits) -> tuple[str, ...]:
        """Return the paths in the client's body that were not carried."""
        verdict = self.to_upstream.verdict
        left_out = [
            ask.path
            for ask in request.asks
            if ask.feature in encoded.dropped or verdict(ask.feature, traits) == "note"
        ]
        return tuple(dict.fromkeys(map(_header_path, left_out)))[:MAX_DROPPED]


def restore_opaque(request: Request, origin: Origin) -> Request:
    """Return the request with the opaque state that ``origin`` made, unwrapped; drop all other.

    Reasoning whose state is dropped keeps its text. The encoder decides whether the model gets it.
    """
    return _map_opaque(request, lambda opaque: unwrap(opaque, origin) or "")


def without_opaque(request: Request) -> Request:
    """Return the request without opaque state, for an upstream that refused its own."""
    return _map_opaque(request, lambda opaque: "")


def without_tools(request: Request, paths: Collection[str]) -> Request:
    """Return the request without the hosted tools at these paths. They are treated as tools that
    no upstream has, and so listed among the dropped fields."""
    tools = tuple(tool for tool in request.tools if tool.path not in paths)
    asks = tuple(
        replace(ask, feature="hosted_tool") if ask.path in paths else ask for ask in request.asks
    )
    return replace(request, tools=tools, asks=asks)


def has_opaque(request: Request) -> bool:
    """Return true if any part of the request has opaque state."""
    return any(map(_turn_has_opaque, request.turns))


def _map_opaque(request: Request, change: Callable[[str], str]) -> Request:
    if not has_opaque(request):
        return request
    turns = (
        Turn(turn.role, tuple(_map_part(part, change) for part in turn.parts))
        if _turn_has_opaque(turn)
        else turn
        for turn in request.turns
    )
    return replace(request, turns=tuple(turns))


def _map_part(part: Part, change: Callable[[str], str]) -> Part:
    if isinstance(part, Reasoning) and part.opaque:
        return replace(part, opaque=change(part.opaque))
    return part


def _turn_has_opaque(turn: Turn) -> bool:
    return any(isinstance(part, Reasoning) and bool(part.opaque) for part in turn.parts)


def _header_path(path: str) -> str:
    return _UNFIT.sub("_", path[:MAX_DROPPED_CHARS])


class Translation:
    """One attempt of a call at an upstream of another family (see ``bridge.Pairing``)."""

    translated = True
    at_once_bytes = 32_768  # size of an answer: each part costs some µs, and parts may be small
    __slots__ = (
        "_body",
        "_context",
        "_encoded",
        "_origin",
        "_translator",
        "dropped",
        "sealed",
        "upstream",
    )  # fmt: skip

    def __init__(
        self,
        translator: Translator,
        encoded: Encoded,
        context: AnswerContext,
        origin: Origin,
        dropped: tuple[str, ...],
        *,
        sealed: bool = False,
    ) -> None:
        self.upstream: UpstreamSide = translator.upstream.upstream
        self.dropped = dropped  # paths in the client's body that are not carried
        self.sealed = sealed  # the request has opaque state; it may be retried without it
        self._translator = translator
        self._body = encoded.body
        self._encoded = replace(encoded, body=b"")
        self._context = context
        self._origin = origin

    @property
    def body(self) -> bytes:
        """The request body for the upstream."""
        return self._body

    def request_body(
        self, spans: Spans, peek: Peek, operation: Operation, upstream_model: str, vendor: Vendor
    ) -> bytes:
        """See ``bridge.Pairing``. The request was encoded when the attempt started."""
        return self._body

    def replace_body(self, body: bytes) -> None:
        """Send this body in place of the encoded one."""
        self._body = body

    def free_body(self) -> None:
        """Free the request once an answer is accepted: it is not sent again."""
        self._body = b""

    def operation(self, operation: Operation, stream: bool) -> Operation:
        """Return the upstream's operation for the client's."""
        job = "generate" if operation.job == "compact" else operation.job
        return self.upstream.operations["stream" if stream else job]

    def read_answer(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> UpstreamAnswer:
        """Return a whole answer for the client (see ``bridge.Pairing.read_answer``)."""
        translator = self._translator
        answer = self._read(upstream_model, operation, body)
        if operation.job == "count":
            decode_count = translator.to_upstream.decode_count
            assert decode_count is not None
            return replace(answer, body=translator.from_client.encode_count(decode_count(body)))
        return at_once(self._translated(answer, body))

    def read_large_answer(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> Steps[UpstreamAnswer]:
        """Read a large answer, in steps (see ``read_answer``)."""
        if operation.job == "count":
            return self.read_answer(body, public, upstream_model, operation)
        answer = yield from self._read_large(upstream_model, operation, body)
        yield True
        return (yield from self._translated(answer, body))

    def reframe(
        self,
        body: bytes,
        upstream_model: str,
        operation: Operation,
        max_bytes: int,
        *,
        stream: bool,
    ) -> Steps[UpstreamAnswer]:
        """Read an answer in the other form than the requested one, in steps: a whole body of
        events, or an object for a client that wants a ``stream``. ``max_bytes``: limit of an event.
        Raises Fault as ``read_answer`` does, and UPSTREAM_INVALID if the events break off."""
        if begins_events(body):
            gathering = GatheringEncoder(self._context)
            bridge = self._bridge(upstream_model, operation, gathering, max_bytes)
            yield from _feed_whole(bridge, body)
            facts = bridge.usage, bridge.reported, bridge.upstream_id, bridge.output_units
            answer, choices = UpstreamAnswer(b"", *facts, bridge.served), gathering.choices
        else:
            answer = yield from self._read_large(upstream_model, operation, body)
            choices = yield from self._choices(body)
        context, usage = self._closing(answer)
        of_client = self._translator.from_client
        if stream:
            written = yield from replay(choices, of_client.open_encoder(context), usage)
        else:
            written = yield from of_client.encode_answer(choices, usage, context)
        return replace(answer, body=written)

    def _read_large(
        self, upstream_model: str, operation: Operation, body: bytes
    ) -> Steps[UpstreamAnswer]:
        """Read an answer of any size by the upstream side, in steps."""
        read = partial(self._read, upstream_model, operation)
        if len(body) <= LARGE_BYTES:
            return read(body)
        if (yield from has_more_values(body, MAX_ANSWER_VALUES)):
            raise Fault(Condition.UPSTREAM_INVALID)
        return (yield from read_large(body, read, self.upstream.long_marks))

    def _read(self, upstream_model: str, operation: Operation, body: bytes) -> UpstreamAnswer:
        """Read an answer by the upstream side: errors, usage, id."""
        theirs = self.operation(operation, False)
        return self.upstream.read_answer(body, upstream_model, upstream_model, theirs)

    def _translated(self, answer: UpstreamAnswer, body: bytes) -> Steps[UpstreamAnswer]:
        choices = yield from self._choices(body)
        context, usage = self._closing(answer)
        encode = self._translator.from_client.encode_answer
        return replace(answer, body=(yield from encode(choices, usage, context)))

    def _choices(self, body: bytes) -> Steps[tuple[Choice, ...]]:
        """Decode the choices of a whole answer and restore the client's terms."""
        restorer = self._restorer()
        choices: list[Choice] = []
        for choice in (yield from self._translator.to_upstream.decode_answer(body)):
            choices.append((yield from restorer.choice(choice)))
        return tuple(choices)

    def _closing(self, answer: UpstreamAnswer) -> tuple[AnswerContext, Usage]:
        """Return the context and usage that the client gets besides the choices."""
        usage = answer.usage or Usage(self._context.input_tokens, answer.output_units)
        if answer.served is NOT_REPORTED:
            return self._context, usage
        return replace(self._context, served=answer.served), usage

    def _restorer(self) -> Restorer | SummaryRestorer:
        if self._context.compaction:
            return SummaryRestorer(self._origin)
        return Restorer(self._encoded, self._origin, self._context.id)

    def open_bridge(
        self,
        public: str,
        upstream_model: str,
        drop_usage: bool,
        operation: Operation,
        max_bytes: int,
    ) -> "TranslatedBridge":
        """Open the bridge of a streamed answer (see ``bridge.Pairing.open_bridge``)."""
        encoder = self._translator.from_client.open_encoder(self._context)
        return self._bridge(upstream_model, operation, encoder, max_bytes)

    def _bridge(
        self, upstream_model: str, operation: Operation, encoder: StreamEncoder, max_bytes: int
    ) -> "TranslatedBridge":
        theirs = self.operation(operation, True)
        tap = self.upstream.stream_tap(upstream_model, upstream_model, False, theirs)
        decoder = self._translator.to_upstream.open_decoder()
        return TranslatedBridge(tap, decoder, self._restorer(), encoder, max_bytes)


def _feed_whole(bridge: "TranslatedBridge", body: bytes) -> Steps[None]:
    """Feed a complete stream, in steps. Raises its Fault, or UPSTREAM_INVALID if it breaks off."""
    for start in range(0, len(body), _PIECE_BYTES):
        bridge.feed(body[start : start + _PIECE_BYTES])
        yield True
        while bridge.busy:
            bridge.feed(b"")
            yield True
        if bridge.ended:
            break
    bridge.close()
    if not bridge.ended or bridge.fault is not None:
        raise bridge.fault or Fault(Condition.UPSTREAM_INVALID)


class TranslatedBridge(TapBridge):
    """A stream on its way between two families (see ``bridge.Bridge``).

    The upstream's tap judges the stream as it does for its own family: acceptance, faults, usage,
    the end. Finishes are held until the usage is known, because some families send both in one
    frame.
    """

    __slots__ = (
        *("_decoder", "_encoder", "_finishes", "_repeating", "_restorer", "_splitter"),
        "_unaccepted_bytes",
    )

    def __init__(
        self,
        tap: Tap,
        decoder: StreamDecoder,
        restorer: Restorer | SummaryRestorer,
        encoder: StreamEncoder,
        max_event_bytes: int,
    ) -> None:
        assert tap.framing == "sse"
        super().__init__(tap)
        self._decoder = decoder
        self._restorer = restorer
        self._encoder = encoder
        self._splitter = EventSplitter(max_event_bytes)
        self._finishes: dict[int, Finished] = {}  # by choice
        self._unaccepted_bytes = 0  # bytes that came before the answer was accepted
        self._repeating = False  # the last event was a Delta that matches the tap's template

    started = property(attrgetter("_encoder.started"))
    last_number = property(attrgetter("_encoder.last_number"))
    end_seen = property(attrgetter("ended"))
    at_boundary = True  # frames are written whole

    def watch(self, on_issued: Callable[[list[str]], None], *, stored: bool) -> None:
        """See ``Bridge``. Clients of another family get none of the vendor's ids."""

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        return self._encoder.encode_fault(fault, request_id)

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        """See ``Bridge``. Only the text passes from one frame into the other."""
        if not self._repeating:
            return None
        text = self._tap.repeat_text(chunk)
        # An event without text produces no frame: ``feed`` handles it.
        return self._encoder.repeat(text) if text else None

    def feed(self, chunk: bytes) -> bytes:
        if self.ended:
            return b""
        sent: list[bytes] = []
        events = self._left if self.busy else self._splitter.feed(chunk)
        if self.busy or len(events) > EVENTS_AT_ONCE:
            events, self._left = events[:EVENTS_AT_ONCE], events[EVENTS_AT_ONCE:]
            self.busy = bool(self._left)
        for event in events:
            if type(event) is RawPiece:  # too large to be translated
                self._fail(Fault(Condition.UPSTREAM_INVALID))
                break
            if self._pass(event, sent):
                break
        self.busy = self.busy and not self.ended
        self.aligned = self._tap.accepted and self._splitter.empty and not (self.busy or self.ended)
        return b"".join(sent)

    def close(self) -> bytes:
        """See ``Bridge``. Pass on a last event that lacks only its blank line, and judge the end of
        a stream whose family has no end marker."""
        sent: list[bytes] = []
        if self.ended or self._splitter.oversized:
            return b""
        rest = self._splitter.rest
        data = event_fields(rest)[1]
        if data is not None and (data == b"[DONE]" or loads_or_none(data) is not None):
            self._pass(rest, sent)
        if not self.ended and self._tap.whole and not self._tap.judge_end():
            self.ended = True
        elif not self.ended and self._tap.whole:
            try:
                self._end(sent)
            except Fault as fault:
                self._fail(fault)
        return b"".join(sent)

    def _pass(self, event: bytes, sent: list[bytes]) -> bool:
        """Read one event; a Fault ends the stream. Return true after the last event."""
        try:
            return self._read(event, sent)
        except Fault as fault:
            self._fail(fault)
            return True

    def _read(self, event: bytes, sent: list[bytes]) -> bool:
        """Feed an event to the tap, then write it for the client. Return true for the last one."""
        tap, encoder = self._tap, self._encoder
        self._repeating = False
        if type(event) is IdlePiece:
            self._count_unaccepted(event)
            return False
        tap.feed(event)
        if tap.fault is not None:
            self.ended = True
            return True
        if not tap.accepted:
            self._count_unaccepted(event)
        elif not encoder.started:
            sent.append(encoder.begin())
        name, data = event_fields(event)
        decoded = loads_or_none(data) if data else None
        if isinstance(decoded, dict):
            written = self._write(bounded(self._decoder.read(name, decoded)), sent)
            # If the tap's template matches this event, the next may differ only in its text.
            if len(written) == 1:
                only = written[0]
                self._repeating = (
                    type(only) is Delta
                    and self._restorer.repeats(only)
                    and self._decoder.may_skip(only)
                    and tap.fits(event)
                )
        if tap.ended:
            self._end(sent)
        return self.ended

    def _count_unaccepted(self, event: bytes) -> None:
        if not self._tap.accepted:
            self._unaccepted_bytes += len(event)
            if self._unaccepted_bytes > PREAMBLE_LIMIT_BYTES:
                raise Fault(Condition.UPSTREAM_INVALID)

    def _write(self, events: list[Event], sent: list[bytes]) -> list[Event]:
        written = self._restorer.events(events)
        for event in written:
            if type(event) is Finished:
                self._finishes.setdefault(event.choice, event)
            else:
                sent.append(self._encoder.write(event))
        return written

    def _end(self, sent: list[bytes]) -> None:
        """Write the last frames of a complete answer."""
        self.ended = True
        if not self._encoder.started:
            sent.append(self._encoder.begin())
        self._write(self._decoder.end(), sent)
        if (served := self._tap.served) is not NOT_REPORTED:
            self._encoder.note_served(served)
        for finish in self._finishes.values() or (Finished("stop"),):
            sent.append(self._encoder.write(finish))
        usage = self._tap.usage
        if usage is None:
            usage = Usage(self._encoder.context.input_tokens, self._tap.output_units)
        sent.append(self._encoder.end(usage))

    def _fail(self, fault: Fault) -> None:
        self._tap.fault = fault
        self._tap.ended = self.ended = True
