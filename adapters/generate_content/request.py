"""Requests of the generate-content family: what is read and edited, and where they go.

Names of fields are taken in both spellings of proto JSON, maxOutputTokens and max_output_tokens,
for clients mix them. What is not read here is the vendor's to judge and passes as it came.
Imported by this folder's ``client`` and ``upstream``.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from adapters.family import Operation, Peek, Vendor
from adapters.family.conversation import given_name, opening, text_field
from adapters.family.fields import count, required_array
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.json.jsonio import Span, Spans, dumps, inner_level, replace

MODELS = "models/"
_TUNED_MODELS = "tunedModels/"
_COUNTED = "generateContentRequest"
_CACHED = "cachedContent"

_PATH_NAME = re.compile(r"(?!/)(?!.*//)(?!.*\.\.)[A-Za-z0-9._:/@=-]{1,128}(?<!/)")
_HUMP = re.compile(r"[A-Z]")
_UNDERSCORE = re.compile(r"_([a-z0-9])")


def model_name(spans: Spans, target: str | None) -> str:
    """The model's name, which the path has; MODEL_MISSING when it has none."""
    if not target:
        raise Fault(Condition.MODEL_MISSING)
    return target


def peek(spans: Spans, operation: Operation, target: str | None) -> Peek:
    """Read the few fields; raises Fault MODEL_MISSING, INVALID_FIELD, FIELD_MISSING with the
    field's name.

    A request to count tokens may have ``generateContentRequest`` in place of ``contents``.
    """
    model = model_name(spans, target)
    _refuse_twins(spans.places, "")
    counted = _object(spans, _COUNTED)
    if counted is None or operation.job != "count":
        required_array(spans, "contents")
    for fields, name in _mentions(spans, counted):
        value = fields.value(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise wrong_type(name, "expected a string")
        if value not in (model, MODELS + model):
            raise wrong_value(name, "expected the model of the path")
    config = _object(spans, "generationConfig")
    return Peek(
        model=model,
        stream=operation.job == "stream",
        max_output_tokens=_count(config, "maxOutputTokens") or None,
        choices=_count(config, "candidateCount") or 1,
        include_usage=True,  # streams of the family always show it
    )


def conversation(spans: Spans) -> bytes:
    """What names the conversation: the cached content it builds on has all of its beginning."""
    given = given_name(text_field(spans, _CACHED) or text_field(spans, _snake(_CACHED)))
    return given or opening(spans, ("systemInstruction", "system_instruction"), "contents")


def edit(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """The body for the upstream; the same object when nothing has to change.

    Some clients repeat the model of the path in the body, where an upstream that calls it by
    another name would refuse it; ``peek`` has refused any other model.
    """
    if read.model == upstream_model:
        return spans.body
    edits: dict[Span, bytes] = {}
    for fields, name in _mentions(spans, _object(spans, _COUNTED)):
        value = fields.value(name)
        if value == read.model:
            edits[fields.places[name]] = dumps(upstream_model.removeprefix(MODELS))
        elif value == MODELS + read.model:
            edits[fields.places[name]] = dumps(_resource(upstream_model))
    return replace(spans.body, edits) if edits else spans.body


def path(operation: Operation, upstream_model: str, target: str | None) -> str:
    """The path with its query. Raises Fault CHANNEL_MISCONFIGURED when the model's name cannot
    stand in a path.

    Slashes and colons of the name stay as they are, the way the SDKs send them.
    """
    resource = _resource(upstream_model)
    if _PATH_NAME.fullmatch(resource.removeprefix(MODELS)) is None:
        raise Fault(Condition.CHANNEL_MISCONFIGURED, model=target)
    verb = operation.endpoint.rpartition(":")[2]
    events = operation.job == "stream" and operation.framing == "sse"
    return f"/v1beta/{resource}:{verb}" + ("?alt=sse" if events else "")


def _resource(upstream_model: str) -> str:
    """The model's name as the vendor's paths have it: models/x or tunedModels/x."""
    if upstream_model.startswith((MODELS, _TUNED_MODELS)):
        return upstream_model
    return MODELS + upstream_model


def _mentions(spans: Spans, counted: Spans | None) -> Iterator[tuple[Spans, str]]:
    """Where the body names a model: the fields and the name among them."""
    if "model" in spans:
        yield spans, "model"
    if counted is not None:
        paths = (path for path in counted.places if path.partition(".")[2] == "model")
        yield from ((counted, path) for path in paths)


def _object(spans: Spans, name: str) -> Spans | None:
    """The fields of an object at the top, named by their whole paths; None when absent or null.

    Raises Fault INVALID_FIELD when it is no object or has a field twice.
    """
    if name not in spans:
        name = _snake(name)
    span, text = spans.get(name), spans.raw(name)
    if span is None or text is None or text == b"null":
        return None
    if not text.startswith(b"{"):
        raise wrong_type(name, "expected an object")
    try:
        inner = inner_level(text)
    except Fault as fault:
        if fault.param is None:
            raise
        raise _twice(f"{name}.{fault.param}") from None
    _refuse_twins(inner.places, name + ".")
    places = {
        f"{name}.{field}": Span(span.start + place.start, span.start + place.end)
        for field, place in inner.places.items()
    }
    return Spans(spans.body, span.start + inner.opening, places)


def _count(config: Spans | None, name: str) -> int | None:
    """A whole number of the configuration, in either spelling; None when null or absent."""
    if config is None:
        return None
    found = (path for path in config.places if path.partition(".")[2] in spellings(name))
    return next((count(config, path) for path in found), None)


def _refuse_twins(names: Iterable[str], prefix: str) -> None:
    """INVALID_FIELD when a field stands there in both spellings: vendors differ in which they
    obey."""
    taken = set(names)
    for name in names:
        if "_" not in name:
            continue
        camel = _UNDERSCORE.sub(lambda found: found[1].upper(), name)
        if camel != name and camel in taken:
            raise _twice(prefix + camel)


def _twice(param: str) -> Fault:
    return Fault(
        Condition.INVALID_FIELD,
        f"The field '{param}' comes twice.",
        param=param,
        detail="the field comes twice",
    )


def spellings(name: str) -> tuple[str, str]:
    """A field's name as proto JSON may have it: maxOutputTokens and max_output_tokens."""
    return name, _snake(name)


@lru_cache(maxsize=64)  # asked for the same few fields of the family
def _snake(name: str) -> str:
    return _HUMP.sub(lambda found: "_" + found[0].lower(), name)
