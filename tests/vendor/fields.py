"""Typed reading of a request's JSON: a wrong value becomes a Refusal that names its path."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.vendor.family import Path, Refusal

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object strictly: no NaN, no duplicate key, UTF-8 only."""
    try:
        value = json.loads(
            body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_doubles
        )
    except (ValueError, RecursionError) as error:
        raise Refusal(f"The body is not valid JSON: {error}", kind="plain") from error
    if not isinstance(value, dict):
        raise Refusal("The body must be a JSON object.", kind="plain")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object holds one key twice")
    return value


class Fields:
    """One JSON object; a field that is absent or null reads as None."""

    def __init__(self, value: Any, path: Path = ()) -> None:
        if not isinstance(value, dict):
            raise Refusal("an object", path, "type")
        self.value: dict[str, Any] = value
        self.path = path

    def at(self, name: str) -> Path:
        return (*self.path, name)

    def has(self, name: str) -> bool:
        return self.value.get(name) is not None

    def required(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                raise Refusal("required", self.at(name), "missing")

    def string(self, name: str) -> str | None:
        value = self.value.get(name)
        if value is not None and not isinstance(value, str):
            raise Refusal("a string", self.at(name), "type")
        return value

    def text(self, name: str) -> str:
        """Return a required string that is not empty."""
        self.required(name)
        value = self.string(name)
        if not value:
            raise Refusal("must not be empty", self.at(name))
        return value

    def boolean(self, name: str) -> bool:
        value = self.value.get(name)
        if value is not None and not isinstance(value, bool):
            raise Refusal("a boolean", self.at(name), "type")
        return bool(value)

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.value.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refusal("a number", self.at(name), "type")
        return float(self._in_range(name, value, low, high))

    def integer(self, name: str, low: int, high: int = 2**31 - 1) -> int | None:
        value = self.value.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refusal("an integer", self.at(name), "type")
        return int(self._in_range(name, value, low, high))

    def _in_range(self, name: str, value: float, low: float, high: float) -> float:
        if not low <= value <= high:
            raise Refusal(f"must be between {low:g} and {high:g}", self.at(name))
        return value

    def choice(self, name: str, *allowed: str) -> str | None:
        value = self.string(name)
        if value is not None and value not in allowed:
            raise Refusal(f"must be one of {', '.join(allowed)}", self.at(name))
        return value

    def array(self, name: str) -> list[Any] | None:
        value = self.value.get(name)
        if value is not None and not isinstance(value, list):
            raise Refusal("an array", self.at(name), "type")
        return value

    def entries(self, name: str, *, filled: bool = False) -> list[Fields]:
        """Return the objects of an array; `filled`: it is required and has at least one."""
        if filled:
            self.required(name)
        values = self.array(name) or []
        if filled and not values:
            raise Refusal("must hold one entry at least", self.at(name))
        return [Fields(value, (*self.at(name), index)) for index, value in enumerate(values)]

    def object(self, name: str) -> Fields | None:
        value = self.value.get(name)
        return None if value is None else Fields(value, self.at(name))


def read_tool_name(fields: Fields, most: int) -> str:
    name = fields.text("name")
    if len(name) > most or not TOOL_NAME.fullmatch(name):
        problem = f"must be 1 to {most} of letters, digits, _ and -"
        raise Refusal(problem, fields.at("name"))
    return name


def read_schema(fields: Fields, name: str) -> dict[str, Any]:
    """Return a JSON schema of an object; {} when it is absent."""
    schema = fields.object(name)
    if schema is None:
        return {}
    if schema.value.get("type", "object") != "object":
        raise Refusal("must be the schema of an object", (*schema.path, "type"))
    return schema.value
