"""Clients' requests of the generate_content family, decoded into ``adapters.ir``: fields, tools,
tool choice, schemas. Contents are in ``decode_turns``.

Source: the request types of the official Google SDK 3.6, including Vertex, and requests observed
from it. Imported by this folder's ``__init__``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from adapters.family.codec import Asking, stop_sequences
from adapters.faults import wrong_type, wrong_value
from adapters.generate_content.decode_turns import TurnReader, decode_detail, decode_texts
from adapters.generate_content.parts import (
    COUNT_KEYWORDS,
    COUNTED,
    LEVELS,
    MAX_SCHEMA_DEPTH,
    ApiFields,
    camel,
    snake,
)
from adapters.ir.request import Ask, Effort, Feature, Output, Request, Thinking, Tool, ToolChoice
from adapters.json.jsonio import Spans, elements, inner_level, loads
from adapters.json.structure import Steps

BODY_FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "contents", "systemInstruction", "generationConfig"), ""),
    **dict.fromkeys(("tools", "toolConfig"), ""),
    "cachedContent": "cached_content",
    "continuationToken": "stored_state",
    "generationOutputConfig": "stored_state",
    "labels": "metadata",
    "modelArmorConfig": "moderation",
    "safetySettings": "moderation",
    "serviceTier": "tier",
    "store": "other",
}
CONFIG_FIELDS: Mapping[str, Asking] = {
    "maxOutputTokens": "",
    **dict.fromkeys(
        (
            *("audioTimestamp", "audioTranscriptionConfig", "imageConfig", "responseFormat"),
            *("responseModalities", "speechConfig", "translationConfig"),
        ),
        "output_modalities",
    ),
    **dict.fromkeys(("enableAffectiveDialog", "enableEnhancedCivicAnswers"), "other"),
    **dict.fromkeys(("modelSelectionConfig", "routingConfig"), "other"),
    **dict.fromkeys(("logprobs", "responseLogprobs"), "logprobs"),
    **dict.fromkeys(("responseJsonSchema", "responseSchema"), "schema_output"),
    "candidateCount": "n",
    "frequencyPenalty": "frequency_penalty",
    "mediaResolution": "image_detail",
    "presencePenalty": "presence_penalty",
    "responseMimeType": "json_output",
    "seed": "seed",
    "stopSequences": "stop",
    "temperature": "temperature",
    "thinkingConfig": "reasoning",
    "topK": "top_k",
    "topP": "top_p",
}
FIELDS: Mapping[str, Asking] = {
    **BODY_FIELDS,
    **{f"generationConfig.{name}": asking for name, asking in CONFIG_FIELDS.items()},
}


def to_json_schema(dialect: object, path: str) -> dict[str, Any]:
    """Return the JSON Schema for a schema in the subset dialect, in either spelling. Raises Fault
    INVALID_FIELD for ``path`` if it is no object or nested too deeply."""
    return _json_schema(dialect, path, 0)


def _json_schema(dialect: object, path: str, depth: int) -> dict[str, Any]:
    if not isinstance(dialect, dict):
        raise wrong_value(path, "expected a schema")
    if depth > MAX_SCHEMA_DEPTH:
        raise wrong_value(path, "the schema is nested too deeply")
    schema: dict[str, Any] = {}
    nullable = False
    for spelling, value in dialect.items():
        name = camel(spelling)
        if value is None and name not in ("default", "example"):
            continue
        if name == "nullable":
            nullable = value is True
        elif name == "type":
            schema |= {"type": value.lower()} if isinstance(value, str) else {"type": value}
        elif name == "example":
            schema["examples"] = [value]
        elif name in COUNT_KEYWORDS and isinstance(value, str) and value.isdecimal():
            schema[name] = int(value)
        elif name in ("properties", "$defs", "defs") and isinstance(value, dict):
            schema[name] = {
                key: _json_schema(inner, f"{path}.{name}.{key}", depth + 1)
                for key, inner in value.items()
            }
        elif name == "items" and isinstance(value, dict):
            schema[name] = _json_schema(value, f"{path}.items", depth + 1)
        elif name == "anyOf" and isinstance(value, list):
            schema[name] = [
                _json_schema(inner, f"{path}.anyOf[{index}]", depth + 1)
                for index, inner in enumerate(value)
            ]
        elif name != "propertyOrdering" and not (name == "format" and value == "enum"):
            schema[name] = value
    if schema.get("type") == "type_unspecified":
        del schema["type"]
    return _with_null(schema) if nullable else schema


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema extended to accept null."""
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


