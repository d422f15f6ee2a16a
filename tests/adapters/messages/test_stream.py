"""Streams of the messages family: what vendors really send, and what is edited."""

import json

import pytest

from adapters.ir.usage import Usage
from adapters.messages import FAMILY
from adapters.messages.stream import MessagesTap


def event(kind: str, **fields) -> bytes:
    data = json.dumps({"type": kind, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def start(**fields) -> bytes:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg_1", "model": "up", "content": [], "usage": usage, **fields}
    return event("message_start", message=message)


def delta(**fields) -> bytes:
    return event("content_block_delta", index=0, delta=fields)


def end(reason: str | None = "end_turn", **usage) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}, usage=usage)


STOP = event("message_stop")


def tap_after(*events: bytes, public="up") -> tuple[MessagesTap, list[bytes | None]]:
    tap = FAMILY.upstream.stream_tap(public, "up", True, FAMILY.client.operations["generate"])
    return tap, [tap.feed(one) for one in events]


def test_later_numbers_overwrite_and_absent_ones_stay():
    tap, _ = tap_after(start())
    assert tap.started and tap.upstream_id == "msg_1"
    tap.feed(end(None, output_tokens=20, cache_read_input_tokens=None))
    assert tap.usage == Usage(10, 20, 3) and not tap.finished
    details = {"thinking_tokens": 22}
    tap.feed(end(output_tokens=40, input_tokens=12, output_tokens_details=details))
    assert tap.usage == Usage(12, 18, 3, 0, 0, 22) and tap.finished and not tap.whole
    assert tap.reported == {
        "input_tokens": 12,
        "cache_read_input_tokens": 3,
        "output_tokens": 40,
        "output_tokens_details": details,
    }
    tap.feed(STOP)
    assert tap.ended and tap.whole


def test_before_the_totals_only_the_start_is_known():
    tap, _ = tap_after(start(), delta(type="text_delta", text="x" * 160))
    assert tap.output_units == 40 and tap.usage == Usage(10, 1, 3)
    tap.feed(end(output_tokens=0))
    assert tap.usage == Usage(10, 0, 3)


def test_no_usage_at_all():
    tap, _ = tap_after(start(usage=None), delta(text="x"), event("message_delta"), STOP)
    assert tap.usage is None and tap.reported is None and tap.whole and not tap.finished


@pytest.mark.parametrize(
    ("fields", "units"),
    [
        ({"type": "text_delta", "text": "x" * 16}, 4),
        ({"type": "thinking_delta", "thinking": "x" * 16}, 4),
        ({"type": "input_json_delta", "partial_json": "x" * 16}, 4),
        ({"type": "signature_delta", "signature": "x" * 16}, 0),
        ({"type": "text_delta", "text": ""}, 0),
        ({"type": "text_delta", "text": "\ud83d" + "x" * 15}, 6),
        ({"type": "text_delta", "text": 7}, 0),
    ],
)
def test_output_is_counted(fields, units):
    one = delta(**fields)
    for form in (one, one.replace(b"\n", b"\r\n"), one.split(b"\n", 1)[1]):
        tap, sent = tap_after(start(), form)
        assert tap.output_units == units and sent[1] is form


@pytest.mark.parametrize(
    "odd",
    [
        event("ping"),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_stop", index=0),
        event("content_block_delta"),
        event("invented", error=None),
        delta(x=1).replace(b'"type": "content_block_delta"', b'"type": "other"'),
        b": comment\n\n",
        b"\n",
        b"event: ping\n\n",
        b"data:\n\n",
    ],
)
def test_oddities_pass_as_they_are(odd):
    for events in ([start(), odd], [odd, start()]):
        tap, sent = tap_after(*events)
        assert sent == events and tap.fault is None and not tap.ended


def test_events_without_type_pass_after_the_first():
    odd = b'data: {"x":1}\n\n'
    tap, sent = tap_after(start(), odd)
    assert sent[1] == odd and tap.fault is None
    tap, sent = tap_after(odd)
    assert sent == [None] and tap.fault.condition == "E30"


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (event("error", error={"type": "overloaded_error", "message": "m"}), "E27"),
        (event("error", error={"type": "rate_limit_error", "message": "m"}), "E25"),
        (b'data: {"type":"error","error":{"type":"api_error"}}\n\n', "E26"),
        (b'event: error\ndata: {"message":"m"}\n\n', "E30"),
        (b'data: {"error":{"code":500,"message":"m"}}\n\n', "E26"),
        (b"event: content_block_delta\ndata: {nonsense}\n\n", "E30"),
        (b"data: []\n\n", "E30"),
        (b"data: [DONE]\n\n", "E30"),
    ],
)
def test_errors(bad, condition):
    for events in ([bad], [start(), bad]):
        tap, sent = tap_after(*events)
        assert sent[-1] is None and tap.fault.condition == condition and tap.ended
        assert not tap.whole and tap.accepted == (len(events) == 2)


def test_an_end_without_a_start_is_no_answer():
    tap, sent = tap_after(STOP)
    assert sent == [None] and tap.fault.condition == "E30"


@pytest.mark.parametrize("message", [None, [], {}, {"id": 7, "usage": [], "model": None}])
def test_an_odd_start_passes(message):
    one = event("message_start", message=message)
    for public in ("up", "a/b"):
        tap, sent = tap_after(one, public=public)
        assert sent == [one] and tap.started and tap.upstream_id is None and tap.usage is None


def test_the_model_is_renamed_in_the_start_only():
    events = [
        start(metadata={"model": "up"}),
        event("ping", model="up"),
        delta(type="text_delta", text='"model": "up"'),
        event("message_delta", delta={}, message={"model": "up"}),
    ]
    _, sent = tap_after(*events, public="a/b")
    assert sent[0] == events[0].replace(b'"model": "up"', b'"model": "a/b"', 1)
    assert sent[1:] == events[1:]


def test_renaming_over_several_data_lines():
    multi = (
        b'event: message_start\r\ndata: {"type":"message_start",\r\n'
        b'data: "message":{"id":"x",\r\ndata:"model":"up"}}\r\n\r\n'
    )
    assert tap_after(multi, public="a/b")[1] == [multi.replace(b'"up"', b'"a/b"')]


def test_a_doubled_model_is_not_let_through():
    doubled = start().replace(b'"model": "up"', b'"model": "up", "model": "up"')
    tap, sent = tap_after(doubled, public="a/b")
    assert sent == [None] and tap.fault.condition == "E30"
