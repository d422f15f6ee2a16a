"""Answers of upstreams of this family, whole and streamed, as many vendors write them."""

import json

import pytest

from adapters.chat_completions import CODECS
from adapters.faults import Condition
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Logprob, Opened
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from tests.adapters.builders import fault_of, slot
from tests.adapters.chat_completions.calls import (
    WIRE,
    chunk,
    custom_call,
    function_call,
    read,
    read_stream,
)

TEA = "Tea is ready: three cups, one pot — enjoy."
CALLS = (
    ToolCall("call_tide1", "get_tide", '{"port":"Brest"}'),
    ToolCall("call_wind2", "get_wind", '{"port":"Brest","unit":"knots"}'),
)
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}


def decode(body):
    return at_once(CODECS.upstream.decode_answer(body))


def decode_choices(*choices):
    return decode(json.dumps({"choices": choices}).encode())


def parts(**message):
    (choice,) = decode_choices({"message": message, "finish_reason": "stop"})
    return choice.parts


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("text", Choice((Text(TEA),))),
        ("length", Choice((Text("Tea is"),), "length")),
        ("refusal", Choice((Refusal("I will not help with sinking that boat."),))),
        (
            "reasoning",
            Choice((Reasoning("The harbour has two gauges. I should ask both."), Text(TEA))),
        ),
        ("tools_parallel", Choice(CALLS, "tools")),
    ],
)
def test_samples(name, choice):
    assert decode((WIRE / f"{name}.json").read_bytes()) == (choice,)


OBJECT = {"function": {"name": "f", "arguments": {"x": 1}}}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"content": [{"type": "text", "text": "a"}, "b", {"x": 1}]}, (Text("ab"),)),
        ({"reasoning": "Hm.", "reasoning_content": None}, (Reasoning("Hm."),)),
        ({"reasoning": "Hm.", "reasoning_content": "Hm."}, (Reasoning("Hm."),)),
        ({"tool_calls": [OBJECT, {"id": 5}, 7]}, (ToolCall("", "f", '{"x":1}'),)),
        ({"function_call": {"name": "f", "arguments": "{}"}}, (ToolCall("", "f", "{}"),)),
        ({"content": 5, "tool_calls": {}, "refusal": [], "annotations": 3}, ()),
        (
            {"tool_calls": [custom_call("c", "patch", "+a")]},
            (ToolCall("c", "patch", "+a", custom=True),),
        ),
        # a signature of Google is a thought before its call
        (
            {"tool_calls": [function_call("c") | SIGNED]},
            (Reasoning("", opaque="c2ln"), ToolCall("c", "f", "{}")),
        ),
    ],
)
def test_what_vendors_write_otherwise(message, found):
    assert parts(**message) == found


def test_citations():
    said = {"url": "https://a", "title": "A", "start_index": 0, "end_index": 2}
    annotations = [{"type": "url_citation", "url_citation": said}, {"type": "x"}, 5]
    (text,) = parts(content="ab", annotations=annotations)
    assert text.citations == (Citation("https://a", "A", 0, 2),)


def test_log_probabilities():
    content = [
        {"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": -2.5}, {}]},
        {"token": "c", "logprob": float("-inf")},
        {"token": 5},
        "x",
    ]
    (found,) = decode_choices({"message": {"content": "ac"}, "logprobs": {"content": content}})
    assert found.logprobs == (Logprob("a", -1.0, (Logprob("b", -2.5),)), Logprob("c", -9999.0))


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tools"),
        ("function_call", "tools"),
        ("content_filter", "filter"),
        ("error", "error"),
        ("eos", "stop"),
        (None, "stop"),
        ({}, "stop"),
    ],
)
def test_finishes(reason, finish):
    (choice,) = decode_choices({"message": {"content": "x"}, "finish_reason": reason})
    assert choice.finish == finish


def test_choices_come_in_their_order():
    choices = [{"index": index, "message": {"content": str(index)}} for index in (1, 0)]
    assert [choice.parts[0].text for choice in decode_choices(*choices)] == ["0", "1"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[1]}'])
def test_what_is_no_answer(body):
    assert fault_of(decode, body).condition is Condition.UPSTREAM_INVALID


def test_arguments_that_cannot_be_written_are_none():
    body = b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":%b}}]}}]}'
    (choice,) = decode(body % b'{"x":1e999}')
    assert choice.parts == (ToolCall("", "f", ""),)


# ---- streams -------------------------------------------------------------------------------------


def call(index=None, call_id=None, name=None, arguments=None, **more):
    function = {"name": name, "arguments": arguments}
    fields = {"index": index, "id": call_id, "function": function, **more}
    return {key: value for key, value in fields.items() if value is not None}


def calls(*deltas, finish="tool_calls"):
    """Return the events of a stream with these deltas of tool calls, each in its own chunk."""
    return read(*(chunk(tool_calls=[delta]) for delta in deltas), chunk(finish=finish))


STOP, TOOLS = Finished("stop"), Finished("tools")


def test_streamed_samples():
    def sample(name):
        return read_stream((WIRE / f"{name}.sse").read_bytes())

    pieces = ("Tea is ready: ", "three cups, ", "one pot — enjoy.")
    assert sample("text") == [*slot(0, "text", *pieces), STOP]
    thoughts = ("The harbour has two gauges. ", "I should ask both.")
    assert sample("reasoning")[:5] == [*slot(0, "reasoning", *thoughts), Opened(1, "text")]
    assert sample("reasoning")[-2:] == [Closed(1), STOP]
    refusal = sample("refusal")
    assert refusal[0] == Opened(0, "refusal") and len(refusal) == 5
    assert sample("tools_parallel") == [
        *slot(0, "call", '{"port"', ':"Brest"}', id="call_tide1", name="get_tide"),
        *slot(1, "call", '{"port":"Brest",', '"unit":"knots"}', id="call_wind2", name="get_wind"),
        TOOLS,
    ]


