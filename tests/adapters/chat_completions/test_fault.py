"""Refusals of chat completions, as the table of errors has them."""

import json

import pytest

from adapters.chat_completions import FAMILY
from adapters.faults import Condition, Fault, wrong_type

ROWS = """
E01 401 invalid_request_error missing_api_key
E02 401 invalid_request_error malformed_authorization
E03 401 invalid_request_error invalid_api_key
E04 401 invalid_request_error api_key_disabled
E05 401 invalid_request_error api_key_expired
E06 403 permission_error ip_not_allowed
E07 403 permission_error entry_point_not_allowed
E08 404 invalid_request_error model_not_found
E09 503 server_error no_channel_available
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
E27 503 server_error upstream_overloaded
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


@pytest.mark.parametrize("row", ROWS.split("\n")[1:-1])
def test_the_table(row):
    number, status, kind, code = row.split()
    envelope = FAMILY.client.encode_fault(Fault(Condition(number)), "req_1")
    error = json.loads(envelope.body)["error"]
    assert (envelope.status, error["type"], error["code"]) == (int(status), kind, code)
    assert list(error) == ["message", "type", "param", "code"]


def test_the_table_is_whole():
    assert {row.split()[0] for row in ROWS.split("\n")[1:-1]} == {c.value for c in Condition}


def test_a_body_to_the_letter():
    envelope = FAMILY.client.encode_fault(
        wrong_type("messages[0].content", "expected a string"), "r"
    )
    assert envelope.body == (
        b'{"error":{"message":"Wrong type for \'messages[0].content\': expected a string.",'
        b'"type":"invalid_request_error","param":"messages[0].content","code":"invalid_type"}}'
    )


def test_the_last_event_of_a_failed_stream():
    assert FAMILY.upstream.stream_tap(
        "m", "m", False, FAMILY.client.operations["generate"]
    ).encode_fault(Fault(Condition.UPSTREAM_FAILED), "r") == (
        b'data: {"error":{"message":"The upstream channel stopped answering.",'
        b'"type":"server_error","param":null,"code":"upstream_error"}}\n\n'
    )
