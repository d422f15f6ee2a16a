"""Tools of a client's request, and which of them it wants called."""

import pytest

from adapters.faults import Fault
from adapters.ir.request import Tool, ToolChoice
from tests.adapters.chat_completions.calls import asked_for, decoded

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}
FUNCTION = {"name": "get_tide", "description": "Tides", "parameters": SCHEMA, "strict": True}
TOOLS = [{"type": "function", "function": FUNCTION}]


def test_functions():
    request = decoded(tools=TOOLS)
    assert request.tools == (Tool("function", "get_tide", "Tides", SCHEMA, True, path="tools[0]"),)
    assert asked_for(request) == {"strict_tool": "tools[0].function.strict"}
    (bare,) = decoded(tools=[{"type": "function", "function": {"name": "f"}}]).tools
    assert (bare.schema, bare.strict) == (None, None)


def test_free_text_tools():
    grammar = {"syntax": "regex", "definition": "a+"}
    custom = {"name": "patch", "format": {"type": "grammar", "grammar": grammar}}
    request = decoded(tools=[{"type": "custom", "custom": custom}])
    assert request.tools == (
        Tool("custom", "patch", grammar="a+", grammar_syntax="regex", path="tools[0]"),
    )
    assert asked_for(request) == {"custom_tool": "tools[0]"}


def test_functions_from_before_there_were_tools():
    request = decoded(functions=[{"name": "f"}], function_call={"name": "f"})
    assert request.tools == (Tool("function", "f", path="functions[0]"),)
    assert request.choice == ToolChoice("one", ("f",))
    assert request.function_call and request.parallel_tools is False
    assert request.asks == ()
    assert decoded(functions=[{"name": "f"}], function_call="none").choice == ToolChoice("none")


def test_a_search_by_the_vendor():
    request = decoded(web_search_options={"search_context_size": "low"})
    (tool,) = request.tools
    assert (tool.kind, tool.search, tool.path) == ("hosted", True, "web_search_options")
    assert asked_for(request) == {"hosted_search": "web_search_options"}


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("any")),
        ({"type": "function", "function": {"name": "get_tide"}}, ToolChoice("one", ("get_tide",))),
        ({"type": "custom", "custom": {"name": "patch"}}, ToolChoice("one", ("patch",))),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [
                        {"type": "function", "function": {"name": "get_tide"}},
                        {"name": "g"},
                    ],
                },
            },
            ToolChoice("any", ("get_tide", "g")),
        ),
    ],
)
def test_choices(said, choice):
    assert decoded(tools=TOOLS, tool_choice=said).choice == choice


def test_a_choice_without_tools_says_nothing():
    assert decoded(tool_choice="required").choice is None


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("tools", {"tools": {}}),
        ("tools[0]", {"tools": [1]}),
        ("tools[0].type", {"tools": [{"type": "web"}]}),
        ("tools[0].function", {"tools": [{"type": "function"}]}),
        ("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
        (
            "tools[0].function.parameters",
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        ),
        ("tool_choice", {"tools": TOOLS, "tool_choice": 1}),
        ("function_call", {"functions": [{"name": "f"}], "function_call": 1}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": "some"}),
        ("tool_choice.type", {"tools": TOOLS, "tool_choice": {"type": "x"}}),
        ("tool_choice.function", {"tools": TOOLS, "tool_choice": {"type": "function"}}),
        (
            "tool_choice.allowed_tools.tools",
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
        ),
    ],
)
def test_a_wrong_tool_is_named(param, fields):
    with pytest.raises(Fault) as caught:
        decoded(**fields)
    assert caught.value.param == param
