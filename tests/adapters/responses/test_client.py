"""The client's side of the family: reading and editing requests, paths, headers, the last events
of failed streams."""

import json

import pytest
from msgspec.structs import replace

from adapters.family import Peek
from adapters.family.asks import NOTHING_ASKED
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans, top_level
from adapters.registry import VENDORS
from adapters.responses import FAMILY
from adapters.responses.client import encode_stream_fault

OPERATIONS = FAMILY.client.operations


def spans_of(**fields) -> Spans:
    body = {"model": "m", "input": "Is tea ready?", **fields}
    return top_level(json.dumps({k: v for k, v in body.items() if v is not ...}).encode())


def peek(operation: str = "generate", **fields):
    return FAMILY.client.peek(spans_of(**fields), OPERATIONS[operation], None)


def refusal(action, *args, **kwargs) -> tuple[str, str | None]:
    with pytest.raises(Fault) as caught:
        action(*args, **kwargs)
    return caught.value.condition.value, caught.value.param


ODD = {"stream": True, "max_output_tokens": "x", "background": True}


@pytest.mark.parametrize(
    ("operation", "fields", "stream", "bound", "stored"),
    [
        ("generate", {}, False, None, True),
        ("generate", {"stream": True, "store": True}, True, None, True),
        ("generate", {"stream": None, "store": None}, False, None, True),
        ("generate", {"store": False, "max_output_tokens": 0}, False, None, False),
        ("generate", {"max_output_tokens": 7, "background": False}, False, 7, True),
        *(("generate", {"input": items}, False, None, True) for items in ("", "x", [], [7])),
        ("compact", {}, False, None, False),
        *((operation, ODD, False, None, False) for operation in ("count", "compact")),
    ],
)
def test_what_is_read(operation, fields, stream, bound, stored):
    read = replace(peek(operation, **fields), asks=NOTHING_ASKED, stored_by_default=False)
    assert read == Peek("m", stream, bound, 1, True, stored)
    assert FAMILY.client.model_name(spans_of(input=...), None) == "m"


@pytest.mark.parametrize(
    "instead",
    [
        {"prompt": {"id": "pmpt_1"}},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"conversation": {"id": "conv_1"}},
    ],
)
@pytest.mark.parametrize("operation", ["generate", "count", "compact"])
def test_the_vendor_may_have_the_input(instead, operation):
    for absent in (..., None):
        assert peek(operation, input=absent, **instead).model == "m"
    missing = dict.fromkeys(instead)
    assert refusal(peek, operation, input=..., **missing) == ("E13", "input")


@pytest.mark.parametrize(
    ("fields", "condition", "param"),
    [
        *(({"model": absent}, "E10", "model") for absent in (..., None, "")),
        ({"model": 7}, "E12", "model"),
        ({"input": ...}, "E13", "input"),
        ({"input": None}, "E13", "input"),
        ({"input": {}}, "E12", "input"),
        ({"input": 7, "prompt": {"id": "pmpt_1"}}, "E12", "input"),
        ({"stream": 1}, "E12", "stream"),
        ({"max_output_tokens": -1}, "E12", "max_output_tokens"),
        ({"background": "yes"}, "E12", "background"),
    ],
)
def test_refusals(fields, condition, param):
    assert refusal(peek, **fields) == (condition, param)
    if param in ("model", "input"):
        assert refusal(peek, "count", **fields) == (condition, param)
        assert refusal(peek, "compact", **fields) == (condition, param)


PATHS = {
    "generate": "/v1/responses",
    "count": "/v1/responses/input_tokens",
    "compact": "/v1/responses/compact",
    "stored": "/v1/responses/resp_0-aZ",
    "cancel": "/v1/responses/resp_0-aZ/cancel",
    "list_input": "/v1/responses/resp_0-aZ/input_items",
}


def test_operations():
    assert {
        name: FAMILY.upstream.path(one, "up", "resp_0-aZ" if one.stored else None)
        for name, one in OPERATIONS.items()
    } == PATHS
    stored = {name for name, one in OPERATIONS.items() if one.stored}
    assert stored == {"stored", "cancel", "list_input"}
    assert {name for name, one in OPERATIONS.items() if one.free} == {*stored, "count"}
    assert all(name == one.job for name, one in OPERATIONS.items())


@pytest.mark.parametrize(
    ("fields", "stored", "sent"),
    [
        ({}, True, None),
        ({}, False, {"store": False}),
        ({"store": None}, False, {"store": False}),
        ({"store": True}, True, None),
        ({"store": False}, False, None),
    ],
)
def test_what_a_vendor_stores_unasked_can_be_forbidden(fields, stored, sent):
    spans, operation = spans_of(**fields), OPERATIONS["generate"]
    read = replace(FAMILY.client.peek(spans, operation, None), stored=stored)
    for name in ("m", "up"):
        edited = FAMILY.upstream.edit_request(spans, read, operation, name, VENDORS["openai"])
        assert json.loads(edited) == json.loads(spans.body) | (sent or {}) | {"model": name}
        assert (edited is spans.body) is (sent is None and name == "m")


def test_counts_and_compactions_have_nothing_to_store():
    for job in ("count", "compact"):
        spans, operation = spans_of(), OPERATIONS[job]
        read = FAMILY.client.peek(spans, operation, None)
        edit = FAMILY.upstream.edit_request
        assert edit(spans, read, operation, "m", VENDORS["openai"]) is spans.body


# ---- the last events of failed streams -----------------------------------------------------------


def last_events(fault: Fault, response: dict, number: int) -> list[dict]:
    first, second, rest = encode_stream_fault(fault, response, number).split(b"\n\n")
    assert rest == b""
    names, data = zip(*(event.split(b"\n") for event in (first, second)), strict=True)
    assert names == (b"event: error", b"event: response.failed")
    return [json.loads(line.removeprefix(b"data: ")) for line in data]


def test_the_last_events_to_the_letter():
    message = "The upstream channel stopped answering."
    response = {"id": "resp_1", "status": "in_progress", "output": [7], "model": "m"}
    error = {"code": "upstream_error", "message": message, "param": None}
    assert last_events(Fault(Condition.UPSTREAM_FAILED), response, 5) == [
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
                **response,
                "status": "failed",
                "output": [],
                "error": {"code": "server_error", "message": message},
            },
        },
    ]


CODES = {
    "E07": ("entry_point_not_allowed", "invalid_prompt"),
    "E09": ("server_is_overloaded", "server_error"),  # for clients only
    "E18": ("insufficient_quota", "insufficient_quota"),
    "E21": ("context_length_exceeded", "context_length_exceeded"),
    "E22": ("upstream_invalid_request", "invalid_prompt"),
    "E23": ("content_policy_violation", "invalid_prompt"),
    "E24": ("channel_misconfigured", "server_error"),
    "E25": ("upstream_rate_limited", "rate_limit_exceeded"),
    "E26": ("upstream_error", "server_error"),
    "E27": ("server_is_overloaded", "server_error"),
    "E28": ("upstream_timeout", "server_error"),
    "E30": ("upstream_invalid_response", "server_error"),
    "E37": ("internal_error", "server_error"),
    "E38": ("unavailable", "server_error"),
}


@pytest.mark.parametrize("condition", list(Condition))
def test_codes_in_a_stream(condition):
    fault = Fault(condition, model="m", param="p")
    error, last = last_events(fault, {}, 0)
    codes = (error["code"], last["response"]["error"]["code"])
    assert error["error"]["code"] == codes[0]
    assert codes == CODES.get(condition.value, codes)
    assert codes[1] in {code for _, code in CODES.values()}
