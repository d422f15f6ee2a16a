"""A native stream: acceptance, preamble, sizes, ends."""

import pytest

from adapters.bridge import EVENTS_AT_ONCE, PREAMBLE_LIMIT_BYTES
from adapters.codecs import PAIRINGS
from adapters.family import Operation
from adapters.faults import Condition
from adapters.framing.sse import EventSplitter
from adapters.generate_content.client import STREAM_ARRAY
from adapters.registry import FAMILIES

CHUNK = b'data: {"id":"c1","model":"up","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
FINISH = b'data: {"model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"model":"up","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"m","type":"server_error"}}\n\n'


CREATE = Operation("/v1/some/endpoint")


def chat_stream(drop=False, limit=65536, public="up"):
    chat = PAIRINGS["chat_completions", "chat_completions"]
    return chat.open_bridge(public, "up", drop, CREATE, limit)


def test_nothing_is_sent_before_acceptance_then_all_of_it():
    stream = chat_stream()
    assert stream.feed(b": wait\n\n") == b"" and not stream.accepted
    assert stream.feed(b"\n" + CHUNK[:20]) == b""
    assert stream.feed(CHUNK[20:]) == b": wait\n\n\n" + CHUNK
    assert stream.accepted and stream.at_boundary and not stream.whole
    assert stream.feed(CHUNK) == CHUNK


def test_an_error_as_first_event_sends_nothing():
    stream = chat_stream()
    assert stream.feed(b": wait\n\n" + ERROR + CHUNK) == b""
    assert stream.fault.condition is Condition.UPSTREAM_FAILED and not stream.accepted
    assert stream.feed(CHUNK) == b"" and stream.close() == b""


