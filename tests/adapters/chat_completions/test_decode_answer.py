"""Whole answers of upstreams of this family, as many vendors write them."""

import json

import pytest

from adapters.chat_completions import CODECS
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Logprob
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from tests.adapters.chat_completions.calls import WIRE


def decode(body):
    return at_once(CODECS.upstream.decode_answer(body))


TEA = "Tea is ready: three cups, one pot — enjoy."


def parts(**message):
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    (choice,) = decode(json.dumps(body).encode())
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
        (
            "tools_parallel",
            Choice(
                (
                    ToolCall("call_tide1", "get_tide", '{"port":"Brest"}'),
                    ToolCall("call_wind2", "get_wind", '{"port":"Brest","unit":"knots"}'),
                ),
                "tools",
            ),
        ),
    ],
)
def test_samples(name, choice):
    assert decode((WIRE / f"{name}.json").read_bytes()) == (choice,)


def test_what_vendors_write_otherwise():
    assert parts(content=[{"type": "text", "text": "a"}, "b", {"x": 1}]) == (Text("ab"),)
    assert parts(reasoning="Hm.", reasoning_content=None) == (Reasoning("Hm."),)
    assert parts(reasoning="Hm.", reasoning_content="Hm.") == (Reasoning("Hm."),)
    function = {"name": "f", "arguments": {"x": 1}}
    assert parts(tool_calls=[{"function": function}, {"id": 5}, 7]) == (
        ToolCall("", "f", '{"x":1}'),
    )
    assert parts(function_call={"name": "f", "arguments": "{}"}) == (ToolCall("", "f", "{}"),)
    assert parts(content=5, tool_calls={}, refusal=[], annotations=3) == ()


def test_free_text_calls():
    call = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "+a"}}
    assert parts(tool_calls=[call]) == (ToolCall("c", "patch", "+a", custom=True),)


def test_a_signature_of_google_is_a_thought_before_its_call():
    call = {
        "id": "c",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2ln"}},
    }
    assert parts(tool_calls=[call]) == (Reasoning("", opaque="c2ln"), ToolCall("c", "f", "{}"))


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
    choice = {"message": {"content": "ac"}, "logprobs": {"content": content}}
    (found,) = decode(json.dumps({"choices": [choice]}).encode())
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
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": reason}]}
    assert decode(json.dumps(body).encode())[0].finish == finish


def test_choices_come_in_their_order():
    choices = [{"index": index, "message": {"content": str(index)}} for index in (1, 0)]
    found = decode(json.dumps({"choices": choices}).encode())
    assert [choice.parts[0].text for choice in found] == ["0", "1"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[1]}'])
def test_what_is_no_answer(body):
    with pytest.raises(Fault) as caught:
        decode(body)
    assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_arguments_that_cannot_be_written_are_none():
    body = b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":%b}}]}}]}'
    (choice,) = decode(body % b'{"x":1e999}')
    assert choice.parts == (ToolCall("", "f", ""),)
