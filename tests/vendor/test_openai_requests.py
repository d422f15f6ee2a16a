"""Refusals of the openai SDK's families and the places they name: one change to a valid request
each."""

import pytest

from demo.family import Route
from demo.speech import sign
from tests.vendor.chat_completions import ChatCompletions
from tests.vendor.family import Refusal
from tests.vendor.request_rows import (
    ABSENT,
    OPEN,
    SCHEMA,
    STRICT,
    TEXT,
    changed,
    refused_at,
    user,
    wrong,
)
from tests.vendor.responses import Responses

# Chat completions.


def read_chat(body):
    return ChatCompletions().read(Route("generate"), {}, body)


FUNCTION = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
STRICT_FUNCTION = {"name": "f", "strict": True}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}
CHAT = {
    "model": "m",
    "stream": True,
    "tools": [FUNCTION, {"type": "custom", "custom": {"name": "c"}}],
    "messages": [
        {"role": "system", "content": [TEXT]},
        user([{**TEXT, "text": "look"}, IMAGE]),
        {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "tool", "tool_call_id": "c1", "content": [TEXT]},
    ],
}


def described(**fields):
    return {"type": "json_schema", "json_schema": {"name": "n", **fields}}


CHAT_REFUSED = [
    wrong(
        "tools.0.function", {**STRICT_FUNCTION, "parameters": OPEN}, "tools.0.function.parameters"
    ),
    wrong(
        "response_format",
        described(schema=OPEN, strict=True),
        "response_format.json_schema.schema",
    ),
    wrong("max_output_tokens", 5),
    *(wrong("model", value) for value in (ABSENT, "", 4)),
    *(wrong("messages", value) for value in (ABSENT, [], "hi")),
    wrong("messages.1", {"role": "robot", "content": "x"}, "messages.1.role"),
    *(wrong("messages.1.content", value) for value in (ABSENT, 4, [])),
    wrong("messages.1.content.1.image_url.url", "x.png"),
    wrong("messages.0.content.0", IMAGE, "messages.0.content.0.type"),
    wrong("messages.2.tool_calls", ABSENT, "messages.2.content"),
    wrong("messages.3.tool_call_id", "c3"),
    wrong("messages.4", user(), "messages.4"),
    wrong("messages.4", ABSENT, "messages.3"),
    wrong("messages.2.tool_calls.0.id", "c2", "messages.2.tool_calls"),
    wrong("stream_options", {}, stream=False),
    *(wrong("temperature", value) for value in (2.1, "1")),
    wrong("top_p", 1.1),
    wrong("presence_penalty", 3),
    wrong("n", 0),
    wrong("max_tokens", 0),
    wrong("max_tokens", 1, max_completion_tokens=1),
    wrong("stop", ["a"] * 5),
    wrong("top_logprobs", 2),
    wrong("tools", []),
    wrong("tools.0.function.name", "not ok"),
    wrong("tools.0.function.parameters.type", "array"),
    wrong("tool_choice", "auto", tools=ABSENT),
    wrong("tool_choice", {"type": "function", "function": {"name": "g"}}),
    wrong("response_format", described(), "response_format.json_schema.schema"),
]


@pytest.mark.parametrize(("changes", "place"), CHAT_REFUSED)
def test_chat_refused(changes, place):
    assert refused_at(read_chat, changed(CHAT, changes)) == place


# Responses.

STORED = {
    "id": "resp_1",
    "background": False,
    "usage": {"total_tokens": 1000},
    "output": [{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}],
}


def responses():
    """Return the family with two responses stored: one with an open call, one without."""
    family = Responses()
    family._shelf.put(STORED, [{"type": "reasoning", "id": "rs_1"}])
    family._shelf.put({**STORED, "id": "resp_2", "output": []}, [])
    return family


def read_responses(body, task="generate"):
    return responses().read(Route(task), {}, body)


TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}
ITEM_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "1"}
WORDS = {"type": "input_text", "text": "look"}
PHOTO = {"type": "input_image", "image_url": "https://x/a.png"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
ANSWER = {"type": "message", "role": "assistant", "content": "so it is"}
REASONING = {"type": "reasoning", "summary": [], "encrypted_content": sign(b"secret")}
KNOWN_THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
SPACE = {"type": "namespace", "name": "n", "description": "d", "tools": [TOOL]}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "x"}
CUSTOM = {"type": "custom", "name": "n", "format": GRAMMAR}
ALLOWED_TOOLS = {"type": "allowed_tools", **ALLOWED, "tools": [{"type": "function", "name": "f"}]}
ASKED = {
    "model": "m",
    "input": [user([WORDS, PHOTO, AUDIO]), ITEM_CALL, OUTPUT, REASONING, ANSWER],
    "tools": [TOOL, CUSTOM, SPACE],
}


def assistant(kind, name):
    return {"role": "assistant", "content": [{"type": kind, name: "x"}]}


def text_format(**fields):
    return {"format": {"type": "json_schema", "name": "n", "schema": {}, **fields}}


def nested(levels):
    """Return a strict schema of lists in lists."""
    inner = {"type": "string"}
    for _ in range(levels):
        inner = {"type": "array", "items": inner}
    return {**STRICT, "properties": {"a": inner}}


FOREIGN = ("messages", "max_tokens", "max_completion_tokens", "response_format", "stop", "n")
RESPONSES_REFUSED = [
    *(wrong(name, 1) for name in (*FOREIGN, "reasoning_effort")),
    *(wrong("model", value) for value in (ABSENT, "", 4)),
    *(wrong("input", value) for value in (ABSENT, [], 4)),
    wrong("input.0", "hi"),
    wrong("stream_options", {}),
    wrong("stream_options", {"include_usage": True}, "stream_options.include_usage", stream=True),
    *(wrong("temperature", value) for value in (2.1, "1")),
    wrong("top_p", 1.1),
    wrong("top_logprobs", 21),
    *(wrong("max_output_tokens", value) for value in (15, 16.5)),
    wrong("include", ["usage"], "include.0"),
    wrong("metadata", {str(index): "x" for index in range(17)}),
    wrong("background", True, store=False),
    wrong("reasoning", {"effort": "huge"}, "reasoning.effort"),
    # State.
    wrong("previous_response_id", "resp_0"),
    wrong("previous_response_id", "resp_2", conversation="conv_1"),
    wrong("previous_response_id", "resp_1", "input"),
    # Items.
    wrong("input", [user(), REASONING]),
    wrong("input", [user(), REASONING, user()]),
    wrong("input", [user(), ITEM_CALL, REASONING, OUTPUT]),
    wrong("input.0", {"content": "x"}, "input.0.type"),
    wrong("input.0", {"type": "tool_result", "role": "user"}, "input.0.type"),
    wrong("input.0", {"role": "tool", "content": "x"}, "input.0.role"),
    *(wrong("input.0.content", value) for value in (ABSENT, 4)),
    wrong("input.0.name", "me"),
    *(wrong("input.0.content.0.type", kind) for kind in ("text", "output_text")),
    wrong("input.4.content", [WORDS], "input.4.content.0.type"),
    wrong("input.0.content.0.text", ABSENT),
    wrong("input.0.content.0.cache_control", {}),
    *(wrong("input.0.content.1.image_url", value) for value in ({"url": "https://x"}, "a.png")),
    wrong("input.0.content.0", {"type": "input_file"}, "input.0.content.0.file_data"),
    wrong("input.0.content.2.input_audio.format", "ogg"),
    *(wrong("input.0.id", value) for value in ("item_1", "msg_" + "x" * 61)),
    wrong("input.1.id", "toolu_1"),
    wrong("input", [{**user(), "id": "msg_1"}, {**user(), "id": "msg_1"}]),
    *(wrong("input.1.call_id", value) for value in ("", "c" * 65)),
    wrong("input.1.arguments", {}),
    wrong("input.1.tool_calls", []),
    wrong("input", [user(), ITEM_CALL]),
    wrong("input", [ITEM_CALL, {**ITEM_CALL, "call_id": "c2"}, {**OUTPUT, "call_id": "c2"}]),
    wrong("input", [user(), OUTPUT]),
    wrong("input", [user(), OUTPUT, ITEM_CALL]),
    wrong("input", [user(), ITEM_CALL, ITEM_CALL, OUTPUT]),
    *(wrong("input.2.output", value) for value in (None, {"a": 1})),
    wrong("input.3.summary", ABSENT),
    wrong("input.3.summary", [{"type": "text", "text": "x"}], "input.3.summary.0.type"),
    wrong("input.3.encrypted_content", ABSENT, "input.3.id"),
    wrong("input.3.encrypted_content", "gAAA", ""),
    wrong(
        "input.0",
        {"type": "compaction", "encrypted_content": sign(b"x")[:-8] + "AAAAAAA="},
        "",
    ),
    # Tools.
    wrong("tools.0", FUNCTION, "tools.0.name"),
    wrong("tools.0", {**FUNCTION, "name": "f"}, "tools.0.function"),
    wrong("tools.0", {"name": "f", "input_schema": {}}, "tools.0.type"),
    wrong("tools.0.type", "bash_20250124"),
    *(wrong("tools.0.name", value) for value in ("not ok", "f" * 65)),
    wrong("tools.0.parameters.type", "array"),
    wrong("tools.0.strict", "yes"),
    wrong("tools.0.strict", True, "tools.0.parameters"),
    wrong("tools", [TOOL] * 129),
    *(
        wrong("tools.0", {**TOOL, "strict": True, "parameters": schema}, "tools.0.parameters")
        for schema in (
            nested(40),
            {**STRICT, "required": []},
            {**STRICT, "properties": {"a": {"anyOf": [SCHEMA]}}},
        )
    ),
    wrong("tools.2.tools", []),
    wrong("tools.2.tools.0", {"type": "mcp"}, "tools.2.tools.0.type"),
    wrong("tools.1.format.type", "regex"),
    wrong("tool_choice", "required", tools=ABSENT),
    wrong("tool_choice", "any"),
    wrong("tool_choice", {"type": "function", "function": {"name": "f"}}, "tool_choice.name"),
    wrong("tool_choice", {"type": "function", "name": "g"}),
    wrong("tool_choice", {"type": "custom", "name": "f"}),
    wrong("tool_choice", {"type": "web_search"}),
    # Structured output.
    wrong("text", {"response_format": {}}, "text.response_format"),
    wrong("text", {"format": {"type": "json"}}, "text.format.type"),
    wrong("text", {"format": {"type": "json_schema", "json_schema": {}}}, "text.format.name"),
    wrong("text", text_format(schema=None), "text.format.schema"),
    wrong("text", text_format(json_schema={}), "text.format.json_schema"),
    wrong("text", text_format(strict=True, schema=SCHEMA), "text.format.schema"),
]


