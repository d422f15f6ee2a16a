"""The client side of the messages family: operations, the request fields that are read, errors,
lists of models.

The SDK chooses the exception class by an error's status. The path of a field is in the error's
message, written with points. Imported by this folder.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

from adapters.family import Envelope, ModelEntry, Operation, Peek
from adapters.family.asks import (
    NOTHING_ASKED,
    USES_WITHOUT_BOUND,
    AskReader,
    Asks,
    ModelAsk,
    elements_of,
    hosted_feature,
)
from adapters.family.conversation import explicit_name, object_field, opening
from adapters.family.fault_table import FAULT_TABLE
from adapters.family.headers import refusal_headers
from adapters.family.reading import count, flag, model_name, required_array
from adapters.family.stored import FieldMarks, StoredFields, StoredRefs, inner_values, objects
from adapters.faults import WITH_PATH, Condition, Fault, wrong_value
from adapters.json.jsonio import Spans, Struct, decoder, dumps
from adapters.json.structure import Steps

OPERATIONS = {
    "generate": Operation("/v1/messages"),
    "count": Operation("/v1/messages/count_tokens", "count", free=True),
}
LIST_MODELS = Operation("/v1/models", "list_models", free=True)


# Fields through which a later request may name the message that answers this one.
_KEEPING = frozenset({"thread", "diagnostics"})
_ASKING = frozenset(
    {"tools", "service_tier", "speed", "inference_geo", "mcp_servers", "fallbacks", "thread"}
)


def peek(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read the few fields. Raises Fault MODEL_MISSING, INVALID_FIELD, FIELD_MISSING with the
    field's name.

    A request that counts tokens needs no ``max_tokens``.
    """
    model = model_name(spans)
    required_array(spans, "messages")
    if "max_tokens" in spans:
        bound = count(spans, "max_tokens")
    elif operation.job == "count":
        bound = None
    else:
        raise Fault(Condition.FIELD_MISSING, param="max_tokens")
    asks = NOTHING_ASKED if _ASKING.isdisjoint(spans.places) else _asks(spans)
    if operation.job == "count" and asks is not NOTHING_ASKED:
        asks = Asks(models=asks.models)  # nothing is served, but the upstream must know the names
    return Peek(
        model=model,
        stream=flag(spans, "stream"),
        max_output_tokens=bound or None,
        choices=1,
        include_usage=True,  # streams of the family always show usage
        stored=not _KEEPING.isdisjoint(spans.places),
        asks=asks,
    )


class _Fallback(Struct, frozen=True, gc=False):
    """A model that may answer in place of the requested one, with its own fields."""

    model: Any = None
    max_tokens: Any = None
    speed: Any = None


_decode_fallbacks = decoder(list[_Fallback])


def _asks(spans: Spans) -> Asks:
    """Read what a request asks for. Its only service tiers are ``auto`` and ``standard_only``,
    which ask for nothing. Raises INVALID_FIELD."""
    reader = AskReader(spans)
    reader.tier("service_tier")
    reader.speed(spans.value("speed"), "speed")
    reader.geo("inference_geo")
    for index, tool in reader.tools():
        if tool.feature == "advisor" and tool.model is not None:
            uses = tool.max_uses if type(tool.max_uses) is int else USES_WITHOUT_BOUND
            reader.model(ModelAsk("tools", index, tool.model, uses, _positive(tool.max_tokens)))
    if spans.raw("mcp_servers") not in (None, b"null", b"[]"):
        reader.hosted("mcp", "mcp_servers")
    if (spans.raw("fallbacks") or b"").startswith(b'"'):
        reader.add("fallbacks.default", "fallbacks", str(spans.value("fallbacks")))
    else:
        _read_fallbacks(elements_of(spans, "fallbacks", _decode_fallbacks), reader)
    reader.flag("threads", "thread")
    return reader.asks()


