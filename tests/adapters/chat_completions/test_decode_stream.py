"""Streams of upstreams of this family, as many vendors write them."""

import json

import pytest

from adapters.ir.answer import Cited, Closed, Delta, Finished, Logprob, Opened, Sealed
from adapters.ir.parts import Citation
from tests.adapters.chat_completions.calls import WIRE, chunk, read


def call(index=None, call_id=None, name=None, arguments=None, **more):
    function = {"name": name, "arguments": arguments}
    said = {"index": index, "id": call_id, "function": function, **more}
    return {key: value for key, value in said.items() if value is not None}


def calls(*deltas, finish="tool_calls"):
    """The events of a stream with these deltas of tool calls, each in a chunk of its own."""
    return read(*(chunk(tool_calls=[delta]) for delta in deltas), chunk(finish=finish))


def said_by(name):
    frames = (WIRE / name).read_text().split("\n\n")
    return read(*(json.loads(one[6:]) for one in frames if one.startswith("data: {")))


def test_text():
    pieces = ("Tea is ready: ", "three cups, ", "one pot — enjoy.")
    text = [Delta(0, piece) for piece in pieces]
    assert said_by("text.sse") == [Opened(0, "text"), *text, Closed(0), Finished("stop")]


def test_thoughts_end_where_the_text_begins():
    found = said_by("reasoning.sse")
    assert found[0] == Opened(0, "reasoning")
    assert found[3:5] == [Closed(0), Opened(1, "text")]
    assert found[-2:] == [Closed(1), Finished("stop")]


def test_a_chunk_that_changes_the_slot_and_brings_its_text():
    assert read(chunk(reasoning="Hm.", content="Tea.")) == [
        Opened(0, "reasoning"),
        Delta(0, "Hm."),
        Closed(0),
        Opened(1, "text"),
        Delta(1, "Tea."),
        Closed(1),
        Finished("stop"),
    ]


def test_refusal():
    found = said_by("refusal.sse")
    assert found[0] == Opened(0, "refusal") and len(found) == 5


def test_parallel_calls_one_after_the_other():
    assert said_by("tools_parallel.sse") == [
        Opened(0, "call", id="call_tide1", name="get_tide"),
        Delta(0, '{"port"'),
        Delta(0, ':"Brest"}'),
        Closed(0),
        Opened(1, "call", id="call_wind2", name="get_wind"),
        Delta(1, '{"port":"Brest",'),
        Delta(1, '"unit":"knots"}'),
        Closed(1),
        Finished("tools"),
    ]


def test_parallel_calls_that_are_mixed():
    assert calls(
        call(0, "a", "f", ""),
        call(1, "b", "g", ""),
        call(0, arguments="{}"),
        call(1, arguments="{}"),
    ) == [
        Opened(0, "call", id="a", name="f"),
        Opened(1, "call", id="b", name="g"),
        Delta(0, "{}"),
        Delta(1, "{}"),
        Closed(0),
        Closed(1),
        Finished("tools"),
    ]


@pytest.mark.parametrize(
    "deltas",
    [
        # no index at all
        (call(None, "a", "f", "{}"), call(None, "b", "g", '{"x'), call(None, arguments='":1}')),
        # the same index for all calls
        (call(0, "a", "f", "{}"), call(0, "b", "g", '{"x'), call(0, arguments='":1}')),
        # counted from 1, with the id again and again
        (call(1, "a", "f", "{}"), call(2, "b", "g", '{"x'), call(2, "b", arguments='":1}')),
        # the name after the id and a piece of the arguments
        (
            call(0, "a", "f", "{}"),
            call(1, "b", arguments='{"x'),
            call(1, name="g", arguments='":1}'),
        ),
    ],
)
def test_calls_are_told_apart(deltas):
    found = calls(*deltas)
    opened = [event for event in found if isinstance(event, Opened)]
    assert [(one.id, one.name) for one in opened] == [("a", "f"), ("b", "g")]
    said = "".join(one.text for one in found if isinstance(one, Delta) and one.slot == 1)
    assert said == '{"x":1}'


def test_brackets_in_strings_do_not_end_a_call():
    found = calls(
        call(0, "a", "f", '{"x":"}\\"'), call(1, "b", "g", "{}"), call(0, arguments='\\\\}"}')
    )
    assert found.index(Closed(0)) > found.index(Delta(0, '\\\\}"}'))
    found = calls(call(0, "a", "f", '{"x":"\\'), call(0, arguments='"}"}'), call(1, "b", "g", "{}"))
    assert found.index(Closed(0)) < found.index(Opened(1, "call", id="b", name="g"))


