"""Schemas, between JSON Schema and the family's own dialect of it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.faults import Condition, Fault
from adapters.generate_content.decode_request import to_json_schema
from adapters.generate_content.encode_request import SchemaBudget
from adapters.generate_content.encode_request import to_subset as to_subset_of

STRING, INTEGER, NUMBER = {"type": "STRING"}, {"type": "INTEGER"}, {"type": "NUMBER"}
TEXT, DECIMAL, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 5}
UNUSED = {"_": {"type": "STRING", "description": "Not used."}}


def to_subset(schema, path):
    return to_subset_of(schema, path, SchemaBudget())


def subset(**schema):
    return to_subset(schema, "tools[0]")


def of_property(schema, **root):
    return subset(type="object", properties={"p": schema}, **root)["properties"]["p"]


# ---- from the dialect ----------------------------------------------------------------------------


def test_types_become_lower_case_and_nullable_a_type_at_all_depths():
    dialect = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "format": "enum", "enum": ["A", "b"]},
            "list": {"type": "ARRAY", "items": {"type": "INTEGER", "nullable": False}},
            "any": {"any_of": [{"type": "STRING"}, NUMBER], "nullable": True},
        },
        "required": ["type"],
        "propertyOrdering": ["list", "type"],
        "title": None,
    }
    assert to_json_schema(dialect, "x") == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["A", "b", None]},
            "list": {"type": "array", "items": {"type": "integer"}},
            "any": {"anyOf": [TEXT, DECIMAL, {"type": "null"}]},
        },
        "required": ["type"],
    }


COUNTS = {"type": "STRING", "min_length": "1", "maxLength": 5, "example": "x", "default": None}


@pytest.mark.parametrize(
    ("dialect", "schema"),
    [
        (COUNTS, {**TEXT, "minLength": 1, "maxLength": 5, "examples": ["x"], "default": None}),
        ({"enum": ["a", None], "nullable": True}, {"enum": ["a", None]}),
        ({"type": "TYPE_UNSPECIFIED", "title": "T"}, {"title": "T"}),
    ],
)
def test_fields_of_the_dialect(dialect, schema):
    assert to_json_schema(dialect, "x") == schema


@pytest.mark.parametrize(
    ("dialect", "path"),
    [
        (7, "p"),
        ({"type": "OBJECT", "properties": {"a": []}}, "p.properties.a"),
        ({"anyOf": [{}, "no"]}, "p.anyOf[1]"),
    ],
)
def test_what_is_no_schema_is_refused(dialect, path):
    with pytest.raises(Fault) as caught:
        to_json_schema(dialect, "p")
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, path)


def nested(depth, key):
    schema = TEXT
    for _ in range(depth):
        schema = {"type": "array", key: schema} if key == "items" else of_objects(schema)
    return schema


def of_objects(schema):
    return {"type": "object", "properties": {"p": schema}}


@pytest.mark.parametrize("key", ["items", "properties"])
@pytest.mark.parametrize("convert", [to_json_schema, to_subset])
def test_a_schema_may_be_deep_but_not_endless(convert, key):
    convert(nested(40, key), "x")
    with pytest.raises(Fault) as caught:
        convert(nested(300, key), "x")
    assert caught.value.param.startswith("x")


# ---- into the dialect ----------------------------------------------------------------------------


def test_what_the_dialect_knows_is_kept():
    schema = {
        "type": "object",
        "title": "T",
        "description": "D",
        "properties": {
            "s": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "a+"},
            "n": {"type": "number", "minimum": 0, "maximum": 1.5, "format": "double"},
            "i": {"type": "integer", "format": "int32", "default": 3},
            "b": {"type": "boolean"},
            "l": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2},
            "t": {"type": "string", "format": "date-time"},
            "e": {"type": "string", "enum": ["a", "b"]},
        },
        "required": ["s", "gone"],
        "propertyOrdering": ["n", "s"],
        "minProperties": 1,
        "maxProperties": 7,
    }
    assert to_subset(schema, "x") == {
        "type": "OBJECT",
        "title": "T",
        "description": "D",
        "minProperties": 1,
        "maxProperties": 7,
        "properties": {
            "s": {"type": "STRING", "minLength": 1, "maxLength": 9, "pattern": "a+"},
            "n": {"type": "NUMBER", "minimum": 0, "maximum": 1.5, "format": "double"},
            "i": {"type": "INTEGER", "format": "int32", "default": 3},
            "b": {"type": "BOOLEAN"},
            "l": {"type": "ARRAY", "items": STRING, "minItems": 1, "maxItems": 2},
            "t": {"type": "STRING", "format": "date-time"},
            "e": {"type": "STRING", "enum": ["a", "b"]},
        },
        "required": ["s"],
        "propertyOrdering": ["n", "s"],
    }


@pytest.mark.parametrize(
    "keyword",
    [
        *("$schema", "$id", "$comment", "additionalProperties", "patternProperties"),
        *("uniqueItems", "multipleOf", "not", "if", "then", "else", "contentEncoding"),
        *("contentMediaType", "dependentRequired", "propertyNames", "readOnly", "examples"),
    ],
)
def test_a_keyword_that_the_dialect_does_not_know_is_dropped(keyword):
    assert of_property({"type": "string", keyword: {"a": 1}}) == STRING


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"]}, {**STRING, "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [STRING, INTEGER]}),
        (
            {"type": ["string", "integer", "null"], "description": "D"},
            {
                "anyOf": [{**STRING, "description": "D"}, {**INTEGER, "description": "D"}],
                "description": "D",
                "nullable": True,
            },
        ),
        ({"anyOf": [TEXT, {"type": "null"}]}, {**STRING, "nullable": True}),
        ({"oneOf": [TEXT, {"const": None}]}, {**STRING, "nullable": True}),
        ({"oneOf": [TEXT, {"type": "boolean"}]}, {"anyOf": [STRING, {"type": "BOOLEAN"}]}),
        ({"const": "x"}, {**STRING, "enum": ["x"]}),
        ({"const": 7}, {"type": "INTEGER", "description": "One of: 7."}),
        ({"enum": ["a", None]}, {**STRING, "enum": ["a"], "nullable": True}),
        (
            {"type": "integer", "enum": [1, 2], "description": "How many."},
            {"type": "INTEGER", "description": "How many. One of: 1, 2."},
        ),
        ({"enum": [True]}, {"type": "BOOLEAN", "description": "One of: True."}),
        ({"enum": [0.5, 1]}, {"type": "NUMBER", "description": "One of: 0.5, 1."}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "INTEGER", "minimum": 1}),
        ({"type": "integer", "exclusiveMaximum": 9}, {"type": "INTEGER", "maximum": 8}),
        ({"type": "number", "exclusiveMinimum": 0.5}, {"type": "NUMBER", "minimum": 0.5}),
        ({**WHOLE, "exclusiveMinimum": 0}, {"type": "INTEGER", "minimum": 5}),
        ({**WHOLE, "exclusiveMinimum": True}, {"type": "INTEGER", "minimum": 6}),
        ({"type": "string", "format": "uri"}, STRING),
        ({"type": "integer", "format": "double"}, INTEGER),
        ({"type": "array"}, {"type": "ARRAY", "items": STRING}),
        ({"items": TEXT}, {"type": "ARRAY", "items": STRING}),
        (
            {"type": "array", "prefixItems": [TEXT, DECIMAL]},
            {"type": "ARRAY", "items": {"anyOf": [STRING, NUMBER]}},
        ),
        (
            {"type": "array", "items": {"description": "D"}},
            {"type": "ARRAY", "items": {**STRING, "description": "D"}},
        ),
        ({"type": "object"}, {"type": "OBJECT", "properties": UNUSED}),
        ({"properties": {"a": TEXT}}, {"type": "OBJECT", "properties": {"a": STRING}}),
        ({"type": "string", "example": "e"}, {**STRING, "example": "e"}),
        ({}, STRING),
        (True, STRING),
        ({"description": "D"}, {**STRING, "description": "D"}),
    ],
)
def test_each_rule_of_the_dialect(schema, expected):
    assert of_property(schema) == expected


def test_references_are_resolved_wherever_they_lead():
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/port", "description": "Where."},
            "b": {"$ref": "#/definitions/n~1m"},
            "c": {"$ref": "#/$defs/gone"},
            "d": {"$ref": "https://example.com/schema"},
        },
        "$defs": {"port": {"$ref": "#/$defs/name"}, "name": TEXT},
        "definitions": {"n/m": DECIMAL},
    }
    assert to_subset(schema, "x")["properties"] == {
        "a": {"type": "STRING", "description": "Where."},
        "b": NUMBER,
        "c": STRING,
        "d": STRING,
    }


def test_a_schema_that_refers_to_itself_ends():
    tree = {"type": "object", "properties": {"name": TEXT, "child": {"$ref": "#"}}}
    child = to_subset(tree, "x")["properties"]["child"]
    assert child["properties"]["name"] == STRING
    assert child["properties"]["child"] == STRING


MULTIPLYING = {
    f"d{n}": {"type": "object", "properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in "ab"}}
    for n in range(30)
}


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#/$defs/d0", "$defs": MULTIPLYING}, {"type": "object", "allOf": [{}] * 30_000}],
    ids=["references_that_multiply", "an_all_of_without_end"],
)
def test_schemas_without_end_are_refused(schema):
    with pytest.raises(Fault) as caught:
        to_subset(schema, "tools[3]")
    assert caught.value.param == "tools[3]"


def test_schemas_of_one_request_share_a_bound():
    nodes = SchemaBudget()
    wide = {"type": "object", "properties": {str(n): {} for n in range(9_000)}}
    for _ in range(2):
        to_subset_of(wide, "tools[0]", nodes)
    with pytest.raises(Fault) as caught:
        to_subset_of(wide, "tools[2]", nodes)
    assert caught.value.param == "tools[2]"


def test_all_of_is_merged():
    schema = {
        "allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"$ref": "#/$defs/b"}],
        "properties": {"c": {"type": "boolean"}},
        "required": ["c"],
        "$defs": {"b": {"allOf": [{"type": "object", "properties": {"b": DECIMAL}}]}},
    }
    found = to_subset(schema, "x")
    assert found["type"] == "OBJECT"
    assert set(found["properties"]) == {"a", "b", "c"}
    assert set(found["required"]) == {"a", "c"}


def test_all_of_that_leads_back_to_itself_ends():
    twice = [{"$ref": "#"}, {"$ref": "#/$defs/a"}, True]
    schema = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/a"}},
        "allOf": twice,
        "$defs": {"a": {"allOf": twice, "properties": {"q": {"allOf": twice}}}},
    }
    found = to_subset(schema, "x")
    check_strictly(found)
    assert set(found["properties"]) == {"p", "q"}


def test_property_names_that_are_keywords_are_only_names():
    found = subset(type="object", properties={"type": TEXT, "$ref": {"enum": ["a"]}})
    assert found["properties"] == {"type": STRING, "$ref": {"type": "STRING", "enum": ["a"]}}


KNOWN = {
    *("type", "format", "title", "description", "nullable", "enum", "items", "properties"),
    *("required", "propertyOrdering", "anyOf", "minItems", "maxItems", "minLength", "maxLength"),
    *("minProperties", "maxProperties", "minimum", "maximum", "pattern", "default", "example"),
}


def check_strictly(schema):
    """Check a schema for everything that the vendor refuses."""
    assert set(schema) <= KNOWN
    kind = schema.get("type")
    assert kind in (None, "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT")
    assert ("items" in schema) == (kind == "ARRAY")
    assert bool(schema.get("properties")) == (kind == "OBJECT")
    assert "enum" not in schema or kind == "STRING"
    assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
    if "items" in schema:
        check_strictly(schema["items"])
    for inner in (*schema.get("properties", {}).values(), *schema.get("anyOf", ())):
        check_strictly(inner)


TYPES = ["object", "string", "null", "array", "integer", "number", "boolean"]
WORDS = st.sampled_from([*TYPES, "a", "#", "#/$defs/a", ""])
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(0, 1) | WORDS
KEYS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"),
        *(
            "$defs",
            "required",
            "minimum",
            "exclusiveMinimum",
            "nullable",
            "prefixItems",
            "format",
            "a",
        ),
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
@example({"type": "string", "format": []})  # not hashable
def test_whatever_a_client_sends_as_a_schema_fits_the_dialect(schema):
    try:
        found = to_subset({"type": "object", "properties": {"p": schema}}, "x")
    except Fault as fault:
        assert fault.condition is Condition.INVALID_FIELD
        return
    check_strictly(found)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_whatever_a_client_sends_in_the_dialect_is_read_or_refused(schema):
    try:
        to_json_schema(schema, "x")
    except Fault as fault:
        assert fault.condition is Condition.INVALID_FIELD
