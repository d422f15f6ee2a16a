"""The path of a streamed answer: a scripted upstream, the real taps, a client."""

import random
from pathlib import Path

import pytest

from adapters.bridge import PREAMBLE_LIMIT_BYTES
from adapters.faults import Condition
from adapters.registry import FAMILIES
from handlers.relay.call import Delivery, Ending
from handlers.relay.pump import STREAM_HEADERS, StreamPump
from handlers.relay.upstream.client import UpstreamError
from tests.handlers.relay.rig import (
    CHAT,
    HELLO,
    MAX_EVENT_BYTES,
    MESSAGES,
    PASSED,
    SILENT_S,
    Client,
    Rig,
    beat,
    text,
)
from tests.support.client import events

RESPONSES = "responses"
WIRE = Path(__file__).parents[2] / "wire"
SAMPLES = [
    (CHAT, "text"), (CHAT, "reasoning"), (CHAT, "tools_parallel"), (CHAT, "refusal"),
    (MESSAGES, "text"), (MESSAGES, "thinking"), (MESSAGES, "tools_parallel"), (MESSAGES, "refusal"),
]  # fmt: skip
FINISHED = (
    b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)
DONE = b"data: [DONE]\n\n"


def sample(family, name):
    return (WIRE / family / f"{name}.sse").read_bytes()


@pytest.mark.parametrize(("family", "name"), SAMPLES)
@pytest.mark.parametrize("cut", ["event by event", "byte by byte", "whole", "at random"])
async def test_a_stream_passes_byte_for_byte_at_any_cut(family, name, cut):
    draw = random.Random(f"{family} {name}")
    rig, whole = Rig(family), sample(family, name)
    pieces, at = events(whole) if cut == "event by event" else [], 0
    while not pieces or sum(map(len, pieces)) < len(whole):
        size = {"byte by byte": 1, "whole": len(whole)}.get(cut) or draw.choice((1, 7, 90, 2000))
        pieces.append(whole[at : at + size])
        at += size
    for piece in pieces:
        before = len(rig.client.body)
        rig.exchange.data(piece)
        sent = rig.client.body
        assert not sent or sent.endswith(b"\n\n")  # whole events only
        # In the same turn, except for what is held until the acceptance and at the end.
        if cut == "event by event" and rig.pump.accepted and not rig.ended.done():
            assert sent[before:].endswith(piece)
    assert rig.client.body + rig.end.tail == whole
    assert (rig.end.outcome, rig.end.fault) == ("ok", None)
    head = [(200, PASSED + STREAM_HEADERS)]
    # One chunk may contain everything after the acceptance: then the answer ends before its head.
    assert rig.client.heads == head or (not rig.client.heads and cut in ("whole", "at random"))
    assert rig.accepted == 1 and rig.exchange.accepted == 1


async def test_the_terminal_marker_is_left_to_the_pipeline():
    """The call is settled before the client can see its end."""
    rig = Rig()
    rig.exchange.data(HELLO + text(b"hello") + FINISHED)
    assert not rig.ended.done()
    assert rig.exchange.data(DONE + b"data: more\n\n")
    assert rig.client.body == HELLO + text(b"hello") + FINISHED
    assert rig.end.tail == DONE
    # What comes afterwards is ignored.
    assert rig.exchange.data(b"data: more\n\n")
    rig.exchange.end(UpstreamError("truncated", "later"))
    assert rig.end.tail == DONE and rig.client.body.endswith(FINISHED)


async def test_a_short_answer_is_over_before_its_head():
    rig, whole = Rig(MESSAGES), sample(MESSAGES, "text")
    rig.exchange.data(whole)
    assert rig.client.pieces == [] and rig.end.tail == whole
    assert rig.accepted == 1
    rig.pump.begin()
    rig.pump.begin()
    assert rig.client.heads == [(200, PASSED + STREAM_HEADERS)]
    assert rig.client.body == b""


async def test_nothing_goes_down_before_the_first_data_event():
    rig = Rig()
    for piece in (b": hello\n\n", b"\n", b": again\n\n", HELLO[:20]):
        assert rig.exchange.data(piece)
        assert rig.client.pieces == [] and not rig.pump.accepted
    rig.exchange.data(HELLO[20:])
    assert rig.pump.accepted
    assert rig.client.body == b": hello\n\n\n: again\n\n" + HELLO


