"""The client side of the generate_content family: operations, the request fields that are read,
errors, lists of models.

Clients mix both spellings of proto JSON, maxOutputTokens and max_output_tokens. Fields that are not
read here are left to the vendor and pass unchanged. The SDK chooses the exception class by an
error's status, and copies ``code`` and ``status`` from the body. In streams, clients recognize an
error only if ``error`` is the first key and ``code`` an integer. Imported by this folder.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

from adapters.family import Envelope, ModelEntry, Operation, Peek
from adapters.family.asks import AskReader, Asks, elements_of
from adapters.family.conversation import explicit_name, opening, text_field
from adapters.family.fault_table import FAULT_TABLE
from adapters.family.headers import refusal_headers
from adapters.family.reading import count, required_array
from adapters.family.stored import FieldMarks, StoredFields, StoredRefs, inner_values, objects
from adapters.faults import WITH_PATH, Condition, Fault, doubled_field, wrong_type, wrong_value
from adapters.generate_content.parts import COUNTED, camel, long_camel, snake, spellings
from adapters.json.jsonio import MAX_NAME_CHARS, Raw, Span, Spans, decoder, dumps, inner_level
from adapters.json.structure import Steps

_MODEL = "/v1beta/models/{model}:"
_STREAM = _MODEL + "streamGenerateContent"

OPERATIONS = {
    "generate": Operation(_MODEL + "generateContent"),
    "stream": Operation(_STREAM, "stream"),
    "count": Operation(_MODEL + "countTokens", "count", free=True),
}
STREAM_ARRAY = Operation(_STREAM, "stream", framing="json_array")
LIST_MODELS = Operation("/v1beta/models", "list_models", free=True)


MODELS = "models/"
_CACHED = "cachedContent"


def model_name(spans: Spans, target: str | None) -> str:
    """Return the model's name from the path. Raises Fault MODEL_MISSING if the path has none."""
    if not target:
        raise Fault(Condition.MODEL_MISSING)
    return target


