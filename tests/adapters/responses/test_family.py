"""The samples of the responses family: usage, errors, and ends of streams."""

import json
import pathlib

import pytest

from adapters.bridge import NativeBridge
from adapters.faults import Condition, Fault
from adapters.ir.usage import Usage
from adapters.responses import FAMILY

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "responses"
CREATE = FAMILY.client.operations["generate"]
FAILED = (WIRE / "midstream_error.sse").read_bytes()


def read(name, operation=CREATE):
    body = (WIRE / f"{name}.json").read_bytes()
    answer = FAMILY.upstream.read_answer(body, "public", "public", operation)
    assert answer.body is body
    return answer


def run(data):
    """What is sent of a stream, and the bridge behind it."""
    bridge = NativeBridge(FAMILY.upstream.stream_tap("m", "m", True, CREATE), 65536)
    return bridge.feed(data) + bridge.close(), bridge


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("text", Usage(14, 11)),
        ("incomplete", Usage(14, 2)),
        ("tools_parallel", Usage(120, 48)),
        ("reasoning", Usage(30, 18, reasoning_tokens=22)),
        ("cached_usage", Usage(200, 90, 2000, 400, reasoning_tokens=60)),
    ],
)
def test_the_usage_of_the_samples(name, usage):
    assert read(name).usage == usage


def test_a_count():
    assert read("input_tokens", FAMILY.client.operations["count"]).usage is None


@pytest.mark.parametrize(("name", "condition"), [("error_401", "E24"), ("error_400_field", "E22")])
def test_error_bodies_in_place_of_an_answer(name, condition):
    with pytest.raises(Fault) as caught:
        read(name)
    assert caught.value.condition == condition


def events_of(data):
    """Names of events and their data."""
    pairs = [event.split(b"\ndata: ") for event in data.split(b"\n\n") if event]
    return [(name, json.loads(fields)) for name, fields in pairs]


def test_a_vendors_error_is_replaced_by_one_that_says_the_same():
    before = FAILED[: FAILED.index(b"event: error")]
    sent, stream = run(FAILED)
    assert sent == before and stream.fault.condition is Condition.UPSTREAM_FAILED
    assert not stream.whole and stream.feed(b"data: {}\n\n") == b""
    assert events_of(stream.encode_fault(stream.fault, "01ABC")) == events_of(FAILED[len(before) :])


@pytest.mark.parametrize("condition", list(Condition))
def test_the_last_event_alone_of_a_failed_stream_is_read_back_as_an_error(condition):
    first = FAILED.split(b"\n\n")[0] + b"\n\n"
    end = run(first)[1].encode_fault(Fault(condition, model="m", param="p"), "req_1")
    sent, stream = run(first + end[end.index(b"event: response.failed") :])
    assert sent == first and stream.fault is not None


def test_a_marker_behind_the_last_event_is_not_passed():
    data = (WIRE / "text.sse").read_bytes()
    sent, stream = run(data + b"data: [DONE]\n\n")
    assert sent == data and stream.whole
