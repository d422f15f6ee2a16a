"""Values that conform to the schema of a structured answer or a tool."""

import pytest

from demo.speech import dummy, prompt_tokens

SELF = {"type": "object", "properties": {"next": {"$ref": "#"}, "all": {"type": "array"}}}
SELF["properties"]["all"]["items"] = {"$ref": "#"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "minLength": 6}, "demooo"),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "integer", "maximum": 2}, 2),
        ({"type": "integer"}, 7),
        ({"type": "number"}, 1.5),
        ({"type": "boolean"}, True),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["demo", "demo"]),
        ({"type": ["string", "null"]}, "demo"),
        ({"anyOf": [{"const": 4}, {"type": "null"}]}, 4),
        (
            {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"enum": ["x", "y"]}}},
            {"a": "x"},
        ),
    ],
)
def test_values_of_a_schema(schema, value):
    assert dummy(schema) == value


def test_a_schema_that_holds_itself_ends():
    assert isinstance(dummy(SELF), dict)


def test_media_count_flat():
    image = [{"image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}]
    assert prompt_tokens(image) < 200
