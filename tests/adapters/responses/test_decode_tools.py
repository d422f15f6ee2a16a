"""Clients' tools and which of them must be called."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.request import Tool, ToolChoice
from tests.adapters.responses.calls import asked_for, decoded

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}
TIDE = {"type": "function", "name": "tide", "description": "The tide.", "parameters": SCHEMA}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
PATCH = {"type": "custom", "name": "apply_patch", "format": GRAMMAR}
SEARCH = {"type": "web_search_preview_2025_03_11"}
SHELL = {"type": "local_shell"}


def test_tools_as_codex_sends_them():
    space = {"type": "namespace", "name": "agents", "tools": [{**TIDE, "strict": True}, PATCH]}
    request = decoded(tools=[{**TIDE, "strict": None}, space, PATCH, SEARCH, SHELL])
    custom = Tool("custom", "apply_patch", grammar="start: x", grammar_syntax="lark", raw=PATCH)
    assert request.tools[0] == Tool("function", "tide", "The tide.", SCHEMA, path="tools[0]")
    inner = request.tools[1]
    assert (inner.namespace, inner.strict, inner.path) == ("agents", True, "tools[1].tools[0]")
    assert (request.tools[2].namespace, request.tools[2].kind) == ("agents", "custom")
    assert request.tools[3].grammar == custom.grammar and request.tools[3].raw == PATCH
    assert request.tools[4] == Tool(
        "hosted", SEARCH["type"], search=True, raw=SEARCH, path="tools[3]"
    )
    assert request.tools[5] == Tool("hosted", "local_shell", raw=SHELL, path="tools[4]")
    assert asked_for(request) == {
        "tool_namespace": "tools[1]",
        "strict_tool": "tools[1].tools[0].strict",
        "custom_tool": "tools[2]",
        "hosted_search": "tools[3]",
        "hosted_tool": "tools[4]",
    }


@pytest.mark.parametrize(
    ("choice", "kept", "asks"),
    [
        ("auto", ToolChoice("auto"), {}),
        ("none", ToolChoice("none"), {}),
        ("required", ToolChoice("any"), {}),
        ({"type": "function", "name": "tide"}, ToolChoice("one", ("tide",)), {}),
        ({"type": "custom", "name": "tide"}, ToolChoice("one", ("tide",)), {}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [TIDE, {"type": "mcp"}]},
            ToolChoice("any", ("tide",)),
            {"allowed_tools": "tool_choice"},
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": []},
            ToolChoice("auto"),
            {"allowed_tools": "tool_choice"},
        ),
        ({"type": "web_search"}, None, {"forced_hosted_tool": "tool_choice"}),
    ],
)
def test_choices(choice, kept, asks):
    request = decoded(tools=[TIDE], tool_choice=choice)
    assert (request.choice, asked_for(request)) == (kept, asks)


def test_any_tool_of_the_vendors_own_is_forced():
    request = decoded(tools=[SHELL], tool_choice="required")
    assert asked_for(request)["forced_hosted_tool"] == "tool_choice"


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        (1, "tools[0]"),
        ({}, "tools[0].type"),
        ({"type": "function"}, "tools[0].name"),
        ({**TIDE, "parameters": []}, "tools[0].parameters"),
        ({**TIDE, "strict": "yes"}, "tools[0].strict"),
        ({**TIDE, "description": 1}, "tools[0].description"),
        ({"type": "namespace", "name": "x"}, "tools[0].tools"),
        ({"type": "namespace", "name": "x", "tools": [1]}, "tools[0].tools[0]"),
        ({**PATCH, "format": {"type": "grammar"}}, "tools[0].format.definition"),
    ],
)
def test_a_wrong_tool_is_named(tool, path):
    with pytest.raises(Fault) as caught:
        decoded(tools=[tool])
    assert caught.value.condition in (Condition.INVALID_FIELD, Condition.FIELD_MISSING)
    assert caught.value.param == path


@pytest.mark.parametrize(
    ("choice", "path"),
    [
        (1, "tool_choice"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "allowed_tools"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "tools": [1]}, "tool_choice.tools[0]"),
    ],
)
def test_a_wrong_choice_is_named(choice, path):
    with pytest.raises(Fault) as caught:
        decoded(tools=[TIDE], tool_choice=choice)
    assert caught.value.param == path
