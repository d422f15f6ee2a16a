"""Bodies of Cursor at the endpoint of chat completions: they are converted to that family's
form."""

import json

import pytest

from adapters.chat_completions.client import GENERATE, peek
from adapters.faults import Condition
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.reshape import reshape
from tests.adapters.builders import fault_of, refusal_of

SCHEMA = {"type": "object", "properties": {}}
GRAMMAR = {"syntax": "lark", "definition": "start: x"}
READ = {"type": "function", "name": "read", "parameters": SCHEMA}
NESTED = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
PATCH = {"type": "custom", "name": "patch", "format": {"type": "grammar", **GRAMMAR}}
NESTED_PATCH = {
    "type": "custom",
    "custom": {"name": "patch", "format": {"type": "grammar", "grammar": GRAMMAR}},
}
HI = {"role": "user", "content": "Hi"}


def reshaped(**fields):
    spans = top_level(dumps({"model": "m", **fields}))
    read = peek(spans, GENERATE)
    assert read.shape
    return json.loads(at_once(reshape(spans, read)).body)


def shape(**fields):
    return peek(top_level(dumps({"model": "m", **fields})), GENERATE).shape


@pytest.mark.parametrize(
    ("tools", "nested"),
    [
        ([READ], [NESTED]),
        ([NESTED, PATCH], [NESTED, NESTED_PATCH]),
        ([NESTED_PATCH, READ, {"type": "web_search", "name": "w"}],
         [NESTED_PATCH, NESTED, {"type": "web_search", "name": "w"}]),
        ([{"type": "custom", "name": "free", "format": {"type": "text"}}],
         [{"type": "custom", "custom": {"name": "free", "format": {"type": "text"}}}]),
    ],
)  # fmt: skip
def test_tools_beside_their_type(tools, nested):
    body = reshaped(messages=[HI], tools=tools, temperature=0.5)
    assert body == {"model": "m", "messages": [HI], "tools": nested, "temperature": 0.5}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ({"type": "function", "name": "read"}, {"type": "function", "function": {"name": "read"}}),
        *(({"type": "function", "function": {"name": "read"}},) * 2,),
    ],
)
def test_a_choice_beside_its_type(choice, sent):
    assert reshaped(messages=[HI], tools=[READ], tool_choice=choice)["tool_choice"] == sent


@pytest.mark.parametrize(
    "fields",
    [{"messages": [HI]}, {"messages": [HI], "tools": [NESTED, NESTED_PATCH]},
     {"messages": [HI], "input": "Hi", "tools": [{"type": "web_search", "name": "w"}]}],
)  # fmt: skip
def test_any_other_body_is_the_familys_own(fields):
    assert shape(**fields) == ""


def test_a_conversation_of_items():
    items = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gw1.x"},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "c", "output": "text"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "done"},
    ]
    body = reshaped(
        input=items, tools=[READ, PATCH], tool_choice="auto", stream=True, max_output_tokens=99,
        reasoning={"effort": "medium"}, store=False, include=["reasoning.encrypted_content"],
        stream_options={"include_usage": True}, user="u",
    )  # fmt: skip
    calls = [
        {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        {"id": "d", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
    ]
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            HI,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c", "content": "text"},
            {"role": "tool", "tool_call_id": "d", "content": "done"},
        ],
        "tools": [NESTED, NESTED_PATCH],
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 99,
        "reasoning_effort": "medium",
        "user": "u",
    }


def test_what_is_read_of_items():
    fields = {"model": "m", "input": "Hi", "stream": True, "max_output_tokens": 7}
    read = peek(top_level(dumps(fields)), GENERATE)
    assert (read.stream, read.max_output_tokens, read.include_usage) == (True, 7, False)
    assert reshaped(**fields) == {
        "model": "m", "messages": [HI], "stream": True, "max_completion_tokens": 7,
    }  # fmt: skip


def test_what_the_family_cannot_express_is_refused():
    fault = fault_of(reshaped, input="Hi", previous_response_id="resp_1")
    assert (fault.condition, fault.param) == (Condition.UNSUPPORTED, "previous_response_id")
    assert fault.model == "m"
    assert refusal_of(reshaped, input=7) == (Condition.INVALID_FIELD, "input.content")
