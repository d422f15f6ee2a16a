"""Checks of request fields that all families share."""

import pytest

from adapters.family.reading import count, flag, model_name, optional_object, required_array
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level

WRONG = Condition.INVALID_FIELD


def read(function, body, name):
    spans = top_level(body)
    return function(spans) if function is model_name else function(spans, name)


@pytest.mark.parametrize(
    ("function", "name", "values"),
    [
        (model_name, "model", {b'"a\\u002fb"': "a/b"}),
        (required_array, "a", {b" []": None}),
        (flag, "a", {b"true": True, b"false": False, b"null": False, None: False}),
        (count, "a", {b"0": 0, b"2147483648": 2**31, b"null": None, None: None}),
        (optional_object, "a", {b'{"b":1}': {"b": 1}, b"null": {}, None: {}}),
    ],
)
def test_values(function, name, values):
    for text, value in values.items():
        body = b"{}" if text is None else b'{"%b":%b}' % (name.encode(), text)
        result = read(function, body, name)
        assert function is required_array or (result == value and type(result) is type(value))


@pytest.mark.parametrize(
    ("function", "name", "condition", "bodies"),
    [
        (model_name, "model", Condition.MODEL_MISSING, [b"{}", b'{"model":null}', b'{"model":""}']),
        (model_name, "model", WRONG, [b"1", b"[]", b"false", b"1e999"]),
        (required_array, "a", Condition.FIELD_MISSING, [b"{}"]),
        (required_array, "a", WRONG, [b"null", b'"[]"', b"{}"]),
        (flag, "a", WRONG, [b"1", b'"true"', b"0"]),
        (
            count,
            "a",
            WRONG,
            [b"true", b"1.0", b'"5"', b"-1", b"2147483649", b"1e999", b"1e3", b"[]", b"9" * 40],
        ),
        (optional_object, "a", WRONG, [b"[]", b"true", b'""', b"0"]),
    ],
)
def test_refusals(function, name, condition, bodies):
    for body in bodies:
        if condition is WRONG:
            body = b'{"%b":%b}' % (name.encode(), body)
        with pytest.raises(Fault) as caught:
            read(function, body, name)
        assert (caught.value.condition, caught.value.param) == (condition, name)
