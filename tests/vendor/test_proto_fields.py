"""Proto3 JSON as the generate-content vendor reads it: what is taken, and where it is refused."""

import base64

import pytest

from tests.vendor.family import Refusal
from tests.vendor.proto_fields import ENUMS, MESSAGES, read_message, snake_case, written

REQUEST = "GenerateContentRequest"
SCALARS = ("string", "bool", "int32", "int64", "float", "bytes", "struct", "any")


def refused(message, value):
    with pytest.raises(Refusal) as caught:
        read_message(message, value)
    assert caught.value.kind == "type"
    assert caught.value.status == 400
    return written(caught.value.path), caught.value.message


def test_the_table_names_only_kinds_that_there_are():
    for fields in MESSAGES.values():
        for kind in fields.values():
            bare = kind.removesuffix("*").removeprefix("map ")
            assert bare in SCALARS or bare in MESSAGES or bare in ENUMS


def test_both_spellings_at_every_level():
    camel = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    snake = {"generation_config": {"thinking_config": {"include_thoughts": True}}}
    mixed = {"generationConfig": {"thinking_config": {"includeThoughts": True}}}
    assert read_message(REQUEST, camel) == read_message(REQUEST, snake) == camel
    assert read_message(REQUEST, mixed) == camel


def test_both_spellings_together_are_one_field_twice():
    _, problem = refused("GenerationConfig", {"topP": 1, "top_p": 1})
    assert 'Unknown name "top_p"' in problem and "already set" in problem


@pytest.mark.parametrize(
    ("value", "place", "name"),
    [
        ({"foo": 1}, "", "foo"),
        ({"generationConfig": {"maxTokens": 1}}, "generation_config", "maxTokens"),
        ({"contents": [{"parts": [{"txt": ""}]}]}, "contents[0].parts[0]", "txt"),
        ({"contents": [{"content": "x"}]}, "contents[0]", "content"),
        (
            {"tools": [{"function_declarations": [{"parameters": {"additionalProperties": 0}}]}]},
            "tools[0].function_declarations[0].parameters",
            "additionalProperties",
        ),
        (
            {"generationConfig": {"responseSchema": {"properties": {"a": {"$ref": "#"}}}}},
            "generation_config.response_schema.properties[0].value",
            "$ref",
        ),
    ],
)
def test_unknown_fields(value, place, name):
    where, problem = refused(REQUEST, value)
    assert where == place
    at = f" at '{place}'" if place else ""
    assert problem == (
        f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'
    )


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("temperature", 1, 1.0),
        ("temperature", "0.5", 0.5),
        ("temperature", "1e-1", 0.1),
        ("topK", 64.0, 64),
        ("topK", "64", 64),
        ("seed", -(2**31), -(2**31)),
        ("responseLogprobs", False, False),
        ("responseMimeType", "", ""),
        ("stopSequences", ["a", "b"], ["a", "b"]),
        ("stopSequences", "a", ["a"]),
        ("responseModalities", ["text"], ["TEXT"]),
        ("mediaResolution", "MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_LOW"),
        ("speechConfig", {"any": [1]}, {"any": [1]}),
        ("responseJsonSchema", True, True),
    ],
)
def test_values_that_are_taken(name, value, read):
    found = read_message("GenerationConfig", {name: value})
    assert found == {name: read}
    assert type(found[name]) is type(read)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("temperature", "warm", "TYPE_FLOAT"),
        ("temperature", True, "TYPE_FLOAT"),
        ("temperature", "Infinity", "TYPE_FLOAT"),
        ("temperature", 10**400, "TYPE_FLOAT"),
        ("temperature", float("inf"), "TYPE_FLOAT"),
        ("temperature", {}, "TYPE_FLOAT"),
        ("topK", 1.5, "TYPE_INT32"),
        ("topK", "1.5", "TYPE_INT32"),
        ("topK", 2**31, "TYPE_INT32"),
        ("topK", False, "TYPE_INT32"),
        ("topK", float("inf"), "TYPE_INT32"),
        ("responseLogprobs", "true", "TYPE_BOOL"),
        ("responseLogprobs", 1, "TYPE_BOOL"),
        ("responseMimeType", 5, "TYPE_STRING"),
        ("stopSequences", [None], "TYPE_STRING"),
        ("mediaResolution", "HUGE", "MediaResolution"),
        ("mediaResolution", 9, "MediaResolution"),
        ("speechConfig", "x", "Struct"),
        ("thinkingConfig", "x", "ThinkingConfig"),
    ],
)
def test_values_that_are_not(name, value, kind):
    where, problem = refused("GenerationConfig", {name: value})
    assert where.removesuffix("[0]") == snake_case(name)
    assert problem.startswith(f"Invalid value at '{where}' (")
    assert kind in problem.partition("), ")[0]


def test_a_list_where_there_is_one_value():
    where, problem = refused(REQUEST, {"systemInstruction": [{}]})
    assert where == ""
    assert 'Unknown name "system_instruction"' in problem
    assert "cannot start list" in problem


def test_maps():
    labels = {"a": "b", "aB": "c"}
    assert read_message(REQUEST, {"labels": labels}) == {"labels": labels}
    assert refused(REQUEST, {"labels": {"a": 1}})[0] == "labels[0].value"
    assert refused(REQUEST, {"labels": "a"})[0] == "labels"


def test_one_value_is_a_list_of_one():
    body = {"contents": {"parts": {"text": "hi"}}}
    assert read_message(REQUEST, body) == {"contents": [{"parts": [{"text": "hi"}]}]}


def test_null_is_absent():
    assert read_message(REQUEST, {"contents": None, "tools": []}) == {"tools": []}


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\xfb", b"\xfb\xef\xbe\xff", b"ab"])
def test_base64_of_both_alphabets_padded_or_not(data):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for text in (encode(data).decode(), encode(data).decode().rstrip("=")):
            assert read_message("Blob", {"data": text}) == {"data": data}


@pytest.mark.parametrize("value", ["*", "a", "ab c", "aé", "a=b", 5])
def test_what_is_no_base64(value):
    where, problem = refused("Blob", {"data": value})
    assert where == "data"
    assert "TYPE_BYTES" in problem


def test_a_body_that_is_nested_too_deep():
    schema = {"type": "STRING"}
    for _ in range(5000):
        schema = {"items": schema}
    _, problem = refused("Schema", schema)
    assert "too deep" in problem
    shallow = {"type": "STRING"}
    for _ in range(90):
        shallow = {"items": shallow}
    assert read_message("Schema", shallow) == shallow


def test_long_values_are_shown_cut():
    _, problem = refused("Content", {"parts": "x" * 10_000})
    assert len(problem) < 300
