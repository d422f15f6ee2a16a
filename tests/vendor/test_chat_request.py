"""Each rule of the chat completions vendor: a good request passes, one change makes it a 400."""

import copy

import pytest

from demo.family import Route
from tests.vendor.chat_completions import ChatCompletions
from tests.vendor.family import Refusal

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}


def read_request(body):
    return ChatCompletions().read(Route("generate"), {}, body)


def user(content="hi"):
    return {"role": "user", "content": content}


def request(**fields):
    return {"model": "m", "messages": [user()], **copy.deepcopy(fields)}


GOOD = [
    request(),
    request(unknown_field={"anything": [1]}),
    request(stream=True, stream_options={"include_usage": True}),
    request(temperature=2, top_p=0.5, presence_penalty=-2, n=3, seed=1, user="u", stop="x"),
    request(stop=["a", "b"], max_tokens=5, logprobs=True, top_logprobs=3),
    request(tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False),
    request(tools=[FUNCTION], tool_choice={"type": "function", "function": {"name": "f"}}),
    request(
        tools=[FUNCTION],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
        },
    ),
    request(tools=[{"type": "custom", "custom": {"name": "f"}}]),
    request(messages=[{"role": "system", "content": [{"type": "text", "text": "s"}]}, user()]),
    request(messages=[user([{"type": "text", "text": "look"}, IMAGE])]),
    request(
        messages=[
            user(),
            {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c2", "content": "2"},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]},
        ]
    ),
    request(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}),
]

OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
STRICT = {**OPEN, "required": ["a"], "additionalProperties": False}


def strict_tool(schema):
    function = {**FUNCTION["function"], "parameters": schema, "strict": True}
    return request(tools=[{**FUNCTION, "function": function}])


def strict_answer(schema):
    described = {"name": "n", "schema": schema, "strict": True}
    return request(response_format={"type": "json_schema", "json_schema": described})


GOOD[:0] = [strict_tool(STRICT), strict_answer(STRICT)]

BAD = [
    (strict_tool(OPEN), ("tools", 0, "function", "parameters")),
    (strict_answer(OPEN), ("response_format", "json_schema", "schema")),
    (request(max_output_tokens=5), ("max_output_tokens",)),
    (request(system="s"), ("system",)),
    ({"messages": [user()]}, ("model",)),
    (request(model=""), ("model",)),
    (request(model=4), ("model",)),
    ({"model": "m"}, ("messages",)),
    (request(messages=[]), ("messages",)),
    (request(messages="hi"), ("messages",)),
    (request(messages=[{"role": "robot", "content": "x"}]), ("messages", 0, "role")),
    (request(messages=[{"content": "x"}]), ("messages", 0, "role")),
    (request(messages=[{"role": "user"}]), ("messages", 0, "content")),
    (request(messages=[user(4)]), ("messages", 0, "content")),
    (request(messages=[user([])]), ("messages", 0, "content")),
    (request(messages=[user([{"type": "tool_use"}])]), ("messages", 0, "content", 0, "type")),
    (
        request(messages=[user([{"type": "image_url", "image_url": {"url": "x.png"}}])]),
        ("messages", 0, "content", 0, "image_url", "url"),
    ),
    (
        request(messages=[{"role": "system", "content": [IMAGE]}]),
        ("messages", 0, "content", 0, "type"),
    ),
    (request(messages=[user(), {"role": "assistant"}]), ("messages", 1, "content")),
    (
        request(messages=[user(), {"role": "tool", "tool_call_id": "c1", "content": "1"}]),
        ("messages", 1, "tool_call_id"),
    ),
    (request(messages=[user(), {"role": "assistant", "tool_calls": [CALL]}]), ("messages", 1)),
    (
        request(messages=[user(), {"role": "assistant", "tool_calls": [CALL]}, user()]),
        ("messages", 2),
    ),
    (
        request(messages=[user(), {"role": "assistant", "tool_calls": [CALL, CALL]}]),
        ("messages", 1, "tool_calls"),
    ),
    (request(stream="yes"), ("stream",)),
    (request(stream_options={"include_usage": True}), ("stream_options",)),
    (request(stream=False, stream_options={}), ("stream_options",)),
    (
        request(stream=True, stream_options={"include_usage": 1}),
        ("stream_options", "include_usage"),
    ),
    (request(temperature=2.1), ("temperature",)),
    (request(temperature="1"), ("temperature",)),
    (request(top_p=1.1), ("top_p",)),
    (request(presence_penalty=3), ("presence_penalty",)),
    (request(n=0), ("n",)),
    (request(max_tokens=0), ("max_tokens",)),
    (request(max_tokens=1, max_completion_tokens=1), ("max_tokens",)),
    (request(stop=["a"] * 5), ("stop",)),
    (request(top_logprobs=2), ("top_logprobs",)),
    (request(reasoning_effort="huge"), ("reasoning_effort",)),
    (request(tools=[]), ("tools",)),
    (request(tools=[{"type": "function"}]), ("tools", 0, "function")),
    (
        request(tools=[{"type": "function", "function": {"name": "not ok"}}]),
        ("tools", 0, "function", "name"),
    ),
    (
        request(
            tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]
        ),
        ("tools", 0, "function", "parameters", "type"),
    ),
    (request(tools=[{"name": "f", "input_schema": {}}]), ("tools", 0, "type")),
    (request(tool_choice="auto"), ("tool_choice",)),
    (request(tools=[FUNCTION], tool_choice="any"), ("tool_choice",)),
    (
        request(tools=[FUNCTION], tool_choice={"type": "function", "function": {"name": "g"}}),
        ("tool_choice",),
    ),
    (request(response_format={"type": "json"}), ("response_format", "type")),
    (
        request(response_format={"type": "json_schema", "json_schema": {"name": "n"}}),
        ("response_format", "json_schema", "schema"),
    ),
]


@pytest.mark.parametrize("body", GOOD)
def test_good_requests_pass(body):
    assert read_request(body).model == "m"


@pytest.mark.parametrize(("body", "path"), BAD)
def test_bad_requests_are_refused_where_they_are_wrong(body, path):
    with pytest.raises(Refusal) as caught:
        read_request(body)
    assert caught.value.path == path
    assert caught.value.status == 400


def test_what_is_read():
    body = request(
        messages=[
            user("first"),
            {"role": "assistant", "content": "a"},
            user([{"type": "text", "text": "last"}, IMAGE, IMAGE]),
        ],
        stream=True,
        stream_options={"include_usage": True},
        n=2,
        max_completion_tokens=9,
        stop="x",
        reasoning_effort="high",
        tools=[FUNCTION],
    )
    ask = read_request(body)
    assert (ask.prompt, ask.images, ask.fresh, ask.stream) == ("last", 2, True, True)
    assert (ask.choices, ask.limit_tokens, ask.stops) == (2, 9, ("x",))
    assert (ask.include_usage, ask.thinking, ask.tools[0].name) == (True, True, "f")


def test_after_tool_results_the_words_of_the_user_are_not_fresh():
    ask = read_request(GOOD[-2])
    assert (ask.fresh, ask.prompt) == (False, "hi")
