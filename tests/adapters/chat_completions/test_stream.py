"""Streams of chat completions: what vendors really send, and what is edited."""

import json

import pytest

from adapters.chat_completions import FAMILY
from adapters.chat_completions.stream import ChatTap
from adapters.faults import Condition, Fault
from store.values.usage import Usage

FIRST = b'data: {"id":"c1","model":"up","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
USAGE = {"prompt_tokens": 10, "completion_tokens": 4}


def event(**fields) -> bytes:
    return b"data: " + json.dumps({"model": "up", **fields}).encode() + b"\n\n"


def delta(index=0, finish=None, **fields) -> bytes:
    return event(choices=[{"index": index, "delta": fields, "finish_reason": finish}])


def tap_after(*events: bytes, public="up", drop=False) -> tuple[ChatTap, list[bytes | None]]:
    tap = FAMILY.upstream.stream_tap(public, "up", drop, FAMILY.client.operations["generate"])
    return tap, [tap.feed(one) for one in events]


@pytest.mark.parametrize(
    "usage_event",
    [
        event(choices=[], usage=USAGE),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], usage=USAGE),
        event(choices=[{"index": 0, "delta": {}, "usage": USAGE}]),
        event(choices=[{"index": 0, "delta": {"content": "x"}}], x_groq={"usage": USAGE}),
        event(usage=USAGE),
    ],
)
def test_usage_wherever_it_stands(usage_event):
    tap, sent = tap_after(FIRST, usage_event)
    assert tap.usage == Usage(10, 4) and tap.reported == USAGE
    assert sent == [FIRST, usage_event]


def test_repeated_usage_counts_once_and_the_last_counts():
    grown = {"prompt_tokens": 10, "completion_tokens": 9}
    tap, _ = tap_after(FIRST, event(choices=[], usage=USAGE), event(choices=[], usage=grown))
    assert tap.usage == Usage(10, 9)
    for nothing in (event(choices=[], usage=None), event(choices=[], usage={"x": 1})):
        tap.feed(nothing)
        assert tap.usage == Usage(10, 9) and tap.reported == grown
    tap, _ = tap_after(FIRST, event(choices=[], usage={"prompt_tokens": "many"}))
    assert tap.usage is None and tap.reported == {"prompt_tokens": "many"}
    tap, _ = tap_after(FIRST, event(choices=[], usage={"prompt_tokens": 0, "completion_tokens": 0}))
    assert tap.usage == Usage()


def test_only_the_event_of_usage_alone_is_left_out():
    alone = event(choices=[], usage=USAGE)
    events = [
        event(choices=[]),
        event(choices=[], usage=None),
        delta(content="x"),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], usage=USAGE),
        alone,
        b"data: [DONE]\n\n",
    ]
    tap, sent = tap_after(*events, drop=True)
    assert sent == [None if one is alone else one for one in events]
    assert tap.usage == Usage(10, 4) and tap.ended


@pytest.mark.parametrize(
    "odd",
    [
        delta(content=None),
        event(choices=[{"index": 0, "delta": None}]),
        event(choices=[{"delta": {"content": ""}}]),
        event(choices=[{"index": None, "delta": {}, "finish_reason": ""}]),
        event(choices=[{"index": "0"}, 7, None]),
        event(choices=None),
        event(choices=[]),
        event(choices=[], prompt_filter_results=[]),
        event(error=None, choices=[{"index": 0, "delta": {}}]),
        event(x_groq=7, choices=[]),
        event(),
        b"data:\n\n",
        b"data: \n\n",
        b": comment\n\n",
        b"\n",
        b"event: ping\n\n",
        b"retry: 3\n\n",
    ],
)
def test_oddities_pass_as_they_are(odd):
    for events in ([FIRST, odd], [odd, FIRST]):
        tap, sent = tap_after(*events)
        assert sent == events and tap.fault is None and not tap.finished and not tap.ended


@pytest.mark.parametrize(
    ("fields", "units"),
    [
        ({"content": "x" * 16}, 4),
        ({"content": "茶" * 8}, 6),
        ({"reasoning_content": "x" * 16}, 4),
        ({"content": "x" * 16, "reasoning_content": "x" * 16}, 8),
        ({"reasoning": "x" * 16}, 4),
        ({"refusal": "x" * 16}, 4),
        ({"function_call": {"arguments": "x" * 16}}, 4),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "x" * 16}}]}, 4),
        ({"tool_calls": [{"index": 0, "function": {"name": "f"}}, {"index": 1}]}, 0),
        ({"tool_calls": [{"function": {"arguments": {"a": "xxxxxxxx"}}}]}, 4),
        ({"content": [{"type": "text", "text": "x" * 16}]}, 4),
        ({"content": "\ud83d" + "x" * 15}, 6),
    ],
)
def test_output_is_counted(fields, units):
    for one in (delta(**fields), delta(index=1, **fields), delta(**fields).replace(b"\n", b"\r\n")):
        tap, sent = tap_after(FIRST, one)
        assert tap.output_units == units and sent[1] is one


