"""Tools and the choice among them as upstreams of the messages family take them."""

import pytest

from adapters.ir.parts import CacheMark, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Tool, ToolChoice
from adapters.messages.encode_turns import MAX_NAME_CHARS, sent_name
from tests.adapters.messages.calls import asking, sent

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}
TIDE = Tool("function", "tide", "When it is high.", SCHEMA)
WIND = Tool("function", "wind")
SEARCH = Tool("hosted", "", search=True, raw={"kind": "web_search"})


def test_function_tools():
    strict = Tool("function", "b", strict=True, schema=SCHEMA, cache=CacheMark(1800))
    body, made = sent(asking(tools=(TIDE, WIND, strict, TIDE)))
    assert body["tools"] == [
        {"name": "tide", "description": "When it is high.", "input_schema": SCHEMA},
        {"name": "wind", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "b",
            "input_schema": SCHEMA,
            "cache_control": {"type": "ephemeral", "ttl": "5m"},
        },
    ]
    assert made.names == {} and "tool_choice" not in body
    bare = Tool("function", "c", strict=True)  # its arguments may be any
    body, _ = sent(asking(tools=(strict, bare)), strict_tools=True)
    assert body["tools"][0]["strict"] is True and "strict" not in body["tools"][1]
    assert body["tools"][0]["input_schema"] == SCHEMA | {"additionalProperties": False}


def test_names_that_the_family_does_not_have():
    assert sent_name("get_tide-2") == "get_tide-2"
    assert sent_name("tide", "harbour") == "harbour__tide"
    for odd in ("a.b:c", "gezeiten_ü", "x" * 200, ""):
        name = sent_name(odd)
        assert name == sent_name(odd) != odd and 0 < len(name) <= MAX_NAME_CHARS
        assert name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    assert sent_name("a.b") != sent_name("a:b")
    odd = Tool("function", "a.b", schema=SCHEMA)
    flat = Tool("function", "tide", schema=SCHEMA, namespace="harbour")
    body, made = sent(asking(tools=(odd, flat)))
    names = [tool["name"] for tool in body["tools"]]
    assert names == [sent_name("a.b"), "harbour__tide"]
    assert made.names == {names[0]: odd, names[1]: flat}


def test_free_text_tools_are_functions_with_one_field():
    patch = Tool("custom", "patch", "Edits.", grammar="start: x", grammar_syntax="lark")
    body, made = sent(asking(tools=(patch,)))
    (tool,) = body["tools"]
    assert tool["description"].startswith("Edits.\n\n") and "start: x" in tool["description"]
    assert tool["input_schema"]["required"] == ["input"]
    assert tool["input_schema"]["properties"]["input"]["type"] == "string"
    assert made.names == {"patch": patch}


def test_tools_that_a_vendor_runs_itself():
    other = Tool("hosted", "image_generation", raw={"kind": "image_generation"})
    body, _ = sent(asking(tools=(SEARCH, other, SEARCH)))
    assert "tools" not in body and "tool_choice" not in body
    body, _ = sent(asking(tools=(TIDE, SEARCH, other, SEARCH)), search=True)
    assert [tool["name"] for tool in body["tools"]] == ["tide", "web_search"]
    assert body["tools"][1]["type"] == "web_search_20250305"


@pytest.mark.parametrize(
    ("choice", "parallel", "sent_choice"),
    [
        (None, None, None),
        (ToolChoice("auto"), True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("any"), None, {"type": "any"}),
        (ToolChoice("none"), False, {"type": "none"}),
        (ToolChoice("one", ("tide",)), None, {"type": "tool", "name": "tide"}),
        (
            ToolChoice("one", ("a.b",)),
            False,
            {"type": "tool", "name": sent_name("a.b"), "disable_parallel_tool_use": True},
        ),
        (ToolChoice("one", ("unknown",)), None, {"type": "tool", "name": "unknown"}),
    ],
)
def test_choice(choice, parallel, sent_choice):
    tools = (TIDE, Tool("function", "a.b"))
    body, _ = sent(asking(tools=tools, choice=choice, parallel_tools=parallel))
    assert body.get("tool_choice") == sent_choice


def test_a_subset_that_is_allowed():
    body, _ = sent(asking(tools=(TIDE, WIND), choice=ToolChoice("any", ("wind",))))
    assert [tool["name"] for tool in body["tools"]] == ["wind"]
    assert body["tool_choice"] == {"type": "any"}


def test_tools_of_the_history_are_declared_but_not_offered():
    turns = (
        Turn("user", (Text("a"),)),
        Turn("assistant", (ToolCall("1", "tide", "{}"), ToolCall("2", "tide", "{}"))),
        Turn("user", (ToolResult("1", ()), ToolResult("2", ()))),
    )
    body, _ = sent(asking(*turns))
    assert body["tools"] == [{"name": "tide", "input_schema": {"type": "object", "properties": {}}}]
    assert body["tool_choice"] == {"type": "none"}


def test_structured_output_as_a_tool():
    output = Output("schema", SCHEMA, description="A port.")
    body, made = sent(asking(output=output), structured="tool")
    assert body["tools"] == [{"name": "respond", "description": "A port.", "input_schema": SCHEMA}]
    assert body["tool_choice"] == {"type": "tool", "name": "respond"}
    assert made.output_tool == "respond" and "output_config" not in body
    taken = Tool("function", "respond")
    body, made = sent(asking(output=output, tools=(TIDE, taken)), structured="tool")
    assert made.output_tool == "respond_" and body["tool_choice"] == {"type": "any"}
    choice = ToolChoice("none")
    body, _ = sent(asking(output=output, tools=(TIDE,), choice=choice), structured="tool")
    assert body["tool_choice"] == {"type": "tool", "name": "respond"}
