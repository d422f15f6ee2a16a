"""Streams of the responses family: what vendors really send, the edits, the end of a failed one."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.responses import FAMILY
from adapters.responses.stream import MAX_STORED_BYTES, ResponsesTap
from store.values.usage import Usage

CREATE = FAMILY.client.operations["generate"]
USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


def event(kind: str, **fields) -> bytes:
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def response_event(kind: str, **fields) -> bytes:
    number = {"sequence_number": fields.pop("number")} if "number" in fields else {}
    response = {"id": "resp_1", "model": "up", "created_at": 1795000000, **fields}
    return event(f"response.{kind}", response=response, **number)


def delta(text: object, kind: str = "output_text", **fields) -> bytes:
    return event(f"response.{kind}.delta", delta=text, item_id="x", output_index=0, **fields)


def item_done(text: str) -> bytes:
    return event("response.output_item.done", item={"type": "message", "content": [{"text": text}]})


FAULT = Fault(Condition.UPSTREAM_FAILED)
CREATED = response_event("created", number=0, tools=[{"name": "f"}], status="in_progress")


def tap_after(*events: bytes, public="up") -> tuple[ResponsesTap, list[bytes | None]]:
    tap = FAMILY.upstream.stream_tap(public, "up", True, CREATE)
    return tap, [tap.feed(one) for one in events]


def last_events(tap: ResponsesTap, fault: Fault) -> tuple[dict, dict]:
    first, second, rest = tap.encode_fault(fault, "01ABC").split(b"\n\n")
    assert rest == b""
    return tuple(json.loads(one.split(b"\ndata: ")[1]) for one in (first, second))


def last_response(tap: ResponsesTap) -> dict:
    return last_events(tap, FAULT)[1]["response"]


@pytest.mark.parametrize("kind", ["completed", "incomplete"])
def test_a_response_from_begin_to_end(kind):
    tap, _ = tap_after(CREATED)
    assert tap.accepted and tap.started and tap.upstream_id == "resp_1" and tap.framing == "sse"
    tap.feed(delta("x" * 16))
    assert tap.usage is None and tap.output_units == 4 and not tap.whole and not tap.finished
    tap.feed(response_event(kind, usage=USAGE))
    assert tap.usage == Usage(10, 5) and tap.reported == USAGE and tap.upstream_id == "resp_1"
    assert tap.finished and tap.ended and tap.whole


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 1}, 7])
def test_an_end_without_usage(usage):
    item = {"type": "function_call", "arguments": "x" * 16}
    tap, _ = tap_after(CREATED, response_event("completed", usage=usage, output=[item]))
    assert tap.whole and tap.usage is None and tap.output_units == 4
    tap, sent = tap_after(CREATED, event("response.incomplete"))
    assert tap.whole and tap.usage is None and tap.reported is None and sent[1] is not None
    zeros = {"input_tokens": 0, "output_tokens": 0}  # at the start these do not count as a report
    tap, _ = tap_after(response_event("created", usage=zeros))
    assert tap.usage is None and tap.reported is None


COUNTED = (
    *("output_text", "refusal", "reasoning_text", "reasoning_summary_text", "mcp_call_arguments"),
    *("function_call_arguments", "custom_tool_call_input", "code_interpreter_call_code"),
)


@pytest.mark.parametrize(
    ("one", "units"),
    [(delta("x" * 16, kind), 4) for kind in COUNTED]
    + [
        (delta("x" * 16, "audio"), 0),
        (delta("", obfuscation="xxxx"), 0),
        (delta("\ud83d" + "x" * 15), 6),
        (delta({"stdout": "x"}, "shell_call_output_content"), 0),
        (delta(7), 0),
        (delta("x" * 16, error=None, response=None), 4),
        (event("response.output_text.delta"), 0),
        (event("response.output_text.done", text="x" * 16), 0),
    ],
)
def test_deltas_are_counted(one, units):
    data_only = one.split(b"\n", 1)[1]
    spread = one.replace(b'"delta":', b'\ndata: "delta":', 1)
    sorted_keys = event("response.x.delta", **dict(sorted(json.loads(data_only[6:]).items())))
    for form in (one, data_only, spread, sorted_keys, one.replace(b"\n", b"\r\n")):
        tap, sent = tap_after(CREATED, form)
        assert tap.output_units == units and sent[1] is form
        tap, sent = tap_after(form, public="other")
        assert tap.output_units == units and sent == [form] and tap.accepted


def test_what_says_more_is_the_estimate():
    """Deltas and whole items report the same output; the larger one counts, not their sum."""
    tap, _ = tap_after(CREATED, delta("x" * 16), delta("x" * 16))
    assert tap.output_units == 8
    tap.feed(item_done("x" * 32))
    assert tap.output_units == 8
    tap.feed(item_done("x" * 16))  # an item without deltas
    assert tap.output_units == 12
    output = [{"type": "function_call", "arguments": "x" * 80}]
    tap.feed(response_event("incomplete", output=output))
    assert tap.output_units == 20


@pytest.mark.parametrize(
    "odd",
    [
        event("keepalive", sequence_number=3),
        event("response.output_item.added", item={"type": "message", "content": []}),
        event("response.output_item.done", item=None),
        event("response.web_search_call.searching", item_id="ws_1"),
        event("invented", error=None, response=7),
        event("response.invented", response={}),
        *(b": comment\n\n", b"\n"),
    ],
)
def test_oddities_pass_as_they_are(odd):
    for events in ([CREATED, odd], [odd, CREATED]):
        for public in ("up", "other"):
            tap, sent = tap_after(*events, public=public)
            assert sent[events.index(odd)] == odd and tap.fault is None and not tap.ended


def test_events_without_type_pass_after_the_first():
    for odd in (b'data: {"x":1}\n\n', b'data: {"type":["error"]}\n\n', b'data: {"type":{}}\n\n'):
        tap, sent = tap_after(CREATED, odd)
        assert sent[1] == odd and tap.fault is None
        tap, sent = tap_after(odd)
        assert sent == [None] and tap.fault.condition == "E30"


def failed(code: str, **fields) -> bytes:
    return response_event("failed", error={"code": code, "message": "m"}, **fields)


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (event("error", code="server_error", message="m", param=None), "E26"),
        (event("error", error={"type": "server_error", "code": "upstream_error"}), "E26"),
        (event("error", code="rate_limit_exceeded", message="m"), "E25"),
        (b'event: error\ndata: {"message":"m"}\n\n', "E30"),
        (b'data: {"error":{"code":500,"message":"m"}}\n\n', "E26"),
        (event("response.output_text.delta", delta="x", error={"code": 503}), "E27"),
        (failed("server_error"), "E26"),
        (event("response.failed"), "E30"),
        (event("response.failed", response=7), "E30"),
        (b"event: response.output_text.delta\ndata: {nonsense}\n\n", "E30"),
        (b"data: []\n\n", "E30"),
        (b"data: [DONE]\n\n", "E30"),
    ],
)
def test_errors(bad, condition):
    for events in ([bad], [CREATED, bad]):
        tap, sent = tap_after(*events)
        assert sent[-1] is None and tap.fault.condition == condition and tap.ended
        assert not (tap.whole or tap.finished) and tap.accepted == (len(events) == 2)


def test_usage_of_a_failed_response_is_billed():
    tap, sent = tap_after(CREATED, delta("x" * 16), failed("server_error", usage=USAGE))
    assert sent[2] is None and tap.usage == Usage(10, 5) and tap.reported == USAGE
    assert tap.fault.message == "m"
    tap, _ = tap_after(CREATED, failed("server_error", output=[{"arguments": "x" * 16}]))
    assert tap.usage is None and tap.output_units == 4


def test_the_model_is_renamed_where_the_response_is():
    events = [
        response_event("created", metadata={"model": "up"}),
        response_event("queued"),
        response_event("in_progress"),
        delta('"model":"up"', model="up"),
        event("response.output_item.done", item={"model": "up"}),
        response_event("completed", usage=USAGE),
    ]
    tap, sent = tap_after(*events, public="a/b")
    for number, one in enumerate(events):
        if number in (3, 4):
            assert sent[number] is one
        else:
            assert sent[number] == one.replace(b'"model":"up"', b'"model":"a/b"', 1)
    assert tap.whole
    for model in (None, 7):
        one = response_event("created", model=model)
        assert tap_after(one, public="a/b")[1] == [one]


def test_the_model_of_a_stored_response_stays():
    tap = FAMILY.upstream.stream_tap("", "other", True, FAMILY.client.operations["stored"])
    assert tap.feed(CREATED) is CREATED and last_response(tap)["model"] == "up"


def test_a_delta_may_carry_a_response():
    one = event("response.output_text.delta", delta="x" * 16, response={"model": "up"})
    tap, sent = tap_after(CREATED, one, public="a/b")
    assert sent[1] == one.replace(b'"up"', b'"a/b"') and tap.output_units == 4


@pytest.mark.parametrize("kind", ["created", "completed"])
def test_a_doubled_model_is_not_let_through(kind):
    doubled = response_event(kind, usage=USAGE)
    doubled = doubled.replace(b'"model":"up"', b'"model":"up","model":"up"')
    tap, sent = tap_after(CREATED, doubled, public="a/b")
    assert sent[1] is None and tap.fault.condition == "E30"
    assert tap.ended and not (tap.whole or tap.finished)


def test_the_end_goes_on_from_what_was_sent():
    tap, _ = tap_after(CREATED, delta("x", sequence_number=4), failed("server_error", number=9))
    error, last = last_events(tap, tap.fault)
    assert (error["sequence_number"], last["sequence_number"]) == (5, 6)
    expected = {"id": "resp_1", "model": "up", "created_at": 1795000000, "status": "failed"}
    expected |= {"output": [], "error": {"code": "server_error", "message": "m"}}
    expected["tools"] = [{"name": "f"}]
    assert {**last["response"], **expected} == last["response"]
    tap.feed(response_event("in_progress", number=5, tools=[]))
    assert last_response(tap)["tools"] == [{"name": "f"}]


def test_the_end_says_the_public_model():
    tap, _ = tap_after(CREATED, public="a/b")
    assert last_response(tap)["model"] == "a/b"
    tap, _ = tap_after(CREATED.replace(b'"up"', b'"up-2026"'), public="up")
    assert last_response(tap)["model"] == "up-2026"


@pytest.mark.parametrize("number", [-1, 1.5, "3", None, True])
def test_numbers_that_cannot_be_meant(number):
    tap, _ = tap_after(CREATED, delta("x", sequence_number=number), b": comment\n\n")
    assert last_events(tap, FAULT)[0]["sequence_number"] == 0


def test_a_number_in_a_delta_that_can_be_read_in_part_only():
    one = delta("x" * 16, sequence_number=4).replace(b'"item_id":"x"', b'"item_id":"\xff"')
    tap, sent = tap_after(CREATED, one)
    assert sent[1] is one and tap.output_units == 4
    assert last_events(tap, FAULT)[0]["sequence_number"] == 0


def test_the_end_of_a_stream_that_never_began():
    for events in ([], [b": comment\n\n"], [event("keepalive")]):
        tap, _ = tap_after(*events, public="a/b")
        said, last = last_events(tap, FAULT)
        assert (said["sequence_number"], last["sequence_number"]) == (0, 1)
        response = last["response"]
        assert response["id"] == "resp_01ABC" and response["object"] == "response"
        assert response["model"] == "a/b" and response["usage"] is None


def test_the_end_of_a_response_that_is_too_large_to_keep():
    large = response_event("created", number=0, instructions="x" * MAX_STORED_BYTES)
    tap, _ = tap_after(large, response_event("in_progress", number=1, instructions="y"))
    said, last = last_events(tap, FAULT)
    assert said["sequence_number"] == 2 and last["response"]["instructions"] == "y"
    tap, _ = tap_after(large)
    response = last_response(tap)
    assert response["instructions"] is None and response["tools"] == []
    assert (response["id"], response["created_at"]) == ("resp_1", 1795000000)


@pytest.mark.parametrize("odd", [b'"id":7', b'"id":""', b'"id":null', b'"x":1'])
def test_the_end_of_a_response_without_an_id(odd):
    tap, _ = tap_after(CREATED.replace(b'"id":"resp_1"', odd))
    assert tap.upstream_id is None
    assert last_response(tap)["id"] == "resp_01ABC"


@pytest.mark.parametrize(
    ("sent", "name", "value"),
    [(b'"top_p":1e999', "top_p", None), (b'"user":"\\ud800"', "user", "\ud800")],
)
def test_odd_values_of_the_vendor_at_the_end(sent, name, value):
    tap, _ = tap_after(CREATED.replace(b'"tools":', sent + b',"tools":'))
    response = last_response(tap)
    assert response["id"] == "resp_1" and response[name] == value
    assert value is not None or response["tools"] == []
