"""The shape of an endpoint's row, and how a channel serves its calls: bytes pass, usage is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec.structs

from adapters.bridge import Bridge, NativeBridge, Pairing
from adapters.endpoints.streams import BytesBridge, EndpointTap
from adapters.endpoints.usage import HasPrice
from adapters.family import Family, Operation, Peek, UpstreamAnswer, UpstreamSide, Vendor, reply
from adapters.family.estimate import body_weight, output_weight, tokens_of_weight
from adapters.json.jsonio import Spans, loads_or_none, spans_of_upstream
from adapters.json.structure import Steps
from adapters.large_answers import read_large
from store.values.usage import Usage

_READ_FIELDS = frozenset({"usage", "meta", "duration", "id", "error", "object", "type"})
_SMALL_BYTES = 16_384  # of a decoded field
_LARGER_EVENTS = 8  # times the setting: each picture comes in one event


def nothing_reported(peek: Peek, inputs: int, units: int, has_price: HasPrice) -> Usage:
    """Return the charge for an answer without usage: the estimated text of input and output."""
    return Usage(inputs, units)


class Endpoint(Operation, frozen=True, gc=False, kw_only=True):
    """A row: an endpoint of the relay port beside chat.

    ``family``: the dialect of its errors and records, with the row's own reader of requests.
    ``native``: families whose channels accept its bytes unchanged. ``answer_field``: the field that
    every answer must have, if any. ``pictures``: the elements of that field are counted.
    ``output_field``: the field that is weighed if no tokens are reported. ``text``: the answer may
    be plain text.
    """

    family: Family
    native: frozenset[str]
    upstream: UpstreamSide
    # Return the counts in the fields of an answer or an event; None if there are none.
    read_usage: Callable[[Mapping[str, Any]], Usage | None]
    # Return the charge if nothing is reported (peek, estimated input, units of the answer, prices).
    unreported: Callable[[Peek, int, int, HasPrice], Usage] = nothing_reported
    # Channel family that is not native -> maker of a translation for one attempt (spans, peek,
    # upstream's model).
    translations: Mapping[str, Callable[[Spans, Peek, str], Pairing]] = {}
    answer_field: str = ""
    output_field: str = ""
    pictures: bool = False
    text: bool = False
    multipart: bool = False  # the body may be a form
    json: bool = True  # the body may be JSON
    sound: bool = False  # the form's file is sound, and its length is charged
    asks_usage: bool = False  # a stream reports usage if ``stream_options`` asks for it

    @property
    def key(self) -> str:
        """Return the name of the row, prefixed with its dialect."""
        return f"{self.family.name}/{self.row}"

    @property
    def path_is_listed(self) -> bool:
        """Return true if lists of models name this path, which is one of several spellings."""
        return self.endpoint.startswith("/v1")

    def takes(self, family: str, vendor: Vendor, *, translate: bool) -> bool:
        """Return true if a channel of this family and vendor takes its calls, also translated."""
        if self.row not in vendor.endpoints:
            return False
        return family in self.native or (translate and family in self.translations)

    def pairing(self, family: str, spans: Spans, peek: Peek, upstream_model: str) -> Pairing:
        """Return how a channel of a family serves a call. Raises Fault if it cannot."""
        if family in self.native:
            return EndpointPairing(
                self.upstream,
                operation=lambda operation, stream: operation,
                request_body=self.upstream.edit_request,
                read_answer=self.upstream.read_answer,
                open_bridge=self._open_bridge,
            )
        return self.translations[family](spans, peek, upstream_model)

    def _open_bridge(
        self, public: str, model: str, drop_usage: bool, operation: Operation, max_bytes: int
    ) -> Bridge:
        tap = EndpointTap(public, model, drop_usage and self.asks_usage, self.read_usage)
        if self.framing == "bytes":
            return BytesBridge(tap, max_bytes)
        return NativeBridge(tap, max_bytes * (_LARGER_EVENTS if self.pictures else 1))


@dataclass(frozen=True, slots=True)
class EndpointPairing(Pairing):
    """A pairing with large answers that may be text, and with pictures that are counted."""

    def read_large_answer(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> Steps[UpstreamAnswer]:
        """Read a large answer, in steps (see ``read_answer``)."""
        assert isinstance(operation, Endpoint)
        if operation.text and not is_object(body):
            return self.read_answer(body, public, upstream_model, operation)
        units = 0

        def read(short: bytes) -> UpstreamAnswer:
            nonlocal units
            answer = self.read_answer(short, public, upstream_model, operation)
            units = answer.output_units
            return answer

        answer = yield from read_large(body, read, self.upstream.long_marks)
        if not operation.output_field:  # pictures and vectors are not weighed
            answer = msgspec.structs.replace(answer, output_units=units)
        return answer


def is_object(body: bytes) -> bool:
    """Return true if a body looks like a JSON object."""
    return body[:64].lstrip().startswith(b"{")


def read_answer(
    body: bytes, public: str, upstream_model: str, operation: Operation
) -> UpstreamAnswer:
    """Return a whole answer with its usage and the model's public name. Raises Fault
    UPSTREAM_INVALID if it is no answer, or the condition of an error inside it."""
    assert isinstance(operation, Endpoint)
    if operation.text and not is_object(body):
        return UpstreamAnswer(body, None, None, None, tokens_of_weight(body_weight(body)))
    spans = spans_of_upstream(body)
    fields = {
        name: loads_or_none(spans.raw(name) or b"")
        for name in _READ_FIELDS & spans.places.keys()
        if (place := spans.places[name]).end - place.start <= _SMALL_BYTES
    }
    field = operation.answer_field
    if fields.get("error") or (field and field not in spans):
        raise reply.embedded_fault(loads_or_none(body) if len(body) <= _SMALL_BYTES else fields)
    usage, named, units = operation.read_usage(fields), fields.get("id"), 0
    if usage is None and operation.pictures:
        units = len(reply.dicts(loads_or_none(spans.raw(field) or b"")))
    elif usage is None and operation.output_field:
        units = _units_of(loads_or_none(spans.raw(operation.output_field) or b""))
    if public != upstream_model:
        body = reply.rename_model(body, public, upstream_model)
    reported = fields.get("usage", fields.get("meta"))
    return UpstreamAnswer(body, usage, reported, named if isinstance(named, str) else None, units)


def _units_of(output: object) -> int:
    """Return the estimated tokens of an answer's text, or of the texts of its choices."""
    texts = [choice.get("text") for choice in reply.dicts(output)] or [output]
    weight = sum(output_weight(text) for text in texts if isinstance(text, str))
    return tokens_of_weight(weight)
