"""Schemas of tools and answers: JSON Schema, and the subset of it that is the family's own.

The subset has types in upper case, ``nullable``, no references and few keywords; an unknown one is
refused by the vendor. Source: the family's documentation of its Schema object. Imported by
``codec``.
"""

from collections.abc import Callable
from typing import Any

from adapters.faults import wrong_value
from adapters.generate_content.codec.wire.fields import camel

MAX_DEPTH = 60
# Of all schemas of a request: references may be repeated until they fill the memory.
MAX_NODES = 20_000
# Keys and listed values of these nodes: each reference to a long list reads it again.
MAX_ENTRIES = 1_000_000
MAX_REFERENCES = 256  # one inside of the other

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_FORMATS = {
    "string": frozenset({"date-time", "enum"}),
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
_TEXTS = ("title", "description", "pattern")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum")
_COUNTED = frozenset(_COUNTS)
_ANYTHING = "string"  # what stands for a value of any type, which the subset cannot say


def to_json_schema(dialect: object, path: str) -> dict[str, Any]:
    """The JSON Schema that says what a schema of the subset says, in either spelling of its names.
    Raises Fault INVALID_FIELD for ``path`` when it is no object or nested too deeply."""
    return _json_schema(dialect, path, 0)


class Nodes:
    """Nodes, and entries of them, that the schemas of one request may still have."""

    __slots__ = ("entries_left", "left")

    def __init__(self) -> None:
        self.left = MAX_NODES
        self.entries_left = MAX_ENTRIES


def to_subset(schema: dict[str, Any], path: str, nodes: Nodes) -> dict[str, Any]:
    """The schema of the subset that says as much as can be said of a JSON Schema. Raises Fault
    INVALID_FIELD for ``path`` when it is nested too deeply or too large."""
    return _Cleaner(schema, path, nodes).clean(schema, 0, ())


def _json_schema(dialect: object, path: str, depth: int) -> dict[str, Any]:
    if not isinstance(dialect, dict):
        raise wrong_value(path, "expected a schema")
    if depth > MAX_DEPTH:
        raise wrong_value(path, "the schema is nested too deeply")
    found: dict[str, Any] = {}
    nullable = False
    for spelling, value in dialect.items():
        name = camel(spelling)
        if value is None and name not in ("default", "example"):
            continue
        if name == "nullable":
            nullable = value is True
        elif name == "type":
            found |= {"type": value.lower()} if isinstance(value, str) else {"type": value}
        elif name == "example":
            found["examples"] = [value]
        elif name in _COUNTED and isinstance(value, str) and value.isdecimal():
            found[name] = int(value)
        elif name in ("properties", "$defs", "defs") and isinstance(value, dict):
            found[name] = {
                key: _json_schema(inner, f"{path}.{name}.{key}", depth + 1)
                for key, inner in value.items()
            }
        elif name == "items" and isinstance(value, dict):
            found[name] = _json_schema(value, f"{path}.items", depth + 1)
        elif name == "anyOf" and isinstance(value, list):
            found[name] = [
                _json_schema(inner, f"{path}.anyOf[{index}]", depth + 1)
                for index, inner in enumerate(value)
            ]
        elif name != "propertyOrdering" and not (name == "format" and value == "enum"):
            found[name] = value
    if found.get("type") == "type_unspecified":
        del found["type"]
    return _with_null(found) if nullable else found


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that takes null, too."""
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


class _Cleaner:
    """Makes the subset of one JSON Schema; ``root`` has what references name."""

    def __init__(self, root: dict[str, Any], path: str, nodes: Nodes) -> None:
        self._root = root
        self._path = path
        self._nodes = nodes

    def clean(self, schema: object, depth: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """One schema; ``inside``: the references that led here."""
        self._count()
        if depth > MAX_DEPTH:
            raise wrong_value(self._path, "the schema is nested too deeply")
        if not isinstance(schema, dict):
            return {}  # true and false: anything, nothing
        schema, inside = self._resolved(schema, inside)
        schema, inside = self._merged(schema, inside)
        self._count_entries(schema)
        found: dict[str, Any] = {}
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
            found |= variants[0]
        elif variants:
            found["anyOf"] = variants
        if kind:
            found["type"] = kind.upper()
        self._copy_plain(schema, kind, found)
        if kind == "object":
            self._clean_object(schema, found, depth, inside)
        elif kind == "array":
            found["items"] = self._items(schema, depth, inside)
        if nullable:
            found["nullable"] = True
        return found

    def _resolved(
        self, schema: dict[str, Any], inside: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The schema with what its reference names; one that leads back to itself says nothing."""
        while isinstance(name := schema.get("$ref"), str):
            if len(inside) >= MAX_REFERENCES:
                raise wrong_value(self._path, "the schema is nested too deeply")
            others = {key: value for key, value in schema.items() if key != "$ref"}
            target = None if name in inside else self._named(name)
            inside = (*inside, name)
            schema = {**target, **others} if isinstance(target, dict) else others
            self._count_entries(schema)
            if target is None and "type" not in schema:
                schema = {**schema, "type": _ANYTHING}
        return schema, inside

    def _named(self, name: str) -> object:
        found: object = self._root
        if not name.startswith("#"):
            return None
        for step in name.removeprefix("#").strip("/").split("/") if name != "#" else ():
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        return found

    def _merged(
        self, schema: dict[str, Any], inside: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The schema with those of its ``allOf`` in it, and the references that led to these."""
        if not isinstance(schema.get("allOf"), list):
            return schema, inside
        found = {key: value for key, value in schema.items() if key != "allOf"}
        properties, required = {**_dict(schema, "properties")}, _list(schema, "required")[:]
        waiting = _list(schema, "allOf")[:]
        for inner in waiting:
            self._count()
            if not isinstance(inner, dict) or inner.get("$ref") in inside:
                continue
            inner, inside = self._resolved(inner, inside)
            waiting += _list(inner, "allOf")  # one may have an allOf itself
            required += _list(inner, "required")
            for name, value in _dict(inner, "properties").items():
                properties.setdefault(name, value)
            for key, value in inner.items():
                if key != "allOf":
                    found.setdefault(key, value)
        found |= {"properties": properties} if properties else {}
        found |= {"required": required} if required else {}
        return found, inside

    def _count_entries(self, schema: dict[str, Any]) -> None:
        self._nodes.entries_left -= len(schema) + sum(
            len(value)
            for name, value in schema.items()
            if isinstance(value, list) or (name == "properties" and isinstance(value, dict))
        )
        if self._nodes.entries_left < 0:
            raise wrong_value(self._path, "the schema is too large")

    def _count(self) -> None:
        self._nodes.left -= 1
        if self._nodes.left < 0:
            raise wrong_value(self._path, "the schema is too large")

    def _variants(
        self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]
    ) -> tuple[list[dict[str, Any]], bool]:
        """The schemas of ``anyOf`` and ``oneOf``, and whether null is one of them."""
        found: list[dict[str, Any]] = []
        nullable = False
        for inner in (*_list(schema, "anyOf"), *_list(schema, "oneOf")):
            if isinstance(inner, dict) and (
                inner.get("type") == "null" or inner.get("const", "") is None
            ):
                nullable = True
            else:
                found.append(self.clean(inner, depth + 1, inside))
        return [variant for variant in found if variant], nullable

    def _copy_plain(self, schema: dict[str, Any], kind: str, found: dict[str, Any]) -> None:
        """The keywords that hold no schema."""
        for name in _TEXTS:
            if isinstance(schema.get(name), str):
                found[name] = schema[name]
        for name in _COUNTS:
            if _is(int, schema.get(name)):
                found[name] = schema[name]
        for name in _BOUNDS:
            bound = _bound(schema, name, kind)
            if bound is not None:
                found[name] = bound
        if schema.get("format") in _FORMATS.get(kind, ()):
            found["format"] = schema["format"]
        if "default" in schema:
            found["default"] = schema["default"]
        if "example" in schema:
            found["example"] = schema["example"]
        values = _values(schema)
        texts = [value for value in values if isinstance(value, str)]
        if texts and kind == "string":
            found["enum"] = list(dict.fromkeys(texts))
        elif values and any(value is not None for value in values):
            # Numbers and truth values cannot be listed: the model reads them.
            listed = ", ".join(str(value) for value in values if value is not None)[:1000]
            described = found.get("description", "")
            found["description"] = f"{described} One of: {listed}.".strip()

    def _clean_object(
        self, schema: dict[str, Any], found: dict[str, Any], depth: int, inside: tuple[str, ...]
    ) -> None:
        properties = {
            name: self.clean(inner, depth + 1, inside)
            for name, inner in _dict(schema, "properties").items()
        }
        for inner in properties.values():
            if not inner.get("type") and "anyOf" not in inner:
                inner["type"] = _ANYTHING.upper()
        # The vendor refuses an object without any: one that the model has no reason to set.
        found["properties"] = properties or {"_": {"type": "STRING", "description": "Not used."}}
        for name in ("required", "propertyOrdering"):
            listed = _list(schema, name)
            names = [each for each in listed if isinstance(each, str) and each in properties]
            if names:
                found[name] = list(dict.fromkeys(names))

    def _items(self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """The one schema of an array's elements."""
        items = schema.get("items")
        if isinstance(items, dict):
            listed: list[object] = [items]
        else:
            listed = _list(schema, "items") or _list(schema, "prefixItems")
        found = [self.clean(inner, depth + 1, inside) for inner in listed]
        distinct = list({repr(item): item for item in found if item}.values())
        if not distinct:
            return {"type": _ANYTHING.upper()}
        if len(distinct) > 1:
            return {"anyOf": distinct}
        one = distinct[0]
        return one if "type" in one or "anyOf" in one else {**one, "type": _ANYTHING.upper()}


def _types_of(schema: dict[str, Any]) -> tuple[list[str], bool]:
    """The types that a value may have, and whether it may be null."""
    said = schema.get("type")
    listed = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    kinds = [kind.lower() for kind in listed if isinstance(kind, str)]
    nullable = "null" in kinds or schema.get("nullable") is True
    kinds = [kind for kind in dict.fromkeys(kinds) if kind in _TYPES]
    values = _values(schema)
    nullable = nullable or (None in values)
    if not kinds:
        kinds = _implied(schema, values)
    return kinds, nullable


def _implied(schema: dict[str, Any], values: list[object]) -> list[str]:
    """The type of a schema that names none."""
    if "properties" in schema:
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    named: list[tuple[str, Callable[[object], bool]]] = [
        ("string", lambda value: isinstance(value, str)),
        ("boolean", lambda value: isinstance(value, bool)),
        ("integer", lambda value: _is(int, value)),
        ("number", lambda value: _is((int, float), value)),
    ]
    present = [value for value in values if value is not None]
    return [name for name, fits in named if present and all(map(fits, present))][:1]


def _bound(schema: dict[str, Any], name: str, kind: str) -> float | None:
    """``minimum`` or ``maximum``; an exclusive one is the next whole number, or the number."""
    inclusive = schema.get(name)
    exclusive = schema.get("exclusive" + name.capitalize())
    bound: float | None = inclusive if _is((int, float), inclusive) else None
    step = 0 if kind != "integer" else 1 if name == "minimum" else -1
    if exclusive is True and bound is not None:  # as older drafts have it
        return bound + step
    if _is((int, float), exclusive):
        assert isinstance(exclusive, (int, float))
        beyond = exclusive + step
        if bound is None:
            return beyond
        return max(bound, beyond) if name == "minimum" else min(bound, beyond)
    return bound


def _values(schema: dict[str, Any]) -> list[object]:
    """The values that are allowed; none when all are."""
    return [schema["const"]] if "const" in schema else _list(schema, "enum")


def _is(kind: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _dict(schema: dict[str, Any], name: str) -> dict[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, dict) else {}


def _list(schema: dict[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []
