"""Answers of upstreams of this family, whole and streamed, as many vendors write them."""

import json

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Logprob, Opened
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from tests.adapters.builders import fault_of, slot
from tests.adapters.chat_completions.calls import WIRE, chunk, custom_call, function_call, read

CODECS = CODECS_BY_FAMILY["chat_completions"]

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
        (
            {
                "content": [
                    {
                        "type": "thinking",
                        "thinking": [{"type": "text", "text": "H"}, {"text": "m."}],
                    },
                    {"type": "text", "text": "a"},
                ]
            },
            (Reasoning("Hm."), Text("a")),
        ),
        ({"reasoning": "Hm.", "reasoning_content": "Hm."}, (Reasoning("Hm."),)),
        ({"tool_calls": [OBJECT, {"id": 5}, 7]}, (ToolCall("", "f", '{"x":1}'),)),
        ({"function_call": {"name": "f", "arguments": "{}"}}, (ToolCall("", "f", "{}"),)),
        ({"content": 5, "tool_calls": {}, "refusal": [], "annotations": 3}, ()),
        (
            {"tool_calls": [custom_call("c", "patch", "+a")]},
            (ToolCall("c", "patch", "+a", custom=True),),
        ),
        # a Google signature becomes a thought before its call
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
    """Return the chunks of a stream with these deltas of tool calls, one in each."""
    return [*(chunk(tool_calls=[delta]) for delta in deltas), chunk(finish=finish)]


