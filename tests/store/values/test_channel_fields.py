"""Fields of a channel for request edits and for time-outs of its models: the values allowed in
documents."""

import json
import re
from decimal import Decimal

import pytest

from store.values.channel_fields import BodyMap, TimesMap, body_edits


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "must be a table"),
        ({"sett": {}}, 'has no field "sett"; did you mean "set"?'),
        ({"set": []}, "set: must be a table of path = value"),
        ({"remove": "a"}, "remove: must be a list of paths"),
        ({"remove": ["a"] * 65}, "remove: has more than 64 elements"),
        ({"remove": [7]}, "remove: a path must be a text"),
        ({"remove": ["a..b"]}, 'remove: "a..b" must be names with points between them'),
        ({"remove": ["*.a"]}, "the first no *"),
        ({"set": {"": 1}}, 'set: "" must be names'),
        ({"set": {"a": "x" * 16_384}}, '"a" is longer than 16384 characters'),
        ({"set": {"a": Decimal("nan")}}, '"a" must be a value that JSON has'),
        *(
            ({kind: {f"{name}.x": 1}}, f"{name} is set by the gateway")
            for kind in ("set", "default")
            for name in ("model", "stream", "stream_options", "n", "usage")
        ),
        ({"remove": ["stream"]}, "stream is set by the gateway"),
    ],
)
def test_edits_that_are_refused(value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        BodyMap().parse(value)


def test_edits_in_their_order():
    value = {"set": {"a.b": Decimal("0.50"), "c": Decimal(2)}, "remove": ["x", "x"], "default": {}}
    parsed = BodyMap().parse(value)
    assert parsed == {"set": {"a.b": 0.5, "c": 2}, "remove": ["x"]}
    assert BodyMap().parse(BodyMap().plain(parsed)) == parsed
    assert BodyMap().parse(BodyMap().from_text(json.dumps(parsed))) == parsed
    assert BodyMap().from_text(" ") == {}
    assert body_edits({**parsed, "default": {"d": None}}) == (
        ("remove", ("x",), None),
        ("default", ("d",), b"null"),
        ("set", ("a", "b"), b"0.5"),
        ("set", ("c",), b"2"),
    )
    assert body_edits(None) == body_edits({}) == ()


def test_times_of_models():
    times = {"m": {"first_byte_timeout_s": 900, "idle_timeout_s": 60}, "o": {}}
    kind = TimesMap()
    assert kind.parse(times) == times
    assert kind.value_from_text("first_byte_timeout_s=900, idle_timeout_s=60") == times["m"]
    assert kind.from_text("") == {}
    for value, message in (
        ({"m": {"idle": 1}}, 'entry "m" has no field "idle"'),
        ({"m": {"idle_timeout_s": 0}}, 'entry "m" idle_timeout_s: must be between 1 and 86400'),
        ({"..": {}}, 'entry ".."'),
        ("x", "must be a table of models"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            kind.parse(value)