@pytest.mark.parametrize(("changes", "place"), RESPONSES_REFUSED)
def test_responses_refused(changes, place):
    assert refused_at(read_responses, changed(ASKED, changes)) == place


@pytest.mark.parametrize(
    "changes",
    [
        {"input.0": {"type": "item_reference", "id": "msg_lost"}},
        {"input.0": {"id": "msg_lost"}},
        {"input.3": {**KNOWN_THOUGHT, "id": "rs_lost"}},
        {"conversation": "conv_1"},
        {"conversation": {"id": "conv_1"}},
        {"prompt": {"id": "pmpt_1"}},
    ],
)
def test_responses_that_are_not_found(changes):
    with pytest.raises(Refusal, match="not found") as caught:
        read_responses(changed(ASKED, changes))
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("task", "body", "place"),
    [
        ("count", {"input": "hi", "personality": "friendly"}, None),
        ("count", {}, None),
        ("compact", {"model": "m", "input": "hi", "prompt_cache_key": "k"}, None),
        ("count", {"input": "hi", "stream": None}, "stream"),
        ("compact", {"model": "m", "input": "hi", "tools": None}, "tools"),
        ("compact", {"input": "hi"}, "model"),
    ],
)
def test_counting_and_compacting_of_responses(task, body, place):
    if place is None:
        assert read_responses(body, task).input_tokens > 0
    else:
        assert refused_at(lambda sent: read_responses(sent, task), body) == place
