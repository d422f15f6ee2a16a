"""The chat completions family: ``POST /v1/chat/completions``.

Source of its facts: the types and behaviour of the official OpenAI SDKs. Imported by ``registry``
only.
"""

from collections.abc import Mapping, Sequence

from adapters.chat_completions import reply, request
from adapters.chat_completions.fault import encode_fault
from adapters.chat_completions.stream import ChatTap
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


class ChatCompletions:
    """See ``family.Family`` for what each method means."""

    name = "chat_completions"
    operations: Mapping[str, Operation] = {"create": Operation("/v1/chat/completions")}
    answer_headers = frozenset({"openai-processing-ms", "openai-version"})
    rate_lines = staticmethod(openai_rate_lines)
    conversation = staticmethod(request.conversation)

    credentials: tuple[str, ...] = ("authorization",)
    reasoning_beyond_bound = True

    def model_name(self, spans: Spans, target: str | None = None) -> str:
        """The model that is asked for."""
        return fields.model_name(spans)

    def peek(self, spans: Spans, operation: Operation, target: str | None = None) -> Peek:
        """Read the few fields."""
        return request.peek(spans)

    def stored_ref(self, spans: Spans) -> StoredRef | None:
        """None: no field of this family names something stored."""
        return None

    def upstream_path(self, operation: Operation, upstream_model: str, target: str | None) -> str:
        """Where the upstream takes the call."""
        return operation.endpoint

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
        """The body for the upstream."""
        return request.edit(body, spans, peek, upstream_model, vendor)

    def read_answer(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> Answer:
        """Read a whole answer."""
        return reply.read(body, public, upstream_model)

    def stream_tap(
        self, public: str, upstream_model: str, drop_usage: bool, operation: Operation
    ) -> StreamTap:
        """A tap for one streamed answer."""
        return ChatTap(public, upstream_model, drop_usage)

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


FAMILY = ChatCompletions()