_SEARCHES = ("googleSearch", "googleSearchRetrieval")
_FUNCTIONS = "functionDeclarations"


def decode_tools(body: ApiFields) -> Steps[tuple[list[Tool], list[Ask]]]:
    """Return all tools, and asks for those that some upstreams lack. Raises Fault INVALID_FIELD."""
    tools: list[Tool] = []
    asks: list[Ask] = []
    for entry in body.objects("tools"):
        for kind in entry:
            if kind == _FUNCTIONS:
                for function, path in entry.items(kind):
                    tools.append(_function(ApiFields(function, path)))
                    yield False
                continue
            search = kind in _SEARCHES
            path = entry.at(kind)
            raw = {"kind": kind, "value": entry.value(kind)}
            tools.append(Tool("hosted", kind, search=search, raw=raw, path=path))
            asks.append(Ask("hosted_search" if search else "hosted_tool", path))
    return tools, asks


def decode_choice(body: ApiFields, tools: list[Tool]) -> tuple[ToolChoice | None, list[Ask]]:
    """Return the tool choice; None if there is none. Raises Fault INVALID_FIELD for a function that
    is not declared."""
    config = body.object("toolConfig")
    if config is None:
        return None, []
    asks = [Ask("other", config.at(name)) for name in config if name != "functionCallingConfig"]
    calling = config.object("functionCallingConfig")
    if calling is None:
        return None, asks
    mode = calling.text("mode").upper()
    names = calling.texts("allowedFunctionNames")
    declared = {tool.name for tool in tools if tool.kind == "function"}
    for index, name in enumerate(names):
        if name not in declared:
            path = f"{calling.at('allowedFunctionNames')}[{index}]"
            raise wrong_value(path, "expected the name of a function in tools")
    if mode == "NONE":
        return ToolChoice("none"), asks
    if mode == "ANY":
        if not declared:
            raise wrong_value(calling.at("mode"), "ANY needs functions in tools")
        if len(names) == 1:
            return ToolChoice("one", names), asks
    elif mode not in ("", "MODE_UNSPECIFIED", "AUTO", "VALIDATED"):
        raise wrong_value(calling.at("mode"), "expected AUTO, ANY, NONE or VALIDATED")
    if names:
        asks.append(Ask("allowed_tools", calling.at("allowedFunctionNames")))
    return ToolChoice("any" if mode == "ANY" else "auto", names), asks


def _function(function: ApiFields) -> Tool:
    name = function.text("name")
    if not name:
        raise wrong_value(function.at("name"), "expected the name of a function")
    return Tool(
        "function", name, function.text("description"), _schema(function), path=function.path
    )


def _schema(function: ApiFields) -> dict[str, Any] | None:
    """Return the schema of the arguments. Raises Fault INVALID_FIELD if it is given in both
    forms."""
    written = function.value("parametersJsonSchema")
    dialect = function.value("parameters")
    if written is not None and dialect is not None:
        raise wrong_value(function.at("parameters"), "parametersJsonSchema stands beside it")
    if written is not None:
        if not isinstance(written, dict):
            raise wrong_type(function.at("parametersJsonSchema"), "expected a JSON schema")
        return written
    return None if dialect is None else to_json_schema(dialect, function.at("parameters"))


NAME = "generate_content"

