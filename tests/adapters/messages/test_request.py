"""Requests of the messages family: reading, editing, headers."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.messages import FAMILY
from adapters.registry import VENDORS


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


def lines(client, vendor="anthropic"):
    return FAMILY.upstream.request_headers(client, VENDORS[vendor], "k")[3:]


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
    assert lines(client) == [f"anthropic-version: {version}"]


def test_betas_keep_their_order():
    assert lines({"anthropic-beta": "b-2,a-1 , ,c"})[1:] == ["anthropic-beta: b-2,a-1,c"]
    for nothing in ("", " ,", "a\nb"):
        assert lines({"anthropic-beta": nothing})[1:] == []


def test_the_credential_is_the_vendors():
    assert FAMILY.upstream.request_headers({}, VENDORS["anthropic"], "k")[0] == "x-api-key: k"
    assert FAMILY.upstream.request_headers({}, VENDORS["demo"], "k")[0] == "authorization: Bearer k"
