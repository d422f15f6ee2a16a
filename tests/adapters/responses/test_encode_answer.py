"""Whole answers for clients."""

import json

import pytest
from openai.types.responses import Response

from adapters.ir.answer import Choice, Logprob
from adapters.ir.parts import Citation, Media, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.structure import at_once
from adapters.responses import CODECS
from adapters.responses.encode_answer import REFUSED
from tests.adapters.responses.calls import CONTEXT, USAGE


def answer(*parts, usage=USAGE, **fields):
    said = at_once(CODECS.client.encode_answer((Choice(parts, **fields),), usage, CONTEXT))
    Response.model_validate_json(said, strict=True)
    return json.loads(said)


def test_all_kinds_of_parts():
    said = answer(
        Reasoning("Hm.", opaque="gw1.x"),
        Text("Tea", citations=(Citation("https://a", "A", 1, 2),)),
        Text("."),
        Refusal("No."),
        ToolCall("a", "tide", ""),
        ToolCall("b", "patch", "*** Begin", custom=True, namespace="n"),
        Text("Bye."),
        Media("image", "image/png", "aGk="),
        finish="tools",
        logprobs=(Logprob("Tea", -0.1, (Logprob("é", -2.0),)),),
    )
    assert said["id"] == "resp_Ab1" and said["model"] == "public" and said["status"] == "completed"
    assert [item["id"] for item in said["output"]] == [
        *("rs_gw1.Ab1_0", "msg_Ab1_1", "fc_Ab1_2", "ctc_Ab1_3", "msg_Ab1_4")
    ]
    thought, message, call, custom, last = said["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert thought["encrypted_content"] == "gw1.x"
    assert [part["type"] for part in message["content"]] == [
        "output_text",
        "output_text",
        "refusal",
    ]
    assert message["content"][0]["annotations"][0]["url"] == "https://a"
    assert message["content"][0]["logprobs"] == [
        {
            "token": "Tea",
            "bytes": [84, 101, 97],
            "logprob": -0.1,
            "top_logprobs": [{"token": "é", "bytes": [195, 169], "logprob": -2.0}],
        }
    ]
    assert call["arguments"] == "{}" and call["call_id"] == "a"
    assert (custom["input"], custom["namespace"]) == ("*** Begin", "n")
    assert last["content"][0]["logprobs"] == []


def test_usage_is_complete():
    assert answer(Text("x"))["usage"] == {
        "input_tokens": 16,
        "input_tokens_details": {
            "cached_tokens": 3,
            "cache_write_tokens": 3,
            "cache_write_tokens_details": {"ttl_30m_tokens": 2, "ttl_12h_tokens": 1},
        },
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 25,
    }
    assert answer(usage=Usage())["usage"] == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("stop_sequence", "completed", None),
        ("tools", "completed", None),
        ("refusal", "completed", None),
        ("pause", "completed", None),
        ("error", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("context_full", "incomplete", "max_output_tokens"),
        ("filter", "incomplete", "content_filter"),
    ],
)
def test_endings(finish, status, reason):
    said = answer(Text("x"), finish=finish)
    assert (said["status"], said["incomplete_details"]) == (status, reason and {"reason": reason})
    assert said["output"][0]["status"] == status


def test_a_failure_without_a_word():
    said = answer(finish="error")
    assert said["status"] == "failed" and said["error"]["code"] == "server_error"


def test_a_refusal_is_said_in_some_words():
    assert answer(finish="refusal")["output"][0]["content"] == [
        {"type": "refusal", "refusal": REFUSED}
    ]
    said = answer(Text("I"), finish="refusal", detail="cyber")["output"][0]["content"]
    assert said[1] == {"type": "refusal", "refusal": "cyber"}
    assert len(answer(Refusal("No."), finish="refusal")["output"][0]["content"]) == 1


def test_what_says_nothing_is_left_out():
    assert answer(Text(""), Reasoning(""))["output"] == []
    assert json.loads(at_once(CODECS.client.encode_answer((), USAGE, CONTEXT)))["output"] == []


def test_counts():
    assert json.loads(CODECS.client.encode_count(7)) == {
        "object": "response.input_tokens",
        "input_tokens": 7,
    }
