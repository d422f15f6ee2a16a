"""Answers of upstreams, whole and streamed."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from adapters.messages import CODECS
from adapters.messages.parts import sealed_data, sealed_thought
from tests.adapters.messages.calls import WIRE, events_of


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


def events(*said):
    """What a decoder makes of events, and of the end behind them."""
    decoder = CODECS.upstream.open_decoder()
    found = []
    for each in said:
        found += decoder.read(None, each)
    return found + decoder.end()


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, kind, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index):
    return {"type": "content_block_stop", "index": index}


def test_the_streamed_samples():
    def sample(name):
        return events_of((WIRE / f"{name}.sse").read_bytes())

    pieces = [Delta(0, text) for text in ("Tea is ready: ", "three cups, ", "one pot — enjoy.")]
    assert sample("text") == [Opened(0, "text"), *pieces, Closed(0), Finished("stop")]
    assert sample("tools_parallel") == [
        Opened(0, "call", id="toolu_tide1", name="get_tide"),
        Delta(0, '{"port"'),
        Delta(0, ':"Brest"}'),
        Closed(0),
        Opened(1, "call", id="toolu_wind2", name="get_wind"),
        Delta(1, '{"port":"Brest",'),
        Delta(1, '"unit":"knots"}'),
        Closed(1),
        Finished("tools"),
    ]
    thought, more = "The harbour has two gauges. ", "I should ask both."
    opaque = sealed_thought(thought + more, "b3BhcXVlIHNpZ25hdHVyZSBvZiB0aGUgdGhpbmtpbmcgYmxvY2s=")
    assert sample("thinking")[:5] == [
        Opened(0, "reasoning"),
        Delta(0, thought),
        Delta(0, more),
        Sealed(0, opaque),
        Closed(0),
    ]
    why = "The request asks to sink a boat."
    assert sample("refusal")[-4:] == [
        Opened(0, "refusal"),
        Delta(0, why),
        Closed(0),
        Finished("refusal", detail=why),
    ]


def test_hidden_thoughts_and_those_without_signature():
    assert events(
        start(0, type="redacted_thinking", data="zz"),
        stop(0),
        start(1, type="thinking", thinking="a", signature=""),
        delta(1, "thinking_delta", thinking="b"),
        stop(1),
    ) == [
        Opened(0, "reasoning"),
        Sealed(0, sealed_data("zz")),
        Closed(0),
        Opened(1, "reasoning"),
        Delta(1, "a"),
        Delta(1, "b"),
        Closed(1),
    ]


def test_arguments_that_come_with_the_start_count_if_no_more_come():
    assert events(
        start(0, type="tool_use", id="a", name="n", input={"b": 1}),
        delta(0, "input_json_delta", partial_json=""),
        stop(0),
        start(1, type="tool_use", id="b", name="n", input={"b": 1}),
        delta(1, "input_json_delta", partial_json='{"b":1}'),
        stop(1),
        start(2, type="tool_use", id="c", name="n"),
        stop(2),
    ) == [
        Opened(0, "call", id="a", name="n"),
        Delta(0, '{"b":1}'),
        Closed(0),
        Opened(1, "call", id="b", name="n"),
        Delta(1, '{"b":1}'),
        Closed(1),
        Opened(2, "call", id="c", name="n"),
        Delta(2, "{}"),
        Closed(2),
    ]


def test_sources():
    source = {"type": "web_search_result_location", "url": "u"}
    assert events(
        start(0, type="text", text="a"),
        delta(0, "citations_delta", citation=source),
        delta(0, "citations_delta", citation={"type": "page_location"}),
        stop(0),
    ) == [Opened(0, "text"), Delta(0, "a"), Cited(0, Citation("u")), Closed(0)]


def test_what_the_vendor_runs_itself_is_not_shown():
    assert events(
        start(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":"tea"}'),
        stop(0),
        start(1, type="web_search_tool_result", content=[]),
        stop(1),
        start(2, type="text", text=""),
        delta(2, "text_delta", text="a"),
        stop(2),
    ) == [Opened(0, "text"), Delta(0, "a"), Closed(0)]


def test_blocks_that_are_not_started_or_not_stopped():
    assert events(
        delta(0, "text_delta", text="a"),
        start(0, type="text", text="b"),
        {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "E"}},
    ) == [
        Opened(0, "text"),
        Delta(0, "a"),
        Closed(0),
        Opened(1, "text"),
        Delta(1, "b"),
        Closed(1),
        Finished("stop_sequence", 0, "E"),
    ]
    assert events(start(0, type="text", text="b"))[-1] == Closed(0)


def test_odd_events_say_nothing():
    assert events(
        {},
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_start", "index": [], "content_block": 7},
        {"type": "message_delta", "delta": None},
        {"type": "message_delta", "delta": {"stop_reason": 7}},
        start([], type=["text"]),
        delta({}, ["text_delta"], text="a"),
        delta(0, "text_delta", text=7),
        delta(0, "signature_delta", signature="s"),
        delta(0, "input_json_delta", partial_json="{}"),
        stop(7),
    ) == [Opened(0, "text"), Closed(0)]


def test_thoughts_are_read_each_for_they_are_gathered():
    decoder = CODECS.upstream.open_decoder()
    decoder.read(None, start(0, type="thinking", thinking=""))
    decoder.read(None, start(1, type="text", text=""))
    assert not decoder.may_skip(Delta(0, "a"))
    assert decoder.may_skip(Delta(1, "a"))
