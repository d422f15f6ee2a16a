"""W3C trace context: what is accepted, passed on, newly created."""

import pytest

from handlers.telemetry.trace import trace_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def read(parent, state=None, exporting=False):
    return trace_of(parent, state, exporting=exporting)


def test_what_is_not_exported_is_passed_on_as_it_is():
    trace = read(PARENT, "vendor=1,other=2")
    assert (trace.trace_id, trace.span_id) == (TRACE, "")
    told = [f"traceparent: {PARENT}", "tracestate: vendor=1,other=2"]
    assert trace.header_lines(0) == trace.header_lines(1) == told
    assert trace.attempts == []


def test_an_exported_call_is_a_span_in_between():
    trace = read(PARENT, exporting=True)
    assert (trace.trace_id, trace.parent_id) == (TRACE, SPAN)
    assert len(trace.span_id) == 16 and trace.span_id != SPAN
    [first], [second] = trace.header_lines(0), trace.header_lines(1)
    spans = [one.span_id for one in trace.attempts]
    assert first == f"traceparent: 00-{TRACE}-{spans[0]}-01"
    assert second == f"traceparent: 00-{TRACE}-{spans[1]}-01"
    assert len({SPAN, trace.span_id, *spans}) == 4
    assert [one.place for one in trace.attempts] == [0, 1]


def test_a_client_that_does_not_sample_is_obeyed():
    trace = read(f"00-{TRACE}-{SPAN}-00", exporting=True)
    assert (trace.trace_id, trace.span_id) == (TRACE, "")
    assert trace.header_lines(0) == [f"traceparent: 00-{TRACE}-{SPAN}-00"]


def test_a_trace_begins_only_where_it_is_exported():
    assert read(None) is None
    one, other = read(None, exporting=True), read(None, exporting=True)
    assert one.trace_id != other.trace_id and one.parent_id == ""
    for trace in (one, other):
        assert len(trace.trace_id) == 32 and len(trace.span_id) == 16
        int(trace.trace_id + trace.span_id, 16)


def test_later_versions_are_read_as_far_as_they_are_known():
    trace = read(f"01-{TRACE}-{SPAN}-01-what-comes-later")
    assert trace.header_lines(0) == [f"traceparent: {PARENT}"]


@pytest.mark.parametrize("parent", [
    "",
    "garbage",
    f"00-{TRACE}-{SPAN}",
    f"00-{TRACE}-{SPAN}-01-more",
    f"00-{TRACE}-{SPAN}-01 ",
    f"00-{TRACE.upper()}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"ff-{TRACE}-{SPAN}-01",
    f"00-{TRACE[1:]}-{SPAN}-01",
    f"00-{TRACE}-{SPAN}-0g",
    f"{PARENT}, {PARENT}",
    f"01-{TRACE}-{SPAN}-01more",
    f"01-{TRACE}-{SPAN}-01-\r\nX-Evil: 1",
    "x" * 10_000,
])  # fmt: skip
def test_what_is_not_valid_is_left_out(parent):
    assert read(parent, "state=1") is None
    begun = read(parent, "state=1", exporting=True)
    assert begun.trace_id != TRACE and (begun.parent_id, begun.state) == ("", "")


@pytest.mark.parametrize("state", ["", "a\nb: c", "x" * 513, "ü=1"])
def test_a_state_that_is_not_valid_is_left_out(state):
    assert read(PARENT, state).header_lines(0) == [f"traceparent: {PARENT}"]