def _read_fallbacks(fallbacks: Sequence[_Fallback], reader: AskReader) -> None:
    if fallbacks:
        reader.add("fallbacks", "fallbacks")
    for index, fallback in enumerate(fallbacks):
        reader.speed(fallback.speed, f"fallbacks[{index}].speed")
        if fallback.model is not None:
            bound = _positive(fallback.max_tokens)
            reader.model(ModelAsk("fallbacks", index, fallback.model, 1, bound))


def _positive(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def conversation(spans: Spans) -> bytes:
    """Return the identity of the conversation. Claude Code puts its session into
    ``metadata.user_id``, and changes ``system`` in each call."""
    name = explicit_name(object_field(spans, "metadata", "user_id"))
    return name or opening(spans, ("system",), "messages")


_MARKS = FieldMarks("file_id")
_PREVIOUS = "previous_message_id"
# For these errors the SDKs themselves send the whole conversation again.
_THREAD_UNSUPPORTED = {"error_code": "thread_unsupported_request", "unsupported": ["model"]}
_THREAD_NOT_FOUND = {"error_code": "thread_not_found"}


def _read_refs(refs: StoredRefs) -> Steps[None]:
    for path, thread in objects(refs.field("thread"), "thread"):
        refs.need_thread(path, _THREAD_UNSUPPORTED)
        refs.add_at("answer", thread, path, _PREVIOUS, details=_THREAD_NOT_FOUND)
    refs.add_at("answer", refs.field("diagnostics"), "diagnostics", _PREVIOUS)
    container = refs.field("container")
    refs.add("either", "container", container)
    refs.add_at("either", container, "container", "id")
    for path, skills in inner_values(container, "container", "skills"):
        for inner, skill in objects(skills, path):
            if skill.get("type") != "anthropic":  # those are public
                refs.add("given", f"{inner}.skill_id", skill.get("skill_id"))

    def message(value: Any, start: str) -> None:
        for path, content in inner_values(value, start, "content"):
            _read_content(content, path, refs)

    yield from refs.elements("messages", _MARKS, message)


def _read_content(value: object, start: str, refs: StoredRefs) -> None:
    """Read the blocks that show a file to the model; hosted results only repeat an answer."""
    for path, block in objects(value, start):
        kind = block.get("type")
        if kind == "container_upload":
            refs.add("given", f"{path}.file_id", block.get("file_id"))
        elif kind == "tool_result":
            _read_content(block.get("content"), f"{path}.content", refs)
        for inner, source in objects(block.get("source"), f"{path}.source"):
            refs.add("given", f"{inner}.file_id", source.get("file_id"))
            _read_content(source.get("content"), f"{inner}.content", refs)


STORED_FIELDS = StoredFields(
    frozenset({"thread", "diagnostics", "container"}), (("messages", _MARKS),), _read_refs
)


_DEFINITIONS = FieldMarks("tool_definition")


def _read_definitions(refs: StoredRefs) -> Steps[None]:
    def message(value: Any, start: str) -> None:
        for path, tool in inner_values(value, start, "content", "tool", "definition"):
            if isinstance(tool, dict):
                refs.add("tool", path, hosted_feature(tool))

    yield from refs.elements("messages", _DEFINITIONS, message)


INLINE_TOOLS = StoredFields(frozenset(), (("messages", _DEFINITIONS),), _read_definitions)


# In a stream there is no status, and a failed channel is best shown as a temporary overload.
_OVERLOADED_IN_STREAM = frozenset({Condition.UPSTREAM_FAILED, Condition.UPSTREAM_UNREACHABLE})

_INDEX = re.compile(r"\[(\d+)\]")


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """Return the whole answer to a refused or failed call."""
    status, kind = FAULT_TABLE[fault.condition].anthropic
    return Envelope(status, refusal_headers(fault), _body(fault, kind, request_id))


def encode_stream_fault(fault: Fault, request_id: str) -> bytes:
    """Return the last event of a failed stream; no message_stop follows."""
    kind = FAULT_TABLE[fault.condition].anthropic[1]
    if fault.condition in _OVERLOADED_IN_STREAM:
        kind = "overloaded_error"
    return b"event: error\ndata: " + _body(fault, kind, request_id) + b"\n\n"


def _body(fault: Fault, kind: str, request_id: str) -> bytes:
    error: dict[str, object] = {"type": kind, "message": _message(fault)}
    if fault.condition is Condition.CONTENT_ENCODING:
        error["details"] = {"error_code": "request_body_encoding_unsupported"}
    elif fault.details is not None:
        error["details"] = fault.details
    return dumps({"type": "error", "error": error, "request_id": request_id})


def _message(fault: Fault) -> str:
    """Return the family's own wording if it has one. An explicit message takes precedence."""
    condition = fault.condition
    path = _INDEX.sub(r".\1", fault.param or "")
    if condition in {Condition.MODEL_MISSING, Condition.FIELD_MISSING}:
        return f"{path}: field required"
    if condition is Condition.INVALID_FIELD and fault.detail:
        return f"{path}: {fault.detail}"
    if condition in WITH_PATH and path and fault.detail:
        return f"{path}: {fault.message}"
    if fault.explicit_message is not None:
        return fault.explicit_message
    if condition is Condition.MISSING_KEY:
        return (
            "No API key was sent. Use the header 'Authorization: Bearer <API_KEY>' "
            "or 'x-api-key: <API_KEY>'."
        )
    if condition is Condition.INVALID_KEY:
        return "invalid x-api-key"  # clients know these words, whichever header had the key
    if condition is Condition.CONTEXT_LENGTH:
        # Coding clients look for the first words and then shorten the conversation themselves.
        return f"prompt is too long: {fault.message}"
    if condition is Condition.ENTRY_NOT_ALLOWED:
        group = f"The group '{fault.detail}'" if fault.detail else "The group"
        return f"{group} of this API key does not support the messages entry point."
    if condition is Condition.MODEL_NOT_FOUND and fault.explicit_message is None:
        return (
            f"{path or 'model'}: {fault.model or 'this model'} is not available to this API key. "
            "Check the name and the channel status."
        )
    return fault.message


DEFAULT_PAGE = 20
MAX_PAGE = 1000


def model_list(models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
    """Return the page for ``limit``, ``after_id`` and ``before_id``. Raises Fault INVALID_FIELD if
    the limit is out of range.

    An id that is no longer in the list (it changed between two pages) gives an empty page.
    """
    limit = _limit(query.get("limit"))
    names = [model.name for model in models]
    first, last = 0, len(names)
    before, after = query.get("before_id"), query.get("after_id")
    if before is not None:
        last = names.index(before) if before in names else 0
        first = max(0, last - limit)
        more = first > 0
    else:
        if after is not None:
            first = names.index(after) + 1 if after in names else len(names)
        last = min(last, first + limit)
        more = last < len(names)
    page = models[first:last]
    return dumps(
        {
            "data": [_model_fields(model) for model in page],
            "has_more": more,
            "first_id": page[0].name if page else None,
            "last_id": page[-1].name if page else None,
        }
    )


def model_entry(model: ModelEntry) -> bytes:
    """Return the body that describes one model."""
    return dumps(_model_fields(model))


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_PAGE
    # Four digits hold the largest page; int() would accept "+5", "5_0" and any length.
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_PAGE):
        raise wrong_value("limit", f"expected an integer from 1 to {MAX_PAGE}")
    return int(text)


def _model_fields(model: ModelEntry) -> dict[str, object]:
    created = datetime.datetime.fromtimestamp(model.created_s, datetime.UTC)
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.context_tokens,
        "max_tokens": model.max_output_tokens,
    }


def keep_alive(started: bool, number: int | None = None) -> bytes:
    """Return a ping inside a message; before message_start a comment, because a ping must follow
    it."""
    return b'event: ping\ndata: {"type": "ping"}\n\n' if started else b": keep-alive\n\n"
