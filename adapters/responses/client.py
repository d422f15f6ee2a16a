"""The client side of the responses family: its endpoints, the few request fields that are read, and
errors.

Items, tools and fields that are not read here are left to the vendor. Error bodies are those of
chat completions except for one code. A failed stream ends with two events, because some clients
read the first and some the second.
"""

from typing import Any

from adapters.family import Envelope, Operation, Peek
from adapters.family.asks import NOTHING_ASKED, AskReader, Asks, hosted_feature
from adapters.family.conversation import explicit_name, object_field, opening, text_field
from adapters.family.fault_table import INVALID_REQUEST, PERMISSION, QUOTA, RATE_LIMIT, SERVER
from adapters.family.reading import count, flag, model_name
from adapters.family.stored import FieldMarks, StoredFields, StoredRefs, inner_values, objects
from adapters.faults import Condition, Fault, wrong_type
from adapters.json.jsonio import Spans, dumps
from adapters.json.structure import Steps
from adapters.openai import COMMENT, envelope, error_of
from adapters.responses.reasoning_state import COMPACTION_TRIGGER, THOUGHT_ID

_RESPONSE = "/v1/responses/{id}"

OPERATIONS: dict[str, Operation] = {
    operation.job: operation
    for operation in (
        Operation("/v1/responses"),
        Operation("/v1/responses/input_tokens", "count", free=True),
        Operation("/v1/responses/compact", "compact"),
        Operation(_RESPONSE, "stored", free=True, stored=True),
        Operation(_RESPONSE + "/cancel", "cancel", free=True, stored=True),
        Operation(_RESPONSE + "/input_items", "list_input", free=True, stored=True),
    )
}


# Fields that may replace ``input``: the vendor already has the text.
_INSTEAD_OF_INPUT = ("prompt", "previous_response_id", "conversation")
_STORED = ("store", "previous_response_id", "conversation")
_ASKING = frozenset({"tools", "service_tier", "background", *_STORED})


