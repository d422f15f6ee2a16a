"""Errors, lists of models and heartbeats of chat completions and of responses."""

import json
import pathlib

import pytest

from adapters.family import ModelEntry
from adapters.faults import Condition, Fault, wrong_type
from adapters.registry import FAMILIES

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "chat_completions"
OVERLOADED = "server_is_overloaded"  # the code that Codex knows
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

ERRORS = [row.split() for row in ROWS.split("\n")[1:-1]]
of_both = pytest.mark.parametrize(
    "client", [FAMILIES[name].client for name in ("chat_completions", "responses")]
)


def encode(client, fault):
    return client.encode_fault(fault, "01ABC")


def test_each_condition_has_a_row():
    assert [row[0] for row in ERRORS] == [condition.value for condition in Condition]


@pytest.mark.parametrize(("number", "status", "kind", "code"), ERRORS)
@of_both
def test_the_table(client, number, status, kind, code):
    envelope = encode(client, Fault(Condition(number), model="m", param="p"))
    error = json.loads(envelope.body)["error"]
    if client is FAMILIES["responses"].client and number in ("E09", "E27"):
        code = OVERLOADED
    assert (envelope.status, error["type"], error["code"]) == (int(status), kind, code)
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"] and "None" not in error["message"]
    assert envelope.headers["content-type"] == "application/json"


@of_both
def test_headers_of_a_refusal(client):
    assert encode(client, Fault(Condition.UPSTREAM_OVERLOADED)).headers["retry-after"] == "2"
    assert encode(client, Fault(Condition.WALLET_EMPTY)).headers["x-should-retry"] == "false"
    assert encode(client, Fault(Condition.MISSING_KEY)).headers["www-authenticate"] == "Bearer"


@of_both
def test_a_body_to_the_letter(client):
    assert encode(client, wrong_type("messages[0].content", "expected a string")).body == (
        b'{"error":{"message":"Wrong type for \'messages[0].content\': expected a string.",'
        b'"type":"invalid_request_error","param":"messages[0].content","code":"invalid_type"}}'
    )


@of_both
def test_an_unknown_id_is_named(client):
    fault = Fault(Condition.ID_NOT_FOUND, param="previous_response_id", detail="resp_x")
    message = json.loads(encode(client, fault).body)["error"]["message"]
    assert message == "The id 'resp_x' is not known here."


@of_both
def test_the_list_of_models_is_that_of_the_sample(client):
    models = [ModelEntry(name, 1795000000, None, None) for name in ("demo-large", "demo-small")]
    sample = json.loads((WIRE / "models.json").read_bytes())
    assert json.loads(client.model_list(models, {"limit": "1"})) == sample
    assert json.loads(client.model_entry(models[0])) == sample["data"][0]
    assert json.loads(client.model_list([], {})) == {"object": "list", "data": []}


@of_both
def test_heartbeats_are_comments(client):
    assert client.keep_alive(True) == client.keep_alive(False) == b": keep-alive\n\n"
