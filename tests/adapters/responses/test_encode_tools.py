"""Tools for upstreams, and names that these do not take."""

import pytest

from adapters.ir.parts import Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Request, Tool, ToolChoice
from tests.adapters.responses.calls import encoded

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}
TIDE = Tool("function", "tide", "The tide.", SCHEMA)
PATCH = Tool("custom", "patch", grammar="start: x", grammar_syntax="lark")
SEARCH = Tool("hosted", "web", search=True)
CODE = Tool("hosted", "code")
TURNS = (Turn("user", (Text("?"),)),)
ODD = "sea.tide:" + "x" * 80


def body_of(*tools, turns=TURNS, **fields):
    return encoded(Request("messages", False, turns, tools=tools, **fields))


def test_kinds():
    body, made = body_of(TIDE, Tool("function", "bare", strict=True), PATCH, SEARCH, CODE)
    assert body["tools"] == [
        {
            "type": "function",
            "name": "tide",
            "description": "The tide.",
            "parameters": SCHEMA,
            "strict": False,
        },
        {
            "type": "function",
            "name": "bare",
            "parameters": {"type": "object", "properties": {}},
            "strict": True,
        },
        {
            "type": "custom",
            "name": "patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
        },
        {"type": "web_search"},
    ]
    assert made.names == {}


def test_namespaces():
    inner = [Tool("function", name, namespace="sea") for name in ("tide", "wind")]
    body, _ = body_of(inner[0], TIDE, inner[1])
    assert [tool["type"] for tool in body["tools"]] == ["namespace", "function"]
    assert [tool["name"] for tool in body["tools"][0]["tools"]] == ["tide", "wind"]


def test_names_that_upstreams_refuse():
    odd = Tool("function", ODD)
    turns = (
        Turn("user", (Text("?"),)),
        Turn("assistant", (ToolCall("a", ODD, "{}"),)),
        Turn("user", (ToolResult("a", (Text("x"),)),)),
    )
    body, made = body_of(odd, turns=turns, choice=ToolChoice("one", (ODD,)))
    sent = body["tools"][0]["name"]
    assert len(sent) <= 64 and sent.startswith("sea_tide_xx") and made.names == {sent: odd}
    assert body["tool_choice"]["name"] == body["input"][1]["name"] == sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (None, None),
        (ToolChoice("auto"), "auto"),
        (ToolChoice("none"), "none"),
        (ToolChoice("any"), "required"),
        (ToolChoice("one", ("tide",)), {"type": "function", "name": "tide"}),
        (ToolChoice("one", ("patch",)), {"type": "custom", "name": "patch"}),
        (
            ToolChoice("any", ("patch", "gone")),
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "custom", "name": "patch"}],
            },
        ),
        (ToolChoice("auto", ("gone",)), "auto"),
    ],
)
def test_choices(choice, sent):
    body, _ = body_of(TIDE, PATCH, choice=choice, parallel_tools=False)
    assert body.get("tool_choice") == sent and body["parallel_tool_calls"] is False


def test_vendors_without_free_text_tools_get_functions():
    turns = (
        *TURNS,
        Turn("assistant", (ToolCall("a", "patch", 'é"', custom=True),)),
        Turn("user", (ToolResult("a", (Text("x"),), custom=True),)),
    )
    request = Request("messages", False, turns, tools=(TIDE, PATCH, SEARCH))
    body, made = encoded(request, custom_tools=False)
    assert made.names == {"patch": PATCH}
    assert [tool["type"] for tool in body["tools"]] == ["function", "function", "web_search"]
    assert "start: x" in body["tools"][1]["parameters"]["properties"]["input"]["description"]
    assert body["input"][1]["arguments"] == '{"input":"é\\""}'
    assert body["input"][2]["type"] == "function_call_output"


def test_free_text_without_a_grammar():
    request = Request("messages", False, TURNS, tools=(Tool("custom", "note"),))
    body, _ = encoded(request, custom_tools=False)
    assert body["tools"][0]["parameters"]["properties"] == {"input": {"type": "string"}}


def test_vendors_without_subsets_of_tools_get_the_subset():
    choice = ToolChoice("any", ("tide",))
    request = Request("messages", False, TURNS, tools=(TIDE, PATCH), choice=choice)
    body, _ = encoded(request, custom_tools=False)
    assert [tool["name"] for tool in body["tools"]] == ["tide"]
    assert body["tool_choice"] == "required"
    gone = Request("messages", False, TURNS, tools=(TIDE,), choice=ToolChoice("any", ("gone",)))
    assert len(encoded(gone, custom_tools=False)[0]["tools"]) == 1
    named = Request("messages", False, TURNS, tools=(PATCH,), choice=ToolChoice("one", ("patch",)))
    chosen = encoded(named, custom_tools=False)[0]["tool_choice"]
    assert chosen == {"type": "function", "name": "patch"}
