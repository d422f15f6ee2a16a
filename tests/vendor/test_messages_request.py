"""Each rule of the messages vendor: a good request passes, one change makes it a 400."""

import copy

import pytest

from demo.family import Route
from demo.messages import sign_thought
from tests.vendor.family import Refusal
from tests.vendor.messages import Messages

OLD, NEW = "2023-06-01", "2026-10-21"


def read_request(body, version, *, counting):
    route = Route("count" if counting else "generate")
    return Messages().read(route, {"anthropic-version": version}, body)


TOOL = {"name": "f", "input_schema": {"type": "object"}}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}
THOUGHT = {"type": "thinking", "thinking": "t", "signature": sign_thought("t")}
DOCUMENT = {"type": "text", "media_type": "text/plain", "data": "of tea"}
CITATION = {
    **{"type": "char_location", "cited_text": "x", "document_index": 0},
    **{"document_title": None, "start_char_index": 0, "end_char_index": 1},
}
MARK = {"cache_control": {"type": "ephemeral"}}
MARKED = {"type": "text", "text": "s", **MARK}
CLOSED = {"type": "object", "additionalProperties": False}
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="},
}


def user(content="hi"):
    return {"role": "user", "content": content}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def request(**fields):
    return {"model": "m", "max_tokens": 4096, "messages": [user()], **copy.deepcopy(fields)}


def called(*after):
    return [user(), assistant(USE, {**USE, "id": "t2"}), *after]


RESULT2 = {**RESULT, "tool_use_id": "t2", "content": [{"type": "text", "text": "done"}]}
TEXT = {"type": "text", "text": "and?"}


def text_of(text):
    return {"type": "text", "text": text}


GOOD = [
    request(),
    request(max_tokens=0),
    request(temperature=1, top_p=0.5, top_k=3, stop_sequences=["x"], metadata={"user_id": "u"}),
    request(system="s"),
    request(system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]),
    request(messages=[user(), {"role": "system", "content": "reminder"}]),
    request(messages=[user(), user("more")]),
    request(messages=[user([TEXT, IMAGE])]),
    request(messages=called(user([RESULT2, RESULT, TEXT]))),
    request(messages=called(user([RESULT]), user([RESULT2]))),
    request(messages=called({"role": "system", "content": "x"}, user([RESULT, RESULT2]))),
    request(
        messages=[
            user(),
            assistant({"type": "thinking", "thinking": "t", "signature": sign_thought("t")}),
        ]
    ),
    request(tools=[TOOL, {"type": "web_search_20260318", "name": "web_search"}]),
    request(tools=[TOOL], tool_choice={"type": "tool", "name": "f"}),
    request(thinking={"type": "enabled", "budget_tokens": 1024}),
    request(thinking={"type": "adaptive", "display": "omitted"}, output_config={"effort": "high"}),
    request(output_config={"format": {"type": "json_schema", "schema": CLOSED}}),
    request(system=[MARKED], messages=[user([MARKED, MARKED])], tools=[TOOL | MARK]),
    request(
        messages=[user(), assistant(THOUGHT, USE), user([RESULT])],
        thinking={"type": "enabled", "budget_tokens": 1024},
    ),
    request(messages=[user(), assistant(USE), user([RESULT])], thinking={"type": "adaptive"}),
]

