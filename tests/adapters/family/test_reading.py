"""Checks of request fields that all families share."""

import pytest

from adapters.family.reading import count, flag, model_name, optional_object, required_array
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level


def check(function, body, name=None):
    spans = top_level(body)
    return function(spans) if name is None else function(spans, name)


def refused(function, body, name=None):
    with pytest.raises(Fault) as caught:
        check(function, body, name)
    return caught.value.condition, caught.value.param


@pytest.mark.parametrize("body", [b"{}", b'{"model":null}', b'{"model":""}'])
def test_model_missing(body):
    assert refused(model_name, body) == (Condition.MODEL_MISSING, "model")


@pytest.mark.parametrize(
    "body", [b'{"model":1}', b'{"model":[]}', b'{"model":false}', b'{"model":1e999}']
)
def test_model_of_the_wrong_type(body):
    assert refused(model_name, body) == (Condition.INVALID_FIELD, "model")


def test_model():
    assert check(model_name, b'{"model":"a\\u002fb"}') == "a/b"


def test_array():
    assert refused(required_array, b"{}", "a") == (Condition.FIELD_MISSING, "a")
    for bad in (b'{"a":null}', b'{"a":"[]"}', b'{"a":{}}'):
        assert refused(required_array, bad, "a") == (Condition.INVALID_FIELD, "a")
    check(required_array, b'{"a": []}', "a")


def test_flag():
    assert check(flag, b'{"a":true}', "a") is True
    for body in (b'{"a":false}', b'{"a":null}', b"{}"):
        assert check(flag, body, "a") is False
    for bad in (b'{"a":1}', b'{"a":"true"}', b'{"a":0}'):
        assert refused(flag, bad, "a") == (Condition.INVALID_FIELD, "a")


def test_count():
    assert check(count, b'{"a":0}', "a") == 0
    assert check(count, b'{"a":2147483648}', "a") == 2**31
    assert check(count, b'{"a":null}', "a") is None
    assert check(count, b"{}", "a") is None
    for bad in (b"true", b"1.0", b'"5"', b"-1", b"2147483649", b"1e999", b"1e3", b"[]", b"9" * 40):
        assert refused(count, b'{"a":' + bad + b"}", "a") == (Condition.INVALID_FIELD, "a")


def test_object():
    assert check(optional_object, b'{"a":{"b":1}}', "a") == {"b": 1}
    assert check(optional_object, b'{"a":null}', "a") == {}
    assert check(optional_object, b"{}", "a") == {}
    for bad in (b'{"a":[]}', b'{"a":true}', b'{"a":""}', b'{"a":0}'):
        assert refused(optional_object, bad, "a") == (Condition.INVALID_FIELD, "a")
