"""The client side of the chat completions family: its endpoint, the few request fields that are
read, and errors.

Fields that are not read here are left to the vendor.
"""

from typing import Any

from adapters.family import Envelope, Operation, Peek
from adapters.family.asks import NOTHING_ASKED, AskReader
from adapters.family.conversation import explicit_name, opening, text_field
from adapters.family.reading import count, flag, model_name, optional_object, required_array
from adapters.family.stored import FieldMarks, StoredFields, StoredRefs
from adapters.faults import Fault, wrong_type
from adapters.json.jsonio import Spans, dumps
from adapters.json.structure import Steps
from adapters.openai import envelope, error_of

GENERATE = Operation("/v1/chat/completions")

_ASKING = frozenset({"service_tier", "modalities", "web_search_options", "tools", "store"})


def peek(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read the few fields of a request. Raises MODEL_MISSING, INVALID_FIELD, FIELD_MISSING."""
    model, places = model_name(spans), spans.places
    items = "messages" not in places and "input" in places  # as in responses
    if not items:
        required_array(spans, "messages")
    newer = count(spans, "max_output_tokens" if items else "max_completion_tokens")
    older = count(spans, "max_tokens")
    if newer is not None and older is not None:
        # Vendors differ in which of the two they use: hold for the larger. A 0 means no bound.
        newer = max(newer, older) if newer and older else 0
    include_usage = optional_object(spans, "stream_options").get("include_usage")
    if include_usage is not None and not isinstance(include_usage, bool):
        raise wrong_type("stream_options.include_usage", "expected a boolean")
    reader = None if _ASKING.isdisjoint(places) else _read_asks(spans)
    flat = reader is not None and reader.has_flat_tools
    return Peek(
        model=model,
        stream=flag(spans, "stream"),
        max_output_tokens=(older if newer is None else newer) or None,
        choices=count(spans, "n") or 1,
        include_usage=bool(include_usage),
        asks=NOTHING_ASKED if reader is None else reader.asks(),
        shape="items" if items else "flat_tools" if flat else "",
    )


def _read_asks(spans: Spans) -> AskReader:
    """Read what a request asks for. Raises INVALID_FIELD."""
    reader = AskReader(spans)
    reader.tier("service_tier")
    reader.modalities(spans.value("modalities"), "modalities")
    if spans.raw("web_search_options") not in (None, b"null"):
        reader.hosted("web_search", "web_search_options")
    reader.tools()
    reader.flag("stored", "store")
    return reader


def conversation(spans: Spans) -> bytes:
    """Return the identity of the conversation. ``user`` and ``safety_identifier`` are not read: a
    person may have many conversations at a time, and all users of a program may share one value."""
    name = explicit_name(text_field(spans, "prompt_cache_key"))
    return name or opening(spans, (), "messages")


_MARKS = FieldMarks("file_id", "audio")


def _read_ids(refs: StoredRefs) -> Steps[None]:
    refs.add_at("given", refs.field("audio"), "audio", "voice", "id")

    def message(value: Any, path: str) -> None:
        refs.add_at("given", value, path, "content", "file", "file_id")
        refs.add_at("answer", value, path, "audio", "id")

    yield from refs.elements("messages", _MARKS, message)


STORED_FIELDS = StoredFields(frozenset({"audio"}), (("messages", _MARKS),), _read_ids)


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """Encode the answer to a refused or failed call. Its id is only in the headers."""
    return envelope(fault, error_of(fault))


def encode_stream_fault(fault: Fault) -> bytes:
    """Encode the last event of a failed stream; neither a finish reason nor [DONE] follows."""
    return b"data: " + dumps({"error": error_of(fault)}) + b"\n\n"
