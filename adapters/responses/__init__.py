"""The responses family: ``POST /v1/responses``, its token counts, compaction and stored
responses.

Source of its facts: the types and behaviour of the official OpenAI SDKs. Imported by ``registry``
only.
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
from adapters.family.headers import openai_lines
from adapters.family.rate_headers import openai_rate_lines
from adapters.faults import Fault
from adapters.json.jsonio import Spans
from adapters.openai import lists
from adapters.responses import reply, request
from adapters.responses.fault import encode_fault
from adapters.responses.stream import ResponsesTap


class Responses:
    """See ``family.Family`` for what each method means."""

    name = "responses"
    operations: Mapping[str, Operation] = {
        "create": Operation("/v1/responses"),
        "input_tokens": Operation("/v1/responses/input_tokens", free=True, counting=True),
        "compact": Operation("/v1/responses/compact"),
        "stored": Operation("/v1/responses/{id}", free=True, stored=True),
        "cancel": Operation("/v1/responses/{id}/cancel", free=True, stored=True),
        "input_items": Operation("/v1/responses/{id}/input_items", free=True, stored=True),
    }
    answer_headers = frozenset({"openai-processing-ms", "openai-version"})
    rate_lines = staticmethod(openai_rate_lines)
    conversation = staticmethod(request.conversation)

    credentials: tuple[str, ...] = ("authorization",)
    reasoning_beyond_bound = False

    def model_name(self, spans: Spans, target: str | None = None) -> str:
        """The model that is asked for."""
        return fields.model_name(spans)

    def peek(self, spans: Spans, operation: Operation, target: str | None = None) -> Peek:
        """Read the few fields; only ``create`` knows streams and bounds."""
        creating = operation.endpoint == self.operations["create"].endpoint
        return request.peek_create(spans) if creating else request.peek_other(spans)

    def stored_ref(self, spans: Spans) -> StoredRef | None:
        """The earlier response or the conversation that the request continues."""
        return request.stored_ref(spans)

    def upstream_path(self, operation: Operation, upstream_model: str, target: str | None) -> str:
        """Where the upstream takes the call; ``target``: the id of what is stored, checked."""
        return operation.endpoint if target is None else operation.endpoint.replace("{id}", target)

    def request_headers(self, client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
        """Header lines for the upstream."""
        return openai_lines(client, vendor, key)

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
        if operation.stored:
            return reply.read_stored(body)
        return reply.read(body, public, upstream_model)

    def stream_tap(
        self, public: str, upstream_model: str, drop_usage: bool, operation: Operation
    ) -> StreamTap:
        """A tap for one streamed answer; usage is part of every stream and never dropped. Whose
        public name a stored response had is not known: its model stays."""
        if operation.stored:
            return ResponsesTap(upstream_model, upstream_model)
        return ResponsesTap(public, upstream_model)

    def encode_fault(self, fault: Fault, request_id: str) -> Envelope:
        """A refusal or failure; the request id travels in headers only."""
        return encode_fault(fault)

    def keep_alive(self, started: bool) -> bytes:
        """A comment: every client of the family skips it."""
        return b": keep-alive\n\n"

    def model_list(self, models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
        """The whole list on one page."""
        return lists.model_list(models)

    def model_entry(self, model: ModelEntry) -> bytes:
        """One model."""
        return lists.model_entry(model)


FAMILY = Responses()
