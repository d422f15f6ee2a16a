"""Typed reading of a client's fields; what is wrong is a Fault with the path of the field.

Absent and null are the same. Imported by the ``decode_`` modules of the client's side.
"""

from typing import Any, TypeVar

from adapters.faults import Condition, Fault, wrong_type, wrong_value

T = TypeVar("T")

_KINDS: dict[type, str] = {
    str: "a string", dict: "an object", list: "an array", bool: "a boolean", int: "an integer",
}  # fmt: skip


def place(at: str, name: str) -> str:
    """The path of a field of the object at ``at``; empty: the body."""
    return f"{at}.{name}" if at else name


def typed(holder: dict[str, Any], name: str, at: str, kind: type[T]) -> T | None:
    """A field of that type; None when absent or null. Raises Fault INVALID_FIELD."""
    value = holder.get(name)
    if value is None:
        return None
    if type(value) is not kind:
        raise wrong_type(place(at, name), f"expected {_KINDS[kind]}")
    return value


def string(holder: dict[str, Any], name: str, at: str) -> str:
    """A string; empty when absent or null."""
    return typed(holder, name, at, str) or ""


def needed(holder: dict[str, Any], name: str, at: str, kind: type[T]) -> T:
    """A field that must be there. Raises Fault FIELD_MISSING, INVALID_FIELD."""
    value = typed(holder, name, at, kind)
    if value is None:
        raise Fault(Condition.FIELD_MISSING, param=place(at, name))
    return value


def named(holder: dict[str, Any], name: str, at: str) -> str:
    """A string that must be there and not be empty."""
    value = needed(holder, name, at, str)
    if not value:
        raise wrong_value(place(at, name), "expected a string that is not empty")
    return value


def word(holder: dict[str, Any], name: str, at: str, known: tuple[str, ...]) -> str:
    """One of the known words; empty when absent or null."""
    value = string(holder, name, at)
    if value and value not in known:
        raise wrong_value(place(at, name), "expected one of " + ", ".join(known))
    return value


def integer(holder: dict[str, Any], name: str, lowest: int, highest: int) -> int | None:
    """A whole number of the body, within bounds."""
    value = typed(holder, name, "", int)
    if value is not None and not lowest <= value <= highest:
        raise wrong_value(name, f"expected an integer from {lowest} to {highest}")
    return value


def number(holder: dict[str, Any], name: str, lowest: float, highest: float) -> float | None:
    """A number of the body, within bounds."""
    value = holder.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, "expected a number")
    if not lowest <= value <= highest:
        raise wrong_value(name, f"expected a number from {lowest:g} to {highest:g}")
    return value


def objects(holder: dict[str, Any], name: str, at: str) -> list[tuple[dict[str, Any], str]]:
    """The objects of an array, each with its path; empty when absent or null."""
    path = place(at, name)
    found = []
    for index, entry in enumerate(typed(holder, name, at, list) or ()):
        if not isinstance(entry, dict):
            raise wrong_type(f"{path}[{index}]", "expected an object")
        found.append((entry, f"{path}[{index}]"))
    return found
