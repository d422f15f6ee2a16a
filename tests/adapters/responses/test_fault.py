"""Refusals of the responses family, as the table of errors has them."""

import json

import pytest

from adapters.family import Envelope
from adapters.faults import Condition, Fault, wrong_type
from adapters.responses import FAMILY
from adapters.responses.client import encode_stream_fault

ROWS = """
E01 401 invalid_request_error missing_api_key
E02 401 invalid_request_error malformed_authorization
E03 401 invalid_request_error invalid_api_key
E04 401 invalid_request_error api_key_disabled
E05 401 invalid_request_error api_key_expired
E06 403 permission_error ip_not_allowed
E07 403 permission_error entry_point_not_allowed
E08 404 invalid_request_error model_not_found
E09 503 server_error server_is_overloaded
E10 400 invalid_request_error missing_required_parameter
E11 400 invalid_request_error invalid_json
E12 400 invalid_request_error invalid_type
E13 400 invalid_request_error missing_required_parameter
E14 400 invalid_request_error unsupported_parameter
E15 413 invalid_request_error request_too_large
E16 415 invalid_request_error unsupported_content_type
E17 415 invalid_request_error unsupported_content_encoding
E18 429 insufficient_quota insufficient_quota
E19 429 insufficient_quota subscription_quota_exceeded
E20 429 rate_limit_error rate_limit_exceeded
E21 400 invalid_request_error context_length_exceeded
E22 400 invalid_request_error upstream_invalid_request
E23 400 invalid_request_error content_policy_violation
E24 502 server_error channel_misconfigured
E25 429 rate_limit_error upstream_rate_limited
E26 502 server_error upstream_error
E27 503 server_error server_is_overloaded
E28 504 server_error upstream_timeout
E29 502 server_error upstream_unreachable
E30 502 server_error upstream_invalid_response
E31 404 invalid_request_error unknown_path
E32 404 invalid_request_error duplicated_path
E33 405 invalid_request_error method_not_allowed
E35 404 invalid_request_error not_found
E36 408 invalid_request_error request_timeout
E37 500 server_error internal_error
E38 503 server_error unavailable
E39 426 invalid_request_error upgrade_not_supported
"""


def encode(fault: Fault) -> Envelope:
    return FAMILY.client.encode_fault(fault, "01ABC")


@pytest.mark.parametrize("row", ROWS.split("\n")[1:-1])
def test_the_table(row):
    number, status, kind, code = row.split()
    envelope = encode(Fault(Condition(number), model="m", param="p"))
    error = json.loads(envelope.body)["error"]
    assert (envelope.status, error["type"], error["code"]) == (int(status), kind, code)
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"] and "None" not in error["message"]
    assert envelope.headers["content-type"] == "application/json"


def test_the_table_is_whole():
    assert {row.split()[0] for row in ROWS.split("\n")[1:-1]} == {c.value for c in Condition}


@pytest.mark.parametrize(
    ("number", "recorded"), [("E09", "no_channel_available"), ("E27", "upstream_overloaded")]
)
def test_the_code_for_an_overload_is_for_clients_only(number, recorded):
    fault = Fault(Condition(number))
    assert json.loads(encode(fault).body)["error"]["code"] == "server_is_overloaded"
    assert stream_events(fault, {}, 0)[0]["code"] == "server_is_overloaded"
    assert fault.code == recorded


def test_headers_of_a_refusal():
    assert encode(Fault(Condition.UPSTREAM_OVERLOADED)).headers["retry-after"] == "2"
    assert encode(Fault(Condition.WALLET_EMPTY)).headers["x-should-retry"] == "false"
    assert encode(Fault(Condition.MISSING_KEY)).headers["www-authenticate"] == "Bearer"


def test_a_body_to_the_letter():
    assert encode(wrong_type("input", "expected a string or an array")).body == (
        b'{"error":{"message":"Wrong type for \'input\': expected a string or an array.",'
        b'"type":"invalid_request_error","param":"input","code":"invalid_type"}}'
    )


def message(fault: Fault) -> str:
    return json.loads(encode(fault).body)["error"]["message"]


def test_an_id_that_is_not_known_is_named():
    fault = Fault(Condition.ID_NOT_FOUND, param="previous_response_id", detail="resp_x")
    assert message(fault) == "The id 'resp_x' is not known here."


def stream_events(fault: Fault, response: dict, number: int) -> tuple[dict, dict]:
    first, second, rest = encode_stream_fault(fault, response, number).split(b"\n\n")
    assert rest == b""
    one, other = first.split(b"\n"), second.split(b"\n")
    assert one[0] == b"event: error" and other[0] == b"event: response.failed"
    return json.loads(one[1].removeprefix(b"data: ")), json.loads(other[1].removeprefix(b"data: "))


def test_the_last_events_to_the_letter():
    fault = Fault(Condition.UPSTREAM_FAILED)
    words = "The upstream channel stopped answering."
    known = {"id": "resp_1", "status": "in_progress", "output": [7], "model": "m"}
    error = {"code": "upstream_error", "message": words, "param": None}
    assert stream_events(fault, known, 5) == (
        {
            "type": "error",
            "sequence_number": 5,
            **error,
            "error": {"type": "server_error", **error},
        },
        {
            "type": "response.failed",
            "sequence_number": 6,
            "response": {
                "id": "resp_1",
                "status": "failed",
                "output": [],
                "model": "m",
                "error": {"code": "server_error", "message": words},
            },
        },
    )


@pytest.mark.parametrize(
    ("condition", "code", "response_code"),
    [
        ("E07", "entry_point_not_allowed", "invalid_prompt"),
        ("E18", "insufficient_quota", "insufficient_quota"),
        ("E21", "context_length_exceeded", "context_length_exceeded"),
        ("E22", "upstream_invalid_request", "invalid_prompt"),
        ("E23", "content_policy_violation", "invalid_prompt"),
        ("E24", "channel_misconfigured", "server_error"),
        ("E25", "upstream_rate_limited", "rate_limit_exceeded"),
        ("E26", "upstream_error", "server_error"),
        ("E27", "server_is_overloaded", "server_error"),
        ("E28", "upstream_timeout", "server_error"),
        ("E30", "upstream_invalid_response", "server_error"),
        ("E37", "internal_error", "server_error"),
        ("E38", "unavailable", "server_error"),
    ],
)
def test_codes_in_a_stream(condition, code, response_code):
    said, last = stream_events(Fault(Condition(condition)), {}, 0)
    assert said["code"] == said["error"]["code"] == code
    assert last["response"]["error"]["code"] == response_code


@pytest.mark.parametrize("condition", list(Condition))
def test_every_condition_has_a_code_that_clients_know(condition):
    last = stream_events(Fault(condition, model="m", param="p"), {}, 0)[1]
    assert last["response"]["error"]["code"] in {
        "server_error",
        "rate_limit_exceeded",
        "insufficient_quota",
        "context_length_exceeded",
        "invalid_prompt",
    }
