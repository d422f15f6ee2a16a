"""The client side of messages: the fields that are read, errors, lists of models, heartbeats."""

import json

import pytest

from adapters.family import ModelEntry
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.json.jsonio import top_level
from adapters.messages import FAMILY
from adapters.upstream_errors.read import read_upstream_error


def peek(counting=False, **fields):
    body = {"model": "m", "messages": [], "max_tokens": 5, **fields}
    body = {name: value for name, value in body.items() if value is not ...}
    operation = FAMILY.client.operations["count" if counting else "generate"]
    return FAMILY.client.peek(top_level(json.dumps(body).encode()), operation, None)


def test_what_is_read():
    read = peek()
    assert (read.model, read.stream, read.max_output_tokens, read.choices) == ("m", False, 5, 1)
    assert read.include_usage
    assert peek(stream=True).stream and not peek(stream=None).stream
    assert peek(max_tokens=0).max_output_tokens is None


def test_counting_needs_no_bound():
    assert peek(counting=True, max_tokens=...).max_output_tokens is None
    counting = FAMILY.client.operations["count"]
    assert FAMILY.upstream.path(counting, "up", None) == "/v1/messages/count_tokens"


@pytest.mark.parametrize(
    ("fields", "condition", "param"),
    [
        ({"model": ...}, "E10", "model"),
        ({"model": ""}, "E10", "model"),
        ({"model": {}}, "E12", "model"),
        ({"messages": ...}, "E13", "messages"),
        ({"messages": "x"}, "E12", "messages"),
        ({"max_tokens": ...}, "E13", "max_tokens"),
        ({"max_tokens": "5"}, "E12", "max_tokens"),
        ({"max_tokens": -1}, "E12", "max_tokens"),
        ({"stream": 1}, "E12", "stream"),
    ],
)
def test_refusals(fields, condition, param):
    with pytest.raises(Fault) as caught:
        peek(**fields)
    assert (caught.value.condition, caught.value.param) == (Condition(condition), param)


def message(fault: Fault) -> str:
    return json.loads(FAMILY.client.encode_fault(fault, "r").body)["error"]["message"]


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
            read_upstream_error(
                400,
                {},
                b'{"type":"error","error":{"type":"invalid_request_error",'
                b'"message":"prompt is too long: 210000 tokens > 200000 maximum"}}',
            ).fault,
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        (Fault(Condition.CONTEXT_LENGTH, "Words."), "Words."),
        (Fault(Condition.INVALID_KEY), "invalid x-api-key"),
        (Fault(Condition.INVALID_KEY, detail="sk-slc-…wxyz"), "invalid x-api-key"),
    ],
)
def test_wordings(fault, words):
    assert words in message(fault)
    assert not message(fault).endswith("..")


def test_the_vendors_own_sentence_has_no_words_of_ours():
    said = "maximum context length is 9 tokens"
    fault = read_upstream_error(400, {}, b'{"message":"%b"}' % said.encode()).fault
    assert message(fault) == said


def test_encoding_fault_has_its_error_code():
    error = json.loads(FAMILY.client.encode_fault(Fault(Condition.CONTENT_ENCODING), "r").body)[
        "error"
    ]
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
    event = FAMILY.upstream.stream_tap(
        "m", "m", False, FAMILY.client.operations["generate"]
    ).encode_fault(Fault(Condition(condition)), "01ABC")
    name, data, blank, end = event.split(b"\n")
    assert (name, blank, end) == (b"event: error", b"", b"")
    body = json.loads(data[6:])
    assert body["error"]["type"] == kind and body["request_id"] == "01ABC"


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
    assert page(limit="50") == (names(0, 50), False)
    assert page(limit="1000") == (names(0, 50), False)
    assert page(after_id="m19") == (names(20, 40), True)
    assert page(after_id="m39") == (names(40, 50), False)
    assert page(after_id="m49") == ([], False)
    assert page(after_id="gone") == ([], False)
    assert page(before_id="m10", limit="5") == (names(5, 10), True)
    assert page(before_id="m03", limit="5") == (names(0, 3), False)
    assert page(before_id="gone") == ([], False)


def test_going_through_all_pages_as_the_sdk_does():
    seen, more, query = [], True, {"limit": "7"}
    while more:
        found, more = page(**query)
        seen += found
        query["after_id"] = found[-1]
    assert seen == names(0, 50)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "+5", "5_0", "٣", "9" * 50])
def test_a_limit_out_of_range(limit):
    with pytest.raises(Fault) as caught:
        page(limit=limit)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, "limit")


def test_heartbeats():
    assert FAMILY.client.keep_alive(False).startswith(b":")
    assert FAMILY.client.keep_alive(True) == b'event: ping\ndata: {"type": "ping"}\n\n'
