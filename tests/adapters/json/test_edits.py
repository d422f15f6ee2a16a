"""Edits of a body by paths: the changes, and that every other byte stays."""

import pytest

from adapters.faults import Fault
from adapters.json.edits import edited, without_fields
from adapters.json.jsonio import top_level
from store.values.channel_fields import body_edits

BODY = b'{ "a" : 1,"tools":[{"name":"x","defer":true}, {"name":"y"}],\n"o": {"p":null,"q":{"r":2}}}'
TIGHT = BODY.replace(b"}, {", b"},{")  # an edited array loses its blanks


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"remove": ["none", "a.b", "tools.*.none", "o.q.s", "tools.7.name"]}, BODY),
        ({"remove": ["a"]}, BODY.replace(b' "a" : 1,', b"")),
        ({"remove": ["tools.*.defer"]}, TIGHT.replace(b',"defer":true', b"")),
        ({"remove": ["tools.1"]}, BODY.replace(b', {"name":"y"}', b"")),
        ({"remove": ["o"]}, BODY.replace(b',\n"o": {"p":null,"q":{"r":2}}', b"")),
        ({"remove": ["o.*.r"]}, BODY.replace(b'"r":2', b"")),
        ({"remove": ["a", "tools", "o"]}, b"{}"),
        ({"set": {"a": {"b": "é"}}}, BODY.replace(b"1", b'{"b":"\\u00e9"}')),
        ({"set": {"a.b": 2}}, BODY.replace(b"1", b'{"b":2}')),
        ({"set": {"tools.*.name": "z"}}, TIGHT.replace(b'"x"', b'"z"').replace(b'"y"', b'"z"')),
        ({"set": {"o.p.s": True}}, BODY.replace(b'"p":null', b'"p":{"s":true}')),
        ({"set": {"new.inner": [1]}}, BODY[:-1] + b',"new":{"inner":[1]}}'),
        ({"set": {"new.*.inner": 1, "a.*": 1}}, BODY),
        ({"default": {"a": 5, "o.q.r": 5, "o.q": {}}}, BODY),
        ({"default": {"o.p": 5}}, BODY.replace(b"null", b"5")),
        ({"default": {"o.t": 6}}, BODY.replace(b"}}}", b'},"t":6}}')),
        (
            {"remove": ["a"], "default": {"a": 2, "b": 3}, "set": {"b": 4}},
            BODY.replace(b"1", b"2")[:-1] + b',"b":4}',
        ),
    ],
)  # fmt: skip
def test_what_a_channel_edits(edits, expected):
    assert edited(top_level(BODY), body_edits(edits)) == expected


def test_nothing_to_edit_is_the_same_body():
    spans = top_level(BODY)
    assert edited(spans, body_edits({"remove": ["z"], "default": {"a": 1}})) is spans.body
    assert edited(top_level(b"{}"), body_edits({"set": {"a": 1}})) == b'{"a":1}'


def test_a_key_twice_on_the_way_is_refused():
    spans = top_level(b'{"o":{"a":1,"a":2}}')
    with pytest.raises(Fault):
        edited(spans, body_edits({"remove": ["o.a"]}))
    assert edited(spans, body_edits({"set": {"b": 1}})) == b'{"o":{"a":1,"a":2},"b":1}'


@pytest.mark.parametrize(
    ("body", "path", "expected"),
    [
        (b'{"a":1,"o":{"e":"low"}}', "o.e", b'{"a":1}'),
        (b'{"o":{"e":"low","f":1}}', "o.e", b'{"o":{"f":1}}'),
        (b'{"s":[{"c":{"t":1}},{"c":{"t":1,"u":2}}]}', "s.*.c.t", b'{"s":[{},{"c":{"u":2}}]}'),
        (b'{"s":[1]}', "s.*.c", None),
    ],
)  # fmt: skip
def test_a_refused_field_goes_with_what_is_empty_then(body, path, expected):
    parts = tuple(path.split("."))
    without, removed = without_fields(top_level(body), [parts, ("none",)])
    assert (without, removed) == ((expected, [parts]) if expected else (body, []))
