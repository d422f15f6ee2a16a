"""Lists of models as vendors write them: model names, which models can answer, what is not a
list."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES

IDS = ("chat_completions", "responses", "messages")


@pytest.mark.parametrize("family", IDS)
def test_names_come_once_and_in_their_order(family):
    entries = [{"id": "b"}, {"id": "a", "object": "model"}, {"id": "b"}, {"id": 7}, {}, "c"]
    body = json.dumps({"object": "list", "data": entries}).encode()
    assert FAMILIES[family].upstream.read_models(body) == ["b", "a"]


def test_what_cannot_generate_is_left_out():
    entries = [
        {"name": "models/gemini", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
        {"name": "tuned"},
        {"name": "odd", "supportedGenerationMethods": 7},
    ]
    body = json.dumps({"models": entries}).encode()
    names = FAMILIES["generate_content"].upstream.read_models(body)
    assert names == ["gemini", "tuned", "odd"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"data": 1, "models": {}}'])
def test_what_is_no_list_is_told(family, body):
    with pytest.raises(Fault) as caught:
        FAMILIES[family].upstream.read_models(body)
    assert caught.value.condition is Condition.UPSTREAM_INVALID