_CONTENTS = "contents"
# Fields with their own readers; the model is in the path.
_READ = frozenset({"model", "systemInstruction", "tools", "toolConfig", "generationConfig"})
# Thresholds that block nothing beyond a vendor's own defaults.
_UNBLOCKED = (None, "BLOCK_NONE", "OFF", "HARM_BLOCK_THRESHOLD_UNSPECIFIED")
_TIERS: dict[str, Literal["default", "flex", "priority"]] = {
    "STANDARD": "default",
    "FLEX": "flex",
    "PRIORITY": "priority",
}
_READ_OF_CONFIG = frozenset({
    "maxOutputTokens", "candidateCount", "responseLogprobs", "logprobs", "responseMimeType",
    "responseSchema", "responseJsonSchema", "responseModalities",
})  # fmt: skip
_EFFORTS: dict[str, Effort] = {level.upper(): level for level in LEVELS}


def decode_request(spans: Spans, stream: bool, target: str | None) -> Steps[Request]:
    """Return the whole request, in steps (see ``ClientCodec``)."""
    spans, prefix = _inner(spans)
    body = ApiFields(_without_contents(spans), prefix)
    config = body.object("generationConfig") or ApiFields({}, body.at("generationConfig"))
    reader = TurnReader(detail=decode_detail(config.text("mediaResolution")))
    contents = spans.raw(_CONTENTS) or b"[]"
    yield True
    listed = _elements(contents, body.at(_CONTENTS))
    for index, element in enumerate(listed):
        yield from reader.read(element, index, f"{body.at(_CONTENTS)}[{index}]")
        yield False
    tools, tool_asks = yield from decode_tools(body)
    choice, choice_asks = decode_choice(body, tools)
    # Some clients send an empty string if there is no text.
    system = body.object("systemInstruction") if body.value("systemInstruction") != "" else None
    output, output_asks = _output(config)
    n = _at_least_one(config, "candidateCount") or 1
    logprobs = (config.integer("logprobs") or 0) if config.flag("responseLogprobs") else None
    asks = [
        *reader.asks, *tool_asks, *choice_asks, *output_asks, *_asks_of_body(body),
        *_asks_of_config(config, n, logprobs),
    ]  # fmt: skip
    return Request(
        family=NAME,
        stream=stream,
        turns=reader.turns,
        system=() if system is None else decode_texts(system),
        tools=tuple(tools),
        choice=choice,
        output=output,
        thinking=_thinking(config),
        temperature=config.number("temperature"),
        top_p=config.number("topP"),
        top_k=_whole(config.number("topK")),
        seed=config.integer("seed"),
        frequency_penalty=config.number("frequencyPenalty"),
        presence_penalty=config.number("presencePenalty"),
        max_output_tokens=_at_least_one(config, "maxOutputTokens"),
        stop=stop_sequences(config.texts("stopSequences"), config.at("stopSequences")),
        n=n,
        logprobs=logprobs,
        metadata=body.free_object("labels"),
        tier=_TIERS.get(body.text("serviceTier").upper().removeprefix("SERVICE_TIER_"), ""),
        asks=tuple(asks),
    )


def _inner(spans: Spans) -> tuple[Spans, str]:
    """Return the fields of the request itself, which a request that counts tokens may wrap."""
    for name in (COUNTED, snake(COUNTED)):
        raw = spans.raw(name)
        if raw is not None and raw.startswith(b"{"):
            return inner_level(raw), name
    return spans, ""


def _without_contents(spans: Spans) -> dict[str, Any]:
    """Return all other fields, decoded; a schema may exceed the limit of ``Spans.value``."""
    return {
        name: loads(spans.body[place.start : place.end])
        for name, place in spans.places.items()
        if name not in (_CONTENTS, COUNTED, snake(COUNTED))
    }


def _elements(text: bytes, path: str) -> Iterator[Any]:
    """Return the elements of an array, decoded one by one."""
    listed = elements(text)
    if listed is None:
        raise wrong_type(path, "expected an array")
    return (loads(bytes(element)) for element in listed)