def test_text_ends_where_a_call_begins_and_whole_calls_where_text_does():
    found = read(
        chunk(content="Look."),
        chunk(tool_calls=[call(0, "a", "f", "{}")]),
        chunk(content="Done."),
        chunk(finish="tool_calls"),
    )
    assert [type(event) for event in found] == [
        *(Opened, Delta, Closed, Opened, Delta, Closed, Opened, Delta, Closed, Finished),
    ]


def test_arguments_as_an_object_and_functions_of_old():
    (_, delta, *_) = calls(call(0, "a", "f", {"x": 1}))
    assert delta == Delta(0, '{"x":1}')
    old = [chunk(function_call={"name": "f", "arguments": ""})]
    old += [chunk(function_call={"arguments": "{}"}), chunk(finish="function_call")]
    assert read(*old) == [
        Opened(0, "call", name="f"), Delta(0, "{}"), Closed(0), Finished("tools"),
    ]  # fmt: skip


def test_free_text_calls():
    custom = [{"index": 0, "id": "c", "custom": {"name": "patch", "input": ""}}]
    more = [{"index": 0, "custom": {"input": "+a}"}}]
    assert read(chunk(tool_calls=custom), chunk(tool_calls=more))[:2] == [
        Opened(0, "call", id="c", name="patch", custom=True),
        Delta(0, "+a}"),
    ]


def test_a_signature_of_google_is_a_thought_before_its_call():
    signed = call(0, "a", "f", "{}", extra_content={"google": {"thought_signature": "c2ln"}})
    assert calls(signed)[:4] == [
        Opened(0, "reasoning"),
        Sealed(0, "c2ln"),
        Closed(0),
        Opened(1, "call", id="a", name="f"),
    ]


def test_citations_and_log_probabilities():
    said = [{"type": "url_citation", "url_citation": {"url": "https://a"}}]
    probable = {"content": [{"token": "Tea", "logprob": -0.5}]}
    first = {"choices": [{"delta": {"content": "Tea"}, "logprobs": probable}]}
    assert read(first, chunk(annotations=said), chunk(finish="stop")) == [
        Opened(0, "text"),
        Delta(0, "Tea", (Logprob("Tea", -0.5),)),
        Cited(0, Citation("https://a")),
        Closed(0),
        Finished("stop"),
    ]


def test_several_choices():
    found = read(
        chunk(0, content="a"), chunk(1, content="b"), chunk(0, "length"), chunk(1, content="c")
    )
    assert found == [
        Opened(0, "text"), Delta(0, "a"),
        Opened(1, "text", choice=1), Delta(1, "b"),
        Closed(0), Finished("length", 0),
        Delta(1, "c"), Closed(1), Finished("stop", 1),
    ]  # fmt: skip


def test_what_comes_after_the_finish_is_ignored():
    assert read(chunk(finish="stop"), chunk(content="more"), chunk(finish="length")) == [
        Finished("stop")
    ]


def test_a_whole_message_in_place_of_a_delta():
    said = {"choices": [{"message": {"content": "Tea."}, "finish_reason": "stop"}]}
    assert read(said) == [Opened(0, "text"), Delta(0, "Tea."), Closed(0), Finished("stop")]


def test_what_says_nothing():
    empty = [
        {},
        {"choices": None},
        {"choices": [1]},
        {"choices": []},
        {"choices": [{"delta": None}]},
    ]
    assert read(*empty, chunk(content="", tool_calls=None)) == [Finished("stop")]
    assert read() == []


def test_a_call_that_is_repeated_when_it_is_whole_is_not_made_twice():
    found = calls(call(0, "a", "f", "{}"), call(1, "b", "g", "{}"), call(0, "a", "f", "{}"))
    assert [event.id for event in found if isinstance(event, Opened)] == ["a", "b"]
    assert found.count(Delta(0, "{}")) == 1


def test_citations_without_a_text_and_calls_without_end_are_left_out():
    said = [{"type": "url_citation", "url_citation": {"url": "https://a"}}]
    assert read(chunk(annotations=said)) == [Finished("stop")]
    many = [call(index, f"c{index}", "f", "{}") for index in range(1100)]
    found = read(chunk(tool_calls=many))
    assert sum(isinstance(event, Opened) for event in found) == 1024
