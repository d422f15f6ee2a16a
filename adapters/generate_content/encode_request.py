"""Requests for upstreams of the generate_content family, encoded from ``adapters.ir``: fields,
tools, tool choice, schemas. Contents are in ``encode_turns``.

Models accept JSON Schema, or the family's own subset of it: types in upper case, ``nullable``, no
references and few keywords; the vendor refuses unknown ones. Source: the family's public
documentation, including its Schema object. Imported by this folder's ``__init__``.
"""

from collections.abc import Callable
from typing import Any

from adapters.family.codec import Encoded, Target
from adapters.family.traits import Traits, nearest_effort
from adapters.faults import Condition, Fault, wrong_value
from adapters.generate_content.encode_turns import ContentWriter, ToolNames, text_parts
from adapters.generate_content.parts import (
    COUNT_KEYWORDS,
    LEVELS,
    MAX_SCHEMA_DEPTH,
    wants_signatures,
)
from adapters.ir.request import Effort, Feature, Request, Thinking, Tool, ToolChoice
from adapters.json.jsonio import Struct, dumps
from adapters.json.structure import Steps

# Limit for all schemas of a request: repeated references could otherwise fill the memory.
MAX_NODES = 20_000
# Limit of keys and listed values in these nodes: each reference to a long list reads it again.
MAX_ENTRIES = 1_000_000
MAX_REFERENCES = 256  # nested in each other

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_FORMATS = {
    "string": frozenset({"date-time", "enum"}),
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
_TEXTS = ("title", "description", "pattern")
_BOUNDS = ("minimum", "maximum")
_ANYTHING = "string"  # for a value of any type, which the subset cannot express


class SchemaBudget(Struct):
    """The nodes, and their entries, that are left for the schemas of one request."""

    nodes: int = MAX_NODES
    entries: int = MAX_ENTRIES


def to_subset(schema: dict[str, Any], path: str, budget: SchemaBudget) -> dict[str, Any]:
    """Return a subset schema that keeps as much as possible of a JSON Schema. Raises Fault
    INVALID_FIELD for ``path`` if it is nested too deeply or too large."""
    return _SubsetConverter(schema, path, budget).clean(schema, 0, ())


class _SubsetConverter:
    """Converter of one JSON Schema to the subset; ``root`` has the targets of references."""

    def __init__(self, root: dict[str, Any], path: str, budget: SchemaBudget) -> None:
        self._root = root
        self._path = path
        self._budget = budget

    def clean(self, schema: object, depth: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return one schema. ``inside``: the references that led here."""
        self._count()
        if depth > MAX_SCHEMA_DEPTH:
            raise wrong_value(self._path, "the schema is nested too deeply")
        if not isinstance(schema, dict):
            return {}  # true and false: anything, nothing
        schema, inside = self._resolved(schema, inside)
        schema, inside = self._merged(schema, inside)
        self._count_entries(schema)
        cleaned: dict[str, Any] = {}
        kinds, nullable = _types_of(schema)
        variants, null_variant = self._variants(schema, depth, inside)
        nullable = nullable or null_variant
        if len(kinds) > 1 and not variants:
            for kind in kinds:
                variants.append(self.clean({**schema, "type": kind}, depth + 1, inside))
            schema = {name: schema[name] for name in _TEXTS if name in schema}
            kinds = []
        kind = kinds[0] if len(kinds) == 1 else ""
        if len(variants) == 1 and not kind:
            cleaned |= variants[0]
        elif variants:
            cleaned["anyOf"] = variants
        if kind:
            cleaned["type"] = kind.upper()
        self._copy_plain(schema, kind, cleaned)
        if kind == "object":
            self._clean_object(schema, cleaned, depth, inside)
        elif kind == "array":
            cleaned["items"] = self._items(schema, depth, inside)
        if nullable:
            cleaned["nullable"] = True
        return cleaned

    def _resolved(
        self, schema: dict[str, Any], inside: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the schema that a reference means; a reference to itself adds nothing."""
        while isinstance(name := schema.get("$ref"), str):
            if len(inside) >= MAX_REFERENCES:
                raise wrong_value(self._path, "the schema is nested too deeply")
            siblings = {key: value for key, value in schema.items() if key != "$ref"}
            target = None if name in inside else self._named(name)
            inside = (*inside, name)
            schema = {**target, **siblings} if isinstance(target, dict) else siblings
            self._count_entries(schema)
            if target is None and "type" not in schema:
                schema = {**schema, "type": _ANYTHING}
        return schema, inside

    def _named(self, name: str) -> object:
        target: object = self._root
        if not name.startswith("#"):
            return None
        for step in name.removeprefix("#").strip("/").split("/") if name != "#" else ():
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step) if isinstance(target, dict) else None
        return target

    def _merged(
        self, schema: dict[str, Any], inside: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the schema with its ``allOf`` merged, and the references that led there."""
        if not isinstance(schema.get("allOf"), list):
            return schema, inside
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        properties, required = {**_dict(schema, "properties")}, _list(schema, "required")[:]
        waiting = _list(schema, "allOf")[:]
        for inner in waiting:
            self._count()
            if not isinstance(inner, dict) or inner.get("$ref") in inside:
                continue
            inner, inside = self._resolved(inner, inside)
            waiting += _list(inner, "allOf")  # an element may itself have an allOf
            required += _list(inner, "required")
            for name, value in _dict(inner, "properties").items():
                properties.setdefault(name, value)
            for key, value in inner.items():
                if key != "allOf":
                    merged.setdefault(key, value)
        merged |= {"properties": properties} if properties else {}
        merged |= {"required": required} if required else {}
        return merged, inside

    def _count_entries(self, schema: dict[str, Any]) -> None:
        self._budget.entries -= len(schema) + sum(
            len(value)
            for name, value in schema.items()
            if isinstance(value, list) or (name == "properties" and isinstance(value, dict))
        )
        if self._budget.entries < 0:
            raise wrong_value(self._path, "the schema is too large")

    def _count(self) -> None:
        self._budget.nodes -= 1
        if self._budget.nodes < 0:
            raise wrong_value(self._path, "the schema is too large")

    def _variants(
        self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return the schemas of ``anyOf`` and ``oneOf``, and whether null is among them."""
        variants: list[dict[str, Any]] = []
        nullable = False
        for inner in (*_list(schema, "anyOf"), *_list(schema, "oneOf")):
            if isinstance(inner, dict) and (
                inner.get("type") == "null" or inner.get("const", "") is None
            ):
                nullable = True
            else:
                variants.append(self.clean(inner, depth + 1, inside))
        return [variant for variant in variants if variant], nullable

    def _copy_plain(self, schema: dict[str, Any], kind: str, cleaned: dict[str, Any]) -> None:
        """Copy the keywords whose values contain no schema."""
        for name in _TEXTS:
            if isinstance(schema.get(name), str):
                cleaned[name] = schema[name]
        for name in COUNT_KEYWORDS:
            if _is_plain(int, schema.get(name)):
                cleaned[name] = schema[name]
        for name in _BOUNDS:
            bound = _bound(schema, name, kind)
            if bound is not None:
                cleaned[name] = bound
        form = schema.get("format")
        if isinstance(form, str) and form in _FORMATS.get(kind, ()):
            cleaned["format"] = form
        if "default" in schema:
            cleaned["default"] = schema["default"]
        if "example" in schema:
            cleaned["example"] = schema["example"]
        values = _values(schema)
        texts = [value for value in values if isinstance(value, str)]
        if texts and kind == "string":
            cleaned["enum"] = list(dict.fromkeys(texts))
        elif values and any(value is not None for value in values):
            # Numbers and booleans cannot be listed in an enum, so the description lists them for
            # the model.
            listed = ", ".join(str(value) for value in values if value is not None)[:1000]
            described = cleaned.get("description", "")
            cleaned["description"] = f"{described} One of: {listed}.".strip()

    def _clean_object(
        self, schema: dict[str, Any], cleaned: dict[str, Any], depth: int, inside: tuple[str, ...]
    ) -> None:
        properties = {
            name: self.clean(inner, depth + 1, inside)
            for name, inner in _dict(schema, "properties").items()
        }
        for inner in properties.values():
            if not inner.get("type") and "anyOf" not in inner:
                inner["type"] = _ANYTHING.upper()
        # The vendor refuses an object without properties: add one that the model has no reason to
        # set.
        cleaned["properties"] = properties or {"_": {"type": "STRING", "description": "Not used."}}
        for name in ("required", "propertyOrdering"):
            listed = _list(schema, name)
            names = [each for each in listed if isinstance(each, str) and each in properties]
            if names:
                cleaned[name] = list(dict.fromkeys(names))

    def _items(self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return the single schema for an array's elements."""
        items = schema.get("items")
        if isinstance(items, dict):
            listed: list[object] = [items]
        else:
            listed = _list(schema, "items") or _list(schema, "prefixItems")
        cleaned = [self.clean(inner, depth + 1, inside) for inner in listed]
        distinct = list({repr(item): item for item in cleaned if item}.values())
        if not distinct:
            return {"type": _ANYTHING.upper()}
        if len(distinct) > 1:
            return {"anyOf": distinct}
        item_schema = distinct[0]
        return (
            item_schema
            if "type" in item_schema or "anyOf" in item_schema
            else {**item_schema, "type": _ANYTHING.upper()}
        )


def _types_of(schema: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the types that a value may have, and whether it may be null."""
    type_ = schema.get("type")
    listed = [type_] if isinstance(type_, str) else type_ if isinstance(type_, list) else []
    kinds = [kind.lower() for kind in listed if isinstance(kind, str)]
    nullable = "null" in kinds or schema.get("nullable") is True
    kinds = [kind for kind in dict.fromkeys(kinds) if kind in _TYPES]
    values = _values(schema)
    nullable = nullable or (None in values)
    if not kinds:
        kinds = _implied(schema, values)
    return kinds, nullable


def _implied(schema: dict[str, Any], values: list[object]) -> list[str]:
    """Return the implied type of a schema that names none."""
    if "properties" in schema:
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    named: list[tuple[str, Callable[[object], bool]]] = [
        ("string", lambda value: isinstance(value, str)),
        ("boolean", lambda value: isinstance(value, bool)),
        ("integer", lambda value: _is_plain(int, value)),
        ("number", lambda value: _is_plain((int, float), value)),
    ]
    present = [value for value in values if value is not None]
    return [name for name, fits in named if present and all(map(fits, present))][:1]


def _bound(schema: dict[str, Any], name: str, kind: str) -> float | None:
    """Return ``minimum`` or ``maximum``. An exclusive one becomes the next integer, or the
    number."""
    inclusive = schema.get(name)
    exclusive = schema.get("exclusive" + name.capitalize())
    bound: float | None = inclusive if _is_plain((int, float), inclusive) else None
    step = 0 if kind != "integer" else 1 if name == "minimum" else -1
    if exclusive is True and bound is not None:  # the form in older drafts
        return bound + step
    if _is_plain((int, float), exclusive):
        assert isinstance(exclusive, (int, float))
        beyond = exclusive + step
        if bound is None:
            return beyond
        return max(bound, beyond) if name == "minimum" else min(bound, beyond)
    return bound


def _values(schema: dict[str, Any]) -> list[object]:
    """Return the allowed values; empty if all are allowed."""
    return [schema["const"]] if "const" in schema else _list(schema, "enum")


def _is_plain(kind: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _dict(schema: dict[str, Any], name: str) -> dict[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, dict) else {}


def _list(schema: dict[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []


_FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The text for the tool."}},
    "required": ["input"],
}

_Wire = dict[str, Any]


def encode_tools(
    request: Request, names: ToolNames, traits: Traits, budget: SchemaBudget
) -> Steps[tuple[_Wire, tuple[Feature, ...]]]:
    """Return the fields ``tools`` and ``toolConfig``, if any, and the dropped features, in steps.

    If the model refuses search together with functions, the functions stay, because they are the
    client's own.
    """
    declared = [tool for tool in _allowed(request) if tool.kind != "hosted"]
    searches = any(tool.search for tool in request.tools if tool.kind == "hosted")
    fields: _Wire = {}
    if declared:
        functions: list[_Wire] = []
        for tool in declared:
            functions.append(_declaration(tool, names, traits, budget))
            yield False
        fields["tools"] = [{"functionDeclarations": functions}]
        calling = _calling(request.choice, names)
        config: _Wire = {"functionCallingConfig": calling} if calling else {}
        if searches and traits.search_beside_functions:
            fields["tools"].append({"googleSearch": {}})
            config["includeServerSideToolInvocations"] = True
            searches = False
        if config:
            fields["toolConfig"] = config
        return fields, ("hosted_search",) if searches else ()
    if searches:
        fields["tools"] = [{"googleSearch": {}}]
    return fields, ()


def encode_schema(
    schema: _Wire, traits: Traits, path: str, budget: SchemaBudget
) -> tuple[bool, _Wire]:
    """Return whether the schema is JSON Schema (otherwise the subset), and the schema. Raises Fault
    INVALID_FIELD if the subset cannot express it."""
    if traits.schemas == "json_schema":
        return True, schema
    return False, to_subset(schema, path, budget)


def _allowed(request: Request) -> list[Tool]:
    """Return the tools that may be called; a subset is expressed by leaving out the others."""
    choice = request.choice
    if choice is None or choice.mode != "auto" or not choice.names:
        return list(request.tools)
    names = frozenset(choice.names)
    return [tool for tool in request.tools if tool.kind == "hosted" or tool.name in names]


def _declaration(tool: Tool, names: ToolNames, traits: Traits, budget: SchemaBudget) -> _Wire:
    declared: _Wire = {"name": names.sent(tool.name, tool.namespace)}
    description, schema = tool.description, tool.schema
    if tool.kind == "custom":
        schema = _FREE_TEXT
        if tool.grammar:
            rule = f"The text must follow this {tool.grammar_syntax or 'lark'} grammar:"
            description = f"{description}\n\n{rule}\n{tool.grammar}".strip()
    if description:
        declared["description"] = description
    if schema:
        written, encoded = encode_schema(schema, traits, tool.path, budget)
        if written:
            declared["parametersJsonSchema"] = encoded
        elif encoded.get("type") == "OBJECT" and schema.get("properties"):
            declared["parameters"] = encoded
    return declared


def _calling(choice: ToolChoice | None, names: ToolNames) -> _Wire | None:
    if choice is None:
        return None
    if choice.mode == "none":
        return {"mode": "NONE"}
    if choice.mode == "auto":
        return {"mode": "AUTO"}
    chosen = [name for each in dict.fromkeys(choice.names) for name in names.named(each)]
    return {"mode": "ANY"} | ({"allowedFunctionNames": chosen} if chosen else {})


MAX_STOPS = 5
MAX_LOGPROBS = 20
_SEEDS = range(-(2**31), 2**31)

# Efforts in order, each with its tokens for models that accept a budget.
_BUDGETS: dict[Effort, int] = {
    "off": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 2**31,
}
_LEAST_BUDGET = 128  # for models that always think
# The smallest budget, in tokens, for each effort.
_DEPTH_OF_BUDGET: tuple[tuple[int, Effort], ...] = (
    (16_384, "high"),
    (8192, "medium"),
    (1024, "low"),
    (1, "minimal"),
    (0, "off"),
)


def encode_request(request: Request, target: Target, count: bool) -> Steps[Encoded]:
    """Return the body, in steps (see ``UpstreamCodec``). A body that counts tokens wraps the whole
    request, which then names the model."""
    names = ToolNames(request.tools)
    writer = ContentWriter(names, signs=wants_signatures(target.model))
    for turn in request.turns:
        writer.add(turn)
        yield False
    system = text_parts(request.system)
    body: _Wire = {"contents": writer.finish(system)}
    if system:
        body["systemInstruction"] = {"parts": system}
    budget = SchemaBudget()
    tools, dropped = yield from encode_tools(request, names, target.traits, budget)
    body |= tools
    config, dropped_of_config, cut = _config(request, target.traits, budget)
    if config:
        body["generationConfig"] = config
    fast = any(ask.feature == "speed" for ask in request.asks)
    tier = "priority" if fast else _TIERS.get(request.tier)
    if tier:
        body["serviceTier"] = tier
    if count:
        model = target.model if "/" in target.model else f"models/{target.model}"
        body = {"generateContentRequest": {"model": model, **body}}
    yield True
    try:
        written = dumps(body)
    except OverflowError:
        message = "A number in the request is out of range, or it is nested too deeply."
        raise Fault(Condition.INVALID_FIELD, message) from None
    return Encoded(written, names.renamed, cut=cut, dropped=(*dropped, *dropped_of_config))


_TIERS = {"default": "standard", "flex": "flex", "priority": "priority"}


def _config(
    request: Request, traits: Traits, budget: SchemaBudget
) -> tuple[_Wire, tuple[Feature, ...], tuple[str, ...]]:
    """Return ``generationConfig``, dropped features, and stop sequences over the limit."""
    config, dropped = _sampling(request) if traits.sampling else ({}, ())
    if request.max_output_tokens:
        config["maxOutputTokens"] = request.max_output_tokens
    stops = tuple(dict.fromkeys(filter(None, request.stop)))
    if stops:
        config["stopSequences"] = list(stops[:MAX_STOPS])
    if request.n > 1:
        config["candidateCount"] = request.n
    if request.logprobs is not None:
        config["responseLogprobs"] = True
        if request.logprobs:
            config["logprobs"] = min(request.logprobs, MAX_LOGPROBS)
    output = request.output
    if output.kind != "text":
        config["responseMimeType"] = "application/json"
    if output.kind == "schema" and output.schema is not None:
        written, schema = encode_schema(output.schema, traits, "", budget)
        config["responseJsonSchema" if written else "responseSchema"] = schema
    thinking = _thinking(request.thinking, traits)
    if thinking:
        config["thinkingConfig"] = thinking
    return config, dropped, stops[MAX_STOPS:]


def _sampling(request: Request) -> tuple[_Wire, tuple[Feature, ...]]:
    """Return the sampling fields, and the features whose value the vendor would refuse."""
    config: _Wire = {}
    dropped: list[Feature] = []
    for name, value in (
        ("temperature", request.temperature),
        ("topP", request.top_p),
        ("presencePenalty", request.presence_penalty),
        ("frequencyPenalty", request.frequency_penalty),
    ):
        if value is not None:
            config[name] = value
    if request.top_k is not None:
        if request.top_k >= 1:
            config["topK"] = request.top_k
        else:
            dropped.append("top_k")
    if request.seed is not None:
        if request.seed in _SEEDS:
            config["seed"] = request.seed
        else:
            dropped.append("seed")
    return config, tuple(dropped)


def _thinking(thinking: Thinking | None, traits: Traits) -> _Wire:
    """Return ``thinkingConfig`` with a level or a budget, whichever the model accepts."""
    if thinking is None or traits.thinking == "none":
        return {}
    effort, budget = thinking.effort, thinking.budget_tokens
    config: _Wire = {}
    if traits.thinking == "budget":
        if effort == "auto":
            config["thinkingBudget"] = -1
        elif effort is not None or budget is not None:
            tokens = _BUDGETS[effort] if effort is not None else budget or 0
            least = 0 if "off" in traits.efforts else _LEAST_BUDGET
            config["thinkingBudget"] = max(min(tokens, traits.max_budget_tokens), least)
    else:
        if effort is None and budget is not None:
            effort = next(depth for least, depth in _DEPTH_OF_BUDGET if budget >= least)
        if effort is not None and effort != "auto":
            levels = [level for level in LEVELS if level in traits.efforts]
            config["thinkingLevel"] = (nearest_effort(effort, levels) or "low").upper()
    off = effort == "off" or (effort is None and budget == 0)
    visible = thinking.show in ("summary", "full")
    if not off and (visible or (thinking.show is None and (effort or budget))):
        config["includeThoughts"] = True
    return config
