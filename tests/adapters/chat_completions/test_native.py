"""Calls of chat completions clients at a vendor of that family: requests, headers, answers, usage,
streams."""

import json

import pytest

from adapters.chat_completions import FAMILY
from adapters.chat_completions.stream import ChatTap
from adapters.chat_completions.upstream import read_usage
from adapters.family import Vendor
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.registry import VENDORS
from store.values.usage import Usage
from tests.adapters.builders import fault_of, refusal_of

CREATE = FAMILY.client.operations["generate"]

# ---- requests and their headers ------------------------------------------------------------------


def body_of(**fields) -> bytes:
    return json.dumps({"model": "m", "messages": [], **fields}).encode()


def peek(**fields):
    return FAMILY.client.peek(top_level(body_of(**fields)), CREATE, None)


def edit(body: bytes, upstream_model: str = "m", vendor: Vendor = VENDORS["openai"]) -> bytes:
    spans = top_level(body)
    return FAMILY.upstream.edit_request(
        spans, FAMILY.client.peek(spans, CREATE, None), CREATE, upstream_model, vendor
    )


def test_what_is_read():
    read = peek()
    assert (read.model, read.stream, read.max_output_tokens) == ("m", False, None)
    assert (read.choices, read.include_usage) == (1, False)
    assert peek(max_tokens=5, max_completion_tokens=9).max_output_tokens == 9
    assert peek(max_tokens=9, max_completion_tokens=None).max_output_tokens == 9
    for no_bound in ({"max_completion_tokens": 0}, {"max_tokens": 0, "max_completion_tokens": 9}):
        assert peek(**no_bound).max_output_tokens is None
    assert peek(n=4).choices == 4 and peek(n=None).choices == 1 and peek(n=0).choices == 1
    assert peek(stream=True).stream
    assert peek(stream_options={"include_usage": True}).include_usage
    assert not peek(stream_options={"include_usage": None}).include_usage


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 7}, "model"),
        ({"messages": {}}, "messages"),
        ({"stream": "yes"}, "stream"),
        ({"n": True}, "n"),
        ({"max_tokens": 2**31 + 1}, "max_tokens"),
        ({"max_completion_tokens": []}, "max_completion_tokens"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_wrong_types(fields, param):
    fault = fault_of(peek, **fields)
    assert (fault.condition, fault.param) == (Condition.INVALID_FIELD, param)
    assert f"'{param}'" in fault.message


def test_the_model_is_looked_at_first():
    def refused(body):
        return refusal_of(FAMILY.client.peek, top_level(body), CREATE, None)

    assert refused(b'{"messages":7,"n":"x"}') == (Condition.MODEL_MISSING, "model")
    assert refused(b'{"model":"m"}') == (Condition.FIELD_MISSING, "messages")


def test_usage_is_asked_for_behind_the_brace():
    body = b' \n{ "stream":true,"model":"m","messages":[]}'
    assert edit(body, "a/\u00e9") == (
        b' \n{"stream_options":{"include_usage":true}, "stream":true,"model":"a/\\u00e9",'
        b'"messages":[]}'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"null", {"include_usage": True}),
        (b"{}", {"include_usage": True}),
        (b'{ "include_usage" : false }', {"include_usage": True}),
        (
            b'{"include_obfuscation":false,"include_usage":null}',
            {"include_obfuscation": False, "include_usage": True},
        ),
    ],
)
def test_stream_options_keep_their_other_members(before, after):
    head, tail = b'{"model":"m","stream_options": ', b' ,"messages":[],"stream":true}'
    edited = edit(head + before + tail)
    assert edited.startswith(head) and edited.endswith(tail)
    assert json.loads(edited[len(head) : -len(tail)]) == after


def test_a_vendor_that_refuses_stream_options_is_not_asked():
    body = body_of(stream=True)
    vendor = Vendor("odd", frozenset({"chat_completions"}), "bearer", stream_options=False)
    assert edit(body, vendor=vendor) is body
    assert b"include_usage" in edit(body, vendor=VENDORS["openai-compatible"])


# ---- whole answers -------------------------------------------------------------------------------


def read(body: bytes, public: str = "m"):
    return FAMILY.upstream.read_answer(body, public, "m", CREATE)


