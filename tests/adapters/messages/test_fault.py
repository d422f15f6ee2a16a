"""Refusals of the messages family, as the table of errors has them."""

import json

import pytest

from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.messages import FAMILY
from adapters.upstream_errors.read import read_upstream_error


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
