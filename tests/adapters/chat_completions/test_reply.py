"""Whole answers of chat completions: usage, errors, odd bodies."""

import json

import pytest

from adapters.chat_completions import FAMILY
from adapters.chat_completions.upstream import read_usage
from adapters.faults import Condition, Fault
from store.values.usage import Usage


def read(body: bytes, public: str = "m"):
    return FAMILY.upstream.read_answer(body, public, "m", FAMILY.client.operations["generate"])


def answer(**fields) -> bytes:
    message = {"role": "assistant", "content": "three cups"}
    return json.dumps(
        {"id": "c1", "model": "m", "choices": [{"message": message}], **fields}
    ).encode()


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 14, "completion_tokens": 11}, Usage(14, 11)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        (
            {
                "prompt_tokens": 2600,
                "completion_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 400},
                "completion_tokens_details": {"reasoning_tokens": 60},
            },
            Usage(200, 90, 2000, 400, 0, 60),
        ),
        # A part is never larger than its whole.
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 50},
            },
            Usage(0, 0, 8, 2, 0, 5),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": -1, "cache_write_tokens": "2"},
                "completion_tokens_details": {"reasoning_tokens": True},
            },
            Usage(10, 5),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": None,
                "completion_tokens_details": [],
            },
            Usage(10, 5),
        ),
    ],
)
def test_disjoint_counts(usage, counts):
    assert read_usage(usage) == counts


@pytest.mark.parametrize(
    ("message", "units"),
    [
        ({"content": "x" * 16}, 4),
        ({"content": None, "refusal": "x" * 16}, 4),
        ({"content": [{"type": "text", "text": "x" * 16}, "x" * 16, 5, {}]}, 8),
        ({"reasoning_content": "x" * 16, "reasoning": "x" * 16}, 4),
        ({"reasoning": "x" * 16, "content": "x" * 16}, 8),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "x" * 16}}, 7, {}]}, 4),
        ({"tool_calls": [{"custom": {"input": "x" * 16}}]}, 4),
        ({"tool_calls": [{"function": {"arguments": {"a": "xxxxxxxx"}}}]}, 4),
        ({"tool_calls": 5, "function_call": {"arguments": "x" * 16}}, 4),
        ("text", 0),
        ({}, 0),
    ],
)
def test_output_is_counted_when_no_usage_is_reported(message, units):
    body = json.dumps({"choices": [{"message": message}, 7]}).encode()
    assert read(body).output_units == units


def test_output_that_cannot_be_counted_counts_nothing():
    nested = b"[" * 900 + b"]" * 900
    assert read(b'{"choices":[{"message":' + nested + b"}]}").output_units == 0


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b'{"choices":[]}', "E30"),
        (b'{"choices":null}', "E30"),
        (b'{"choices":{}}', "E30"),
        (b'{"id":"x"}', "E30"),
        (b'{"choices":[{}],"x":"\xff"}', "E30"),
        (b'{"error":{"message":"m","type":"server_error"}}', "E26"),
        (b'{"error":{"message":"m","code":429}}', "E25"),
        (b'[{"error":{"code":503,"status":"UNAVAILABLE"}}]', "E27"),
        (b'{"choices":[],"error":{"code":"insufficient_quota"}}', "E24"),
        (b'{"choices":5,"error":"\\ud800","code":500}', "E26"),
    ],
)
def test_what_is_no_answer(body, condition):
    with pytest.raises(Fault) as caught:
        read(body)
    assert caught.value.condition == condition


def test_odd_answers_pass_all_the_same():
    body = b'{"id":"c","model":"m","choices":[{"message":{"content":"\\ud83d"}}],"x":NaN}'
    assert read(body).body is body and read(body).upstream_id == "c"
    body = body.replace(b',"x":NaN', b"")
    assert read(body, "pub").body == body.replace(b'"m"', b'"pub"')


def test_only_a_string_is_renamed():
    for body in (b'{"model":null,"choices":[{}]}', b'{"choices":[{"model":"m"}]}'):
        assert read(body, "pub").body == body
    with pytest.raises(Fault) as caught:
        read(b'{"model":"a","choices":[{}],"model":"b"}', "pub")
    assert caught.value.condition is Condition.UPSTREAM_INVALID
