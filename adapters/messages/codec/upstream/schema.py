"""JSON schemas in the dialect of this family.

The arguments of a tool are an object at the root, without alternatives there. A schema of the
answer closes every object and has no bounds of numbers and texts; those go into the description, so
that the model still reads them. Source: the vendor's documentation of tools and structured outputs.
Imported by ``encode_tools`` and ``encode_request``.
"""

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


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """One object in place of alternatives at the root: all properties of all of them, and those
    required that each of them requires."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name in _ALTERNATIVES:
        branches = schema.get(name)
        branches = [each for each in branches or () if isinstance(each, dict)]
        for branch in branches:
            properties |= _entries(branch)
        wanted = [_names(branch) for branch in branches]
        if name == "allOf":
            required += [each for names in wanted for each in names]
        elif wanted:
            required += [each for each in wanted[0] if all(each in names for names in wanted)]
    kept = {name: value for name, value in schema.items() if name not in _ALTERNATIVES}
    merged = kept | {"type": "object", "properties": properties | _entries(schema)}
    required = list(dict.fromkeys(_names(schema) + required))
    return merged | ({"required": required} if required else {})


def _entries(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _names(schema: dict[str, Any]) -> list[str]:
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """An object with one property for what is none."""
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}
