"""JSON schemas in the dialect of the messages family."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.messages.encode_request import fits_answer, for_answer, for_tool

PORT = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
PIER = {"type": "object", "properties": {"pier": {"type": "string"}}, "required": ["pier"]}
BOTH = {"port": {"type": "string"}, "pier": {"type": "string"}}


def test_the_root_of_a_tool_is_an_object():
    assert for_tool(None) == for_tool({}) == {"type": "object", "properties": {}}
    assert for_tool(PORT) is PORT
    assert for_tool({"properties": {}, "$schema": "x"}) == {
        "type": "object",
        "properties": {},
        "$schema": "x",
    }
    assert for_tool(PORT | {"type": ["object", "null"]}) == PORT
    assert for_tool({"type": "string"}) == {
        "type": "object",
        "properties": {"value": {"type": "string"}},
        "required": ["value"],
    }


def test_alternatives_at_the_root_are_one_object():
    assert for_tool({"anyOf": [PORT, PIER]}) == {"type": "object", "properties": BOTH}
    assert for_tool({"oneOf": [PORT, PORT | {"description": "x"}], "title": "t"}) == {
        "title": "t",
        "type": "object",
        "properties": PORT["properties"],
        "required": ["port"],
    }
    assert for_tool({"allOf": [PORT, PIER, 7], "required": ["port"]}) == {
        "type": "object",
        "properties": BOTH,
        "required": ["port", "pier"],
    }
    for odd in (None, 7, {"a": 1}, "x"):
        assert for_tool({"anyOf": odd, "properties": 7})["properties"] == {}


def test_objects_of_an_answer_are_closed_and_bounds_are_words():
    schema = {
        "type": "object",
        "properties": {
            "cups": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
            "type": {"type": "string", "minLength": 2},
            "rows": {"type": "array", "minItems": 2, "items": {"oneOf": [PORT, True]}},
            "some": {"type": "array", "minItems": 1},
        },
        "$defs": {"port": PORT},
        "required": ["cups"],
    }
    closed = PORT | {"additionalProperties": False}
    assert for_answer(schema) == {
        "type": "object",
        "properties": {
            "cups": {"type": "integer", "description": "How many. minimum: 1; maximum: 9"},
            "type": {"type": "string", "description": "minLength: 2"},
            "rows": {
                "type": "array",
                "items": {"anyOf": [closed, True]},
                "description": "minItems: 2",
            },
            "some": {"type": "array", "minItems": 1},
        },
        "$defs": {"port": closed},
        "required": ["cups"],
        "additionalProperties": False,
    }


def test_a_schema_without_end_ends():
    deep: dict = {"type": "object"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    assert for_answer(deep)["items"]["type"] == "array"


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"by_port": {"patternProperties": {"x": PORT}}}},
        {"type": "array", "items": {"anyOf": [PORT, {"type": "object"}]}},
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {
            "properties": {"a": {"$ref": "#/definitions/a"}},
            "definitions": {
                "a": {"items": {"$ref": "#/definitions/b"}},
                "b": {"items": {"$ref": "#/definitions/a"}},
            },
        },
    ],
)
def test_schemas_that_the_vendor_cannot_hold_an_answer_to(schema):
    assert not fits_answer(schema)


def test_schemas_that_it_can():
    deep: dict = PORT
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    named = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": PORT, "b": True}}
    for schema in (PORT, named, deep, {"type": "string"}):
        assert fits_answer(schema)


KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "oneOf", "allOf", "required", "$defs", "$ref"),
        *("additionalProperties", "description", "minimum", "minItems", "enum", "definitions"),
    ]
)
ODD = st.recursive(
    st.sampled_from([None, True, 7, "object", "#", "#/$defs/a", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYWORDS, ODD, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_schema_is_written(schema):
    assert for_tool(schema)["type"] == "object"
    assert isinstance(fits_answer(schema), bool)
    for_answer(schema)