def test_a_long_preamble_is_garbage():
    line = b": 0123456789\n\n"
    stream = chat_stream()
    for _ in range(PREAMBLE_LIMIT_BYTES // len(line)):
        stream.feed(line)
    assert stream.fault is None
    assert stream.feed(line) == b""
    assert stream.fault.condition is Condition.UPSTREAM_INVALID and stream.ended


def test_the_terminal_marker_ends_the_answer():
    stream = chat_stream()
    assert stream.feed(CHUNK + DONE + b"data: rubbish\n\n") == CHUNK + DONE
    assert stream.whole and stream.feed(CHUNK) == b"" and stream.close() == b""


def test_events_before_a_fault_in_one_chunk_are_sent():
    stream = chat_stream()
    assert stream.feed(CHUNK + CHUNK + ERROR + CHUNK) == CHUNK + CHUNK
    assert stream.fault is not None and not stream.whole


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_the_usage_event_is_left_out_alike_in_every_cut(cut):
    data = CHUNK + b"\n" + USAGE + b"\n" + DONE
    expected = CHUNK + b"\n\n" + DONE
    stream = chat_stream(drop=True)
    at = len(CHUNK) + cut
    assert stream.feed(data[:at]) + stream.feed(data[at:]) == expected
    assert stream.usage.output_tokens == 2
    # A blank line before the event, in a chunk that looks like one event.
    stream = chat_stream(drop=True)
    stream.feed(CHUNK)
    assert stream.feed(b"\n" + USAGE) == b"\n"


def test_a_last_event_without_its_blank_line():
    for end in (b"", b"\n"):
        stream = chat_stream()
        stream.feed(CHUNK + FINISH)
        assert stream.feed(DONE.rstrip() + end) == b""
        assert stream.close() == DONE.rstrip() + end and stream.ended
        # If the gateway adds events after an event that is not the last, that event must be
        # terminated.
        stream = chat_stream()
        stream.feed(CHUNK)
        stream.feed(CHUNK.rstrip() + end)
        assert stream.close() == CHUNK and not stream.whole
        # A finished answer gets no terminator.
        stream = chat_stream()
        stream.feed(CHUNK + FINISH.rstrip() + end)
        assert stream.close() == FINISH.rstrip() + end and stream.whole


def test_what_follows_a_last_event_does_not_run_into_it():
    for end in (b"", b"\r", b"\n", b"\r\n", b"\n\r", b"\r\n\r"):
        stream = chat_stream()
        stream.feed(CHUNK + CHUNK.rstrip() + end)
        last = stream.close()
        events = EventSplitter(65536).feed(last + ERROR)
        assert events == [last, ERROR], end


def test_half_an_event_is_a_cut_and_no_garbage():
    for half in (CHUNK[:30], b"data: [DO", b": comm", b"event: x\n"):
        stream = chat_stream()
        stream.feed(CHUNK + half)
        assert stream.close() == b"" and stream.fault is None and not stream.whole
    stream = chat_stream()
    stream.feed(CHUNK + FINISH + b"data: [DO")
    assert stream.close() == b"" and stream.whole


@pytest.mark.parametrize(
    ("data", "end", "fault"),
    [
        (b": x\n\n" + CHUNK.rstrip(), b": x\n\n" + CHUNK, None),
        (CHUNK + ERROR.rstrip(), b"", Condition.UPSTREAM_FAILED),
        (CHUNK + USAGE.rstrip(), b"", None),
        (b"", b"", None),
    ],
)
def test_a_last_event_that_lacks_its_blank_line_at_the_end(data, end, fault):
    stream = chat_stream(drop=True)
    stream.feed(data)
    assert stream.close() == end and stream.accepted == bool(data)
    assert (stream.fault and stream.fault.condition) == fault


def test_an_oversized_event_passes_without_heartbeats_in_it():
    stream = chat_stream(limit=100, public="other")
    sent = stream.feed(CHUNK)
    assert sent == CHUNK.replace(b'"up"', b'"other"')
    big = CHUNK.replace(b"x", b"x" * 200)
    assert stream.feed(big[:90]) == b"" and stream.at_boundary
    assert stream.feed(big[90:150]) == big[:150] and not stream.at_boundary
    assert stream.feed(big[150:]) == big[150:] and stream.at_boundary
    assert stream.feed(big) == big  # whole in one chunk: the same rule
    assert stream.feed(CHUNK) == sent
    assert stream.feed(big[:150]) == big[:150]
    assert stream.close() == b"" and not stream.at_boundary and not stream.whole


def test_an_oversized_first_event_is_an_answer_when_it_has_data():
    stream = chat_stream(limit=50)
    assert stream.feed(b": x\n\n" + CHUNK) == b": x\n\n" + CHUNK and stream.accepted
    stream = chat_stream(limit=50)
    assert stream.feed(b"<html>" + b"x" * 100) == b""
    assert stream.fault.condition is Condition.UPSTREAM_INVALID


@pytest.mark.parametrize("public", ["up", "other"])
def test_events_that_end_with_crlf_pass_alike_in_every_cut(public):
    events = [one.replace(b"\n", b"\r\n") for one in (CHUNK, b": x\n\n", CHUNK, b"\n", FINISH)]
    data = b"".join(events)
    expected = data.replace(b'"up"', f'"{public}"'.encode())
    one_by_one = chat_stream(public=public)
    assert b"".join([one_by_one.feed(event) for event in events]) == expected
    # An LF before the end: more than one event, or an event of several lines.
    odd = CHUNK + b"\n" + CHUNK[:-2] + b"\r\n\r\n"
    assert one_by_one.feed(odd) == odd.replace(b'"up"', f'"{public}"'.encode())
    for at in range(len(data)):
        stream = chat_stream(public=public)
        assert stream.feed(data[:at]) + stream.feed(data[at:]) == expected
    assert one_by_one.feed(b"\r\n\r\n") == b"\r\n\r\n"


def test_behind_its_bracket_an_array_may_break_off_and_events_behind_their_marker():
    array = FAMILIES["generate_content"].client.operations["stream_array"]
    pairing = PAIRINGS["generate_content", "generate_content"]
    stream = pairing.open_bridge("m", "m", False, array, 65536)
    stream.feed(b'[{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}')
    assert stream.accepted and not stream.end_seen
    assert stream.feed(b"]") == b"]" and stream.end_seen and not stream.ended
    stream = chat_stream()
    stream.feed(CHUNK + FINISH)
    assert stream.whole and not stream.end_seen
    stream.feed(DONE)
    assert stream.end_seen


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_family_sends_the_operation_of_the_client(name):
    operations = list(FAMILIES[name].client.operations.values())
    pairing = PAIRINGS[name, name]
    assert operations and [pairing.operation(each, True) for each in operations] == operations


@pytest.mark.parametrize("name", ["chat_completions", "generate_content"])
def test_so_many_events_are_read_at_once_and_the_others_are_asked_for(name):
    """Both for events and for elements of an array; the output is the same."""
    if name == "chat_completions":
        stream, events = chat_stream(), [CHUNK] * (2 * EVENTS_AT_ONCE + 1)
    else:
        array = PAIRINGS[name, name]
        stream = array.open_bridge("up", "up", False, STREAM_ARRAY, 65536)
        element = b'{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}'
        events = [b"[" + element, *[b"," + element] * (2 * EVENTS_AT_ONCE)]
    assert stream.feed(b"".join(events)) == b"".join(events[:EVENTS_AT_ONCE])
    assert stream.busy and not stream.aligned
    assert stream.feed(b"") == b"".join(events[EVENTS_AT_ONCE : 2 * EVENTS_AT_ONCE])
    assert stream.busy
    assert stream.feed(b"") == events[-1]
    assert not stream.busy and stream.aligned is (name == "chat_completions")


def test_nothing_is_read_behind_an_end_among_many_events():
    stream = chat_stream()
    before = [CHUNK] * 3
    assert stream.feed(b"".join([*before, DONE, *[CHUNK] * 1000])) == b"".join([*before, DONE])
    assert stream.ended and not stream.busy and stream.feed(b"") == b""


def test_a_run_of_comments_and_blank_lines_counts_as_one_event():
    stream = chat_stream()
    stream.feed(CHUNK)
    run = b": wait\n\n\n" * 5000
    assert stream.feed(run + CHUNK) == run + CHUNK and not stream.busy and stream.aligned