def test_a_chunk_that_changes_the_slot_and_brings_its_text():
    events = [*slot(0, "reasoning", "Hm."), *slot(1, "text", "Tea."), STOP]
    assert read(chunk(reasoning="Hm.", content="Tea.")) == events


def test_parallel_calls_that_are_mixed():
    assert calls(
        call(0, "a", "f", ""),
        call(1, "b", "g", ""),
        call(0, arguments="{}"),
        call(1, arguments="{}"),
    ) == [
        Opened(0, "call", id="a", name="f"),
        Opened(1, "call", id="b", name="g"),
        *(Delta(0, "{}"), Delta(1, "{}"), Closed(0), Closed(1), TOOLS),
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
    assert [(each.id, each.name) for each in opened] == [("a", "f"), ("b", "g")]
    text = "".join(each.text for each in found if isinstance(each, Delta) and each.slot == 1)
    assert text == '{"x":1}'


def test_brackets_in_strings_do_not_end_a_call():
    found = calls(
        call(0, "a", "f", '{"x":"}\\"'), call(1, "b", "g", "{}"), call(0, arguments='\\\\}"}')
    )
    assert found.index(Closed(0)) > found.index(Delta(0, '\\\\}"}'))
    found = calls(call(0, "a", "f", '{"x":"\\'), call(0, arguments='"}"}'), call(1, "b", "g", "{}"))
    assert found.index(Closed(0)) < found.index(Opened(1, "call", id="b", name="g"))


def test_text_ends_where_a_call_begins_and_whole_calls_where_text_does():
    chunks = chunk(content="Look."), chunk(tool_calls=[call(0, "a", "f", "{}")])
    assert read(*chunks, chunk(content="Done."), chunk(finish="tool_calls")) == [
        *slot(0, "text", "Look."),
        *slot(1, "call", "{}", id="a", name="f"),
        *slot(2, "text", "Done."),
        TOOLS,
    ]


def test_arguments_as_an_object_and_functions_of_old():
    (_, delta, *_) = calls(call(0, "a", "f", {"x": 1}))
    assert delta == Delta(0, '{"x":1}')
    old = [chunk(function_call={"name": "f", "arguments": ""})]
    old += [chunk(function_call={"arguments": "{}"}), chunk(finish="function_call")]
    assert read(*old) == [*slot(0, "call", "{}", name="f"), TOOLS]


def test_free_text_calls():
    custom = [{"index": 0, **custom_call("c", "patch", "")}]
    more = [{"index": 0, "custom": {"input": "+a}"}}]
    found = read(chunk(tool_calls=custom), chunk(tool_calls=more))
    assert found[:2] == slot(0, "call", "+a}", id="c", name="patch", custom=True)[:2]


def test_a_signature_of_google_is_a_thought_before_its_call():
    found = calls(call(0, "a", "f", "{}", **SIGNED))
    opened = Opened(1, "call", id="a", name="f")
    assert found[:4] == [*slot(0, "reasoning", seal="c2ln"), opened]


ANNOTATIONS = [{"type": "url_citation", "url_citation": {"url": "https://a"}}]


def test_citations_and_log_probabilities():
    probable = {"content": [{"token": "Tea", "logprob": -0.5}]}
    first = {"choices": [{"delta": {"content": "Tea"}, "logprobs": probable}]}
    text = Opened(0, "text"), Delta(0, "Tea", (Logprob("Tea", -0.5),))
    cited = Cited(0, Citation("https://a"))
    found = read(first, chunk(annotations=ANNOTATIONS), chunk(finish="stop"))
    assert found == [*text, cited, Closed(0), STOP]
    assert read(chunk(annotations=ANNOTATIONS)) == [STOP]  # without a text they are left out


def test_several_choices():
    found = read(
        chunk(0, content="a"), chunk(1, content="b"), chunk(0, "length"), chunk(1, content="c")
    )
    assert found == [
        *(Opened(0, "text"), Delta(0, "a"), Opened(1, "text", choice=1), Delta(1, "b")),
        *(Closed(0), Finished("length", 0), Delta(1, "c"), Closed(1), Finished("stop", 1)),
    ]


def test_what_comes_after_the_finish_is_ignored():
    found = read(chunk(finish="stop"), chunk(content="more"), chunk(finish="length"))
    assert found == [STOP]


def test_a_whole_message_in_place_of_a_delta():
    whole = {"choices": [{"message": {"content": "Tea."}, "finish_reason": "stop"}]}
    assert read(whole) == [*slot(0, "text", "Tea."), STOP]


def test_what_says_nothing():
    empty = [None, [1], [], [{"delta": None}]]
    chunks = [{}, *({"choices": choices} for choices in empty)]
    assert read(*chunks, chunk(content="", tool_calls=None)) == [STOP]
    assert read() == []


def test_a_call_that_is_repeated_when_it_is_whole_is_not_made_twice():
    found = calls(call(0, "a", "f", "{}"), call(1, "b", "g", "{}"), call(0, "a", "f", "{}"))
    assert [event.id for event in found if isinstance(event, Opened)] == ["a", "b"]
    assert found.count(Delta(0, "{}")) == 1


def test_calls_without_end_are_left_out():
    many = [call(index, f"c{index}", "f", "{}") for index in range(1100)]
    found = read(chunk(tool_calls=many))
    assert sum(isinstance(event, Opened) for event in found) == 1024
