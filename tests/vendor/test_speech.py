import json

import pytest

from demo.family import ModelRequest, Tool
from demo.speech import count_tokens, dummy, prompt_tokens
from tests.vendor.directives import Script
from tests.vendor.speech import compose

TIDE = Tool("get_tide", {"properties": {"port": {"type": "string"}, "hours": {"type": "integer"}}})
WIND = Tool("get_wind", {"properties": {"port": {"type": "string"}}})


def ask(**facts):
    return ModelRequest(**{"model": "m", "prompt": "Hello", "input_tokens": 10, **facts})


def test_the_pieces_are_the_text():
    text = "A first  line\nand a second one, with averyveryverylongword—indeed inside.\n\n"
    said = compose(ask(), Script(text=text))
    assert "".join(said.pieces) == text
    assert len(said.pieces) > 2
    assert said.counts.output == count_tokens(text)


def test_chunks_and_bytes():
    assert compose(ask(), Script(chunks=3)).pieces == ("0 ", "1 ", "2 ")
    assert compose(ask(), Script(chunks=2, bytes=5)).pieces == ("0 xxx", "1 xxx")
    assert compose(ask(), Script(text="abcdefg", chunks=2)).pieces == ("abcd", "efg")
    assert compose(ask(), Script(text="aéäz", bytes=3)).pieces == ("aé", "äz")


def test_the_bound_ends_the_text():
    said = compose(ask(limit_tokens=2), Script(text="abcdefghij"))
    assert ("".join(said.pieces), said.finish, said.counts.output) == ("abcdefgh", "length", 2)


def test_the_bound_counts_thoughts_first():
    said = compose(ask(limit_tokens=3, thinking=True), Script())
    assert (said.pieces, said.finish, said.counts.output) == ((), "length", 3)
    assert said.counts.reasoning == 3


def test_a_bound_of_zero_says_nothing():
    said = compose(ask(limit_tokens=0), Script())
    assert (said.pieces, said.finish, said.counts.output) == ((), "length", 0)


def test_the_earliest_stop_sequence_ends_the_text():
    said = compose(ask(stops=("four", "two")), Script(text="one two three four"))
    assert ("".join(said.pieces), said.finish) == ("one ", "stop_sequence")
    assert said.stop_sequence == "two"


def test_tools_that_are_mentioned_are_called_with_conforming_arguments():
    said = compose(ask(prompt="use get_tide and get_wind", tools=(TIDE, WIND)), Script())
    assert said.finish == "tools"
    assert [call.name for call in said.calls] == ["get_tide", "get_wind"]
    assert json.loads(said.calls[0].arguments) == {"port": "demo", "hours": 7}
    assert len({call.id for call in said.calls}) == 2


@pytest.mark.parametrize(
    ("facts", "script", "names"),
    [
        ({}, Script(), []),
        ({}, Script(tools=True), ["get_tide", "get_wind"]),
        ({"parallel": False}, Script(tools=True), ["get_tide"]),
        ({"tool_mode": "any"}, Script(), ["get_tide"]),
        ({"tool_mode": "none"}, Script(tools=True), []),
        ({"fresh": False}, Script(tools=True), []),
    ],
)
def test_when_tools_are_called(facts, script, names):
    said = compose(ask(tools=(TIDE, WIND), **facts), script)
    assert [call.name for call in said.calls] == names
    assert bool(said.pieces) is not bool(names)


def test_a_call_over_the_bound_is_not_made():
    said = compose(ask(tools=(TIDE,), tool_mode="any", limit_tokens=1), Script())
    assert (said.calls, said.finish, said.counts.output) == ((), "length", 1)


def test_structured_answers():
    schema = {
        "type": "object",
        "$defs": {"size": {"enum": ["small", "large"]}},
        "properties": {
            "name": {"type": "string", "minLength": 6},
            "size": {"$ref": "#/$defs/size"},
            "count": {"type": "integer", "minimum": 3},
            "least": {"type": "integer", "maximum": 2},
            "price": {"type": "number"},
            "open": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "note": {"type": ["string", "null"]},
            "either": {"anyOf": [{"const": 4}, {"type": "null"}]},
        },
    }
    assert json.loads("".join(compose(ask(schema=schema), Script()).pieces)) == {
        "name": "demooo",
        "size": "small",
        "count": 3,
        "least": 2,
        "price": 1.5,
        "open": True,
        "tags": ["demo", "demo"],
        "note": "demo",
        "either": 4,
    }
    assert json.loads("".join(compose(ask(schema={}), Script()).pieces)) == {"answer": "demo"}


def test_a_schema_that_holds_itself_ends():
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}, "all": {"type": "array"}}}
    schema["properties"]["all"]["items"] = {"$ref": "#"}
    assert isinstance(dummy(schema), dict)


def test_usage_words():
    assert compose(ask(), Script(usage="zero")).counts.output == 0
    assert compose(ask(), Script(usage="absurd")).counts.input == 10**15


def test_heavy_answers_have_their_size_whatever_the_bound():
    said = compose(ask(limit_tokens=1), Script(flood=2))
    assert sum(map(len, said.pieces)) >= 2 * 1024 * 1024


def test_prompt_tokens_grow_with_words_and_count_media_flat():
    small = prompt_tokens([{"role": "user", "content": "word"}])
    assert prompt_tokens([{"role": "user", "content": "word " * 100}]) > small + 100
    image = [{"image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}]
    assert prompt_tokens(image) < 200
