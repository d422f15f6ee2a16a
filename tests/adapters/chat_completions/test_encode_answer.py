"""Whole answers for clients of this family."""

import json

import pytest
from msgspec.structs import replace

from adapters.chat_completions import CODECS
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Logprob
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from store.values.usage import Usage
from tests.adapters.chat_completions.calls import CONTEXT, USAGE, answered, message


def test_a_text():
    answer = answered(Choice((Text("Tea is ready."),)))
    usage = answer.pop("usage")
    assert answer == {
        "id": "chatcmpl-Ab1",
        "object": "chat.completion",
        "created": 1795000000,
        "model": "public",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Tea is ready.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
    }
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_usage_contains_what_is_cached_and_reasoned():
    assert answered(Choice(()), usage=Usage(200, 90, 2000, 300, 100, 60))["usage"] == {
        "prompt_tokens": 2600,
        "completion_tokens": 150,
        "total_tokens": 2750,
        "prompt_tokens_details": {
            "cached_tokens": 2000,
            "cache_write_tokens": 400,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 60,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def test_an_answer_of_nothing_has_an_empty_text():
    assert message() == {"role": "assistant", "content": "", "refusal": None}


def test_calls_and_text_and_thoughts():
    said = message(
        Reasoning("One."),
        Reasoning("Two."),
        Text("Let me "),
        Text("look."),
        ToolCall("c1", "f", '{"x":1}'),
        ToolCall("c2", "g", ""),
        ToolCall("c3", "patch", "", custom=True),
        finish="tools",
    )
    assert said["content"] == "Let me look." and said["reasoning_content"] == "One.\n\nTwo."
    assert said["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        {"id": "c3", "type": "custom", "custom": {"name": "patch", "input": ""}},
    ]
    assert message(ToolCall("c1", "f", "{}"))["content"] is None


def test_ids_of_calls_are_there_and_differ():
    calls = message(*(ToolCall(given, "f", "{}") for given in ("", "", "c", "c")))["tool_calls"]
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == 4 and all(ids) and ids[2] == "c"


def test_refusals():
    assert message(Refusal("No."), finish="refusal") == {
        "role": "assistant",
        "content": None,
        "refusal": "No.",
    }


def test_citations_point_into_the_whole_text():
    first = Text("Tea. ", citations=(Citation("https://a", "A"),))
    second = Text("Two cups.", citations=(Citation("https://b", start=4, end=8),))
    assert [one["url_citation"] for one in message(first, second)["annotations"]] == [
        {"start_index": 0, "end_index": 5, "url": "https://a", "title": "A"},
        {"start_index": 9, "end_index": 13, "url": "https://b", "title": ""},
    ]


def test_log_probabilities():
    token = Logprob("Té", -0.5, (Logprob("a", -1.0),))
    (choice,) = answered(Choice((Text("Té"),), logprobs=(token,)))["choices"]
    (said,) = choice["logprobs"]["content"]
    assert said["token"] == "Té" and said["bytes"] == [84, 195, 169]
    assert said["top_logprobs"] == [{"token": "a", "logprob": -1.0, "bytes": [97]}]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("stop_sequence", "stop"),
        ("length", "length"),
        ("tools", "tool_calls"),
        ("filter", "content_filter"),
        ("refusal", "stop"),
        ("pause", "stop"),
        ("context_full", "length"),
        ("error", "stop"),
    ],
)
def test_finishes(finish, reason):
    (choice,) = answered(Choice((Text("x"),), finish))["choices"]
    assert choice["finish_reason"] == reason


def test_several_choices():
    answer = answered(Choice((Text("a"),)), Choice((Text("b"),), "length"))
    assert [one["index"] for one in answer["choices"]] == [0, 1]


def test_a_model_that_failed_before_it_said_anything_is_a_fault():
    with pytest.raises(Fault) as caught:
        answered(Choice((), "error"))
    assert caught.value.condition is Condition.UPSTREAM_FAILED


def test_there_are_no_counts():
    with pytest.raises(Fault):
        CODECS.client.encode_count(5)


def test_a_client_from_before_there_were_tools_gets_the_one_call_that_it_knows():
    context = replace(CONTEXT, function_call=True)
    choice = Choice((ToolCall("c1", "f", ""), ToolCall("c2", "g", "{}")), "tools")
    (said,) = json.loads(at_once(CODECS.client.encode_answer((choice,), USAGE, context)))["choices"]
    assert said["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "function_call": {"name": "f", "arguments": "{}"},
    }
    assert said["finish_reason"] == "function_call"