def counts(prompt, completion, prompt_details=..., completion_details=...):
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": prompt_details,
        "completion_tokens_details": completion_details,
    }
    return {name: value for name, value in usage.items() if value is not ...}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (counts(14, 11), Usage(14, 11)),
        (counts(0, 0), Usage()),
        (
            counts(
                2600,
                150,
                {"cached_tokens": 2000, "cache_write_tokens": 400},
                {"reasoning_tokens": 60},
            ),
            Usage(200, 90, 2000, 400, 0, 60),
        ),
        # A part is never larger than its whole.
        (
            counts(10, 5, {"cached_tokens": 8, "cache_write_tokens": 8}, {"reasoning_tokens": 50}),
            Usage(0, 0, 8, 2, 0, 5),
        ),
        (
            counts(
                10, 5, {"cached_tokens": -1, "cache_write_tokens": "2"}, {"reasoning_tokens": True}
            ),
            Usage(10, 5),
        ),
        (counts(10, 5, None, []), Usage(10, 5)),
        # Moonshot, DeepSeek: the details have precedence.
        (counts(1900, 70) | {"cached_tokens": 1792}, Usage(108, 70, 1792)),
        (counts(10, 5) | {"prompt_cache_hit_tokens": 64}, Usage(0, 5, 10)),
        (counts(10, 5, {"cached_tokens": 0}) | {"cached_tokens": 4}, Usage(10, 5)),
        (counts(10, 5) | {"cached_tokens": "4", "prompt_cache_hit_tokens": 3}, Usage(7, 5, 3)),
        # xAI: reasoning is not part of the completion, as the total shows.
        (
            counts(10120, 1499, {}, {"reasoning_tokens": 2809}) | {"total_tokens": 14428},
            Usage(10120, 1499, reasoning_tokens=2809),
        ),
        (
            counts(10, 50, {}, {"reasoning_tokens": 30}) | {"total_tokens": 60},
            Usage(10, 20, reasoning_tokens=30),
        ),
    ],
)
def test_disjoint_counts(usage, expected):
    assert read_usage(usage) == expected


@pytest.mark.parametrize(
    ("message", "units"),
    [
        ({"content": "x" * 16}, 4),
        ({"content": None, "refusal": "x" * 16}, 4),
        ({"content": [{"type": "text", "text": "x" * 16}, "x" * 16, 5, {}]}, 8),
        ({"reasoning_content": "x" * 16, "reasoning": "x" * 16}, 4),
        ({"reasoning": "x" * 16, "content": "x" * 16}, 8),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "x" * 16}}, 7, {}]}, 4),
        ({"tool_calls": [{"custom": {"input": "x" * 16}}]}, 4),
        ({"tool_calls": [{"function": {"arguments": {"a": "xxxxxxxx"}}}]}, 4),
        ({"tool_calls": 5, "function_call": {"arguments": "x" * 16}}, 4),
        ("text", 0),
        ({}, 0),
    ],
)
def test_output_is_counted_when_no_usage_is_reported(message, units):
    body = json.dumps({"choices": [{"message": message}, 7]}).encode()
    assert read(body).output_units == units


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b'{"choices":[]}', "E30"),
        (b'{"choices":null}', "E30"),
        (b'{"choices":{}}', "E30"),
        (b'{"id":"x"}', "E30"),
        (b'{"choices":[{}],"x":"\xff"}', "E30"),
        (b'{"error":{"message":"m","type":"server_error"}}', "E26"),
        (b'{"error":{"message":"m","code":429}}', "E25"),
        (b'[{"error":{"code":503,"status":"UNAVAILABLE"}}]', "E27"),
        (b'{"choices":[],"error":{"code":"insufficient_quota"}}', "E24"),
        (b'{"choices":5,"error":"\\ud800","code":500}', "E26"),
    ],
)
def test_what_is_no_answer(body, condition):
    assert fault_of(read, body).condition == condition


def test_odd_answers_pass_all_the_same():
    body = b'{"id":"c","model":"m","choices":[{"message":{"content":"\\ud83d"}}],"x":NaN}'
    assert read(body).body is body and read(body).upstream_id == "c"
    body = body.replace(b',"x":NaN', b"")
    assert read(body, "pub").body == body.replace(b'"m"', b'"pub"')


def test_only_a_string_is_renamed():
    cut = b'{"choices":[{"model":"m","finish_reason":"length"}]}'
    for body in (b'{"model":null,"choices":[{}]}', cut):
        assert read(body, "pub").body == body
    doubled = b'{"model":"a","choices":[{}],"model":"b"}'
    assert fault_of(read, doubled, "pub").condition is Condition.UPSTREAM_INVALID


# ---- streams -------------------------------------------------------------------------------------

FIRST = b'data: {"id":"c1","model":"up","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
USAGE = {"prompt_tokens": 10, "completion_tokens": 4}


def event(**fields) -> bytes:
    return b"data: " + json.dumps({"model": "up", **fields}).encode() + b"\n\n"