def peek(spans: Spans, operation: Operation, target: str | None) -> Peek:
    """Read the few fields. Raises Fault MODEL_MISSING, INVALID_FIELD, FIELD_MISSING with the
    field's name.

    A request that counts tokens may have ``generateContentRequest`` in place of ``contents``.
    """
    model = model_name(spans, target)
    _refuse_twins(spans.places, "")
    counted = top_level_object(spans, COUNTED)
    if counted is None or operation.job != "count":
        required_array(spans, "contents")
    for fields, name in model_mentions(spans, counted):
        value = fields.value(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise wrong_type(name, "expected a string")
        if value not in (model, MODELS + model):
            raise wrong_value(name, "expected the model of the path")
    config = top_level_object(spans, "generationConfig")
    return Peek(
        model=model,
        stream=operation.job == "stream",
        max_output_tokens=_bound(config, "maxOutputTokens") or None,
        choices=_bound(config, "candidateCount") or 1,
        include_usage=True,  # streams of the family always show usage
        asks=_asks(spans, config, operation),
    )


_PICTURES = Asks(outputs=("output_image",))
"""The asks of nearly all requests: an image model may answer with pictures unless told not to."""
_ASKING = frozenset({"tools", *spellings("serviceTier")})
_MODALITIES = spellings("responseModalities")
_TOOLS = {
    **dict.fromkeys(("googleSearch", "googleSearchRetrieval", "enterpriseWebSearch"), "web_search"),
    "urlContext": "web_fetch",
    "fileSearch": "file_search",
    "retrieval": "file_search",
    "codeExecution": "code_execution",
    "computerUse": "computer",
    "mcpServers": "mcp",
    "googleMaps": "maps",
    "functionDeclarations": "",
}
_NULL = Raw(b"null")
_decode_tools = decoder(list[dict[str, Raw]])


def _asks(spans: Spans, config: Spans | None, operation: Operation) -> Asks:
    """Read what a request asks for. Raises INVALID_FIELD."""
    places = config.places if config is not None else ()
    path = next((path for path in places if path.partition(".")[2] in _MODALITIES), None)
    if (path is None and _ASKING.isdisjoint(spans.places)) or operation.job == "count":
        return _PICTURES
    reader = AskReader(spans)
    if config is not None and path is not None:
        reader.modalities(config.value(path), path)
    else:
        reader.output("output_image")
    for name in spellings("serviceTier"):
        reader.tier(name)
    for index, tool in enumerate(elements_of(spans, "tools", _decode_tools)):
        for name, value in tool.items():
            kind = camel(name)[:MAX_NAME_CHARS]
            feature = _TOOLS.get(kind, "any_other_tool")
            if feature and value != _NULL:
                reader.hosted(feature, f"tools[{index}].{kind}", word=kind)
    return reader.asks()


def conversation(spans: Spans) -> bytes:
    """Return the conversation's identity; a cached content holds its whole start."""
    name = explicit_name(text_field(spans, _CACHED) or text_field(spans, snake(_CACHED)))
    return name or opening(spans, ("systemInstruction", "system_instruction"), "contents")


def model_mentions(spans: Spans, counted: Spans | None) -> Iterator[tuple[Spans, str]]:
    """Yield each place where the body names a model: the fields, and the name of the field."""
    if "model" in spans:
        yield spans, "model"
    if counted is not None:
        paths = (path for path in counted.places if path.partition(".")[2] == "model")
        yield from ((counted, path) for path in paths)


def top_level_object(spans: Spans, name: str) -> Spans | None:
    """Return the fields of a top-level object, named by their full paths; None if absent or null.

    Raises Fault INVALID_FIELD if it is no object or has a duplicate field.
    """
    if name not in spans:
        name = snake(name)
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
        raise doubled_field(f"{name}.{fault.param}") from None
    _refuse_twins(inner.places, name + ".")
    places = {
        f"{name}.{field}": Span(span.start + place.start, span.start + place.end)
        for field, place in inner.places.items()
    }
    return Spans(spans.body, span.start + inner.opening, places)


def _bound(config: Spans | None, name: str) -> int | None:
    """Return a whole number of the configuration, in either spelling; None if null or absent."""
    if config is None:
        return None
    paths = (path for path in config.places if path.partition(".")[2] in spellings(name))
    return next((count(config, path) for path in paths), None)


def _refuse_twins(names: Iterable[str], prefix: str) -> None:
    """Raise INVALID_FIELD for a field in both spellings: vendors differ in which one they use."""
    present = set(names)
    for name in names:
        if "_" not in name:
            continue
        camel = long_camel(name)
        if camel != name and camel in present:
            raise doubled_field(prefix + camel)


FILES_HOST = "generativelanguage.googleapis.com"
_FILES = "files/"
_COUNTED_NAMES = spellings(COUNTED)
_CACHED_NAMES = spellings("cachedContent")
_SYSTEM_NAMES = spellings("systemInstruction")
_IN_TURNS = FieldMarks(*spellings("fileUri"))
_IN_TOOLS = FieldMarks(*spellings("fileSearchStoreNames"), "retrieval")


def _read_refs(refs: StoredRefs) -> Steps[None]:
    for name in _CACHED_NAMES:
        _read_cached(refs.field(name), name, refs)
    for name in _SYSTEM_NAMES:
        _read_turn(refs.field(name), name, refs)
    yield from refs.elements("contents", _IN_TURNS, lambda turn, path: _read_turn(turn, path, refs))
    yield from refs.elements("tools", _IN_TOOLS, lambda tool, path: _read_tool(tool, path, refs))
    for name in _COUNTED_NAMES:
        for path, counted in objects(refs.field(name), name):
            for inner, value in _inner(counted, path, "cachedContent"):
                _read_cached(value, inner, refs)
            for part in ("contents", "systemInstruction"):
                for inner, value in _inner(counted, path, part):
                    _read_turn(value, inner, refs)
            _read_tool(counted.get("tools"), f"{path}.tools", refs)
            yield False


_inner = partial(inner_values, spellings=spellings)


def _read_cached(value: object, path: str, refs: StoredRefs) -> None:
    if value is not None and not isinstance(value, str):
        raise wrong_type(path, "expected a string")
    refs.add("given", path, value, alone=True)


def _read_turn(value: object, start: str, refs: StoredRefs) -> None:
    for path, parts in _inner(value, start, "parts"):
        _read_parts(parts, path, refs)


def _read_parts(value: object, start: str, refs: StoredRefs) -> None:
    for path, part in objects(value, start):
        for place, uri in _inner(part, path, "fileData", "fileUri"):
            refs.add("given", place, file_id(uri))
        for place, parts in _inner(part, path, "functionResponse", "parts"):
            _read_parts(parts, place, refs)


def file_id(uri: object) -> str | None:
    """Return the id of a file stored at the vendor, like "files/abc"; None for other addresses."""
    if not isinstance(uri, str):
        return None
    try:
        parts = urlsplit(uri.strip())
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return uri  # an address that nobody can fetch
    if parts.scheme and host != FILES_HOST:
        return None
    _, prefix, name = parts.path.rpartition(_FILES)
    return _FILES + name.partition(":")[0] if prefix else uri


# Paths in tools to stored objects; for some, the last field is a list.
_PATHS_IN_TOOLS = (
    ("fileSearch", "fileSearchStoreNames"),
    ("retrieval", "vertexAiSearch", "datastore"),
    ("retrieval", "vertexAiSearch", "engine"),
    ("retrieval", "vertexAiSearch", "dataStoreSpecs", "dataStore"),
    ("retrieval", "vertexRagStore", "ragCorpora"),
    ("retrieval", "vertexRagStore", "ragResources", "ragCorpus"),
)
_LISTS = ("fileSearchStoreNames", "ragCorpora")


def _read_tool(value: object, start: str, refs: StoredRefs) -> None:
    for path, tool in objects(value, start):
        for names in _PATHS_IN_TOOLS:
            add = refs.add_all if names[-1] in _LISTS else refs.add
            for place, inner in _inner(tool, path, *names):
                add("given", place, inner)


STORED_FIELDS = StoredFields(
    frozenset({*_CACHED_NAMES, *_COUNTED_NAMES}),
    (*((name, _IN_TURNS) for name in ("contents", *_SYSTEM_NAMES)), ("tools", _IN_TOOLS)),
    _read_refs,
)


_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"

# A stream has no HTTP status, so the number is the one that belongs to the name.
_IN_STREAM: dict[Condition, tuple[int, str]] = {
    Condition.CHANNEL_MISCONFIGURED: (500, "INTERNAL"),
    Condition.UPSTREAM_FAILED: (503, "UNAVAILABLE"),
    Condition.UPSTREAM_UNREACHABLE: (503, "UNAVAILABLE"),
    Condition.UPSTREAM_INVALID: (500, "INTERNAL"),
}


def encode_fault(fault: Fault, request_id: str) -> Envelope:
    """Return the answer to a refused or failed call. Its id is only in the headers."""
    code, status = FAULT_TABLE[fault.condition].google
    error: dict[str, object] = {"code": code, "message": _message(fault), "status": status}
    if fault.wait_s is not None:
        error["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{fault.wait_s}s"}]
    return Envelope(code, refusal_headers(fault), dumps({"error": error}))


