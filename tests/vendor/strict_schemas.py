"""Checks of schemas for strict output and strict tools, in chat completions and responses.

Source: the public documentation of structured outputs. Imported by these two families.
"""

from __future__ import annotations

from typing import Any

from tests.vendor.family import Path, Refusal

SCHEMA_DEPTH_MAX = 32


def check_strict(schema: Any, path: Path, owner: str) -> None:
    """Raise Refusal if the schema is not of the subset that strict mode supports."""
    code = "invalid_function_parameters" if path[0] == "tools" else "invalid_json_schema"
    waiting: list[tuple[Any, tuple[str, ...]]] = [(schema, ())]
    while waiting:
        inner_schema, context = waiting.pop()
        if not isinstance(inner_schema, dict):
            continue
        fault = _strict_fault(inner_schema)
        if fault is None and len(context) > SCHEMA_DEPTH_MAX:
            fault = "the schema is nested too deeply."
        if fault is not None:
            problem = f"Invalid schema for {owner}: In context={context}, {fault}"
            raise Refusal(problem, path, "plain", code=code)
        for name in ("properties", "$defs", "definitions"):
            inner = inner_schema.get(name)
            if isinstance(inner, dict):
                waiting += [(value, (*context, name, key)) for key, value in inner.items()]
        several = inner_schema.get("anyOf")
        if isinstance(several, list):
            waiting += [(value, (*context, "anyOf")) for value in several]
        waiting.append((inner_schema.get("items"), (*context, "items")))


def _strict_fault(schema: dict[str, Any]) -> str | None:
    properties = schema.get("properties")
    if schema.get("type") != "object" and properties is None:
        return None
    if properties is not None and not isinstance(properties, dict):
        return "'properties' is not an object."
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    required = schema.get("required")
    listed = required if isinstance(required, list) else []
    missing = [name for name in properties or {} if name not in listed]
    if missing:
        return (
            "'required' is required to be supplied and to be an array including every key in "
            f"properties. Missing '{missing[0]}'."
        )
    return None