BAD = [
    (request(unknown_field=1), ("unknown_field",)),
    (
        request(messages=[user([{**text_of("x"), "detail": "low"}])]),
        ("messages", 0, "content", 0, "detail"),
    ),
    (request(messages=[user(" \n")]), ("messages", 0, "content")),
    (request(messages=[user([text_of(" ")])]), ("messages", 0, "content", 0, "text")),
    (request(messages=[assistant(text_of("x")), user()]), ("messages",)),
    (request(stop_sequences=["x", "\n"]), ("stop_sequences", 1)),
    (
        request(messages=[user(), assistant({**THOUGHT, "thinking": "of another"})]),
        ("messages", 1, "content", 0),
    ),
    (
        request(messages=[user(), assistant({**THOUGHT, "signature": "c2ln"})]),
        ("messages", 1, "content", 0),
    ),
    (
        request(messages=[user(), assistant({**USE, "id": "call.1"})]),
        ("messages", 1, "content", 0, "id"),
    ),
    (
        request(
            messages=[user(), assistant(USE, THOUGHT), user([RESULT])],
            thinking={"type": "enabled", "budget_tokens": 1024},
        ),
        ("messages", 1, "content", 0),
    ),
    (request(system=[MARKED] * 2, messages=[user([MARKED] * 3)]), ()),
    (
        request(tools=[{"name": "f", "input_schema": {"type": "object", "anyOf": [{}]}}]),
        ("tools", 0, "input_schema"),
    ),
    (request(tools=[{**TOOL, "parameters": {}}]), ("tools", 0, "parameters")),
    (
        request(
            output_config={
                "format": {
                    "type": "json_schema",
                    "schema": {**CLOSED, "properties": {"a": {"type": "object"}}},
                }
            }
        ),
        ("output_config", "format", "schema", "properties", "a"),
    ),
    (
        request(messages=[user([{"type": "document", "source": {**DOCUMENT, "type": "base64"}}])]),
        ("messages", 0, "content", 0, "source", "media_type"),
    ),
    ({"max_tokens": 1, "messages": [user()]}, ("model",)),
    ({"model": "m", "messages": [user()]}, ("max_tokens",)),
    (request(max_tokens=-1), ("max_tokens",)),
    (request(max_tokens="9"), ("max_tokens",)),
    ({"model": "m", "max_tokens": 1}, ("messages",)),
    (request(messages=[]), ("messages",)),
    (request(messages=[{"role": "tool", "content": "x"}]), ("messages", 0, "role")),
    (request(messages=[{"role": "user"}]), ("messages", 0, "content")),
    (request(messages=[user("")]), ("messages", 0, "content")),
    (
        request(messages=[user([{"type": "text", "text": ""}])]),
        ("messages", 0, "content", 0, "text"),
    ),
    (request(messages=[user([{"type": "image_url"}])]), ("messages", 0, "content", 0, "type")),
    (request(messages=[assistant(IMAGE)]), ("messages", 0, "content", 0, "type")),
    (
        request(messages=[user([{**IMAGE, "source": {**IMAGE["source"], "data": "*"}}])]),
        ("messages", 0, "content", 0, "source", "data"),
    ),
    (
        request(messages=[user([{**IMAGE, "source": {**IMAGE["source"], "media_type": "x/y"}}])]),
        ("messages", 0, "content", 0, "source", "media_type"),
    ),
    (
        request(messages=[user(), assistant({"type": "thinking", "thinking": "t"})]),
        ("messages", 1, "content", 0, "signature"),
    ),
    (
        request(messages=[user(), assistant({**USE, "input": "{}"})]),
        ("messages", 1, "content", 0, "input"),
    ),
    (request(messages=[user(), assistant(USE)]), ("messages", 1)),
    (request(messages=called(user([RESULT]))), ("messages", 2)),
    (request(messages=called(user("no result"))), ("messages", 2)),
    (request(messages=called(user([TEXT, RESULT, RESULT2]))), ("messages", 2, "content", 0)),
    (request(messages=[user([RESULT])]), ("messages", 0, "content", 0)),
    (request(temperature=1.5), ("temperature",)),
    (request(top_k=-1), ("top_k",)),
    (request(stop_sequences="x"), ("stop_sequences",)),
    (request(system=[{"type": "image"}]), ("system", 0, "type")),
    (request(thinking={"type": "enabled"}), ("thinking", "budget_tokens")),
    (request(thinking={"type": "enabled", "budget_tokens": 1000}), ("thinking", "budget_tokens")),
    (request(thinking={"type": "enabled", "budget_tokens": 4096}), ("thinking", "budget_tokens")),
    (request(thinking={"type": "adaptive"}, temperature=0.5), ("temperature",)),
    (
        request(
            tools=[TOOL],
            tool_choice={"type": "any"},
            thinking={"type": "enabled", "budget_tokens": 1024},
        ),
        ("tool_choice",),
    ),
    (request(tools=[{"name": "f"}]), ("tools", 0, "input_schema")),
    (
        request(tools=[{"name": "f", "input_schema": {"type": "string"}}]),
        ("tools", 0, "input_schema", "type"),
    ),
    (
        request(tools=[{"name": "a b", "input_schema": {"type": "object"}}]),
        ("tools", 0, "name"),
    ),
    (request(tools=[TOOL, TOOL]), ("tools",)),
    (request(tool_choice={"type": "auto"}), ("tool_choice",)),
    (request(tools=[TOOL], tool_choice={"type": "required"}), ("tool_choice", "type")),
    (request(tools=[TOOL], tool_choice={"type": "tool", "name": "g"}), ("tool_choice",)),
    (request(stream_options={"include_usage": True}), ("stream_options",)),
    (request(output_config={"effort": "huge"}), ("output_config", "effort")),
    (
        request(output_config={"format": {"type": "json_schema"}}),
        ("output_config", "format", "schema"),
    ),
]


@pytest.mark.parametrize("body", GOOD)
def test_good_requests_pass(body):
    assert read_request(body, OLD, counting=False).model == "m"


@pytest.mark.parametrize(("body", "path"), BAD)
def test_bad_requests_are_refused_where_they_are_wrong(body, path):
    with pytest.raises(Refusal) as caught:
        read_request(body, OLD, counting=False)
    assert caught.value.path == path
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "body",
    [
        request(temperature=1),
        request(top_p=1),
        request(top_k=1),
        request(messages=[user(), assistant({"type": "document", "source": DOCUMENT})]),
        request(messages=[user([{**TEXT, "citations": [CITATION]}])]),
    ],
)
def test_what_only_the_old_version_takes(body):
    read_request(body, OLD, counting=False)
    with pytest.raises(Refusal):
        read_request(body, NEW, counting=False)


def test_counting_needs_no_bound_and_takes_none():
    body = request()
    with pytest.raises(Refusal) as caught:
        read_request(body, OLD, counting=True)
    assert caught.value.path == ("max_tokens",)
    del body["max_tokens"]
    assert read_request(body, OLD, counting=True).input_tokens > 0


def test_what_is_read():
    body = request(
        messages=[user([TEXT, IMAGE]), assistant(TEXT), user("last")],
        stream=True,
        stop_sequences=["x"],
        thinking={"type": "adaptive", "display": "omitted"},
        tools=[TOOL],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    ask = read_request(body, OLD, counting=False)
    assert (ask.prompt, ask.images, ask.fresh, ask.stream) == ("last", 1, True, True)
    assert (ask.limit_tokens, ask.stops, ask.thinking) == (4096, ("x",), True)
    assert (ask.thinking_shown, ask.tool_mode, ask.parallel) == (False, "any", False)


def test_after_tool_results_the_words_of_the_user_are_not_fresh():
    ask = read_request(request(messages=called(user([RESULT, RESULT2]))), OLD, counting=False)
    assert (ask.fresh, ask.prompt) == (False, "hi")
