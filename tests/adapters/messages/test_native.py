"""Calls of messages clients at a vendor of messages: fields read and edited, answers, usage,
streams, errors, lists of models, heartbeats."""

import json

import pytest
from msgspec.structs import replace

from adapters.family import ModelEntry
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.json.jsonio import top_level
from adapters.messages import FAMILY
from adapters.messages.stream import MessagesTap
from adapters.messages.upstream import read_usage
from adapters.registry import VENDORS
from adapters.upstream_errors.read import read_upstream_error
from store.values.usage import MAX_TOKENS, Usage
from tests.adapters.builders import fault_of, refusal_of

GENERATE, COUNT = (FAMILY.client.operations[name] for name in ("generate", "count"))

# ---- requests and their headers ------------------------------------------------------------------


def peek(operation=GENERATE, **fields):
    body = {"model": "m", "messages": [], "max_tokens": 5, **fields}
    body = {name: value for name, value in body.items() if value is not ...}
    return FAMILY.client.peek(top_level(json.dumps(body).encode()), operation, None)


def test_what_is_read():
    read = peek()
    assert (read.model, read.stream, read.max_output_tokens, read.choices) == ("m", False, 5, 1)
    assert read.include_usage
    assert peek(stream=True).stream and not peek(stream=None).stream
    assert peek(max_tokens=0).max_output_tokens is None


def test_counting_needs_no_bound():
    assert peek(COUNT, max_tokens=...).max_output_tokens is None
    assert FAMILY.upstream.path(COUNT, "up", None) == "/v1/messages/count_tokens"


@pytest.mark.parametrize(
    ("fields", "condition", "param"),
    [
        ({"model": ...}, "E10", "model"),
        ({"model": {}}, "E12", "model"),
        ({"messages": ...}, "E13", "messages"),
        ({"messages": "x"}, "E12", "messages"),
        ({"max_tokens": ...}, "E13", "max_tokens"),
        ({"max_tokens": -1}, "E12", "max_tokens"),
        ({"stream": 1}, "E12", "stream"),
    ],
)
def test_refusals(fields, condition, param):
    assert refusal_of(peek, **fields) == (Condition(condition), param)


def test_other_models_go_out_under_their_upstream_names_and_every_other_byte_stays():
    body = (
        b'{"model":"m", "messages":[], "max_tokens":5,\n'
        b'"tools" : [ {"name":"x","input_schema":{"model":"a"}} ,'
        b' {"type":"advisor_20260301","name":"advisor", "model": "a"}],'
        b'"fallbacks":[{"model":"a"},{"max_tokens":7,"model":"same"}]}'
    )
    spans = top_level(body)
    read = FAMILY.client.peek(spans, GENERATE, None)

    def edited(upstream_model, names):
        models = tuple(replace(ask, name=names[ask.name]) for ask in read.asks.models)
        asks = replace(read.asks, models=models)
        vendor = VENDORS["anthropic"]
        edit = FAMILY.upstream.edit_request
        return edit(spans, replace(read, asks=asks), GENERATE, upstream_model, vendor)

    expected = body.replace(b'"model": "a"', b'"model": "up-a"').replace(b'"m"', b'"up"')
    expected = expected.replace(b'{"model":"a"},', b'{"model":"up-a"},')
    assert edited("up", {"a": "up-a", "same": "same"}) == expected
    assert edited("m", {"a": "a", "same": "same"}) is body


def lines(client, vendor="anthropic"):
    return FAMILY.upstream.request_headers(client, VENDORS[vendor], "k")


@pytest.mark.parametrize(
    ("client", "version"),
    [
        ({}, "2023-06-01"),
        ({"anthropic-version": "2023-06-01"}, "2023-06-01"),
        ({"anthropic-version": " 2026-10-21 "}, "2026-10-21"),
        ({"anthropic-version": "2030-01-01"}, "2026-10-21"),
        ({"compat-version": "2023-06-01"}, "2023-06-01"),
        ({"compat-version": "x\r\ny: z"}, "2026-10-21"),
        ({"anthropic-version": "2026-10-21", "compat-version": "2023-06-01"}, "2026-10-21"),
        ({"anthropic-version": "", "compat-version": "2026-10-21"}, "2026-10-21"),
    ],
)
def test_the_version(client, version):
    assert lines(client)[3:] == [f"anthropic-version: {version}"]


def test_betas_keep_their_order_and_the_credential_is_the_vendors():
    assert lines({"anthropic-beta": "b-2,a-1 , ,c"})[4:] == ["anthropic-beta: b-2,a-1,c"]
    for nothing in ("", " ,", "a\nb"):
        assert lines({"anthropic-beta": nothing})[4:] == []
    assert lines({})[0] == "x-api-key: k"
    assert lines({}, "demo")[0] == "authorization: Bearer k"


# ---- errors for the client -----------------------------------------------------------------------


def error_of(fault):
    return json.loads(FAMILY.client.encode_fault(fault, "r").body)["error"]


def of_vendor(body):
    return read_upstream_error(400, {}, body).fault


TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(Condition.MISSING_KEY), "or 'x-api-key: <API_KEY>'."),
        (Fault(Condition.MODEL_MISSING), "model: field required"),
        (Fault(Condition.FIELD_MISSING, param="max_tokens"), "max_tokens: field required"),
        (
            wrong_type("messages[0].content", "expected a string or an array"),
            "messages.0.content: expected a string or an array",
        ),
        (wrong_value("max_tokens", "expected 0 or more"), "max_tokens: expected 0 or more"),
        (Fault(Condition.INVALID_FIELD, "Words.", param="x"), "Words."),
        (
            Fault(Condition.MODEL_NOT_FOUND, model="demo-huge"),
            "model: demo-huge is not available to this API key. "
            "Check the name and the channel status.",
        ),
        (Fault(Condition.MODEL_NOT_FOUND), "model: this model is not available"),
        (Fault(Condition.MODEL_NOT_FOUND, "Words."), "Words."),
        (
            Fault(Condition.ENTRY_NOT_ALLOWED, detail="basic"),
            "The group 'basic' of this API key does not support the messages entry point.",
        ),
        (Fault(Condition.ENTRY_NOT_ALLOWED), "The group of this API key does not support"),
        (
            Fault(Condition.CONTEXT_LENGTH),
            "prompt is too long: The prompt is longer than the model's context window.",
        ),
        (
            of_vendor(
                b'{"type":"error","error":{"type":"invalid_request_error","message":"%b"}}'
                % TOO_LONG.encode()
            ),
            TOO_LONG,
        ),
        (Fault(Condition.CONTEXT_LENGTH, "Words."), "Words."),
        (Fault(Condition.INVALID_KEY), "invalid x-api-key"),
        (Fault(Condition.INVALID_KEY, detail="sk-slc-…wxyz"), "invalid x-api-key"),
    ],
)
def test_wordings(fault, words):
    message = error_of(fault)["message"]
    assert words in message and not message.endswith("..")


def test_the_vendors_own_sentence_and_the_code_of_an_encoding_fault():
    sentence = "maximum context length is 9 tokens"
    assert error_of(of_vendor(b'{"message":"%b"}' % sentence.encode()))["message"] == sentence
    error = error_of(Fault(Condition.CONTENT_ENCODING))
    assert error["details"] == {"error_code": "request_body_encoding_unsupported"}


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("E26", "overloaded_error"),
        ("E27", "overloaded_error"),
        ("E29", "overloaded_error"),
        ("E28", "timeout_error"),
        ("E30", "api_error"),
        ("E38", "api_error"),
        ("E25", "rate_limit_error"),
    ],
)
def test_types_in_a_stream(condition, kind):
    tap = FAMILY.upstream.stream_tap("m", "m", False, GENERATE)
    event = tap.encode_fault(Fault(Condition(condition)), "01ABC")
    name, data, blank, end = event.split(b"\n")
    assert (name, blank, end) == (b"event: error", b"", b"")
    body = json.loads(data[6:])
    assert body["error"]["type"] == kind and body["request_id"] == "01ABC"


# ---- lists of models, heartbeats -----------------------------------------------------------------

MODELS = [ModelEntry(f"m{i:02}", 1795000000 + i, 200_000, None) for i in range(50)]


def page(**query):
    found = json.loads(FAMILY.client.model_list(MODELS, query))
    names = [model["id"] for model in found["data"]]
    assert (found["first_id"], found["last_id"]) == (
        (names[0], names[-1]) if names else (None, None)
    )
    return names, found["has_more"]


def names(first, last):
    return [model.name for model in MODELS[first:last]]


def test_one_model():
    assert json.loads(FAMILY.client.model_entry(MODELS[3])) == {
        "type": "model",
        "id": "m03",
        "display_name": "m03",
        "created_at": "2026-11-18T11:06:43Z",
        "lifecycle": "active",
        "max_input_tokens": 200_000,
        "max_tokens": None,
    }


def test_pages():
    assert page() == (names(0, 20), True)
    assert page(limit="50") == page(limit="1000") == (names(0, 50), False)
    assert page(after_id="m19") == (names(20, 40), True)
    assert page(after_id="m39") == (names(40, 50), False)
    assert page(after_id="m49") == page(after_id="gone") == page(before_id="gone") == ([], False)
    assert page(before_id="m10", limit="5") == (names(5, 10), True)
    assert page(before_id="m03", limit="5") == (names(0, 3), False)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "+5", "5_0", "٣", "9" * 50])
def test_a_limit_out_of_range(limit):
    assert refusal_of(page, limit=limit) == (Condition.INVALID_FIELD, "limit")


def test_heartbeats():
    assert FAMILY.client.keep_alive(False).startswith(b":")
    assert FAMILY.client.keep_alive(True) == b'event: ping\ndata: {"type": "ping"}\n\n'


# ---- whole answers -------------------------------------------------------------------------------


def read(body: bytes, public: str = "m", operation=GENERATE):
    return FAMILY.upstream.read_answer(body, public, "m", operation)


