"""Requests of the responses family: reading, editing, headers, paths."""

import json

import pytest

from adapters.family import Operation
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans, top_level
from adapters.registry import VENDORS
from adapters.responses import FAMILY

CREATE = FAMILY.client.operations["generate"]


def spans_of(**fields) -> Spans:
    body = {"model": "m", "input": "Is tea ready?", **fields}
    return top_level(json.dumps({k: v for k, v in body.items() if v is not ...}).encode())


def peek(operation: str = "generate", **fields):
    return FAMILY.client.peek(spans_of(**fields), FAMILY.client.operations[operation], None)


def refusal(action, *args, **kwargs) -> tuple[str, str | None]:
    with pytest.raises(Fault) as caught:
        action(*args, **kwargs)
    return caught.value.condition.value, caught.value.param


def test_what_is_read():
    read = peek()
    assert (read.model, read.stream, read.max_output_tokens, read.choices) == ("m", False, None, 1)
    assert read.include_usage
    assert peek(stream=True).stream and not peek(stream=None).stream
    assert peek(max_output_tokens=0).max_output_tokens is None
    assert peek(max_output_tokens=7, background=False).max_output_tokens == 7
    assert FAMILY.client.model_name(spans_of(input=...), None) == "m"
    assert peek().stored and peek(store=None).stored and peek(store=True).stored
    assert not peek(store=False).stored and not peek("compact").stored


@pytest.mark.parametrize("given", ["", "x", [], [{"role": "user", "content": "x"}], [7]])
def test_input_is_text_or_items(given):
    assert peek(input=given).model == "m"


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
        ({"model": ...}, "E10", "model"),
        ({"model": None}, "E10", "model"),
        ({"model": 7}, "E12", "model"),
        ({"input": ...}, "E13", "input"),
        ({"input": None}, "E13", "input"),
        ({"input": {}}, "E12", "input"),
        ({"input": 7, "prompt": {"id": "pmpt_1"}}, "E12", "input"),
        ({"stream": 1}, "E12", "stream"),
        ({"max_output_tokens": "5"}, "E12", "max_output_tokens"),
        ({"max_output_tokens": -1}, "E12", "max_output_tokens"),
        ({"background": True}, "E14", "background"),
        ({"background": "yes"}, "E12", "background"),
    ],
)
def test_refusals(fields, condition, param):
    assert refusal(peek, **fields) == (condition, param)


@pytest.mark.parametrize("operation", ["count", "compact"])
def test_counts_and_compactions_know_no_stream_and_no_bound(operation):
    odd = {"stream": True, "max_output_tokens": "x", "background": True}
    read = peek(operation, **odd)
    assert (read.model, read.stream, read.max_output_tokens, read.choices) == ("m", False, None, 1)
    assert refusal(peek, operation, model="") == ("E10", "model")
    assert refusal(peek, operation, input=7) == ("E12", "input")


def test_only_the_models_value_is_edited():
    body = b' {"input":"model" , "model" : "m","metadata":{"model":"m"},"stream":true}\n'
    spans = top_level(body)
    read = FAMILY.client.peek(spans, CREATE, None)
    assert FAMILY.upstream.edit_request(spans, read, CREATE, "m", VENDORS["openai"]) is body
    edited = FAMILY.upstream.edit_request(spans, read, CREATE, "up/x", VENDORS["openai"])
    assert edited == body.replace(b'"model" : "m"', b'"model" : "up/x"')


def test_a_doubled_field_is_refused():
    with pytest.raises(Fault) as caught:
        top_level(b'{"model":"m","input":"x","input":"y"}')
    assert caught.value.condition is Condition.INVALID_FIELD


PATHS = {
    "generate": "/v1/responses",
    "count": "/v1/responses/input_tokens",
    "compact": "/v1/responses/compact",
    "stored": "/v1/responses/resp_0-aZ",
    "cancel": "/v1/responses/resp_0-aZ/cancel",
    "list_input": "/v1/responses/resp_0-aZ/input_items",
}


def test_the_paths():
    def path(operation: Operation) -> str:
        target = "resp_0-aZ" if operation.stored else None
        return FAMILY.upstream.path(operation, "up", target)

    assert {name: path(one) for name, one in FAMILY.client.operations.items()} == PATHS


def test_what_costs_nothing():
    free = {name for name, one in FAMILY.client.operations.items() if one.free}
    stored = {name for name, one in FAMILY.client.operations.items() if one.stored}
    assert stored == {"stored", "cancel", "list_input"} and free == {*stored, "count"}
    assert all(name == one.job for name, one in FAMILY.client.operations.items())


CLIENT = {
    "authorization": "Bearer client",
    "openai-organization": "org-1",
    "openai-project": "proj\r\nx: y",
    "openai-beta": "b=1",
    "session-id": "s",
    "x-codex-turn-state": "t",
    "originator": "codex_exec",
    "user-agent": "codex_exec/1",
}
OURS = [
    "authorization: Bearer k",
    "content-type: application/json",
    "accept: application/json, text/event-stream",
]


def test_headers_of_the_client_go_to_the_first_party_only():
    lines = FAMILY.upstream.request_headers(CLIENT, VENDORS["openai"], "k")
    assert lines == [*OURS, "openai-organization: org-1", "openai-beta: b=1"]
    assert FAMILY.upstream.request_headers(CLIENT, VENDORS["openai-compatible"], "k") == OURS


def test_a_key_that_cannot_stand_in_a_header():
    assert refusal(FAMILY.upstream.request_headers, {}, VENDORS["openai"], "k\n")[0] == "E24"
