"""Arguments of tool calls as objects."""

from adapters.messages.parts import arguments_of


def test_arguments_are_an_object_whatever_they_were():
    assert arguments_of('{"a":1}') == {"a": 1}
    assert arguments_of(" ") == {}
    assert arguments_of("null") == {"value": None}
    assert arguments_of("{oops") == {"_raw": "{oops"}
    assert arguments_of("\ud800") == {"_raw": "?"}
