"""Tests that a session of an agent is played step by step, and ends where a result is lost."""

import json

import pytest

from demo.family import ModelRequest, Tool
from tests.vendor import sessions
from tests.vendor.family import Refusal

READ = Tool("read", {"properties": {"path": {"type": "string"}}})
PATCH = Tool("patch", {}, custom=True)
PLAN = sessions.marker(
    [
        {"call": [["read", {"path": "a"}], ["read", {"path": "b"}]]},
        {"call": [["patch", "a line"]], "expect": ["content-of-b"]},
        {"say": "All done.", "expect": ["patched"]},
    ]
)
GO = f"Go. {PLAN}"
CALL = {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"}
CALLED = [CALL, CALL]
PATCHED = [*CALLED, "content-of-b", CALL, "patched"]


def turn(*history, tools=(READ, PATCH)):
    asked = ModelRequest(model="m", prompt="Go.", input_tokens=1, tools=tools)
    return sessions.turn({"any": list(history)}, asked)


def calls(*history, **options):
    return [(call.name, call.arguments) for call in turn(*history, **options).calls]


def test_a_session():
    first = turn(GO).calls
    assert [json.loads(call.arguments) for call in first] == [{"path": "a"}, {"path": "b"}]
    assert len({call.id for call in first}) == 2
    [patch] = turn(GO, *CALLED, "content-of-b").calls
    assert (patch.name, patch.arguments, patch.custom) == ("patch", "a line", True)
    assert turn(GO, *PATCHED).say == "All done."
    became = Tool("patch", {"properties": {"text": {"type": "string"}}})
    assert calls(GO, *CALLED, "content-of-b", tools=(became,)) == [("patch", '{"text": "a line"}')]


@pytest.mark.parametrize(
    ("history", "tools", "problem"),
    [
        ([GO, *CALLED, "something else"], (READ, PATCH), "lacks 'content-of-b'"),
        ([GO, *PATCHED, CALL], (READ, PATCH), "the session is over"),
        ([GO], (PATCH,), "'read' of: patch"),
        (["[[session e30=]]"], (READ,), "no plan"),
        (["[[session WzFd]]"], (READ,), "no plan"),
    ],
)
def test_sessions_that_are_refused(history, tools, problem):
    with pytest.raises(Refusal, match=problem):
        turn(*history, tools=tools)


@pytest.mark.parametrize(
    "call",
    [
        {"type": "tool_use", "id": "1", "name": "read", "input": {}},
        {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": ""},
        {"functionCall": {"name": "read", "args": {}}},
        {"function_call": {"name": "read", "args": {}}},
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "read"}}]},
    ],
)
def test_calls_in_the_shapes_of_all_families(call):
    assert calls(GO, call, call, "content-of-b") == [("patch", "a line")]