def _asks_of_body(body: ApiFields) -> list[Ask]:
    asks = [
        Ask(_asked_for(body, name), body.at(name))
        for name in body
        if name not in _READ and not (name in BODY_FIELDS and body.value(name) in ("", [], {}))
    ]
    tier = body.text("serviceTier").upper().removeprefix("SERVICE_TIER_")
    return [ask for ask in asks if ask.feature != "tier" or tier not in ("", "UNSPECIFIED")]


def _asked_for(body: ApiFields, name: str) -> Feature:
    """Return the feature of a field; safety settings that block nothing may be left out."""
    if name == "safetySettings":
        settings = body.value(name)
        if isinstance(settings, list) and all(
            isinstance(setting, dict) and setting.get("threshold") in _UNBLOCKED
            for setting in settings
        ):
            return "safety_settings"
    return BODY_FIELDS.get(name) or "other"


def _asks_of_config(config: ApiFields, n: int, logprobs: int | None) -> list[Ask]:
    asks = [
        Ask(CONFIG_FIELDS.get(name) or "other", config.at(name))
        for name in config
        if name not in _READ_OF_CONFIG
        and config.value(name) not in ([], {})
        and config.value(name) is not False
    ]
    if n > 1:
        asks.append(Ask("n", config.at("candidateCount")))
    if logprobs is not None:
        asks.append(Ask("logprobs", config.at("responseLogprobs")))
    modalities = {word.upper() for word in config.texts("responseModalities")}
    if modalities - {"TEXT", "MODALITY_UNSPECIFIED"}:
        asks.append(Ask("output_modalities", config.at("responseModalities")))
    return asks


def _output(config: ApiFields) -> tuple[Output, list[Ask]]:
    """Return the form of the text. Other families have no choice from a list (text/x.enum)."""
    mime = config.text("responseMimeType").lower()
    name = "responseJsonSchema" if "responseJsonSchema" in config else "responseSchema"
    value = config.value(name)
    if name == "responseJsonSchema" and "responseSchema" in config:
        raise wrong_value(config.at("responseSchema"), "responseJsonSchema stands beside it")
    if mime in ("", "text/plain"):
        if value is not None:
            path = config.at("responseMimeType")
            raise wrong_value(path, "expected application/json, for there is a schema")
        return Output(), []
    if mime != "application/json":
        return Output(), [Ask("output_modalities", config.at("responseMimeType"))]
    if value is None:
        return Output("json"), [Ask("json_output", config.at("responseMimeType"))]
    if not isinstance(value, dict):
        raise wrong_type(config.at(name), "expected a schema")
    schema = value if name == "responseJsonSchema" else to_json_schema(value, config.at(name))
    return Output("schema", schema), [Ask("schema_output", config.at(name))]


def _thinking(config: ApiFields) -> Thinking | None:
    thinking = config.object("thinkingConfig")
    if thinking is None:
        return None
    budget, level = thinking.integer("thinkingBudget"), thinking.text("thinkingLevel").upper()
    if budget is not None and level:
        raise wrong_value(thinking.at("thinkingBudget"), "thinkingLevel stands beside it")
    if budget is not None and budget < -1:
        raise wrong_value(thinking.at("thinkingBudget"), "expected -1, 0 or a number of tokens")
    include = thinking.flag("includeThoughts")
    show: Literal["none", "summary"] | None = None
    if include is not None:
        show = "summary" if include else "none"
    if budget in (0, -1):
        return Thinking("off" if budget == 0 else "auto", show=show)
    if budget is not None:
        return Thinking(budget_tokens=budget, show=show)
    if level and level not in _EFFORTS and level != "THINKING_LEVEL_UNSPECIFIED":
        raise wrong_value(thinking.at("thinkingLevel"), "expected MINIMAL, LOW, MEDIUM or HIGH")
    return Thinking(_EFFORTS.get(level), show=show)


def _at_least_one(config: ApiFields, name: str) -> int | None:
    value = config.integer(name)
    if value is not None and value < 0:
        raise wrong_value(config.at(name), "expected a positive number")
    return value or None


def _whole(value: float | None) -> int | None:
    """Round a number: the vendor accepts fractions where others accept only integers."""
    return None if value is None else round(value)
