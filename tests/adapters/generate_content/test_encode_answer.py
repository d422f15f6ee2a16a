"""Whole answers for generate-content clients."""

import base64
import json

import pytest

from adapters.generate_content import CODECS
from adapters.ir.answer import Choice, Logprob
from adapters.ir.parts import Citation, Hosted, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.structure import at_once
from tests.adapters.generate_content.calls import CONTEXT

USAGE = Usage(200, 90, 2000, 300, 100, 60)


def answer(*choices, usage=USAGE):
    return json.loads(at_once(CODECS.client.encode_answer(choices, usage, CONTEXT)))


def parts(*parts, finish="stop"):
    (candidate,) = answer(Choice(parts, finish))["candidates"]
    assert candidate["content"]["role"] == "model"
    return candidate["content"]["parts"]


def signed(opaque):
    return base64.b64encode(opaque.encode()).decode()


def test_a_whole_answer():
    assert answer(Choice((Text("Tea is ready."),))) == {
        "candidates": [
            {
                "content": {"parts": [{"text": "Tea is ready."}], "role": "model"},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 2600,
            "candidatesTokenCount": 90,
            "totalTokenCount": 2750,
            "cachedContentTokenCount": 2000,
            "thoughtsTokenCount": 60,
        },
        "modelVersion": "public-model",
        "responseId": "CALL1",
    }


def test_counts_that_are_zero_and_may_be_absent_are():
    assert answer(Choice(()), usage=Usage(5, 0))["usageMetadata"] == {
        "promptTokenCount": 5,
        "candidatesTokenCount": 0,
        "totalTokenCount": 5,
    }


def test_parts_of_every_kind():
    assert parts(
        Reasoning("Hm."),
        Text(""),
        Text("a"),
        Refusal("No."),
        ToolCall("x", "f", '{"b":1,"a":"\\u00e9"}'),
        ToolCall("", "g", "free", custom=True),
    ) == [
        {"text": "Hm.", "thought": True},
        {"text": "a"},
        {"text": "No."},
        {"functionCall": {"id": "x", "name": "f", "args": {"b": 1, "a": "é"}}},
        {"functionCall": {"name": "g", "args": {"input": "free"}}},
    ]


@pytest.mark.parametrize("finish", ["stop", "filter", "error"])
def test_an_answer_without_parts_has_an_empty_text(finish):
    assert parts(finish=finish) == [{"text": ""}]


def test_a_call_that_was_cut_is_not_shown():
    cut, whole = ToolCall("x", "f", '{"a": "b'), ToolCall("y", "f", "{}")
    assert [part["functionCall"]["id"] for part in parts(whole, cut, finish="length")] == ["y"]
    assert parts(cut, finish="tools")[0]["functionCall"]["args"] == {"_raw": '{"a": "b'}


def test_state_goes_with_the_next_call_else_with_the_text_before():
    assert parts(
        Reasoning("", opaque="a"),
        Reasoning("Hm.", opaque="b"),
        Text("x"),
        Reasoning("So.", opaque="c"),
        ToolCall("1", "f", "{}"),
        ToolCall("2", "f", "{}"),
        Reasoning("", opaque="d"),
    ) == [
        {"text": "", "thoughtSignature": signed("a")},
        {"text": "Hm.", "thought": True},
        {"text": "x", "thoughtSignature": signed("b")},
        {"text": "So.", "thought": True},
        {"functionCall": {"id": "1", "name": "f", "args": {}}, "thoughtSignature": signed("c")},
        {"functionCall": {"id": "2", "name": "f", "args": {}}},
        {"text": "", "thoughtSignature": signed("d")},
    ]


def test_a_prompt_that_was_held_back():
    (candidate,) = answer(Choice((), "filter", detail="SAFETY: no"))["candidates"]
    assert (candidate["finishReason"], candidate["finishMessage"]) == ("SAFETY", "SAFETY: no")


def test_parts_that_answers_do_not_have_are_left_out():
    assert parts(Hosted("x", {}), Text("a")) == [{"text": "a"}]


def test_several_choices_and_log_probabilities():
    first, second = answer(
        Choice((Text("a"),), "length", logprobs=(Logprob("a", -1.0),)), Choice((Text("b"),))
    )["candidates"]
    assert (first["index"], first["finishReason"]) == (0, "MAX_TOKENS")
    assert (second["index"], second["finishReason"]) == (1, "STOP")
    assert first["logprobsResult"]["chosenCandidates"] == [{"token": "a", "logProbability": -1.0}]
    assert "logprobsResult" not in second


def test_sources_with_their_bytes_in_all_of_the_text():
    source = Citation("https://a.example", "A", 1, 2)
    (candidate,) = answer(
        Choice((Text("éa"), Text("aé", citations=(source, Citation("https://b.example")))))
    )["candidates"]
    assert candidate["groundingMetadata"] == {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"web": {"uri": "https://b.example", "title": "https://b.example"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": 4, "endIndex": 6}, "groundingChunkIndices": [0]}
        ],
    }


def test_a_count():
    assert json.loads(CODECS.client.encode_count(31)) == {"totalTokens": 31}
