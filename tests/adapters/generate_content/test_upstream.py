"""Whole answers of generate-content: usage, errors, odd bodies, token counts."""

import json

import pytest

from adapters.faults import Fault
from adapters.generate_content import FAMILY
from adapters.generate_content.upstream import read_usage
from store.values.usage import MAX_TOKENS, Usage

PLAIN = FAMILY.client.operations["generate"]


def read(body: bytes, public: str = "m", upstream: str = "m"):
    return FAMILY.upstream.read_answer(body, public, upstream, PLAIN)


def usage_of(**fields):
    return read_usage({"promptTokenCount": 10, "candidatesTokenCount": 5, **fields})


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, Usage(10, 5)),
        ({"promptTokenCount": 0, "candidatesTokenCount": 0}, Usage()),
        ({"cachedContentTokenCount": 7}, Usage(3, 5, 7)),
        ({"cachedContentTokenCount": 70}, Usage(0, 5, 10)),
        ({"thoughtsTokenCount": 22}, Usage(10, 5, reasoning_tokens=22)),
        ({"toolUsePromptTokenCount": 4}, Usage(14, 5)),
        ({"toolUsePromptTokenCount": MAX_TOKENS}, Usage(MAX_TOKENS, 5)),
        ({"cachedContentTokenCount": -1, "thoughtsTokenCount": True}, Usage(10, 5)),
        ({"cachedContentTokenCount": "3", "thoughtsTokenCount": None}, Usage(10, 5)),
        # Zeros may be left out, so the total decides.
        ({"candidatesTokenCount": None, "totalTokenCount": 10}, Usage(10, 0)),
        ({"candidatesTokenCount": None, "totalTokenCount": 3}, Usage(10, 0)),
        (
            {"candidatesTokenCount": None, "totalTokenCount": 20, "thoughtsTokenCount": 3}
            | {"toolUsePromptTokenCount": 1},
            Usage(11, 6, reasoning_tokens=3),
        ),
    ],
)
def test_disjoint_counts(fields, counts):
    assert usage_of(**fields) == counts


@pytest.mark.parametrize(
    "usage",
    [
        {"candidatesTokenCount": 1, "totalTokenCount": 3},
        {"promptTokenCount": 1, "totalTokenCount": "3"},
    ],
)
def test_a_total_is_not_enough(usage):
    assert read_usage(usage) is None


@pytest.mark.parametrize(
    ("part", "units"),
    [
        ({"text": "x" * 16}, 4),
        ({"text": "x" * 16, "thought": True, "thoughtSignature": "y" * 99}, 4),
        ({"functionCall": {"name": "f", "args": {"a": "xxxxxxxx"}}}, 4),
        ({"functionCall": {"name": "f", "partialArgs": ["xxxxxxxxxxxx"]}}, 4),
        ({"functionCall": {"name": "f", "args": None}}, 0),
        ({"functionCall": "x"}, 0),
        ({"inlineData": {"data": "x" * 99}}, 0),
        ({"text": None}, 0),
        (7, 0),
    ],
)
def test_output_is_counted_when_no_usage_is_reported(part, units):
    body = {"candidates": [{"content": {"parts": [part]}}, 7, {"finishReason": "SAFETY"}]}
    assert read(json.dumps(body).encode()).output_units == units


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b'{"candidates":[]}', "E30"),
        (b'{"candidates":null,"promptFeedback":7}', "E30"),
        (b'{"totalTokens":14}', "E30"),
        (b'{"candidates":[{}],"x":"\xff"}', "E30"),
        (b'[{"candidates":[{}]}]', "E30"),
        (b'{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}', "E27"),
        (b'[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]', "E25"),
        (b'{"candidates":[{}],"error":{"code":500,"message":"m","status":"INTERNAL"}}', "E26"),
        (b'{"error":{"code":400,"message":"m","details":[{"reason":"API_KEY_INVALID"}]}}', "E24"),
    ],
)
def test_what_is_no_answer(body, condition):
    with pytest.raises(Fault) as caught:
        read(body)
    assert caught.value.condition == condition


def test_answers_without_candidates():
    blocked = b'{"promptFeedback":{"blockReason":"OTHER"},"responseId":"x","modelVersion":"m"}'
    for body in (blocked, blocked.replace(b"promptFeedback", b"usageMetadata")):
        found = read(body)
        assert found.body is body and found.upstream_id == "x" and found.output_units == 0
        assert read(body, "pub").body == body.replace(b'"m"', b'"pub"')


def test_odd_answers_pass_all_the_same():
    body = b'{"candidates":[{"content":{"parts":[{"text":"\\ud83d"}]}}, 7],"responseId":"x"}'
    assert read(body).body is body and read(body).upstream_id == "x"
    assert read(body.replace(b'"x"', b'"x","modelVersion":"m"'), "pub").body.endswith(b'"pub"}')


@pytest.mark.parametrize(
    ("value", "upstream", "replaced"),
    [
        (b'"m"', "m", b'"a/b"'),
        (b'"models/m"', "m", b'"models/a/b"'),
        (b'"m"', "models/m", b'"a/b"'),
        (b'"m\\/1"', "m/1", b'"a/b"'),
        (b'"m-002"', "m", None),
        (b'"models/m-002"', "m", None),
        (b"7", "7", None),
        (b"null", "m", None),
    ],
)
def test_the_model_is_renamed_where_it_is_the_one_asked_for(value, upstream, replaced):
    body = b'{"candidates":[{"modelVersion":"m","finishReason":"OTHER"}], "modelVersion" : %b}'
    found = read(body % value, "a/b", upstream).body
    assert found == body % (replaced or value)
