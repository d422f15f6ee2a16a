"""The generate-content family: ``POST /v1beta/models/{model}:generateContent`` and its kin.

The model stands in the path, and so does the wish for a stream. Source of its facts: the types and
behaviour of the official Google Gen AI SDKs. Imported by ``registry`` only.
"""

from collections.abc import Mapping, Sequence

from adapters.family import (
    Answer,
    Envelope,
    ModelEntry,
    Operation,
    Peek,
    StoredRef,
    StreamTap,
    Vendor,
)
from adapters.family.headers import base_lines
from adapters.family.rate_headers import no_rate_lines
from adapters.faults import Fault
from adapters.generate_content import lists, reply, request
from adapters.generate_content.fault import encode_fault
from adapters.generate_content.stream import ElementTap, EventTap
from adapters.json.jsonio import Spans

_ENDPOINT = "/v1beta/models/{model}:"


class GenerateContent:
    """See ``family.Family`` for what each method means."""

    name = "generate_content"
    operations: Mapping[str, Operation] = {
        "generateContent": Operation(_ENDPOINT + "generateContent"),
        "streamGenerateContent": Operation(_ENDPOINT + request.STREAM, streams=True),
        "streamGenerateContent.array": Operation(
            _ENDPOINT + request.STREAM, framing="json_array", streams=True
        ),
        "countTokens": Operation(_ENDPOINT + "countTokens", free=True, counting=True),
    }
    answer_headers: frozenset[str] = frozenset()  # the vendor's describe our account
    rate_lines = staticmethod(no_rate_lines)
    conversation = staticmethod(request.conversation)

    credentials: tuple[str, ...] = ("x-goog-api-key", "?key", "authorization")
    reasoning_beyond_bound = False

    def model_name(self, spans: Spans, target: str | None = None) -> str:
        """The model that the path names."""
        return request.model_name(target)

    def peek(self, spans: Spans, operation: Operation, target: str | None = None) -> Peek:
        """Read the few fields."""
        return request.peek(spans, operation, target)

    def stored_ref(self, spans: Spans) -> StoredRef | None:
        """The cached content that the request builds on."""
        return request.stored_ref(spans)

    def upstream_path(self, operation: Operation, upstream_model: str, target: str | None) -> str:
        """Where the upstream takes the call; E24 when its model's name cannot stand in a path."""
        return request.path(operation, upstream_model, target)

    def request_headers(self, client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
        """Header lines for the upstream: nothing of what the client sent."""
        return base_lines(vendor, key)

    def edit_request(
        self,
        body: bytes,
        spans: Spans,
        peek: Peek,
        upstream_model: str,
        vendor: Vendor | None = None,
    ) -> bytes:
        """The body for the upstream; usage needs no asking in this family."""
        return request.edit(body, spans, peek, upstream_model)

    def read_answer(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> Answer:
        """Read a whole answer."""
        if operation.counting:
            return reply.read_count(body)
        return reply.read(body, public, upstream_model)

    def stream_tap(
        self, public: str, upstream_model: str, drop_usage: bool, operation: Operation
    ) -> StreamTap:
        """A tap for one streamed answer; usage is part of every stream and never dropped."""
        if operation.framing == "json_array":
            return ElementTap(public, upstream_model)
        return EventTap(public, upstream_model)

    def encode_fault(self, fault: Fault, request_id: str) -> Envelope:
        """A refusal or failure; the request id travels in headers only."""
        return encode_fault(fault)

    def keep_alive(self, started: bool) -> bytes:
        """An empty line, between events as between elements: comments break this family's
        clients."""
        return b"\r\n"

    def model_list(self, models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
        """One page of the list."""
        return lists.page(models, query)

    def model_entry(self, model: ModelEntry) -> bytes:
        """One model."""
        return lists.entry(model)


FAMILY = GenerateContent()