def delta(index=0, finish=None, **fields) -> bytes:
    return event(choices=[{"index": index, "delta": fields, "finish_reason": finish}])


def tap_after(*events: bytes, public="up", drop=False) -> tuple[ChatTap, list[bytes | None]]:
    tap = FAMILY.upstream.stream_tap(public, "up", drop, CREATE)
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
        *(b": comment\n\n", b"\n", b"\xef\xbb\xbf: comment\n\n"),
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
        ({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}, {"index": 1}]}, 0),
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
    assert sent[1] is None and tap.empty and not tap.whole
    tap, sent = tap_after(FIRST, delta(content="x"), done)
    assert sent[2] == done and tap.ended and tap.whole and not tap.empty
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
    nothing = event(choices=[])
    for before in (event(id=7, choices=[]), event(id="", choices=[]), nothing, b": c\n\n"):
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


def test_a_doubled_model_is_not_let_through():
    doubled = FIRST.replace(b"}\n\n", b',"model":"up"}\n\n')
    tap, sent = tap_after(FIRST, doubled, public="a/b")
    assert sent[1] is None and tap.fault.condition == "E30"
    tap, sent = tap_after(FIRST, doubled)
    assert sent[1] == doubled and tap.fault is None


def test_renaming_over_several_data_lines_and_past_the_text():
    multi = b'\xef\xbb\xbfdata: {"choices":[],\r\n: c\r\ndata:"model":\r\ndata: "up"}\r\n\r\n'
    assert tap_after(multi, public="a/b")[1] == [renamed(multi)]
    tricky = delta(content="model", note={"model": "up"})
    assert tap_after(FIRST, tricky, public="a/b")[1][1] == renamed(tricky)


def test_the_last_event_of_a_failed_stream():
    tap = FAMILY.upstream.stream_tap("m", "m", False, CREATE)
    assert tap.encode_fault(Fault(Condition.UPSTREAM_FAILED), "r") == (
        b'data: {"error":{"message":"The upstream channel stopped answering.",'
        b'"type":"server_error","param":null,"code":"upstream_error"}}\n\n'
    )


# ---- calls without an id -------------------------------------------------------------------------

NAMELESS = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_calls_of_a_whole_answer_get_an_id():
    calls = [
        {**NAMELESS},
        {**NAMELESS, "id": ""},
        {**NAMELESS, "id": "c"},
        {**NAMELESS, "id": None},
    ]
    answer = {
        "model": "m",
        "choices": [{"message": {"tool_calls": calls}}, {"message": {}}],
        "x": 1,
    }
    body = json.dumps(answer).encode()
    given = json.loads(read(body, "pub").body)
    ids = [call.pop("id") for call in given["choices"][0]["message"]["tool_calls"]]
    assert len(set(ids)) == 4 and ids[2] == "c" and all(ids)
    assert given["x"] == 1 and given["model"] == "pub"
    for call in calls:
        call["id"] = "c"
    whole = json.dumps(answer).encode()
    assert read(whole).body is whole


def test_calls_of_a_stream_get_an_id_where_they_begin():
    def call(index, **fields):
        return delta(tool_calls=[{"index": index, **fields}])

    named = {"function": {"name": "f", "arguments": ""}}
    more = {"function": {"arguments": "{}"}}
    events = [
        *(FIRST, delta(content="x"), call(0, **named), call(0, **more), call(0, id="", **more)),
        *(call(1, id=None, **named), call(1, **named), call(2, id="c", **named), call(2, **more)),
    ]
    tap, sent = tap_after(*events)
    ids = []
    for event_sent, event_given in zip(sent, events, strict=True):
        if event_sent is event_given:
            continue
        [call_sent] = json.loads(event_sent[6:])["choices"][0]["delta"]["tool_calls"]
        ids.append(call_sent.pop("id"))
        assert {**call_sent, "id": None} == {
            **json.loads(event_given[6:])["choices"][0]["delta"]["tool_calls"][0], "id": None
        }  # fmt: skip
    assert len(ids) == len(set(ids)) == 2 and all(ids) and tap.output_units > 0
    assert tap_after(*events)[1] != sent


def test_a_call_without_an_id_is_renamed_too():
    odd = event(choices=[{"index": 0, "delta": {"tool_calls": [NAMELESS]}}])
    for before in ([FIRST], [FIRST, delta(content="x")]):
        _, sent = tap_after(*before, odd, public="pub")
        assert json.loads(sent[-1][6:])["model"] == "pub" and b'"id":"call_' in sent[-1]
