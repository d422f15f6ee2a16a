import pytest

from tests.vendor.family import Refusal
from tests.vendor.fields import Fields, decode_object, read_schema


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"a":NaN}', b'{"a":1,"a":2}', b'{"a":"\xff"}', b"[" * 100_000],
)
def test_a_body_that_is_no_strict_json_object(body):
    with pytest.raises(Refusal):
        decode_object(body)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda f: f.number("x", 0, 2), 2.1),
        (lambda f: f.number("x", 0, 2), True),
        (lambda f: f.number("x", 0, 2), "1"),
        (lambda f: f.integer("x", 1), 0),
        (lambda f: f.integer("x", 1), 1.5),
        (lambda f: f.boolean("x"), "true"),
        (lambda f: f.string("x"), 1),
        (lambda f: f.text("x"), ""),
        (lambda f: f.choice("x", "a", "b"), "c"),
        (lambda f: f.array("x"), {}),
        (lambda f: f.entries("x"), ["a"]),
        (lambda f: f.entries("x", filled=True), []),
        (lambda f: f.object("x"), []),
        (lambda f: read_schema(f, "x"), {"type": "string"}),
    ],
)
def test_a_wrong_value_names_its_place(read, value):
    with pytest.raises(Refusal) as caught:
        read(Fields({"x": value}, ("top", 0)))
    assert caught.value.path[:3] == ("top", 0, "x")


def test_absent_and_null_read_as_none():
    fields = Fields({"a": None})
    assert fields.number("a", 0, 1) is None
    assert fields.string("b") is None
    assert fields.boolean("b") is False
    assert fields.entries("b") == []
    with pytest.raises(Refusal) as caught:
        fields.required("a")
    assert caught.value.kind == "missing"
