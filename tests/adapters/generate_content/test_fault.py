"""Refusals of the generate-content family, as the table of errors has them."""

import json

import pytest

from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.generate_content import FAMILY

EVENTS = FAMILY.client.operations["stream"]
ARRAY = FAMILY.client.operations["stream_array"]


def message(fault: Fault) -> str:
    return json.loads(FAMILY.client.encode_fault(fault, "r").body)["error"]["message"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            Fault(Condition.MISSING_KEY),
            "No API key was sent. Use the header 'x-goog-api-key: <API_KEY>' "
            "or 'Authorization: Bearer <API_KEY>'.",
        ),
        (
            Fault(Condition.MODEL_MISSING),
            "The path must name a model: models/{model}:generateContent.",
        ),
        (
            Fault(Condition.MODEL_NOT_FOUND, model="demo-huge"),
            "models/demo-huge is not available to this API key. "
            "Check the name and the channel status.",
        ),
        (
            Fault(Condition.MODEL_NOT_FOUND),
            "This model is not available to this API key. Check the name and the channel status.",
        ),
        (Fault(Condition.MODEL_NOT_FOUND, "Words."), "Words."),
        (Fault(Condition.FIELD_MISSING, param="contents"), "Missing required field: 'contents'."),
        (
            wrong_type("contents[0].parts", "expected an array"),
            "Wrong type for 'contents[0].parts': expected an array.",
        ),
        (
            wrong_value("pageSize", "expected 0 or more"),
            "Wrong value for 'pageSize': expected 0 or more.",
        ),
        (Fault(Condition.INVALID_KEY), "API key not valid. Please pass a valid API key."),
        (
            Fault(Condition.INVALID_KEY, detail="sk-slc-…wxyz"),
            "API key not valid. Please pass a valid API key.",
        ),
    ],
)
def test_wordings(fault, words):
    assert message(fault) == words


def test_a_wait_is_told_twice():
    envelope = FAMILY.client.encode_fault(Fault(Condition.RATE_LIMITED, retry_after_s=7), "r")
    assert envelope.headers["retry-after"] == "7"
    assert json.loads(envelope.body)["error"]["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    ]
    envelope = FAMILY.client.encode_fault(Fault(Condition.WALLET_EMPTY), "r")
    assert "details" not in json.loads(envelope.body)["error"]
    assert envelope.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("condition", "code", "status"),
    [
        ("E24", 500, "INTERNAL"),
        ("E26", 503, "UNAVAILABLE"),
        ("E27", 503, "UNAVAILABLE"),
        ("E29", 503, "UNAVAILABLE"),
        ("E28", 504, "DEADLINE_EXCEEDED"),
        ("E30", 500, "INTERNAL"),
        ("E38", 503, "UNAVAILABLE"),
        ("E25", 429, "RESOURCE_EXHAUSTED"),
    ],
)
def test_errors_in_a_stream(condition, code, status):
    fault = Fault(Condition(condition), "é\u2028")
    ending = FAMILY.upstream.stream_tap("m", "m", True, EVENTS).encode_fault(fault, "01ABC")
    event, bare = ending.split(b"\r\n\r\n")
    assert event.startswith(b'data: {"error":{"code":') and event.endswith(b"}}")
    assert ending.isascii() and bare == event.removeprefix(b"data: ") + b"\n"
    error = {"code": code, "message": "é\u2028", "status": status}
    assert json.loads(bare) == {"error": error}
    tap = FAMILY.upstream.stream_tap("m", "m", True, ARRAY)
    assert json.loads(tap.encode_fault(fault, "01ABC")) == [{"error": error}]
    sent = tap.feed(b'[{"candidates":[]}')
    assert json.loads(sent + b"\r\n" + tap.encode_fault(fault, "01ABC"))[1:] == [{"error": error}]
