"""Requests of endpoints: reading of a few fields, and the edit of the model's name.

Unread fields are left to the vendor. A field of a form is a text, so numbers and flags are also
read from texts. Each reader is the ``peek`` of its row's client side.
"""

from collections.abc import Iterator

from adapters.endpoints.form import Form
from adapters.family import Operation, Peek, Vendor
from adapters.family.asks import NOTHING_ASKED, Asks
from adapters.family.reading import MAX_COUNT, model_name, optional_object
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.json.jsonio import (
    Span,
    Spans,
    dumps,
    element_spans,
    elements,
    inner_level,
    replace,
)

MODERATION_MODEL = "omni-moderation-latest"  # for requests that name no model
BATCH = "batchEmbedContents"
_MODELS = "models/"
_DOCUMENTS_PER_UNIT = 100
_QUOTE = b'"'


def edit_model(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body with the upstream's name of the model; the same object if it is the same."""
    place, name = spans.get("model"), dumps(upstream_model)
    if isinstance(spans, Form):
        name = upstream_model.encode()
    if read.model == upstream_model:
        return spans.body
    if place is None:
        opening = Span(spans.opening, spans.opening)
        return replace(spans.body, {opening: b'"model":%b,' % name})
    return replace(spans.body, {place: name})


def _required(spans: Spans, name: str) -> None:
    place = spans.get(name)
    is_null = place is not None and spans.body[place.start : place.start + 4] == b"null"
    if place is None or (is_null and not isinstance(spans, Form)):
        raise Fault(Condition.FIELD_MISSING, param=name)


def _flag(spans: Spans, name: str) -> bool:
    value = spans.value(name)
    if value in (None, False, "", "false", "False", "0"):
        return False
    if value in (True, "true", "True", "1"):
        return True
    raise wrong_type(name, "expected a boolean")


def _count(spans: Spans, name: str) -> int | None:
    value = spans.value(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if value is None or value == "":
        return None
    if type(value) is not int:
        raise wrong_type(name, "expected an integer")
    if not 0 <= value <= MAX_COUNT:
        raise wrong_value(name, f"expected an integer from 0 to {MAX_COUNT}")
    return value


def read_embeddings(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read an embeddings request. Raises MODEL_MISSING, INVALID_FIELD, FIELD_MISSING."""
    model = model_name(spans)
    _required(spans, "input")
    return _without_output(model)


def _without_output(model: str, asks: Asks = NOTHING_ASKED) -> Peek:
    return Peek(model, False, 0, 1, include_usage=True, asks=asks)


def read_embed_content(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read one or many embedding requests of generate_content, whose path names the model."""
    if not target:
        raise Fault(Condition.MODEL_MISSING)
    _required(spans, "requests" if operation.endpoint.endswith(BATCH) else "content")
    for path, fields, _ in _embed_requests(spans):
        name = fields.value("model")
        if name is not None and name not in (target, _MODELS + target):
            raise wrong_value(f"{path}model", "expected the model of the path")
    return _without_output(target)


def edit_embed_content(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body with the upstream's name of the model wherever it occurs."""
    if read.model == upstream_model:
        return spans.body
    edits: dict[Span, bytes] = {}
    for _, fields, start in _embed_requests(spans):
        place = fields.get("model")
        if place is not None:
            name = dumps(_MODELS + upstream_model.removeprefix(_MODELS))
            edits[Span(start + place.start, start + place.end)] = name
    return replace(spans.body, edits) if edits else spans.body


def _embed_requests(spans: Spans) -> Iterator[tuple[str, Spans, int]]:
    """Yield the one or many requests of a body: path prefix of its fields, fields, offset."""
    yield "", spans, 0
    if "requests" in spans:
        if elements(spans.raw("requests") or b"") is None:
            raise wrong_type("requests", "expected an array")
        for index, place in enumerate(element_spans(spans, "requests")):
            path = f"requests[{index}]"
            text = spans.body[place.start : place.end]
            if not text.startswith(b"{"):
                raise wrong_type(path, "expected an object")
            yield path + ".", inner_level(text), place.start


def read_completions(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read a request of legacy completions. All answers to each of its prompts are billed."""
    model = model_name(spans)
    most = max(_count(spans, "n") or 1, _count(spans, "best_of") or 1)
    prompts = elements(spans.raw("prompt") or b"")
    if prompts and not bytes(prompts[0])[:1].isdigit():  # not the token array of a single prompt
        most *= len(prompts)
    include_usage = optional_object(spans, "stream_options").get("include_usage")
    return Peek(
        model=model,
        stream=_flag(spans, "stream"),
        max_output_tokens=_count(spans, "max_tokens") or None,
        choices=min(most, MAX_COUNT),
        include_usage=include_usage is True,
    )


def read_moderations(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read a moderation request, which may leave the choice of the model to the vendor."""
    model = model_name(spans) if spans.value("model") is not None else MODERATION_MODEL
    _required(spans, "input")
    return _without_output(model)


def read_rerank(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read a search among documents. A search unit covers at most 100 documents."""
    model = model_name(spans)
    _required(spans, "query")
    _required(spans, "documents")
    place = spans.places["documents"]
    documents = spans.body.count(_QUOTE, place.start, place.end) // 2  # an upper bound
    units = 1 + documents // _DOCUMENTS_PER_UNIT
    return _without_output(model, Asks(uses=(("search_unit", units),)))


def read_images(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read a request for pictures, generated from a text or edited."""
    model = model_name(spans)
    _required(spans, "prompt")
    pictures = _count(spans, "n") or 1
    asks = Asks(uses=(("image", pictures),), outputs=("output_image",))
    return Peek(model, _flag(spans, "stream"), None, pictures, include_usage=True, asks=asks)


def read_speech(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read a text to be spoken. The answer is relayed as it arrives, so it counts as a stream."""
    model = model_name(spans)
    text = spans.value("input")
    if not isinstance(text, str):
        if text is None:
            raise Fault(Condition.FIELD_MISSING, param="input")
        raise wrong_type("input", "expected a string")
    asks = Asks(uses=(("character", len(text)),), outputs=("output_audio",))
    return Peek(model, True, None, 1, include_usage=True, asks=asks)


def read_sound(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read a form with sound to be transcribed or translated to text."""
    model = model_name(spans)
    _required(spans, "file")
    ms = spans.audio_ms if isinstance(spans, Form) else 0
    asks = Asks(uses=(("audio_second", ms),))
    return Peek(model, _flag(spans, "stream"), None, 1, include_usage=True, asks=asks)
