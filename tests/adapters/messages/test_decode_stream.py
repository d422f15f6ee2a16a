"""Streams of messages upstreams in the hub's events."""

from adapters.ir.answer import Cited, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Citation
from adapters.messages import CODECS
from adapters.messages.parts import sealed_data, sealed_thought
from tests.adapters.messages.calls import WIRE, events_of


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


def test_the_samples():
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