def peek(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read the few fields of a request; only requests for a response have streams and bounds.
    Raises Fault MODEL_MISSING, INVALID_FIELD, FIELD_MISSING with the field's name."""
    model, stream, bound, stored, unasked = model_name(spans), False, None, False, False
    _check_input(spans)
    if operation.job == "generate":
        stream = flag(spans, "stream")
        bound = count(spans, "max_output_tokens") or None
        store = spans.raw("store")
        stored, unasked = store != b"false", store in (None, b"null")  # by default, vendors store
    nothing = operation.job == "count" or _ASKING.isdisjoint(spans.places)
    return Peek(
        model=model,
        stream=stream,
        max_output_tokens=bound,
        choices=1,
        include_usage=True,  # streams of the family always show usage
        stored=stored,
        asks=NOTHING_ASKED if nothing else _asks(spans, operation),
        stored_by_default=unasked,
    )


def _asks(spans: Spans, operation: Operation) -> Asks:
    """Read what a request asks for. Raises INVALID_FIELD."""
    reader = AskReader(spans)
    reader.tier("service_tier")
    reader.tools(spans.value("max_tool_calls"))
    if operation.job == "generate" and flag(spans, "background"):
        reader.add("background", "background")
    for name in _STORED:
        reader.flag("stored", name)
    return reader.asks()


def conversation(spans: Spans) -> bytes:
    """Return the identity of the conversation; ``previous_response_id`` differs in each turn."""
    name = explicit_name(
        text_field(spans, "conversation")
        or object_field(spans, "conversation", "id")
        or text_field(spans, "prompt_cache_key")
    )
    return name or opening(spans, ("instructions",), "input")


def _check_input(spans: Spans) -> None:
    """Check that there is something to answer. Raises FIELD_MISSING if there is nothing,
    INVALID_FIELD if ``input`` is neither string nor array. Its items are not read."""
    if _is_given(spans, "input"):
        place = spans.places["input"]
        if not spans.body.startswith((b'"', b"["), place.start):
            raise wrong_type("input", "expected a string or an array")
    elif not any(_is_given(spans, name) for name in _INSTEAD_OF_INPUT):
        raise Fault(Condition.FIELD_MISSING, param="input")


def _is_given(spans: Spans, name: str) -> bool:
    place = spans.get(name)
    return place is not None and not spans.body.startswith(b"null", place.start)


_IN_INPUT = FieldMarks("id", "file_id", "tools")
_IN_TOOLS = FieldMarks("vector_store_ids", "container", "environment", "file_id")
_OF_CLIENT = ("function", "custom", "namespace")  # a tuple: any JSON is compared with it
_PLAIN_FIELDS = frozenset({"type", "id", "status", "role"})  # fields of an item without content


def _read_ids(refs: StoredRefs) -> Steps[None]:
    previous = refs.field("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise wrong_type("previous_response_id", "expected a string")
    refs.add("answer", "previous_response_id", previous, alone=True)
    _read_conversation(refs.field("conversation"), refs)
    options = "prompt_cache_options"
    refs.add_at("answer", refs.field(options), options, "comparison_response_id")
    for path, prompt in objects(refs.field("prompt"), "prompt"):
        refs.add("given", f"{path}.id", prompt.get("id"))
        variables = prompt.get("variables")
        for name, value in variables.items() if isinstance(variables, dict) else ():
            refs.add_at("given", value, f"{path}.variables.{name}", "file_id")
    yield from refs.elements("input", _IN_INPUT, lambda item, path: _read_item(item, path, refs))
    yield from refs.elements("tools", _IN_TOOLS, lambda tool, path: _read_tools(tool, path, refs))


def _read_conversation(value: object, refs: StoredRefs) -> None:
    if isinstance(value, dict):
        if not isinstance(value.get("id"), str):
            raise wrong_type("conversation.id", "expected a string")
        refs.add("either", "conversation.id", value["id"], alone=True)
    elif value is not None and not isinstance(value, str):
        raise wrong_type("conversation", "expected a string or an object")
    refs.add("either", "conversation", value, alone=True)


def _read_item(value: object, start: str, refs: StoredRefs) -> None:
    for path, item in objects(value, start):
        # The vendor fills in the content of an item that has only its id.
        kind = item.get("type")
        bare = not any(item[name] for name in item.keys() - _PLAIN_FIELDS)
        reference = kind == "item_reference" or (bare and kind != COMPACTION_TRIGGER)
        if reference and not str(item.get("id")).startswith(THOUGHT_ID):
            refs.add("answer", f"{path}.id", item.get("id"))
        for name in ("content", "output"):
            refs.add_at("given", item.get(name), f"{path}.{name}", "file_id")
        _read_tools(item.get("tools"), f"{path}.tools", refs)


def _read_tools(value: object, start: str, refs: StoredRefs) -> None:
    """Read tools that the vendor runs; client tools have nothing but schemas."""
    for path, tool in objects(value, start):
        if tool.get("type") in _OF_CLIENT:
            continue
        refs.add_all("given", f"{path}.vector_store_ids", tool.get("vector_store_ids"))
        refs.add("either", f"{path}.container", tool.get("container"))
        for name in ("container", "environment"):
            _read_container(tool.get(name), f"{path}.{name}", refs)
        refs.add_at("given", tool, path, "input_image_mask", "file_id")


def _read_container(value: object, path: str, refs: StoredRefs) -> None:
    for place, container in objects(value, path):
        refs.add("either", f"{place}.container_id", container.get("container_id"))
        refs.add_all("given", f"{place}.file_ids", container.get("file_ids"))
        refs.add_at("given", container, place, "skills", "skill_id")


STORED_FIELDS = StoredFields(
    frozenset({"previous_response_id", "conversation", "prompt", "prompt_cache_options"}),
    (("input", _IN_INPUT), ("tools", _IN_TOOLS)),
    _read_ids,
)


_ADDITIONS = FieldMarks("additional_tools", "tool_search_output")


def _read_additions(refs: StoredRefs) -> Steps[None]:
    def item(value: Any, start: str) -> None:
        for path, tools in inner_values(value, start, "tools"):
            for place, tool in objects(tools, path):
                refs.add("tool", place, hosted_feature(tool))

    yield from refs.elements("input", _ADDITIONS, item)


INLINE_TOOLS = StoredFields(frozenset(), (("input", _ADDITIONS),), _read_additions)


# Codex retries five times for this code, but twenty-five times for any other with status 503.
_OVERLOADED = "server_is_overloaded"
_OVERLOADED_CONDITIONS = frozenset({Condition.NO_CHANNEL, Condition.UPSTREAM_OVERLOADED})

# Error type -> response.error.code, by which clients decide whether to retry.
_RESPONSE_CODES = {
    INVALID_REQUEST: "invalid_prompt",
    PERMISSION: "invalid_prompt",
    QUOTA: "insufficient_quota",
    RATE_LIMIT: "rate_limit_exceeded",
    SERVER: "server_error",
}


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """Encode the answer to a refused or failed call. Its id is only in the headers."""
    return envelope(fault, _error_of(fault))


def encode_stream_fault(fault: Fault, response: dict[str, Any], number: int) -> bytes:
    """Encode the last events of a failed stream: ``error`` and ``response.failed``.

    ``response``: the response object as the client knows it; ``number``: sequence number of the
    first event. Raises OverflowError if ``response`` has values that JSON cannot express.
    """
    error = _error_of(fault)
    kind = error.pop("type")
    # Flat, as in the types, and also nested, which makes the SDKs raise an exception.
    event = {"type": "error", "sequence_number": number, **error, "error": {"type": kind, **error}}
    failed = {
        **response,
        "status": "failed",
        "error": {"code": _response_code(fault, kind), "message": fault.message},
        "output": [],
    }
    last = {"type": "response.failed", "sequence_number": number + 1, "response": failed}
    return b"event: error\ndata: %b\n\nevent: response.failed\ndata: %b\n\n" % (
        dumps(event),
        dumps(last),
    )


def _error_of(fault: Fault) -> dict[str, str | None]:
    error = error_of(fault)
    if fault.condition in _OVERLOADED_CONDITIONS:
        error["code"] = _OVERLOADED
    return error


def _response_code(fault: Fault, kind: str | None) -> str:
    if fault.condition is Condition.CONTEXT_LENGTH:
        return fault.code
    return _RESPONSE_CODES[kind or SERVER]


def keep_alive(started: bool, number: int | None = None) -> bytes:
    """Return a comment, or, given the last event's number, an event of the kind that OpenAI sends.
    Readers such as Codex measure the time since the last event, which comments do not reset."""
    if not started or number is None:
        return COMMENT
    return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":%d}\n\n' % number