STOP, TOOLS = Finished("stop"), Finished("tools")
A, B = call(0, "a", "f", "{}"), call(1, "b", "g", "{}")
SLOT_A = slot(0, "call", "{}", id="a", name="f")
OPENED_A, OPENED_B = Opened(0, "call", id="a", name="f"), Opened(1, "call", id="b", name="g")
ANNOTATIONS = [{"type": "url_citation", "url_citation": {"url": "https://a"}}]
PROBABLE = {"content": [{"token": "Tea", "logprob": -0.5}]}
PROBABLE_TEXT = {"choices": [{"delta": {"content": "Tea"}, "logprobs": PROBABLE}]}
PATCH = [{"index": 0, **custom_call("c", "patch", "")}]
MORE_PATCH = [{"index": 0, "custom": {"input": "+a}"}}]
OLD_CALL = {"function_call": {"name": "f", "arguments": ""}}
NOTHING = [{"choices": choices} for choices in (None, [1], [], [{"delta": None}])]


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        (
            [chunk(reasoning="Hm.", content="Tea.")],
            [*slot(0, "reasoning", "Hm."), *slot(1, "text", "Tea."), STOP],
        ),
        (
            calls(
                *(call(0, "a", "f", ""), call(1, "b", "g", "")),
                *(call(0, arguments="{}"), call(1, arguments="{}")),
            ),
            [OPENED_A, OPENED_B, Delta(0, "{}"), Delta(1, "{}"), Closed(0), Closed(1), TOOLS],
        ),
        (
            [chunk(content="Look."), chunk(tool_calls=[A]), chunk(content="Done."), *calls()],
            [
                *slot(0, "text", "Look."),
                *slot(1, "call", "{}", id="a", name="f"),
                *slot(2, "text", "Done."),
                TOOLS,
            ],
        ),
        (
            calls(call(0, "a", "f", {"x": 1})),
            [*slot(0, "call", '{"x":1}', id="a", name="f"), TOOLS],
        ),
        (
            [chunk(**OLD_CALL), chunk(function_call={"arguments": "{}"}), *calls()],
            [*slot(0, "call", "{}", name="f"), TOOLS],
        ),
        (
            [chunk(tool_calls=PATCH), chunk(tool_calls=MORE_PATCH)],
            [*slot(0, "call", "+a}", id="c", name="patch", custom=True), STOP],
        ),
        (
            calls(call(0, "a", "f", "{}", **SIGNED)),
            [*slot(0, "reasoning", seal="c2ln"), *slot(1, "call", "{}", id="a", name="f"), TOOLS],
        ),
        (
            [PROBABLE_TEXT, chunk(annotations=ANNOTATIONS), chunk(finish="stop")],
            [
                *(Opened(0, "text"), Delta(0, "Tea", (Logprob("Tea", -0.5),))),
                *(Cited(0, Citation("https://a")), Closed(0), STOP),
            ],
        ),
        ([chunk(annotations=ANNOTATIONS)], [STOP]),
        (
            [
                chunk(0, content="a"),
                chunk(1, content="b"),
                chunk(0, "length"),
                chunk(1, content="c"),
            ],
            [
                *(Opened(0, "text"), Delta(0, "a"), Opened(1, "text", choice=1), Delta(1, "b")),
                *(Closed(0), Finished("length", 0), Delta(1, "c"), Closed(1), Finished("stop", 1)),
            ],
        ),
        ([chunk(finish="stop"), chunk(content="more"), chunk(finish="length")], [STOP]),
        (
            [{"choices": [{"message": {"content": "Tea."}, "finish_reason": "stop"}]}],
            [*slot(0, "text", "Tea."), STOP],
        ),
        ([{}, *NOTHING, chunk(content="", tool_calls=None)], [STOP]),
        ([], []),
        (calls(A, B, A), [*SLOT_A, *slot(1, "call", "{}", id="b", name="g"), TOOLS]),
        (
            calls(call(0, "a", "f", '{"x":"\\'), call(0, arguments='"}"}'), B),
            [
                *slot(0, "call", '{"x":"\\', '"}"}', id="a", name="f"),
                *slot(1, "call", "{}", id="b", name="g"),
                TOOLS,
            ],
        ),
        (
            calls(call(0, "a", "f", '{"x":"}\\"'), B, call(0, arguments='\\\\"}')),
            [
                *(OPENED_A, Delta(0, '{"x":"}\\"'), OPENED_B, Delta(1, "{}")),
                *(Delta(0, '\\\\"}'), Closed(0), Closed(1), TOOLS),
            ],
        ),
    ],
    ids=[
        *("a_chunk_that_changes_the_slot", "mixed_calls", "text_and_calls", "an_object"),
        *("a_function_of_old", "free_text", "a_signature_of_google", "citations_and_logprobs"),
        *("citations_without_a_text", "several_choices", "behind_the_finish", "a_message"),
        *("nothing_said", "nothing", "a_call_that_is_repeated", "a_bracket_in_a_string"),
        "brackets_in_strings_of_an_open_call",
    ],
)
def test_events(chunks, events):
    assert read(*chunks) == events


@pytest.mark.parametrize(
    "deltas",
    [
        # no index at all
        (call(None, "a", "f", "{}"), call(None, "b", "g", '{"x'), call(None, arguments='":1}')),
        # the same index for all calls
        (call(0, "a", "f", "{}"), call(0, "b", "g", '{"x'), call(0, arguments='":1}')),
        # counted from 1, with the id repeated
        (call(1, "a", "f", "{}"), call(2, "b", "g", '{"x'), call(2, "b", arguments='":1}')),
        # the name after the id and a part of the arguments
        (
            call(0, "a", "f", "{}"),
            call(1, "b", arguments='{"x'),
            call(1, name="g", arguments='":1}'),
        ),
    ],
)
def test_calls_are_told_apart(deltas):
    found = read(*calls(*deltas))
    opened = [event for event in found if isinstance(event, Opened)]
    assert [(each.id, each.name) for each in opened] == [("a", "f"), ("b", "g")]
    text = "".join(each.text for each in found if isinstance(each, Delta) and each.slot == 1)
    assert text == '{"x":1}'


def test_calls_without_end_are_left_out():
    many = [call(index, f"c{index}", "f", "{}") for index in range(1100)]
    found = read(chunk(tool_calls=many))
    assert sum(isinstance(event, Opened) for event in found) == 1024
