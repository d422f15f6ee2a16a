import json

import pytest

from demo.family import ModelRequest, Tool
from tests.vendor import sessions
from tests.vendor.directives import Script
from tests.vendor.family import Refusal
from tests.vendor.speech import compose

READ = Tool("read", {"properties": {"path": {"type": "string"}}})
PATCH = Tool("patch", {}, custom=True)
PLAN = sessions.marker(
    [
        {"call": [["read", {"path": "a"}], ["read", {"path": "b"}]]},
        {"call": [["patch", "a line"]], "expect": ["content-of-b"]},
        {"say": "All done.", "expect": ["patched"]},
    ]
)


def chat(*more):
    return {"messages": [{"role": "user", "content": f"Go. {PLAN}"}, *more]}


def called(*ids):
    calls = [{"id": i, "type": "function", "function": {"name": "read"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(text):
    return {"role": "tool", "tool_call_id": "1", "content": text}


def ask(*tools):
    return ModelRequest(model="m", prompt="Go.", input_tokens=1, tools=tools)


def test_a_body_without_a_plan():
    assert sessions.turn({"messages": [{"role": "user", "content": "Hello"}]}, ask(READ)) is None


def test_the_first_round():
    turn = sessions.turn(chat(), ask(READ, PATCH))
    assert [(call.name, json.loads(call.arguments)) for call in turn.calls] == [
        ("read", {"path": "a"}),
        ("read", {"path": "b"}),
    ]
    assert len({call.id for call in turn.calls}) == 2


def test_a_later_round_plays_a_custom_tool():
    body = chat(called("1", "2"), result("content-of-a"), result("content-of-b"))
    (call,) = sessions.turn(body, ask(READ, PATCH)).calls
    assert (call.name, call.arguments, call.custom) == ("patch", "a line", True)


def test_free_text_for_a_tool_that_became_a_function():
    body = chat(called("1", "2"), result("content-of-b"))
    became = Tool("patch", {"properties": {"text": {"type": "string"}}})
    (call,) = sessions.turn(body, ask(READ, became)).calls
    assert json.loads(call.arguments) == {"text": "a line"}


def test_the_last_words():
    body = chat(called("1", "2"), result("content-of-b"), called("3"), result("patched"))
    turn = sessions.turn(body, ask(READ))
    said = compose(ask(READ), Script(), turn)
    assert ("".join(said.pieces), said.finish) == ("All done.", "stop")


def test_a_lost_result_ends_the_session():
    with pytest.raises(Refusal, match="lacks 'content-of-b'"):
        sessions.turn(chat(called("1", "2"), result("something else")), ask(READ, PATCH))


def test_a_call_too_many_ends_the_session():
    results = (result("content-of-b"), called("3"), result("patched"), called("4"))
    with pytest.raises(Refusal, match="the session is over"):
        sessions.turn(chat(called("1", "2"), *results), ask(READ, PATCH))


def test_calls_in_the_shapes_of_all_families():
    made = {
        "messages": {"type": "tool_use", "id": "1", "name": "read", "input": {}},
        "responses": {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"},
        "custom": {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": ""},
        "generate": {"functionCall": {"name": "read", "args": {}}},
        "generate by other SDKs": {"function_call": {"name": "read", "args": {}}},
    }
    for shape in made.values():
        body = {"any": [f"Go. {PLAN}", shape, shape, "content-of-b"]}
        assert sessions.turn(body, ask(READ, PATCH)).calls[0].name == "patch"


def test_a_schema_with_a_property_named_type():
    body = chat() | {"tools": [{"parameters": {"properties": {"type": {"type": "string"}}}}]}
    assert len(sessions.turn(body, ask(READ, PATCH)).calls) == 2


def test_a_new_plan_starts_anew():
    newer = sessions.marker([{"say": "Later."}])
    body = chat(called("1", "2"), {"role": "user", "content": newer})
    assert sessions.turn(body, ask(READ)).say == "Later."


def test_a_side_call_without_tools_is_answered_as_any_other():
    assert sessions.turn(chat(), ask()) is None


def test_a_tool_that_is_not_offered():
    with pytest.raises(Refusal, match="'read' of: patch"):
        sessions.turn(chat(), ask(PATCH))


def test_what_is_no_plan():
    with pytest.raises(Refusal, match="no plan"):
        sessions.turn({"messages": ["[[session e30=]]"]}, ask(READ))
    with pytest.raises(Refusal, match="no plan"):
        sessions.turn({"messages": ["[[session WzFd]]"]}, ask(READ))