async def test_an_error_before_the_first_data_event_lets_another_channel_try():
    rig = Rig()
    rig.exchange.data(b": hello\n\n")
    rig.exchange.data(b'data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n')
    assert rig.end.fault.condition is Condition.UPSTREAM_OVERLOADED
    assert rig.end.tail == b"" and not rig.pump.accepted
    rig.attach()
    rig.exchange.data(HELLO + text(b"x") + FINISHED)
    rig.exchange.data(DONE)
    assert rig.client.body + rig.end.tail == HELLO + text(b"x") + FINISHED + DONE
    assert len(rig.client.heads) == 1 and rig.end.fault is None


GOES_ON = object()
LATE, CUT = UpstreamError("timeout_first_byte", "late"), UpstreamError("truncated", "cut")


@pytest.mark.parametrize(("sent", "end", "condition"), [
    (b"data: <html>\n\n", GOES_ON, Condition.UPSTREAM_INVALID),
    (b"data: 1\n\n", GOES_ON, Condition.UPSTREAM_INVALID),
    (b": x\n\n" * (PREAMBLE_LIMIT_BYTES // 4), GOES_ON, Condition.UPSTREAM_INVALID),
    (b": hello\n\n", LATE, Condition.UPSTREAM_TIMEOUT),
    (b": hello\n\n", CUT, Condition.UPSTREAM_FAILED),
    (b": hello\n\n", UpstreamError("reset_before_head", "reset"), Condition.UPSTREAM_FAILED),
    (b"", None, Condition.UPSTREAM_INVALID),
    (b": hello\n\n", None, Condition.UPSTREAM_INVALID),
    (HELLO[:-10], None, Condition.UPSTREAM_INVALID),
])  # fmt: skip
async def test_what_ends_before_the_first_data_event(sent, end, condition):
    rig = Rig()
    rig.exchange.data(sent)
    if end is not GOES_ON:
        rig.exchange.end(end)
    assert rig.end.fault.condition is condition and rig.end.fault.blame == "upstream"
    assert rig.client.pieces == [] and not rig.pump.accepted and not rig.accepted
    assert rig.pump.delivery() == Delivery() and rig.pump.output_units == 0
    rig.pump.begin()
    assert rig.client.pieces == []


async def test_a_first_event_without_its_blank_line():
    rig = Rig()
    cut = FINISHED.rstrip(b"\n").replace(b"stop", b"length")
    rig.exchange.data(cut)
    assert not rig.pump.accepted
    rig.exchange.end(None)
    assert rig.pump.accepted and rig.end.fault is None
    assert rig.end.tail == cut


_ERROR = b'data: {"error":{"message":"sk-vendor is broke","type":"server_error"}}\n\n'
_SOME, _LAST, _UNENDED = text(b"hello"), text(b"last"), FINISHED.rstrip(b"\n")


@pytest.mark.parametrize(("sent", "end", "condition", "outcome", "tail"), [
    (_LAST + _ERROR, GOES_ON, Condition.UPSTREAM_FAILED, "upstream_error", _LAST),
    (_LAST + b"data: <html>\n\n" + _SOME, GOES_ON, Condition.UPSTREAM_INVALID,
     "upstream_error", _LAST),
    (text(b"half")[:-9], CUT, Condition.UPSTREAM_FAILED, "upstream_truncated", b""),
    (text(b"half")[:-9], UpstreamError("timeout_idle", "late"), Condition.UPSTREAM_TIMEOUT,
     "timeout", b""),
    (text(b"half")[:-9], UpstreamError("protocol", "odd"), Condition.UPSTREAM_INVALID,
     "upstream_truncated", b""),
    (b"", None, Condition.UPSTREAM_FAILED, "upstream_truncated", b""),
    (text(b"half")[:30], None, Condition.UPSTREAM_FAILED, "upstream_truncated", b""),
    (_UNENDED, None, None, "ok", _UNENDED),
])  # fmt: skip
async def test_what_ends_after_the_acceptance(sent, end, condition, outcome, tail):
    rig = Rig()
    rig.exchange.data(HELLO + _SOME)
    rig.exchange.data(sent)
    if end is not GOES_ON:
        rig.exchange.end(end)
    assert (rig.end.outcome, rig.end.tail) == (outcome, tail)
    assert (rig.end.fault and rig.end.fault.condition) == condition
    assert rig.client.body == HELLO + _SOME
    assert rig.pump.at_boundary


async def test_an_end_without_the_marker_after_the_last_finish():
    rig = Rig()
    rig.exchange.data(HELLO + text(b"x") + FINISHED)
    rig.exchange.end(None)
    assert rig.end == Ending("ok")


async def test_a_slow_client_holds_the_upstream_up():
    rig = Rig()
    assert rig.exchange.data(HELLO)
    rig.client.connection.room = False
    assert not rig.exchange.data(text(b"one"))
    assert rig.exchange.resumed == 0
    rig.client.connection.room = True
    rig.client.connection.on_drained()
    assert rig.exchange.resumed == 1
    assert rig.exchange.data(text(b"two"))
    assert rig.client.body == HELLO + text(b"one") + text(b"two")


async def test_the_upstream_of_an_earlier_attempt_is_not_resumed():
    rig = Rig()
    first = rig.exchange
    first.end(UpstreamError("truncated", "cut"))
    rig.attach()
    rig.client.connection.room = False
    assert not rig.exchange.data(HELLO)  # slow from the first byte
    rig.client.connection.on_drained()
    assert (first.resumed, rig.exchange.resumed) == (0, 1)


@pytest.mark.parametrize("family", [CHAT, MESSAGES])
async def test_commit_begins_the_stream_with_a_heartbeat(family):
    rig = Rig(family)
    rig.pump.commit(PASSED)
    assert rig.client.heads == [(200, PASSED + STREAM_HEADERS)]
    assert rig.client.body == beat(family, started=False)
    assert not rig.pump.accepted
    whole = sample(family, "text")
    for event in events(whole):
        rig.exchange.data(event)
    assert rig.client.body + rig.end.tail == beat(family, started=False) + whole
    assert len(rig.client.heads) == 1


def beat_in_silence(rig, at_s=1000):
    rig.pump.last_sent_s = at_s
    rig.pump.heartbeat(at_s + SILENT_S, SILENT_S)


@pytest.mark.parametrize("family", [CHAT, MESSAGES])
async def test_heartbeats_in_silence(family):
    rig = Rig(family)
    rig.pump.heartbeat(1000, SILENT_S)
    assert rig.client.pieces == []  # before the head
    rig.pump.commit(())
    rig.pump.last_sent_s = 1000
    rig.pump.heartbeat(1000 + SILENT_S - 1, SILENT_S)
    assert len(rig.client.pieces) == 1
    rig.pump.heartbeat(1000 + SILENT_S, SILENT_S)
    assert rig.client.pieces[1:] == [beat(family, started=False)]
    rig.pump.heartbeat(1000 + SILENT_S + 1, SILENT_S)
    assert len(rig.client.pieces) == 2
    rig.exchange.data(events(sample(family, "text"))[0])
    beat_in_silence(rig, 2000)
    assert rig.client.pieces[-1] == beat(family, started=family == MESSAGES)


async def test_each_fourth_heartbeat_of_a_response_is_an_event_with_the_last_number():
    """Codex counts the seconds since the last event; comments do not count for it."""
    rig, stream = Rig(RESPONSES), events(sample(RESPONSES, "text"))
    rig.pump.commit(())
    for _ in range(4):
        beat_in_silence(rig)
    assert rig.client.body == b": keep-alive\n" * 5  # before response.created
    for event in stream[:3]:
        rig.exchange.data(event)
    for _ in range(8):
        beat_in_silence(rig)
    event = b'event: keepalive\ndata: {"type":"keepalive","sequence_number":2}\n\n'
    assert rig.client.pieces[-8:] == [*[b": keep-alive\n"] * 3, event] * 2
    for event in stream[3:]:
        rig.exchange.data(event)
    assert rig.end.outcome == "ok"


async def test_without_numbers_all_heartbeats_of_a_response_are_comments():
    rig = Rig(RESPONSES)
    rig.exchange.data(b'data: {"type":"response.created","response":{"id":"resp_1"}}\n\n')
    for _ in range(8):
        beat_in_silence(rig)
    assert rig.client.pieces[1:] == [b": keep-alive\n"] * 8


async def test_a_comment_before_message_start_is_followed_by_comments():
    """Readers of the family do not know a ping before message_start."""
    rig = Rig(MESSAGES)
    rig.pump.commit(())
    rig.exchange.data(b": hello\n\n")
    beat_in_silence(rig)
    assert rig.client.pieces[-1] == beat(MESSAGES, started=False)


async def test_no_heartbeat_for_a_client_that_does_not_read():
    rig = Rig()
    rig.client.connection.room = False
    rig.exchange.data(HELLO)
    beat_in_silence(rig)
    assert rig.client.pieces == [HELLO]
    rig.client.connection.room = True
    beat_in_silence(rig)
    assert rig.client.pieces[-1] == beat(CHAT, started=False)


async def test_a_heartbeat_may_stand_between_the_halves_of_an_event_that_waits():
    rig = Rig()
    rig.exchange.data(HELLO + text(b"two")[:20])
    beat_in_silence(rig)
    rig.exchange.data(text(b"two")[20:])
    assert rig.client.body == HELLO + beat(CHAT, started=False) + text(b"two")


async def test_no_heartbeat_inside_an_event_that_passes_raw():
    rig = Rig()
    large = text(b"x" * 3 * MAX_EVENT_BYTES)
    rig.exchange.data(HELLO)
    assert rig.pump.at_boundary
    for at in range(0, len(large), 1000):
        rig.exchange.data(large[at : at + 1000])
        if MAX_EVENT_BYTES < at < len(large) - 2000:
            assert not rig.pump.at_boundary
            beat_in_silence(rig)
    assert rig.pump.at_boundary
    assert rig.client.body == HELLO + large
    rig.exchange.data(FINISHED + DONE)
    assert rig.client.body + rig.end.tail == HELLO + large + FINISHED + DONE


async def test_what_was_delivered_is_noted():
    rig, whole = Rig(MESSAGES), sample(MESSAGES, "text")
    pieces = events(whole)
    assert rig.pump.delivery() == Delivery() and rig.pump.output_units == 0
    for event in pieces[:4]:
        rig.exchange.data(event)
    delivery = rig.pump.delivery()
    assert delivery.relayed and not delivery.whole
    assert delivery.upstream_id and delivery.usage is not None
    assert delivery.output_units == rig.pump.output_units
    for event in pieces[4:]:
        rig.exchange.data(event)
    delivery = rig.pump.delivery()
    assert delivery.whole and delivery.output_units == rig.pump.output_units > 0
    assert delivery.reported is not None


async def test_an_empty_answer_costs_nothing():
    rig = Rig()
    for event in (HELLO, FINISHED, DONE):
        rig.exchange.data(event)
    assert rig.client.body == HELLO + FINISHED and rig.end.tail == b""
    assert rig.end.fault.condition is Condition.UPSTREAM_INVALID
    assert rig.end.outcome == "upstream_error" and rig.pump.delivery() == Delivery()


async def test_before_an_attempt_everything_is_quiet():
    client = Client()
    pump = StreamPump(FAMILIES[CHAT].client, client.downstream, print, print)
    pump.begin()
    pump.heartbeat(1000, 1)
    assert pump.delivery() == Delivery() and not pump.lacks_usage
    assert pump.at_boundary and pump.output_units == 0 and client.pieces == []
    pump.commit(())
    pump.last_sent_s = 0
    pump.heartbeat(1000, 1)
    assert client.pieces == [beat(CHAT, started=False)] * 2


async def test_behind_the_bracket_of_an_array_nothing_is_missing():
    rig = Rig("generate_content")
    operation = FAMILIES["generate_content"].client.operations["stream_array"]
    rig.attach(operation)
    rig.exchange.data(b'[{"candidates":[{"finishReason":"MAX_TOKENS"}]}')
    rig.exchange.data(b"]")
    rig.exchange.end(UpstreamError("truncated", "reset"))
    assert rig.end.fault is None


async def test_a_finished_answer_lacks_its_usage_until_it_comes():
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    rig = Rig()
    seen = []
    for piece in (b": hello\n\n", HELLO, text(b"x"), FINISHED, usage, DONE):
        rig.exchange.data(piece)
        seen.append(rig.pump.lacks_usage)
    assert seen == [False, False, False, True, False, False]


async def test_the_id_of_a_kept_answer_is_known_before_the_client_can_read_it():
    rig = Rig(MESSAGES)
    rig.attach(awaits_id=True)
    for event in events(sample(MESSAGES, "text")):
        before = rig.client.body
        rig.exchange.data(event)
        assert rig.identified or rig.client.body == before
    assert len(rig.identified) == 1 and rig.identified[0]
