"""Fields of decoded JSON in either spelling of proto JSON, maxOutputTokens and max_output_tokens.

Clients mix both in one body. What a client may choose itself (arguments, schemas, labels) is not
read by this. Imported by ``codec``.
"""

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from adapters.faults import Condition, Fault, wrong_type, wrong_value

MAX_NAME_CHARS = 64

_HUMP = re.compile(r"[A-Z]")
_UNDERSCORE = re.compile(r"_([a-z0-9])")


class Fields:
    """An object of the API by the camelCase names of its fields, and where it stands.

    Fields that are null count as absent. Raises Fault INVALID_FIELD with the path for what is of
    the wrong type, and for a field that stands there in both spellings.
    """

    __slots__ = ("_values", "path")

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        self._values: dict[str, Any] = {}
        if not isinstance(value, dict):
            raise wrong_type(path, "expected an object")
        for spelling, inner in value.items():
            name = camel(spelling) if "_" in spelling else spelling
            if name in self._values:
                raise Fault(
                    Condition.INVALID_FIELD,
                    f"The field '{self.at(name)}' comes twice.",
                    param=self.at(name),
                    detail="the field comes twice",
                )
            self._values[name] = inner

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self._values.items() if value is not None)

    def among(self, names: frozenset[str]) -> list[str]:
        """Which of these fields stand there."""
        return [name for name, value in self._values.items() if name in names and value is not None]

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def value(self, name: str) -> Any:
        """Whatever stands there; None when absent."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        """A string; empty when absent."""
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise wrong_type(self.at(name), "expected a string")
        return value

    def flag(self, name: str) -> bool | None:
        """A bool; None when absent."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            raise wrong_type(self.at(name), "expected a boolean")
        return value

    def number(self, name: str) -> float | None:
        """A number, which may be written as a string; None when absent."""
        value = self._values.get(name)
        if isinstance(value, str):
            value = _number_of(value)
            if value is None:
                raise wrong_type(self.at(name), "expected a number")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong_type(self.at(name), "expected a number")
        if not math.isfinite(value):
            raise wrong_value(self.at(name), "the number is out of range")
        return value

    def integer(self, name: str) -> int | None:
        """A whole number, which may be written as a string or as 3.0; None when absent."""
        value = self.number(name)
        if value is None:
            return None
        if value != int(value):
            raise wrong_type(self.at(name), "expected an integer")
        return int(value)

    def object(self, name: str) -> "Fields | None":
        """An object of the API; None when absent."""
        value = self._values.get(name)
        return None if value is None else Fields(value, self.at(name))

    def free_object(self, name: str) -> dict[str, Any] | None:
        """An object whose fields the client chooses; None when absent."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            raise wrong_type(self.at(name), "expected an object")
        return value

    def items(self, name: str) -> list[tuple[Any, str]]:
        """The elements of an array, each with its path; the vendor takes one for a list of one."""
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            return [(value, self.at(name))]
        return [(inner, f"{self.at(name)}[{index}]") for index, inner in enumerate(value)]

    def objects(self, name: str) -> "list[Fields]":
        """The objects of an array."""
        return [Fields(inner, path) for inner, path in self.items(name)]

    def texts(self, name: str) -> tuple[str, ...]:
        """The strings of an array."""
        for inner, path in self.items(name):
            if not isinstance(inner, str):
                raise wrong_type(path, "expected a string")
        return tuple(inner for inner, _ in self.items(name))


def camel(name: str) -> str:
    """The name of a field as answers have it."""
    # Longer names are none of the API's, and the cache shall not keep them.
    return _camel(name) if "_" in name and len(name) <= MAX_NAME_CHARS else name


@lru_cache(maxsize=512)
def snake(name: str) -> str:
    """The name of a field of the API in the other spelling."""
    return _HUMP.sub(lambda found: "_" + found[0].lower(), name)


@lru_cache(maxsize=512)
def _camel(name: str) -> str:
    return _UNDERSCORE.sub(lambda found: found[1].upper(), name)


def _number_of(text: str) -> float | None:
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return None