def encode_stream_fault(fault: Fault) -> bytes:
    """Return the error object that ends a stream, without framing."""
    code, status = _IN_STREAM.get(fault.condition, FAULT_TABLE[fault.condition].google)
    return dumps({"error": {"code": code, "message": _message(fault), "status": status}})


def _message(fault: Fault) -> str:
    """Return the family's own wording if it has one. An explicit message takes precedence."""
    if fault.explicit_message is not None:
        return fault.explicit_message
    if fault.condition in WITH_PATH and fault.param:
        return f"{fault.param}: {fault.message}"
    if fault.condition is Condition.MISSING_KEY:
        return (
            "No API key was sent. Use the header 'x-goog-api-key: <API_KEY>' "
            "or 'Authorization: Bearer <API_KEY>'."
        )
    if fault.condition is Condition.INVALID_KEY:
        return "API key not valid. Please pass a valid API key."
    if fault.condition is Condition.MODEL_MISSING:
        return "The path must name a model: models/{model}:generateContent."
    if fault.condition is Condition.MODEL_NOT_FOUND and fault.explicit_message is None:
        model = f"models/{fault.model}" if fault.model else "This model"
        return f"{model} is not available to this API key. Check the name and the channel status."
    return fault.message


DEFAULT_PAGE = 50
MAX_PAGE = 1000

METHODS = ["generateContent", "countTokens"]


def model_list(models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
    """Return the page for ``pageSize`` and ``pageToken``. Raises Fault INVALID_FIELD for invalid
    values.

    A page size over the limit is lowered to it, and 0 means the default, as at the vendor. The
    token is the last name of the previous page. Also raises INVALID_FIELD if that name is no longer
    in the list.
    """
    size = _size(query.get("pageSize"))
    first = _after(models, query.get("pageToken"))
    last = min(first + size, len(models))
    body: dict[str, object] = {"models": [_model_fields(model) for model in models[first:last]]}
    if last < len(models):
        # Absent on the last page: the JavaScript SDK would request another page for an empty token.
        body["nextPageToken"] = models[last - 1].name
    return dumps(body)


def model_entry(model: ModelEntry) -> bytes:
    """Return the body that describes one model."""
    return dumps(_model_fields(model))


def _size(text: str | None) -> int:
    if not text:
        return DEFAULT_PAGE
    # Nine digits are more than any page size; int() would accept "+5", "5_0" and any length.
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise wrong_value("pageSize", f"expected an integer from 0 to {MAX_PAGE}")
    return min(int(text), MAX_PAGE) or DEFAULT_PAGE


def _after(models: Sequence[ModelEntry], token: str | None) -> int:
    if not token:
        return 0
    for position, model in enumerate(models):
        if model.name == token:
            return position + 1
    raise wrong_value("pageToken", "expected the nextPageToken of the page before")


def _model_fields(model: ModelEntry) -> dict[str, object]:
    fields: dict[str, object] = {"name": f"models/{model.name}", "displayName": model.name}
    if model.context_tokens is not None:
        fields["inputTokenLimit"] = model.context_tokens
    if model.max_output_tokens is not None:
        fields["outputTokenLimit"] = model.max_output_tokens
    methods = [path.rpartition(":")[2] for path in model.endpoints]
    if METHODS[0] in methods or not methods:
        methods = [*METHODS, *(method for method in methods if method not in METHODS)]
    return {**fields, "supportedGenerationMethods": methods}


def keep_alive(started: bool, number: int | None = None) -> bytes:
    """Return an empty line, because comments break this family's clients."""
    return b"\r\n"
