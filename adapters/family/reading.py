"""Typed reading of clients' requests. Errors are Faults with the path of the field.

The first functions read the few fields of the body that the gateway itself needs, by their spans;
the others read decoded objects, for translations. Anything unread is left to the vendor: unknown
fields pass. Absent and null are the same. Paths are written as in client code:
``messages[2].content[0].text``. Imported by the families.
"""

from typing import Any, TypeVar

from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.json.jsonio import Spans

T = TypeVar("T")

MAX_COUNT = 2**31  # of tokens or choices in a request
MAX_NUMBER = 2**53  # largest integer on which JSON readers agree

_KINDS: dict[type, str] = {
    str: "a string", dict: "an object", list: "an array", bool: "a boolean", int: "an integer",
}  # fmt: skip


def model_name(spans: Spans, target: str | None = None) -> str:
    """Return the model's name in the body. Raises Fault MODEL_MISSING if it is absent, null or
    empty, INVALID_FIELD if it is no string."""
    model = spans.value("model")
    if type(model) is str and model:
        return model
    of_kind(model, str, "model")
    raise Fault(Condition.MODEL_MISSING)


def required_array(spans: Spans, name: str) -> None:
    """Raise Fault FIELD_MISSING if the field is absent, INVALID_FIELD if it is no array."""
    span = spans.get(name)
    if span is None:
        raise Fault(Condition.FIELD_MISSING, param=name)
    if spans.body[span.start] != ord("["):
        raise wrong_type(name, "expected an array")


def flag(spans: Spans, name: str) -> bool:
    """Return a bool, false if absent. Raises Fault INVALID_FIELD."""
    if name not in spans.places:  # nearly always; saves a call, as below
        return False
    return bool(of_kind(spans.value(name), bool, name))


def count(spans: Spans, name: str) -> int | None:
    """Return an integer from 0 to MAX_COUNT, None if absent. Raises Fault INVALID_FIELD."""
    if name not in spans.places:
        return None
    value = of_kind(spans.value(name), int, name)
    if value is not None and not 0 <= value <= MAX_COUNT:
        raise wrong_value(name, f"expected an integer from 0 to {MAX_COUNT}")
    return value


def optional_object(spans: Spans, name: str) -> dict[str, Any]:
    """Return an object, empty if absent. Raises Fault INVALID_FIELD."""
    if name not in spans.places:
        return {}
    return of_kind(spans.value(name), dict, name) or {}


def of_kind(value: object, kind: type[T], path: str) -> T | None:
    """Return a value of that type, None for null. Raises Fault INVALID_FIELD."""
    if value is None or type(value) is kind:
        return value
    raise wrong_type(path, f"expected {_KINDS[kind]}")


def field_path(at: str, name: str) -> str:
    """Return the path of a field of the object at ``at``; an empty ``at`` is the body."""
    return f"{at}.{name}" if at else name


def optional(holder: dict[str, Any], name: str, at: str, kind: type[T]) -> T | None:
    """Return a field of that type, None if absent. Raises Fault INVALID_FIELD."""
    value = holder.get(name)
    if value is None or type(value) is kind:
        return value
    raise wrong_type(field_path(at, name), f"expected {_KINDS[kind]}")


def required(holder: dict[str, Any], name: str, at: str, kind: type[T]) -> T:
    """Return a field that must be present. Raises Fault FIELD_MISSING, INVALID_FIELD."""
    value = holder.get(name)
    if type(value) is kind:
        return value
    if value is None:
        raise Fault(Condition.FIELD_MISSING, param=field_path(at, name))
    raise wrong_type(field_path(at, name), f"expected {_KINDS[kind]}")


def string(holder: dict[str, Any], name: str, at: str) -> str:
    """Return a string, empty if absent. Raises Fault INVALID_FIELD."""
    value = holder.get(name)
    return value if type(value) is str else optional(holder, name, at, str) or ""


def nonempty(holder: dict[str, Any], name: str, at: str) -> str:
    """Return a string that is not empty. Raises Fault FIELD_MISSING, INVALID_FIELD."""
    value = required(holder, name, at, str)
    if not value:
        raise wrong_value(field_path(at, name), "expected a string that is not empty")
    return value


def one_of(holder: dict[str, Any], name: str, at: str, words: tuple[str, ...]) -> str:
    """Return one of the words, empty if absent. Raises Fault INVALID_FIELD."""
    value = string(holder, name, at)
    if value and value not in words:
        raise wrong_value(field_path(at, name), "expected one of " + ", ".join(words))
    return value


def integer(
    holder: dict[str, Any], name: str, lowest: int, highest: int, at: str = ""
) -> int | None:
    """Return an integer within bounds, None if absent. Raises Fault INVALID_FIELD."""
    value = optional(holder, name, at, int)
    if value is not None and not lowest <= value <= highest:
        raise wrong_value(field_path(at, name), f"expected an integer from {lowest} to {highest}")
    return value


def number(holder: dict[str, Any], name: str, lowest: int, highest: int) -> float | None:
    """Return a number of the body within bounds, None if absent. Raises Fault INVALID_FIELD."""
    value = holder.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, "expected a number")
    if not lowest <= value <= highest:
        raise wrong_value(name, f"expected a number from {lowest} to {highest}")
    return value


def strings(holder: dict[str, Any], name: str, at: str) -> tuple[str, ...]:
    """Return the strings of an array. Raises Fault INVALID_FIELD, FIELD_MISSING if one is null."""
    path = field_path(at, name)
    values = optional(holder, name, at, list) or ()
    for index, value in enumerate(values):
        if value is None:
            raise Fault(Condition.FIELD_MISSING, param=f"{path}[{index}]")
        if not isinstance(value, str):
            raise wrong_type(f"{path}[{index}]", "expected a string")
    return tuple(values)


def objects(holder: dict[str, Any], name: str, at: str) -> list[tuple[dict[str, Any], str]]:
    """Return the objects of an array, each with its path. Raises Fault INVALID_FIELD."""
    path = field_path(at, name)
    pairs = []
    for index, element in enumerate(optional(holder, name, at, list) or ()):
        if not isinstance(element, dict):
            raise wrong_type(f"{path}[{index}]", "expected an object")
        pairs.append((element, f"{path}[{index}]"))
    return pairs
