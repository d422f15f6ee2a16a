"""Each rule of the responses vendor: a good request passes, one change makes it a refusal."""

import copy
from typing import get_args

import pytest
from openai.types.responses.response_includable import ResponseIncludable

from demo.family import Route
from demo.speech import sign
from tests.vendor.directives import PLAIN_SCRIPT
from tests.vendor.family import Refusal
from tests.vendor.responses import Responses
from tests.vendor.speech import compose
from tests.vendor.stored import Shelf

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CHAT_FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
STRICT = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"type": "object", "additionalProperties": False}}
    },
    "required": ["a"],
    "additionalProperties": False,
}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "1"}
IMAGE = {"type": "input_image", "image_url": "https://x/a.png"}
TEXT = {"type": "input_text", "text": "look"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
SAID = {"type": "message", "role": "assistant", "content": "so it is"}
REASONING = {"type": "reasoning", "summary": [], "encrypted_content": sign(b"secret")}
STORED = {
    "id": "resp_1",
    "background": False,
    "usage": {"total_tokens": 1000},
    "output": [{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}],
}


def read_request(body, task, shelf):
    family = Responses()
    family._shelf = shelf
    return family.read(Route(task), {}, body)


@pytest.fixture(scope="module")
def shelf():
    made = Shelf()
    made.put(STORED, [{"type": "reasoning", "id": "rs_1"}])
    made.put({**STORED, "id": "resp_2", "output": []}, [])
    return made


def user(content="hi"):
    return {"role": "user", "content": content}


def request(*items, **fields):
    """With the given items, or with the words "hi" where none are given."""
    given = list(items) if items else "hi"
    return {"model": "m", "input": given, **copy.deepcopy(fields)}


def tool(**fields):
    return request(tools=[{**FUNCTION, **fields}])


def nested(levels):
    """A strict schema of lists in lists."""
    found = {"type": "string"}
    for _ in range(levels):
        found = {"type": "array", "items": found}
    return {**STRICT, "properties": {"a": found}}


def schema(**fields):
    described = {"type": "json_schema", "name": "n", "schema": {}, **fields}
    return request(text={"format": described})


GOOD = [
    request(),
    request(user()),
    request(user([TEXT, IMAGE, {"type": "input_image", "file_id": "file-1", "detail": "low"}])),
    request({"type": "message", "role": "developer", "content": "d"}, user()),
    request(user(), {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}),
    request(user([AUDIO, {"type": "input_file", "file_url": "https://x/a.pdf"}])),
    request(user(), {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
    request(
        user(),
        CALL,
        {**CALL, "call_id": "c2", "id": "fc_9"},
        {**RESULT, "call_id": "c2"},
        RESULT,
        instructions="i",
        store=False,
    ),
    request(user(), CALL, {**RESULT, "output": [TEXT, IMAGE]}),
    request(
        user(),
        {"type": "custom_tool_call", "call_id": "c1", "name": "n", "input": "free"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
    ),
    request(user(), REASONING, SAID),
    request(user(), REASONING, CALL, RESULT),
    request(user(), REASONING, REASONING, SAID, user()),
    request(user(), {"type": "reasoning", "id": "rs_1", "summary": []}, SAID),
    request({"type": "compaction", "encrypted_content": sign(b"all of it")}, user()),
    request({"type": "item_reference", "id": "fc_1"}, RESULT),
    request({"id": "fc_1"}, RESULT),
    request(RESULT, previous_response_id="resp_1"),
    request({"type": "web_search_call", "id": "ws_1", "anything": 1}, user()),
    {"model": "m", "previous_response_id": "resp_2"},
    request(stream=True, stream_options={"include_obfuscation": False}),
    request(temperature=2, top_p=0.5, top_logprobs=20, max_output_tokens=16, max_tool_calls=1),
    request(
        include=list(get_args(ResponseIncludable)),
        metadata={"a": "b"},
        client_metadata={"x": {}},
        user="u",
    ),
    request(reasoning={"effort": "xhigh", "summary": "auto", "context": "auto"}),
    request(text={"format": {"type": "json_object"}, "verbosity": "low"}),
    request(text={"format": {"type": "text"}}),
    request(text={"verbosity": "high"}),
    schema(strict=True, schema=STRICT),
    request(service_tier="ultrafast", truncation="auto", prompt_cache_retention="24h"),
    request(background=True),
    request(store=None, tools=None, tool_choice=None, text=None, reasoning=None),
    request(tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False),
    request(tools=[FUNCTION], tool_choice={"type": "function", "name": "f"}),
    request(
        tools=[FUNCTION],
        tool_choice={
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
    ),
    request(tools=[{"type": "web_search", "anything": 1}], tool_choice={"type": "web_search"}),
    request(tools=[{"type": "namespace", "name": "n", "description": "d", "tools": [FUNCTION]}]),
    request(
        tools=[
            {
                "type": "custom",
                "name": "n",
                "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
            }
        ],
        tool_choice={"type": "custom", "name": "n"},
    ),
    tool(strict=True, parameters=STRICT),
    tool(strict=None, parameters=None),
]

BAD = [
    (request(user(), REASONING), ("input",)),
    (request(user(), REASONING, user()), ("input",)),
    (request(user(), CALL, REASONING, RESULT), ("input",)),
    ({"input": "hi"}, ("model",)),
    (request(model=""), ("model",)),
    (request(model=4), ("model",)),
    ({"model": "m"}, ("input",)),
    ({"model": "m", "input": []}, ("input",)),
    (request() | {"input": 4}, ("input",)),
    (request("hi"), ("input", 0)),
    (request(messages=[user()]), ("messages",)),
    (request(max_tokens=99), ("max_tokens",)),
    (request(max_completion_tokens=99), ("max_completion_tokens",)),
    (request(response_format={"type": "text"}), ("response_format",)),
    (request(reasoning_effort="low"), ("reasoning_effort",)),
    (request(stop="x"), ("stop",)),
    (request(n=1), ("n",)),
    (request(stream="yes"), ("stream",)),
    (request(stream_options={}), ("stream_options",)),
    (
        request(stream=True, stream_options={"include_usage": True}),
        ("stream_options", "include_usage"),
    ),
    (request(store="no"), ("store",)),
    (request(temperature=2.1), ("temperature",)),
    (request(temperature="1"), ("temperature",)),
    (request(top_p=1.1), ("top_p",)),
    (request(top_logprobs=21), ("top_logprobs",)),
    (request(max_output_tokens=15), ("max_output_tokens",)),
    (request(max_output_tokens=16.5), ("max_output_tokens",)),
    (request(include=["usage"]), ("include", 0)),
    (request(metadata={"a": 1}), ("metadata", "a")),
    (request(metadata={str(index): "x" for index in range(17)}), ("metadata",)),
    (request(instructions=["i"]), ("instructions",)),
    (request(service_tier="standard"), ("service_tier",)),
    (request(truncation="none"), ("truncation",)),
    (request(background=True, store=False), ("background",)),
    (request(reasoning={"effort": "huge"}), ("reasoning", "effort")),
    (request(reasoning={"budget_tokens": 5}), ("reasoning", "budget_tokens")),
    (request(reasoning={"summary": True}), ("reasoning", "summary")),
    # State.
    (request(previous_response_id="resp_0"), ("previous_response_id",)),
    (request(previous_response_id="resp_2", conversation="conv_1"), ("previous_response_id",)),
    (request(previous_response_id="resp_1"), ("input",)),
    # Items.
    (request({"content": "x"}), ("input", 0, "type")),
    (request({"type": "tool_result", "role": "user"}), ("input", 0, "type")),
    (request({"role": "tool", "content": "x"}), ("input", 0, "role")),
    (request({"role": "user"}), ("input", 0, "content")),
    (request(user(4)), ("input", 0, "content")),
    (request({**user(), "name": "me"}), ("input", 0, "name")),
    (request(user([{"type": "text", "text": "x"}])), ("input", 0, "content", 0, "type")),
    (request(user([{"type": "output_text", "text": "x"}])), ("input", 0, "content", 0, "type")),
    (
        request(user(), {"role": "assistant", "content": [TEXT]}),
        ("input", 1, "content", 0, "type"),
    ),
    (request(user([{"type": "input_text"}])), ("input", 0, "content", 0, "text")),
    (
        request(user([{**TEXT, "cache_control": {}}])),
        ("input", 0, "content", 0, "cache_control"),
    ),
    (
        request(user([{**IMAGE, "image_url": {"url": "https://x/a.png"}}])),
        ("input", 0, "content", 0, "image_url"),
    ),
    (request(user([{**IMAGE, "image_url": "a.png"}])), ("input", 0, "content", 0, "image_url")),
    (request(user([{"type": "input_file"}])), ("input", 0, "content", 0, "file_data")),
    (
        request(user([{**AUDIO, "input_audio": {"data": "AAAA", "format": "ogg"}}])),
        ("input", 0, "content", 0, "input_audio", "format"),
    ),
    (request({**user(), "id": "item_1"}), ("input", 0, "id")),
    (request(user(), {**CALL, "id": "toolu_1"}, RESULT), ("input", 1, "id")),
    (request({**user(), "id": "msg_" + "x" * 61}), ("input", 0, "id")),
    (request({**user(), "id": "msg_1"}, {**user(), "id": "msg_1"}), ("input",)),
    (request(user(), {**CALL, "call_id": ""}, RESULT), ("input", 1, "call_id")),
    (request(user(), {**CALL, "call_id": "c" * 65}, RESULT), ("input", 1, "call_id")),
    (request(user(), {**CALL, "arguments": {}}, RESULT), ("input", 1, "arguments")),
    (request(user(), {**CALL, "tool_calls": []}, RESULT), ("input", 1, "tool_calls")),
    (request(user(), CALL), ("input",)),
    (request(user(), CALL, {**CALL, "call_id": "c2"}, {**RESULT, "call_id": "c2"}), ("input",)),
    (request(user(), RESULT), ("input",)),
    (request(user(), RESULT, CALL), ("input",)),
    (request(user(), CALL, CALL, RESULT), ("input",)),
    (request(user(), CALL, {**RESULT, "output": None}), ("input", 2, "output")),
    (request(user(), CALL, {**RESULT, "output": {"a": 1}}), ("input", 2, "output")),
    (
        request(user(), {"type": "reasoning", "encrypted_content": sign(b"x")}),
        ("input", 1, "summary"),
    ),
    (request(user(), {"type": "reasoning", "summary": []}), ("input", 1, "id")),
    (
        request(user(), {**REASONING, "summary": [{"type": "text", "text": "x"}]}),
        ("input", 1, "summary", 0, "type"),
    ),
    (request(user(), {**REASONING, "encrypted_content": "gAAA"}), ()),
    (request({"type": "compaction", "encrypted_content": sign(b"x")[:-8] + "AAAAAAA="}), ()),
    # Tools.
    (request(tools=[CHAT_FUNCTION]), ("tools", 0, "name")),
    (request(tools=[{**CHAT_FUNCTION, "name": "f"}]), ("tools", 0, "function")),
    (request(tools=[{"name": "f", "input_schema": {}}]), ("tools", 0, "type")),
    (request(tools=[{"type": "bash_20250124", "name": "bash"}]), ("tools", 0, "type")),
    (tool(name="not ok"), ("tools", 0, "name")),
    (tool(name="f" * 65), ("tools", 0, "name")),
    (tool(parameters={"type": "array"}), ("tools", 0, "parameters", "type")),
    (tool(strict="yes"), ("tools", 0, "strict")),
    (tool(strict=True), ("tools", 0, "parameters")),
    (tool(strict=True, parameters=nested(40)), ("tools", 0, "parameters")),
    (request(tools=[FUNCTION] * 129), ("tools",)),
    (tool(strict=True, parameters={**STRICT, "required": []}), ("tools", 0, "parameters")),
    (
        tool(
            strict=True,
            parameters={**STRICT, "properties": {"a": {"anyOf": [{"type": "object"}]}}},
        ),
        ("tools", 0, "parameters"),
    ),
    (
        request(tools=[{"type": "namespace", "name": "n", "description": "d", "tools": []}]),
        ("tools", 0, "tools"),
    ),
    (
        request(
            tools=[
                {
                    "type": "namespace",
                    "name": "n",
                    "description": "d",
                    "tools": [{"type": "mcp"}],
                }
            ]
        ),
        ("tools", 0, "tools", 0, "type"),
    ),
    (
        request(tools=[{"type": "custom", "name": "n", "format": {"type": "regex"}}]),
        ("tools", 0, "format", "type"),
    ),
    (request(tool_choice="required"), ("tool_choice",)),
    (request(tools=[FUNCTION], tool_choice="any"), ("tool_choice",)),
    (
        request(tools=[FUNCTION], tool_choice={"type": "function", "function": {"name": "f"}}),
        ("tool_choice", "name"),
    ),
    (request(tools=[FUNCTION], tool_choice={"type": "function", "name": "g"}), ("tool_choice",)),
    (request(tools=[FUNCTION], tool_choice={"type": "custom", "name": "f"}), ("tool_choice",)),
    (request(tools=[FUNCTION], tool_choice={"type": "web_search"}), ("tool_choice",)),
    # Structured output.
    (request(text={"response_format": {}}), ("text", "response_format")),
    (request(text={"format": {"type": "json"}}), ("text", "format", "type")),
    (
        request(text={"format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
        ("text", "format", "name"),
    ),
    (schema(schema=None), ("text", "format", "schema")),
    (schema(json_schema={}), ("text", "format", "json_schema")),
    (schema(strict=True, schema={"type": "object"}), ("text", "format", "schema")),
]


@pytest.mark.parametrize("body", GOOD)
def test_good_requests_pass(body, shelf):
    assert read_request(body, "generate", shelf).model == "m"


@pytest.mark.parametrize(("body", "path"), BAD)
def test_bad_requests_are_refused_where_they_are_wrong(body, path, shelf):
    with pytest.raises(Refusal) as caught:
        read_request(body, "generate", shelf)
    assert caught.value.path == path
    assert caught.value.status == 400


def places(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*path, key))


def replaced(body, path, value):
    changed = copy.deepcopy(body)
    holder = changed
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = value
    return changed


@pytest.mark.parametrize("body", GOOD)
def test_any_other_value_is_refused_or_answered(body):
    family = Responses()
    family._shelf.put(STORED, [{"type": "reasoning", "id": "rs_1"}])
    refused = 0
    for path in list(places(body))[1:]:
        for value in (None, True, -1, 2**70, 0.5, "", "x", [], [7], [[]], {}, {"type": "x"}):
            changed = replaced(body, path, value)
            try:
                ask = family.read(Route("generate", "POST"), {}, changed)
            except Refusal as refusal:
                shaped = family.refusal(refusal, "req_1")
                assert shaped["error"]["message"]
                refused += 1
                continue
            said = compose(ask, PLAIN_SCRIPT)
            assert family.scripted(ask, said, PLAIN_SCRIPT)["object"] == "response"
            assert list(family.stream(ask, said, PLAIN_SCRIPT))
    assert refused


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (request(stop="x"), "unknown_parameter"),
        (request(previous_response_id="resp_0"), "previous_response_not_found"),
        (request(user(), {**REASONING, "encrypted_content": "x"}), "invalid_encrypted_content"),
        (tool(strict=True), "invalid_function_parameters"),
        (schema(strict=True, schema={"type": "object"}), "invalid_json_schema"),
        ({"model": "m"}, "missing_required_parameter"),
    ],
)
def test_codes_of_their_own(body, code, shelf):
    with pytest.raises(Refusal) as caught:
        read_request(body, "generate", shelf)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "body",
    [
        request({"type": "item_reference", "id": "msg_lost"}),
        request({"id": "msg_lost"}),
        request(user(), {"type": "reasoning", "id": "rs_lost", "summary": []}),
        request(conversation="conv_1"),
        request(conversation={"id": "conv_1"}),
        request(prompt={"id": "pmpt_1"}),
    ],
)
def test_what_the_vendor_does_not_keep_is_not_found(body, shelf):
    with pytest.raises(Refusal, match="not found") as caught:
        read_request(body, "generate", shelf)
    assert caught.value.status == 404


def test_what_is_read(shelf):
    body = request(
        user("first"),
        {"role": "assistant", "content": "a"},
        user([TEXT, {**TEXT, "text": "last"}, IMAGE, IMAGE]),
        stream=True,
        max_output_tokens=99,
        reasoning={"effort": "high"},
        parallel_tool_calls=False,
        tools=[FUNCTION, {"type": "web_search"}, {"type": "custom", "name": "c"}],
    )
    ask = read_request(body, "generate", shelf)
    assert (ask.prompt, ask.images, ask.fresh, ask.stream) == ("look\nlast", 2, True, True)
    assert (ask.limit_tokens, ask.parallel, ask.body) == (99, False, body)
    assert (ask.thinking, ask.thinking_shown) == (True, False)
    assert [(found.name, found.custom) for found in ask.tools] == [("f", False), ("c", True)]


@pytest.mark.parametrize(
    ("reasoning", "thinking", "shown"),
    [
        (None, False, False),
        ({"effort": "none", "summary": "auto"}, False, False),
        ({"summary": "auto"}, True, True),
        ({"generate_summary": "concise"}, True, True),
        ({"effort": "low"}, True, False),
    ],
)
def test_when_the_model_thinks(reasoning, thinking, shown, shelf):
    ask = read_request(request(reasoning=reasoning), "generate", shelf)
    assert (ask.thinking, ask.thinking_shown) == (thinking, shown)


def test_after_tool_results_the_words_of_the_user_are_not_fresh(shelf):
    ask = read_request(request(user(), CALL, RESULT), "generate", shelf)
    assert (ask.fresh, ask.prompt) == (False, "hi")


def test_a_continued_talk_counts_what_was_said_before(shelf):
    alone = read_request(request(), "generate", shelf).input_tokens
    ask = read_request(request(previous_response_id="resp_2"), "generate", shelf)
    assert ask.input_tokens == alone + 1000


def test_counting_and_compacting_take_fields_of_their_own(shelf):
    assert read_request({"input": "hi", "personality": "friendly"}, "count", shelf).model == ""
    assert read_request({}, "count", shelf).input_tokens > 0
    assert read_request(request(prompt_cache_key="k"), "compact", shelf).model == "m"
    for task, field in (("count", "stream"), ("count", "store"), ("compact", "tools")):
        with pytest.raises(Refusal, match="Unknown parameter") as caught:
            read_request(request(**{field: None}), task, shelf)
        assert caught.value.path == (field,)
    with pytest.raises(Refusal) as caught:
        read_request({"input": "hi"}, "compact", shelf)
    assert caught.value.path == ("model",)
