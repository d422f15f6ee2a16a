"""The upstream side of messages: headers, whole answers, their usage, odd bodies, token counts."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.usage import MAX_TOKENS, Usage
from adapters.messages import FAMILY
from adapters.messages.upstream import read_usage
from adapters.registry import VENDORS


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


def read(body: bytes, public: str = "m"):
    return FAMILY.upstream.read_answer(body, public, "m", FAMILY.client.operations["generate"])


def usage_of(**fields):
    return read_usage({"input_tokens": 10, "output_tokens": 5, **fields})


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, Usage(10, 5)),
        ({"input_tokens": 0, "output_tokens": 0}, Usage()),
        ({"cache_read_input_tokens": 7}, Usage(10, 5, 7)),
        ({"cache_creation_input_tokens": 7}, Usage(10, 5, 0, 7)),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 3}}, Usage(10, 5, 0, 3)),
        (
            {
                "cache_creation_input_tokens": 7,
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
            },
            Usage(10, 5, 0, 3, 4),
        ),
        # The total counts when the split does not add up.
        (
            {
                "cache_creation_input_tokens": 7,
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 9},
            },
            Usage(10, 5, 0, 0, 7),
        ),
        ({"output_tokens_details": {"thinking_tokens": 4}}, Usage(10, 1, 0, 0, 0, 4)),
        ({"output_tokens_details": {"thinking_tokens": 40}}, Usage(10, 0, 0, 0, 0, 5)),
        ({"output_tokens_details": {"thinking_tokens": None}}, Usage(10, 5)),
        ({"output_tokens_details": None, "cache_creation": []}, Usage(10, 5)),
        ({"cache_read_input_tokens": -1, "cache_creation_input_tokens": True}, Usage(10, 5)),
        (
            {
                "iterations": [
                    {"type": "message", "input_tokens": 100, "output_tokens": 100},
                    {"type": "compaction", "input_tokens": 3, "output_tokens": 2},
                    {"type": "compaction", "input_tokens": None},
                    7,
                ]
            },
            Usage(13, 7),
        ),
        (
            {
                "iterations": [
                    {"type": "compaction", "input_tokens": MAX_TOKENS, "output_tokens": 0}
                ]
            },
            Usage(MAX_TOKENS, 5),
        ),
        ({"iterations": 7}, Usage(10, 5)),
    ],
)
def test_disjoint_counts(fields, counts):
    assert usage_of(**fields) == counts


@pytest.mark.parametrize(
    ("block", "units"),
    [
        ({"type": "text", "text": "x" * 16}, 4),
        ({"type": "thinking", "thinking": "x" * 16, "signature": "y" * 99}, 4),
        ({"type": "tool_use", "input": {"a": "xxxxxxxx"}}, 4),
        ({"type": "tool_use", "input": "x"}, 0),
        ({"type": "text", "text": None}, 0),
        (7, 0),
    ],
)
def test_output_is_counted_when_no_usage_is_reported(block, units):
    body = json.dumps({"type": "message", "content": [block]}).encode()
    assert read(body).output_units == units


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b'{"content":null,"type":"message"}', "E30"),
        (b'{"input_tokens":14}', "E30"),
        (b'{"type":"message","content":[],"x":"\xff"}', "E30"),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', "E27"),
        (b'{"type":"error","content":[],"error":{"type":"api_error","message":"m"}}', "E26"),
        (b'{"error":{"message":"m","code":401}}', "E24"),
    ],
)
def test_what_is_no_answer(body, condition):
    with pytest.raises(Fault) as caught:
        read(body)
    assert caught.value.condition == condition


def test_odd_answers_pass_all_the_same():
    for body in (
        b'{"content":[{"type":"text","text":"\\ud83d"}],"id":"x","type":"message","model":"m"}',
        b'{"content":[],"id":"x","model":"m"}',
    ):
        assert read(body).body is body and read(body).upstream_id == "x"
        assert read(body, "pub").body == body.replace(b'"m"', b'"pub"')


def test_only_a_string_is_renamed():
    for body in (
        b'{"type":"message","content":[],"model":7}',
        b'{"type":"x","content":[{"model":"m"}]}',
    ):
        assert read(body, "pub").body == body


def test_token_counts_pass_as_they_are():
    body = b'{ "input_tokens": 14, "x": 1 }'
    found = FAMILY.upstream.read_answer(body, "pub", "m", FAMILY.client.operations["count"])
    assert found.body is body and found.usage is None and found.output_units == 0
    for bad in (b'{"input_tokens":"x"}', b"[]", b"", b'{"type":"message","content":[]}'):
        with pytest.raises(Fault) as caught:
            FAMILY.upstream.read_answer(bad, "pub", "m", FAMILY.client.operations["count"])
        assert caught.value.condition is Condition.UPSTREAM_INVALID
