"""Whole answers of upstreams of the generate-content family."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.generate_content import CODECS
from adapters.ir.answer import Choice, Logprob
from adapters.ir.parts import Citation, Reasoning, Text, ToolCall
from adapters.json.structure import at_once
from tests.adapters.generate_content.bridged import WIRE


def sample(name):
    return at_once(CODECS.upstream.decode_answer((WIRE / f"{name}.json").read_bytes()))


def choices(*candidates, **more):
    return at_once(
        CODECS.upstream.decode_answer(json.dumps({"candidates": list(candidates), **more}).encode())
    )


def test_a_text():
    (choice,) = sample("text")
    assert choice == Choice((Text("Tea is ready: three cups, one pot — enjoy."),))


def test_a_thought_with_its_text_and_signature():
    (choice,) = sample("thinking")
    assert choice.parts == (
        Reasoning("The harbour has two gauges. I should ask both.", summary=True),
        Text("Tea is ready: three cups, one pot — enjoy."),
        Reasoning("", summary=True, opaque="text:b3BhcXVlIHRob3VnaHQgc2lnbmF0dXJl"),
    )


def test_calls():
    (choice,) = sample("tools_parallel")
    seal, *calls = choice.parts
    assert seal.opaque.startswith("call:")
    assert calls == [
        ToolCall("tide1", "get_tide", '{"port":"Brest"}'),
        ToolCall("wind2", "get_wind", '{"port":"Brest","unit":"knots"}'),
    ]


@pytest.mark.parametrize(
    ("name", "finish", "detail"),
    [
        ("max_tokens", "length", ""),
        ("safety_stop", "filter", "SAFETY"),
        ("blocked_prompt", "filter", "SAFETY"),
    ],
)
def test_why_an_answer_ended(name, finish, detail):
    (choice,) = sample(name)
    assert (choice.finish, choice.detail) == (finish, detail)
    assert name == "max_tokens" or choice.parts == ()


def test_several_choices_with_log_probabilities():
    logprobs = {"chosenCandidates": [{"token": "b", "logProbability": -1}]}
    found = choices(
        {"index": 1, "content": {"parts": [{"text": "b"}]}, "logprobsResult": logprobs},
        {"content": {"parts": [{"text": "a"}]}, "finishReason": "MAX_TOKENS"},
    )
    assert found == (
        Choice((Text("a"),), "length"),
        Choice((Text("b"),), logprobs=(Logprob("b", -1.0),)),
    )


def test_sources_have_their_places_in_characters():
    support = {"segment": {"startIndex": 3, "endIndex": 5}, "groundingChunkIndices": [0]}
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
        "groundingSupports": [support],
    }
    (choice,) = choices(
        {"content": {"parts": [{"text": "éé"}, {"text": "aé"}]}, "groundingMetadata": grounding}
    )
    assert choice.parts == (Text("ééaé", citations=(Citation("https://a.example", "A", 1, 3),)),)


def test_an_answer_without_anything_is_one_empty_choice():
    assert choices() == (Choice(()),)


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"\xff"])
def test_what_is_no_answer_is_the_upstreams_fault(body):
    for decode in (
        lambda body: at_once(CODECS.upstream.decode_answer(body)),
        CODECS.upstream.decode_count,
    ):
        with pytest.raises(Fault) as caught:
            decode(body)
        assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_a_count():
    assert CODECS.upstream.decode_count((WIRE / "count_tokens.json").read_bytes()) == 14
    with pytest.raises(Fault):
        CODECS.upstream.decode_count(b'{"totalTokens":-1}')
