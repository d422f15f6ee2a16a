"""JSON schemas in the dialect of this family.

The arguments of a tool are an object at the root, without alternatives there. A schema of the
answer closes every object and has no bounds of numbers and texts; those go into the description, so
that the model still reads them. Source: the vendor's documentation of tools and structured outputs.
Imported by ``encode_tools`` and ``encode_request``.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from adapters.json.jsonio import compact

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
# What the vendor refuses in the schema of an answer.
_BOUNDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)
# Where schemas stand in a schema: one, a list of them, or by name.
_ONE = ("items", "not", "additionalProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions")
_DEPTH_MAX = 64  # deeper ones are left as they are


def for_tool(schema: dict[str, Any] | None) -> dict[str, Any]:
    """The schema of a tool's arguments."""
    if not schema:
        return NO_ARGUMENTS
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if any(name in schema for name in _ALTERNATIVES):
        return _merged(schema)
    if kind == "object":
        return schema
    if "object" in kinds or kind is None:
        return {"type": "object"} | {
            name: value for name, value in schema.items() if name != "type"
        }
    return _wrapped(schema)


def fits_answer(schema: dict[str, Any]) -> bool:
    """Whether the vendor can hold an answer to this schema: with objects whose names are not known
    before, or that are inside of themselves, it cannot."""
    return not any(_is_open(each) for each in _schemas(schema)) and not _is_endless(schema)


def for_answer(schema: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """The schema of structured output."""
    if depth >= _DEPTH_MAX:
        return schema
    fit: dict[str, Any] = {}
    said = []
    for name, value in schema.items():
        if name in _BOUNDS or (name == "minItems" and value not in (0, 1)):
            said.append(f"{name}: {compact(value)}")
        else:
            fit[name] = _inner(name, value, depth)
    if "oneOf" in fit:
        fit["anyOf"] = fit.pop("oneOf")
    if schema.get("type") == "object" or "properties" in schema:
        fit["additionalProperties"] = False
    if said:
        words = [fit.get("description"), "; ".join(said)]
        fit["description"] = " ".join(f"{word}" for word in words if word)
    return fit


def _inner(name: str, value: Any, depth: int) -> Any:
    if name in _ONE and isinstance(value, dict):
        return for_answer(value, depth + 1)
    if name in _LISTS and isinstance(value, list):
        return [for_answer(each, depth + 1) if isinstance(each, dict) else each for each in value]
    if name in _NAMED and isinstance(value, dict):
        return {
            key: for_answer(each, depth + 1) if isinstance(each, dict) else each
            for key, each in value.items()
        }
    return value


def _schemas(schema: dict[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
    """A schema and all inside of it."""
    yield schema
    if depth >= _DEPTH_MAX:
        return
    for name, value in schema.items():
        inner: list[Any] = []
        if name in _ONE:
            inner = [value]
        elif name in _LISTS and isinstance(value, list):
            inner = value
        elif name in _NAMED and isinstance(value, dict):
            inner = list(value.values())
        for each in inner:
            if isinstance(each, dict):
                yield from _schemas(each, depth + 1)


def _is_open(schema: dict[str, Any]) -> bool:
    if isinstance(schema.get("additionalProperties"), dict) or "patternProperties" in schema:
        return True
    return schema.get("type") == "object" and not schema.get("properties")


def _is_endless(schema: dict[str, Any]) -> bool:
    """Whether a definition leads to itself, or something to the whole."""
    leads: dict[str, set[str]] = {}
    for group in ("$defs", "definitions"):
        for name, each in _entries(schema, group).items():
            leads[f"#/{group}/{name}"] = _refs(each) if isinstance(each, dict) else set()
    if "#" in _refs(schema):
        return True
    try:
        TopologicalSorter(leads).prepare()
    except CycleError:
        return True
    return False


def _refs(schema: dict[str, Any]) -> set[str]:
    refs = (each.get("$ref") for each in _schemas(schema))
    return {ref for ref in refs if isinstance(ref, str)}


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """One object in place of alternatives at the root: all properties of all of them, and those
    required that each of them requires."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name in _ALTERNATIVES:
        given = schema.get(name)
        branches = (
            [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
        )
        for branch in branches:
            properties |= _entries(branch)
        wanted = [_names(branch) for branch in branches]
        if name == "allOf":
            required += [each for names in wanted for each in names]
        elif wanted:
            common = set(wanted[0]).intersection(*wanted)
            required += [each for each in wanted[0] if each in common]
    kept = {name: value for name, value in schema.items() if name not in _ALTERNATIVES}
    merged = kept | {"type": "object", "properties": properties | _entries(schema)}
    required = list(dict.fromkeys(_names(schema) + required))
    return merged | ({"required": required} if required else {})


def _entries(schema: dict[str, Any], name: str = "properties") -> dict[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


def _names(schema: dict[str, Any]) -> list[str]:
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """An object with one property for what is none."""
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}
