"""Checks of the few request fields that are read, the same in every family.

Each raises MODEL_MISSING, INVALID_FIELD or FIELD_MISSING with the field's name; a family's
``fault.py`` words them. What is not read here is the vendor's to judge: unknown fields pass.
"""

from typing import Any

from adapters.family import Operation, Peek, Vendor
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.json.jsonio import Spans, dumps, replace

MAX_COUNT = 2**31  # of tokens or choices that a client may ask for


def model_name(spans: Spans, target: str | None = None) -> str:
    """The model's name, which the body has: MODEL_MISSING when missing, null or empty,
    INVALID_FIELD when not a string."""
    model = spans.value("model")
    if model is None or model == "":
        raise Fault(Condition.MODEL_MISSING)
    if not isinstance(model, str):
        raise wrong_type("model", "expected a string")
    return model


def rename_model(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """The body with the upstream's name of the model; the same object when it is the same name."""
    model = spans.get("model")
    if model is None or read.model == upstream_model:
        return spans.body
    return replace(spans.body, {model: dumps(upstream_model)})


def required_array(spans: Spans, name: str) -> None:
    """FIELD_MISSING when the field is absent, INVALID_FIELD when it is no array. Its elements are
    not looked at."""
    span = spans.get(name)
    if span is None:
        raise Fault(Condition.FIELD_MISSING, param=name)
    if spans.body[span.start] != ord("["):
        raise wrong_type(name, "expected an array")


def flag(spans: Spans, name: str) -> bool:
    """A bool that may be null or absent (false)."""
    value = spans.value(name)
    if value is not None and not isinstance(value, bool):
        raise wrong_type(name, "expected a boolean")
    return bool(value)


def count(spans: Spans, name: str) -> int | None:
    """A whole number from 0 to MAX_COUNT that may be null or absent (None)."""
    value = spans.value(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, "expected an integer")
    if not 0 <= value <= MAX_COUNT:
        raise wrong_value(name, f"expected an integer from 0 to {MAX_COUNT}")
    return value


def optional_object(spans: Spans, name: str) -> dict[str, Any]:
    """An object that may be null or absent (empty)."""
    value = spans.value(name)
    if value is not None and not isinstance(value, dict):
        raise wrong_type(name, "expected an object")
    return value or {}


def path(operation: Operation, upstream_model: str, target: str | None) -> str:
    """Where the upstream takes a call of a family whose paths name nothing."""
    return operation.endpoint
