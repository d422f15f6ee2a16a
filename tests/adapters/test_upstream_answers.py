"""Whole answers of upstreams whose usage, or whose output, cannot be read."""

import json

import pytest

from adapters.registry import FAMILIES
from store.values.usage import MAX_TOKENS
from tests.adapters.builders import fault_of, whole_answers

ANSWERS = whole_answers("x" * 16)
ENDLESS = {
    "chat_completions": b'{"choices":[{"message":{"content":{"a":1e999}}}],"id":7}',
    "responses": b'{"output":[{"type":"function_call","arguments":{"a":1e999}}]}',
    "messages": b'{"type":"message","content":[{"input":{"a":1e999}}]}',
    "generate_content": (
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"a":1e999}}}]}}]}'
    ),
}
of_families = pytest.mark.parametrize("family", ANSWERS)


def read(family: str, body: bytes):
    plain = next(iter(FAMILIES[family].client.operations.values()))
    return FAMILIES[family].upstream.read_answer(body, "m", "m", plain)


def test_each_family_has_an_answer():
    assert ANSWERS.keys() == ENDLESS.keys() == FAMILIES.keys()


@of_families
@pytest.mark.parametrize("usage", [None, [], {}, "x", 7])
def test_usage_that_is_no_object_of_counts_was_not_reported(family, usage):
    body, (field, _, _) = ANSWERS[family]
    found = read(family, json.dumps({**body, field: usage}).encode())
    assert found.usage is None and found.reported == usage
    assert found.output_units == 4 and found.upstream_id is None


@of_families
@pytest.mark.parametrize("odd", [None, True, -1, 1.0, 1.5, "3", MAX_TOKENS + 1, 10**30])
@pytest.mark.parametrize("side", [0, 1])
def test_usage_without_both_counts_was_not_reported(family, side, odd):
    body, (field, *names) = ANSWERS[family]
    usage = {names[side]: odd, names[1 - side]: 1}
    for written in (usage, {names[1 - side]: 1}):
        found = read(family, json.dumps({**body, field: written}).encode())
        assert found.usage is None and found.reported == written and found.output_units == 4


@of_families
def test_output_that_cannot_be_read_counts_nothing(family, monkeypatch):
    endless = read(family, ENDLESS[family])
    assert endless.output_units == 0 and endless.upstream_id is None

    def refuse(data):
        raise ValueError("too deep")

    monkeypatch.setattr("adapters.family.reply.loads_loose", refuse)
    assert read(family, json.dumps(ANSWERS[family][0]).encode()).output_units == 0


COUNTS = {
    "responses": b'{ "object":"response.input_tokens", "input_tokens":14, "model":"m" }',
    "messages": b'{ "input_tokens": 14, "x": 1 }',
    "generate_content": b'{ "totalTokens": 14, "x": 1 }',
}


@pytest.mark.parametrize("family", COUNTS)
def test_token_counts_pass_as_they_are(family):
    body, (answer, _) = COUNTS[family], ANSWERS[family]
    count = FAMILIES[family].client.operations["count"]
    found = FAMILIES[family].upstream.read_answer(body, "pub", "m", count)
    assert found.body is body and found.usage is None and found.output_units == 0
    error = b'{"error":{"code":"server_error","type":"api_error","status":"INTERNAL"}}'
    bad = [body.replace(b"14", b'"x"'), b"[]", b"", json.dumps(answer).encode(), error]
    faults = [
        fault_of(FAMILIES[family].upstream.read_answer, each, "pub", "m", count) for each in bad
    ]
    assert [fault.condition.value for fault in faults] == ["E30"] * 4 + ["E26"]
