"""The last events of failed streams of the responses family."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.responses.client import encode_stream_fault


@pytest.mark.parametrize(
    ("number", "recorded"), [("E09", "no_channel_available"), ("E27", "upstream_overloaded")]
)
def test_the_code_for_an_overload_is_for_clients_only(number, recorded):
    fault = Fault(Condition(number))
    assert stream_events(fault, {}, 0)[0]["code"] == "server_is_overloaded"
    assert fault.code == recorded


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
