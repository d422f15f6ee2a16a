"""Whole answers for messages clients, as they stand and as the official SDK reads them."""

import json

import pytest
from anthropic.types import Message

from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice
from adapters.ir.parts import Citation, Media, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.structure import at_once
from adapters.messages import CODECS
from adapters.messages.parts import UNSIGNED
from tests.adapters.messages.calls import CONTEXT, USAGE


def answer(*parts, usage=USAGE, **fields):
    choices = (Choice(parts, **fields),)
    said = json.loads(at_once(CODECS.client.encode_answer(choices, usage, CONTEXT)))
    Message.model_validate(said, strict=True)
    return said


def test_a_message():
    assert answer(Text("Tea is ready.")) == {
        "id": "msg_Ab1",
        "type": "message",
        "role": "assistant",
        "model": "public",
        "content": [{"type": "text", "text": "Tea is ready."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 200,
            "cache_creation_input_tokens": 400,
            "cache_read_input_tokens": 2000,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 300,
                "ephemeral_1h_input_tokens": 100,
            },
            "output_tokens": 150,
            "output_tokens_details": {"thinking_tokens": 60},
            "service_tier": "standard",
        },
    }


def test_blocks():
    cited = Text("b", citations=(Citation("https://example.com", "T", quoted="q"),))
    said = answer(
        Reasoning("hm", opaque="gw1.x"),
        Reasoning("unsigned"),
        Text(""),
        cited,
        ToolCall("functions.x:0", "tide", '{"port":"Brest"}'),
        ToolCall("b", "wind", ""),
        Media("image", data="AAAA"),
    )
    source = {"url": "https://example.com", "title": "T", "cited_text": "q"}
    kind = {"type": "web_search_result_location", "encrypted_index": UNSIGNED}
    assert said["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "gw1.x"},
        {"type": "thinking", "thinking": "unsigned", "signature": UNSIGNED},
        {"type": "text", "text": "b", "citations": [kind | source]},
        {
            "type": "tool_use",
            "id": "gw_ZnVuY3Rpb25zLng6MA",
            "name": "tide",
            "input": {"port": "Brest"},
        },
        {"type": "tool_use", "id": "b", "name": "wind", "input": {}},
    ]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tools", "tool_use"),
        ("pause", "pause_turn"),
        ("context_full", "model_context_window_exceeded"),
        ("error", "end_turn"),
    ],
)
def test_why_it_ended(finish, reason):
    said = answer(Text("a"), finish=finish)
    assert said["stop_reason"] == reason and "stop_details" not in said


def test_stop_sequences_and_refusals():
    said = answer(Text("a"), finish="stop_sequence", stop_sequence="END")
    assert (said["stop_reason"], said["stop_sequence"]) == ("stop_sequence", "END")
    said = answer(Refusal("No."), finish="refusal", detail="It would sink a boat.")
    assert said["content"] == [{"type": "text", "text": "No."}]
    assert said["stop_details"] == {
        "type": "refusal",
        "category": None,
        "explanation": "It would sink a boat.",
    }
    assert answer(finish="filter")["stop_reason"] == "refusal"


def test_an_answer_of_nothing():
    assert answer()["content"] == []
    assert json.loads(at_once(CODECS.client.encode_answer((), Usage(), CONTEXT)))["content"] == []
    with pytest.raises(Fault) as caught:
        answer(finish="error")
    assert caught.value.condition is Condition.UPSTREAM_FAILED


def test_a_count():
    assert CODECS.client.encode_count(17) == b'{"input_tokens":17}'
