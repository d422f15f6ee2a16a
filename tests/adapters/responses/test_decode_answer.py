"""Whole answers of upstreams in the hub's words."""

import pathlib

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Logprob
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import dumps
from adapters.json.structure import at_once
from adapters.responses import CODECS

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "responses"


def decode(body):
    return at_once(CODECS.upstream.decode_answer(body))


def sample(name):
    return decode((WIRE / f"{name}.json").read_bytes())[0]


def answer(*output, **fields):
    return decode(dumps({"status": "completed", "output": list(output), **fields}))[0]


def message(*content):
    return {"type": "message", "content": list(content)}


def test_samples():
    assert sample("text").parts == (Text("Tea is ready: three cups, one pot — enjoy."),)
    assert sample("text").finish == "stop"
    assert (sample("incomplete").finish, sample("incomplete").detail) == (
        "length",
        "max_output_tokens",
    )
    assert sample("refusal").finish == "refusal"
    assert isinstance(sample("refusal").parts[0], Refusal)
    calls = sample("tools_parallel")
    assert calls.finish == "tools"
    assert [part.id for part in calls.parts] == ["call_tide1", "call_wind2"]
    thought = sample("reasoning").parts[0]
    assert (
        thought.summary and thought.text.startswith("The harbour") and "rs_gw01" in thought.opaque
    )


def test_kinds_of_items():
    citation = {"type": "url_citation", "url": "https://a", "title": "A"}
    token = {"token": "x", "logprob": -0.5, "top_logprobs": [{"token": "y", "logprob": -1}]}
    found = answer(
        {"type": "reasoning", "summary": [], "content": [{"text": "a"}, {"text": "b"}]},
        {"type": "reasoning", "summary": []},
        message(
            {"type": "output_text", "text": "x", "annotations": [citation], "logprobs": [token]},
            {"type": "output_text", "text": ""},
        ),
        {"type": "web_search_call", "id": "ws"},
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "free"},
        {"type": "function_call", "id": "fc", "name": "f", "arguments": {"a": 1}, "namespace": "n"},
    )
    assert found == Choice(
        (
            Reasoning("a\n\nb"),
            Text("x", citations=(Citation("https://a", "A"),)),
            ToolCall("c", "p", "free", custom=True),
            ToolCall("fc", "f", '{"a":1}', namespace="n"),
        ),
        "tools",
        logprobs=(Logprob("x", -0.5, (Logprob("y", -1.0),)),),
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_output_tokens", "length"),
        ("content_filter", "filter"),
        ("steered", "length"),
        (1, "length"),
    ],
)
def test_incomplete_answers(reason, finish):
    found = answer(status="incomplete", incomplete_details={"reason": reason})
    assert found.finish == finish
    assert answer(status="incomplete", incomplete_details=None).finish == "length"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"output": {}}', b"\xff"])
def test_what_is_no_answer(body):
    with pytest.raises(Fault) as caught:
        decode(body)
    assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_odd_output_is_read_leniently():
    assert answer(1, None, {}, {"type": []}, message(1, {"text": 2}), message()).parts == ()


def test_what_json_cannot_say_again_is_left_out():
    call = b'{"type":"function_call","call_id":"a","name":"f","arguments":{"a":Infinity}}'
    tokens = b'[{"token":"x","logprob":-Infinity},{"token":"y","logprob":-2},{"token":1}]'
    part = b'{"type":"output_text","text":"xy","logprobs":%b}' % tokens
    message = b'{"type":"message","content":[%b]}' % part
    (choice,) = decode(b'{"output":[%b,%b]}' % (call, message))
    assert choice.parts == (ToolCall("a", "f", ""), Text("xy"))
    assert choice.logprobs == (Logprob("y", -2.0),)


def test_counts():
    count = CODECS.upstream.decode_count
    assert count(b'{"input_tokens": 7}') == 7
    for body in (b"[]", b'{"input_tokens": -1}', b"{}"):
        with pytest.raises(Fault):
            count(body)
