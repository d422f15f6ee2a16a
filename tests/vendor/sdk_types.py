"""Checks of requests against the types of the official SDKs: strict, unknown keys forbidden.

A TypedDict of an SDK says which fields a request has, their types, and their allowed words.
Iterables are read as lists; null counts as an absent field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError

from tests.vendor.family import Path, Refusal

TAGS = (("type",), ("role",))  # these fields tell which member of a union is meant
EXPECTED = {
    "string_type": "a string",
    "bool_type": "a boolean",
    "int_type": "an integer",
    "float_type": "a number",
    "list_type": "an array",
    "dict_type": "an object",
}
UNKNOWN = "Extra inputs are not permitted"


def not_permitted(path: Path) -> Refusal:
    return Refusal(UNKNOWN, path)


class RequestType:
    """The type of a request; `extra` are fields that are not checked here."""

    def __init__(
        self,
        kind: Any,
        *,
        extra: Collection[str] = (),
        forbid: bool = True,
        unknown: Callable[[Path], Refusal] = not_permitted,
    ) -> None:
        self._unknown = unknown
        schema = _adapted(TypeAdapter(kind).core_schema, "forbid" if forbid else "ignore")
        self._validator = SchemaValidator(schema)
        self._extra = frozenset(extra)

    def check(self, value: Any, path: Path = ()) -> None:
        """Raise Refusal for the first fault, with its path."""
        sent = value
        if isinstance(value, dict) and self._extra:
            sent = {name: value[name] for name in value if name not in self._extra}
        try:
            self._validator.validate_python(sent)
        except ValidationError as error:
            raise self._refusal(error, sent, path) from error

    def _refusal(self, error: ValidationError, value: Any, path: Path) -> Refusal:
        faults = [
            (tuple(_place(fault, value)), fault["loc"][-1:] not in TAGS, fault)
            for fault in _meant(error.errors(include_url=False, include_context=False))
        ]
        place, _, fault = max(faults, key=lambda entry: (len(entry[0]), entry[1]))
        at, kind = (*path, *place), fault["type"]
        if kind == "missing":
            return Refusal("required", at, "missing")
        if kind == "extra_forbidden":
            return self._unknown(at)
        if kind in EXPECTED:
            return Refusal(EXPECTED[kind], at, "type")
        return Refusal(fault["msg"], at)


def _adapted(node: Any, extra: str) -> Any:
    """Return a core schema with iterables as lists and objects without unknown keys."""
    if isinstance(node, list):
        return [_adapted(entry, extra) for entry in node]
    if isinstance(node, tuple):
        return tuple(_adapted(entry, extra) for entry in node)
    if not isinstance(node, dict):
        return node
    node = {name: _adapted(entry, extra) for name, entry in node.items()}
    match node.get("type"):
        case "str" | "int" | "float" | "bool" | "list" | "dict":
            return {**node, "strict": True}
        case "model":  # a type of answers; requests contain only its dict form
            instance = {"type": "is-instance", "cls": node["cls"]}
            return {**instance, "ref": node["ref"]} if "ref" in node else instance
        case "generator":
            return {**node, "type": "list", "strict": True}
        case "typed-dict" if "extras_schema" not in node:
            return {**node, "extra_behavior": extra}
        case "typed-dict-field" if not node.get("required"):
            return {**node, "schema": {"type": "nullable", "schema": node["schema"]}}
    return node


def _meant(errors: list[Any]) -> Iterator[Any]:
    """Yield the faults, except those inside members of unions whose tags do not match."""
    wrong = {
        error["loc"][:-1]
        for error in errors
        if error["loc"][-1:] in TAGS and error["type"] in ("literal_error", "missing")
    }
    for error in errors:
        loc = error["loc"]
        outer = (loc[:at] for at in range(len(loc)) if loc[at:] not in TAGS)
        if not any(place in wrong for place in outer):
            yield error


def _place(fault: Any, value: Any) -> Iterator[str | int]:
    """Yield the path in the value; names of union members in the location are left out."""
    loc = fault["loc"]
    for at, part in enumerate(loc):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            if fault["type"] != "missing" or at < len(loc) - 1:
                continue
        yield part


def fields_by_kind(*kinds: Any) -> dict[str, set[str]]:
    """Return the fields of a union's members, by the values of their field `type`."""
    fields: dict[str, set[str]] = {}
    for kind in kinds:
        hints = get_type_hints(kind)
        for word in _words(hints["type"]):
            fields.setdefault(word, set()).update(hints)
    return fields


def _words(hint: Any) -> Iterator[str]:
    for argument in get_args(hint):
        if isinstance(argument, str):
            yield argument
        else:
            yield from _words(argument)