def test_finish_of_every_choice():
    tap, _ = tap_after(FIRST, delta(content="x"), delta(finish="stop"))
    assert tap.finished and tap.whole and not tap.ended
    tap.feed(event(choices=[{"index": 1, "delta": {}}]))
    assert not tap.finished and not tap.whole
    tap.feed(delta(index=1, finish="length"))
    assert tap.whole
    tap.feed(event(choices=[], usage=USAGE))
    assert tap.whole


@pytest.mark.parametrize(
    "done", [b"data: [DONE]\n\n", b"data:[DONE]\r\n\r\n", b"data: [DONE] \n\n"]
)
def test_done(done):
    tap, sent = tap_after(FIRST, done)
    assert sent[1] == done and tap.ended and tap.whole
    tap, sent = tap_after(done)
    assert sent == [None] and tap.fault.condition == "E30" and not tap.accepted


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (event(error={"message": "m", "type": "server_error"}), "E26"),
        (event(choices=[{"index": 0, "delta": {}}], error={"code": 429, "message": "m"}), "E25"),
        (event(error="m"), "E30"),
        (b'event: error\ndata: {"message":"m","code":503}\n\n', "E27"),
        (b'data: {"error":{"type":"overloaded_error","message":"m"}}\r\n\r\n', "E27"),
        (b"data: {\n\n", "E30"),
        (b"data: 7\n\n", "E30"),
    ],
)
def test_errors(bad, condition):
    for events in ([bad], [FIRST, bad]):
        tap, sent = tap_after(*events)
        assert sent[-1] is None and tap.fault.condition == condition and tap.ended
        assert not tap.whole and tap.accepted == (len(events) == 2)


@pytest.mark.parametrize("shape", [{"detail": "m"}, {"message": "m"}, {"code": 500, "msg": "m"}])
def test_an_error_of_another_shape_is_no_first_event(shape):
    odd = b"data: " + json.dumps(shape).encode() + b"\n\n"
    tap, sent = tap_after(odd)
    assert sent == [None] and tap.fault is not None and not tap.accepted
    tap, sent = tap_after(FIRST, odd)
    assert sent[1] == odd and tap.fault is None


def test_the_first_id_counts():
    for before in (
        event(id=7, choices=[]),
        event(id="", choices=[]),
        event(choices=[]),
        b": c\n\n",
    ):
        tap, _ = tap_after(before, FIRST, event(id="c2", choices=[]), delta(content="x", id="c3"))
        assert tap.upstream_id == "c1"
    assert tap_after(event(id="", choices=[]))[0].upstream_id is None


def renamed(one: bytes, before: bytes = b'"up"') -> bytes:
    return one.replace(before, b'"a/b"', 1)


def test_the_model_is_renamed_in_every_event_that_carries_it():
    events = [
        FIRST,
        FIRST.replace(b"assistant", b"x"),
        delta(content='"model":"up"'),
        delta(content="y"),
        b'data: {"choices":[{"index":0,"delta":{"model":"up"}}],"model": "up-2026"}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"up"}}]}\n\n',
        b'data: {"model":null,"choices":[]}\n\n',
        b"data: [DONE]\n\n",
    ]
    _, sent = tap_after(*events, public="a/b")
    assert sent[:4] == [renamed(one) for one in events[:4]]
    assert sent[4] == renamed(events[4], b'"up-2026"')
    assert sent[5:] == events[5:]


def test_renaming_over_several_data_lines():
    multi = b'\xef\xbb\xbfdata: {"choices":[],\r\n: c\r\ndata:"model":\r\ndata: "up"}\r\n\r\n'
    assert tap_after(multi, public="a/b")[1] == [renamed(multi)]


def test_a_doubled_model_is_not_let_through():
    head = b'data: {"id":"c1","model":"up","choices":[{"index":0,"delta":{"role":"assistant"}}]'
    assert FIRST.startswith(head)
    doubled = head + b',"model":"up"}\n\n'
    tap, sent = tap_after(FIRST, doubled, public="a/b")
    assert sent[1] is None and tap.fault.condition == "E30"
    tap, sent = tap_after(FIRST, doubled)
    assert sent[1] == doubled and tap.fault is None


def test_text_equal_to_the_key_does_not_disturb_renaming():
    tricky = delta(content="model", note={"model": "up"})
    assert tap_after(FIRST, tricky, public="a/b")[1][1] == renamed(tricky)


def test_the_last_event_of_a_failed_stream():
    tap = FAMILY.upstream.stream_tap("m", "m", False, FAMILY.client.operations["generate"])
    assert tap.encode_fault(Fault(Condition.UPSTREAM_FAILED), "r") == (
        b'data: {"error":{"message":"The upstream channel stopped answering.",'
        b'"type":"server_error","param":null,"code":"upstream_error"}}\n\n'
    )