def compaction(tokens):
    return {"type": "compaction", "input_tokens": tokens, "output_tokens": 2}


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, Usage(10, 5)),
        ({"input_tokens": 0, "output_tokens": 0}, Usage()),
        ({"cache_read_input_tokens": 7}, Usage(10, 5, 7)),
        ({"cache_creation_input_tokens": 7}, Usage(10, 5, 0, 7)),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 3}}, Usage(10, 5, 0, 3)),
        (
            {
                "cache_creation_input_tokens": 7,
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
            },
            Usage(10, 5, 0, 3, 4),
        ),
        # The total counts if the split does not add up.
        (
            {
                "cache_creation_input_tokens": 7,
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 9},
            },
            Usage(10, 5, 0, 0, 7),
        ),
        ({"output_tokens_details": {"thinking_tokens": 4}}, Usage(10, 1, 0, 0, 0, 4)),
        ({"output_tokens_details": {"thinking_tokens": 40}}, Usage(10, 0, 0, 0, 0, 5)),
        ({"output_tokens_details": {"thinking_tokens": None}}, Usage(10, 5)),
        ({"output_tokens_details": None, "cache_creation": []}, Usage(10, 5)),
        ({"cache_read_input_tokens": -1, "cache_creation_input_tokens": True}, Usage(10, 5)),
        (
            {
                "iterations": [
                    compaction(3) | {"type": "message"},
                    compaction(3),
                    compaction(None),
                    7,
                ]
            },
            Usage(13, 7),
        ),
        ({"iterations": [compaction(MAX_TOKENS)]}, Usage(MAX_TOKENS, 7)),
        ({"iterations": 7}, Usage(10, 5)),
    ],
)
def test_disjoint_counts(fields, counts):
    assert read_usage({"input_tokens": 10, "output_tokens": 5, **fields}).bare() == counts


@pytest.mark.parametrize(
    ("block", "units"),
    [
        ({"type": "text", "text": "x" * 16}, 4),
        ({"type": "thinking", "thinking": "x" * 16, "signature": "y" * 99}, 4),
        ({"type": "tool_use", "input": {"a": "xxxxxxxx"}}, 4),
        ({"type": "tool_use", "input": "x"}, 0),
        ({"type": "text", "text": None, "x": 1}, 0),
        (7, 0),
    ],
)
def test_output_is_counted_when_no_usage_is_reported(block, units):
    body = json.dumps({"type": "message", "content": [block]}).encode()
    assert read(body).output_units == units


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b'{"content":null,"type":"message"}', "E30"),
        (b'{"input_tokens":14}', "E30"),
        (b'{"type":"message","content":[],"x":"\xff"}', "E30"),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', "E27"),
        (b'{"type":"error","content":[],"error":{"type":"api_error","message":"m"}}', "E26"),
        (b'{"error":{"message":"m","code":401}}', "E24"),
    ],
)
def test_what_is_no_answer(body, condition):
    assert fault_of(read, body).condition == condition


def test_odd_answers_pass_and_only_a_string_is_renamed():
    for body in (
        b'{"content":[{"type":"text","text":"\\ud83d"}],"id":"x","type":"message","model":"m"}',
        b'{"content":[],"id":"x","model":"m","stop_reason":"refusal"}',
    ):
        assert read(body).body is body and read(body).upstream_id == "x"
        assert read(body, "pub").body == body.replace(b'"m"', b'"pub"')
    for body in (
        b'{"type":"message","content":[],"model":7,"stop_reason":"max_tokens"}',
        b'{"type":"x","content":[{"model":"m"}]}',
    ):
        assert read(body, "pub").body == body


# ---- streams -------------------------------------------------------------------------------------


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
    tap = FAMILY.upstream.stream_tap(public, "up", True, GENERATE)
    return tap, [tap.feed(each) for each in events]


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
    plain = delta(**fields)
    for form in (plain, plain.replace(b"\n", b"\r\n"), plain.split(b"\n", 1)[1]):
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
        *(b": comment\n\n", b"\n"),
    ],
)
def test_oddities_pass_as_they_are(odd):
    for events in ([start(), odd], [odd, start()]):
        tap, sent = tap_after(*events)
        assert sent == events and tap.fault is None and not tap.ended


@pytest.mark.parametrize("message", [None, [], {}, {"id": 7, "usage": [], "model": None}])
def test_an_odd_start_passes(message):
    odd = event("message_start", message=message)
    for public in ("up", "a/b"):
        tap, sent = tap_after(odd, public=public)
        assert sent == [odd] and tap.started and tap.upstream_id is None and tap.usage is None


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


def test_a_stream_begins_with_its_start():
    odd = b'data: {"x":1}\n\n'
    tap, sent = tap_after(start(), odd)  # an event without a type passes if it is not the first
    assert sent[1] == odd and tap.fault is None
    for first in (odd, STOP):
        tap, sent = tap_after(first)
        assert sent == [None] and tap.fault.condition == "E30"


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
    doubled = start().replace(b'"model": "up"', b'"model": "up", "model": "up"')
    tap, sent = tap_after(doubled, public="a/b")
    assert sent == [None] and tap.fault.condition == "E30"
