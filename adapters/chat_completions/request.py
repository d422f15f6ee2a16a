"""Requests of the chat completions family: what is read, edited and sent along.

The body passes as the client sent it but for the model's name and, in streams, the option that asks
for usage; fields that are not read here are the vendor's to judge. Imported by this folder's
``client`` and ``upstream``.
"""

from adapters.family import Operation, Peek, Vendor
from adapters.family.conversation import given_name, opening, text_field
from adapters.family.fields import count, flag, model_name, optional_object, required_array
from adapters.faults import wrong_type
from adapters.json.jsonio import Span, Spans, dumps, replace

_WITH_USAGE = b'"stream_options":{"include_usage":true}'


def peek(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read the few fields; raises Fault MODEL_MISSING, INVALID_FIELD, FIELD_MISSING with the
    field's name."""
    model = model_name(spans)
    required_array(spans, "messages")
    newer, older = count(spans, "max_completion_tokens"), count(spans, "max_tokens")
    if newer is not None and older is not None:
        # Vendors differ in which of the two they obey when both are sent: hold for the larger; a 0
        # is no bound.
        newer = max(newer, older) if newer and older else 0
    include_usage = optional_object(spans, "stream_options").get("include_usage")
    if include_usage is not None and not isinstance(include_usage, bool):
        raise wrong_type("stream_options.include_usage", "expected a boolean")
    return Peek(
        model=model,
        stream=flag(spans, "stream"),
        max_output_tokens=(older if newer is None else newer) or None,
        choices=count(spans, "n") or 1,
        include_usage=bool(include_usage),
    )


def edit(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """The body for the upstream; the same object when nothing has to change."""
    edits: dict[Span, bytes] = {}
    model = spans.get("model")
    if model is not None and read.model != upstream_model:
        edits[model] = dumps(upstream_model)
    if read.stream and not read.include_usage and vendor.stream_options:
        options = spans.get("stream_options")
        if options is None:
            edits[Span(spans.opening, spans.opening)] = _WITH_USAGE + b","
        else:
            wanted = {**optional_object(spans, "stream_options"), "include_usage": True}
            edits[options] = dumps(wanted)
    return replace(spans.body, edits) if edits else spans.body


def conversation(spans: Spans) -> bytes:
    """What names the conversation. ``user`` and ``safety_identifier`` name a person, who may have
    many at a time, and all persons of a program may share one: they are not looked at."""
    given = given_name(text_field(spans, "prompt_cache_key"))
    return given or opening(spans, (), "messages")
