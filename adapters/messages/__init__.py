"""The messages family: ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``.

Source of its facts: the types and behaviour of the official Anthropic SDKs. Imported by
``registry`` only.
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
    fields,
)
from adapters.family.rate_headers import anthropic_rate_lines
from adapters.faults import Fault
from adapters.json.jsonio import Spans
from adapters.messages import lists, reply, request
from adapters.messages.fault import encode_fault
from adapters.messages.stream import MessagesTap


class Messages:
    """See ``family.Family`` for what each method means."""

    name = "messages"
    operations: Mapping[str, Operation] = {
        "create": Operation("/v1/messages"),
        "count_tokens": Operation("/v1/messages/count_tokens", free=True, counting=True),
    }
    answer_headers: frozenset[str] = frozenset()  # the vendor's describe our account
    rate_lines = staticmethod(anthropic_rate_lines)
    conversation = staticmethod(request.conversation)

    credentials: tuple[str, ...] = ("authorization", "x-api-key")
    reasoning_beyond_bound = False

    def model_name(self, spans: Spans, target: str | None = None) -> str:
        """The model that is asked for."""
        return fields.model_name(spans)

    def peek(self, spans: Spans, operation: Operation, target: str | None = None) -> Peek:
        """Read the few fields."""
        return request.peek(spans, operation.counting)

    def stored_ref(self, spans: Spans) -> StoredRef | None:
        """None: no field of this family names something stored."""
        return None

    def upstream_path(self, operation: Operation, upstream_model: str, target: str | None) -> str:
        """Where the upstream takes the call."""
        return operation.endpoint

    def request_headers(self, client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
        """Header lines for the upstream."""
        return request.headers(client, vendor, key)

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
        return MessagesTap(public, upstream_model)

    def encode_fault(self, fault: Fault, request_id: str) -> Envelope:
        """A refusal or failure."""
        return encode_fault(fault, request_id)

    def keep_alive(self, started: bool) -> bytes:
        """A ping inside a message; before it a comment, since ping comes after message_start."""
        return b'event: ping\ndata: {"type": "ping"}\n\n' if started else b": keep-alive\n\n"

    def model_list(self, models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
        """One page of the list."""
        return lists.page(models, query)

    def model_entry(self, model: ModelEntry) -> bytes:
        """One model."""
        return lists.entry(model)


FAMILY = Messages()
