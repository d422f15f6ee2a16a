"""Whole answers of messages upstreams in the hub's words."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from adapters.messages import CODECS
from adapters.messages.parts import sealed_data, sealed_thought
from tests.adapters.messages.calls import WIRE


def choice(**fields):
    return at_once(CODECS.upstream.decode_answer(json.dumps({"content": [], **fields}).encode()))[0]


def test_the_samples():
    def sample(name):
        return at_once(CODECS.upstream.decode_answer((WIRE / f"{name}.json").read_bytes()))

    said = "Tea is ready: three cups, one pot — enjoy."
    assert sample("text") == (Choice((Text(said),)),)
    thought = "The harbour has two gauges. I should ask both."
    signature = "b3BhcXVlIHNpZ25hdHVyZSBvZiB0aGUgdGhpbmtpbmcgYmxvY2s="
    opaque = sealed_thought(thought, signature)
    assert sample("thinking") == (Choice((Reasoning(thought, opaque=opaque), Text(said))),)
    calls = (
        ToolCall("toolu_tide1", "get_tide", '{"port":"Brest"}'),
        ToolCall("toolu_wind2", "get_wind", '{"port":"Brest","unit":"knots"}'),
    )
    assert sample("tools_parallel") == (Choice(calls, "tools"),)
    assert sample("max_tokens")[0].finish == "length"
    why = "The request asks to sink a boat."
    assert sample("refusal") == (Choice((Refusal(why),), "refusal", detail=why),)


def test_blocks():
    cited = {"type": "web_search_result_location", "url": "u", "title": "T", "cited_text": "q"}
    found = choice(
        content=[
            {"type": "redacted_thinking", "data": "zz"},
            {"type": "thinking", "thinking": "unsigned"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "content": []},
            {"type": "text", "text": "a", "citations": [cited]},
            {"type": "text", "text": ""},
            {"type": "tool_use", "id": "t", "name": "n", "input": {"ü": [1.5, None]}},
        ]
    )
    assert found.parts == (
        Reasoning("", opaque=sealed_data("zz")),
        Reasoning("unsigned"),
        Text("a", citations=(Citation("u", "T", quoted="q"),)),
        ToolCall("t", "n", '{"ü":[1.5,null]}'),
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("tool_use", "tools"),
        ("pause_turn", "pause"),
        ("compaction", "pause"),
        ("model_context_window_exceeded", "context_full"),
        ("something_new", "stop"),
        (None, "stop"),
        ([], "stop"),
    ],
)
def test_why_it_ended(reason, finish):
    assert choice(stop_reason=reason).finish == finish


def test_stop_sequences_and_what_is_said_of_refusals():
    found = choice(stop_reason="stop_sequence", stop_sequence="END")
    assert (found.finish, found.stop_sequence) == ("stop_sequence", "END")
    assert choice(stop_sequence=7).stop_sequence is None
    details = {"type": "refusal", "category": "cyber", "explanation": None}
    assert choice(stop_reason="refusal", stop_details=details).detail == "cyber"
    assert choice(stop_reason="refusal", stop_details="x").parts == (
        Refusal("The model declined to answer."),
    )


def test_odd_blocks_are_read_as_far_as_they_go():
    odd = [
        7,
        {},
        {"type": []},
        {"type": "text", "text": 7},
        {"type": "thinking"},
        {"type": "redacted_thinking", "data": 7},
        {"type": "tool_use", "id": 7, "name": None, "input": "x"},
    ]
    assert choice(content=odd).parts == (ToolCall("", "", "{}"),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b"{}",
        b'{"content": {}}',
        b'{"content": [{"type": "tool_use", "input": {"a": NaN}}]}',
    ],
)
def test_what_is_no_answer(body):
    with pytest.raises(Fault) as caught:
        at_once(CODECS.upstream.decode_answer(body))
    assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_a_count():
    assert CODECS.upstream.decode_count((WIRE / "count_tokens.json").read_bytes()) > 0
