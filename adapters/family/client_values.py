"""Reading the values of a client's request: each of the right type, or INVALID_FIELD with its path.

Paths are written as clients write them in code: ``messages[2].content[0].text``. Imported by the
decoders of this folder.
"""

from typing import Any

from adapters.faults import Condition, Fault, wrong_type, wrong_value

MAX_NUMBER = 2**53  # what JSON readers agree on


def text(value: object, path: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise missing_or(value, path, "expected a string")
    return value


def optional_text(value: object, path: str) -> str:
    """A string that may be null or absent (empty)."""
    return "" if value is None else text(value, path)


def entry(value: object, path: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise missing_or(value, path, "expected an object")
    return value


def optional_entry(value: object, path: str) -> dict[str, Any]:
    """An object that may be null or absent (empty)."""
    return {} if value is None else entry(value, path)


def entries(value: object, path: str) -> list[dict[str, Any]]:
    """An array of objects; null or absent: none."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong_type(path, "expected an array")
    return [entry(each, f"{path}[{at}]") for at, each in enumerate(value)]


def optional_flag(value: object, path: str) -> bool | None:
    """A bool that may be null or absent."""
    if value is not None and not isinstance(value, bool):
        raise wrong_type(path, "expected a boolean")
    return value


def optional_number(value: object, path: str) -> float | None:
    """A number from 0 to MAX_NUMBER that may be null or absent."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(path, "expected a number")
    if not 0 <= value <= MAX_NUMBER:
        raise wrong_value(path, f"expected a number from 0 to {MAX_NUMBER}")
    return value


def optional_count(value: object, path: str) -> int | None:
    """A whole number from 0 to MAX_NUMBER that may be null or absent."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise wrong_type(path, "expected an integer")
    optional_number(value, path)
    return value


def texts(value: object, path: str) -> tuple[str, ...]:
    """An array of strings; null or absent: none."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_type(path, "expected an array")
    return tuple(text(each, f"{path}[{at}]") for at, each in enumerate(value))


def missing_or(value: object, path: str, expected: str) -> Fault:
    """What is wrong with a value that must be there: that it is not, or its type."""
    if value is None:
        return Fault(Condition.FIELD_MISSING, param=path)
    return wrong_type(path, expected)
