"""Answers of upstreams, whole and streamed."""

import json

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Opened
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from adapters.messages.parts import sealed_data, sealed_thought
from tests.adapters.builders import fault_of, slot
from tests.adapters.messages.calls import WIRE, events_read, text

CODECS = CODECS_BY_FAMILY["messages"]

SAID = "Tea is ready: three cups, one pot — enjoy."
THOUGHTS = "The harbour has two gauges. ", "I should ask both."
OPAQUE = sealed_thought("".join(THOUGHTS), "b3BhcXVlIHNpZ25hdHVyZSBvZiB0aGUgdGhpbmtpbmcgYmxvY2s=")
WHY = "The request asks to sink a boat."


def decode(body):
    return at_once(CODECS.upstream.decode_answer(body))


def choice(**fields):
    return decode(json.dumps({"content": [], **fields}).encode())[0]


def test_the_samples():
    def sample(name):
        return decode((WIRE / f"{name}.json").read_bytes())

    assert sample("text") == (Choice((Text(SAID),)),)
    thought = Reasoning("".join(THOUGHTS), opaque=OPAQUE)
    assert sample("thinking") == (Choice((thought, Text(SAID))),)
    calls = (
        ToolCall("toolu_tide1", "get_tide", '{"port":"Brest"}'),
        ToolCall("toolu_wind2", "get_wind", '{"port":"Brest","unit":"knots"}'),
    )
    assert sample("tools_parallel") == (Choice(calls, "tools"),)
    assert sample("max_tokens")[0].finish == "length"
    assert sample("refusal") == (Choice((Refusal(WHY),), "refusal", detail=WHY),)
    assert CODECS.upstream.decode_count((WIRE / "count_tokens.json").read_bytes()) > 0


def test_blocks():
    cited = {"type": "web_search_result_location", "url": "u", "title": "T", "cited_text": "q"}
    found = choice(
        content=[
            {"type": "redacted_thinking", "data": "zz"},
            {"type": "thinking", "thinking": "unsigned"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "content": []},
            text("a", citations=[cited]),
            text(""),
            {"type": "tool_use", "id": "t", "name": "n", "input": {"ü": [1.5, None]}},
            # odd ones are read as far as possible
            *(7, {}, {"type": []}, text(7), {"type": "thinking"}),
            {"type": "redacted_thinking", "data": 7},
            {"type": "tool_use", "id": 7, "name": None, "input": "x"},
        ]
    )
    assert found.parts == (
        Reasoning("", opaque=sealed_data("zz")),
        Reasoning("unsigned"),
        Text("a", citations=(Citation("u", "T", quoted="q"),)),
        ToolCall("t", "n", '{"ü":[1.5,null]}'),
        ToolCall("", "", "{}"),
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
    declined = Refusal("The model declined to answer.")
    assert choice(stop_reason="refusal", stop_details="x").parts == (declined,)


NOT_A_NUMBER = b'{"content": [{"type": "tool_use", "input": {"a": NaN}}]}'


@pytest.mark.parametrize("body", [b"", b"7", b"{}", b'{"content": {}}', NOT_A_NUMBER])
def test_what_is_no_answer(body):
    assert fault_of(decode, body).condition is Condition.UPSTREAM_INVALID


# ---- streams -------------------------------------------------------------------------------------


def events(*data):
    """Return what a decoder makes of these events and of the stream's end."""
    return events_read((None, fields) for fields in data)


def start(index, kind, **block):
    block = {"type": kind, **block}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, kind, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index):
    return {"type": "content_block_stop", "index": index}


def arguments(index, partial_json):
    return delta(index, "input_json_delta", partial_json=partial_json)


def test_hidden_thoughts_and_those_without_signature():
    assert events(
        start(0, "redacted_thinking", data="zz"),
        stop(0),
        start(1, "thinking", thinking="a", signature=""),
        delta(1, "thinking_delta", thinking="b"),
        stop(1),
    ) == [*slot(0, "reasoning", seal=sealed_data("zz")), *slot(1, "reasoning", "a", "b")]


def test_arguments_that_come_with_the_start_count_if_no_more_come():
    assert events(
        start(0, "tool_use", id="a", name="n", input={"b": 1}),
        arguments(0, ""),
        stop(0),
        start(1, "tool_use", id="b", name="n", input={"b": 1}),
        arguments(1, '{"b":1}'),
        stop(1),
        start(2, "tool_use", id="c", name="n"),
        stop(2),
    ) == [
        *slot(0, "call", '{"b":1}', id="a", name="n"),
        *slot(1, "call", '{"b":1}', id="b", name="n"),
        *slot(2, "call", "{}", id="c", name="n"),
    ]


def test_sources():
    source = {"type": "web_search_result_location", "url": "u"}
    assert events(
        start(0, "text", text="a"),
        delta(0, "citations_delta", citation=source),
        delta(0, "citations_delta", citation={"type": "page_location"}),
        stop(0),
    ) == [Opened(0, "text"), Delta(0, "a"), Cited(0, Citation("u")), Closed(0)]


def test_what_the_vendor_runs_itself_is_not_shown():
    assert events(
        start(0, "server_tool_use", id="s", name="web_search", input={}),
        arguments(0, '{"query":"tea"}'),
        stop(0),
        start(1, "web_search_tool_result", content=[]),
        stop(1),
        start(2, "text", text=""),
        delta(2, "text_delta", text="a"),
        stop(2),
    ) == slot(0, "text", "a")


def test_blocks_that_are_not_started_or_not_stopped():
    assert events(
        delta(0, "text_delta", text="a"),
        start(0, "text", text="b"),
        {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "E"}},
    ) == [*slot(0, "text", "a"), *slot(1, "text", "b"), Finished("stop_sequence", 0, "E")]
    assert events(start(0, "text", text="b")) == slot(0, "text", "b")


def test_odd_events_say_nothing():
    assert events(
        {},
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_start", "index": [], "content_block": 7},
        {"type": "message_delta", "delta": None},
        {"type": "message_delta", "delta": {"stop_reason": 7}},
        start([], ["text"]),
        delta({}, ["text_delta"], text="a"),
        delta(0, "text_delta", text=7),
        delta(0, "signature_delta", signature="s"),
        arguments(0, "{}"),
        stop(7),
    ) == slot(0, "text")


def test_thoughts_are_read_each_for_they_are_gathered():
    decoder = CODECS.upstream.open_decoder()
    decoder.read(None, start(0, "thinking", thinking=""))
    decoder.read(None, start(1, "text", text=""))
    assert not decoder.may_skip(Delta(0, "a"))
    assert decoder.may_skip(Delta(1, "a"))
