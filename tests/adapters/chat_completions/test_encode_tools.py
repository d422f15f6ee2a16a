"""Tools for an upstream of this family: names, kinds and choices."""

from adapters.ir.parts import Text, ToolCall, Turn
from adapters.ir.request import Tool, ToolChoice
from tests.adapters.chat_completions.calls import encoded, request

USER = Turn("user", (Text("Go."),))
SCHEMA = {"type": "object", "properties": {}}
F, G = Tool("function", "f", "does f", SCHEMA, True), Tool("function", "g")
PATCH = Tool("custom", "patch", grammar="a+", grammar_syntax="regex")
SEARCH = Tool("hosted", "web_search", search=True, raw={"type": "web_search"})


def said(*tools, choice=None, parallel=None, **traits):
    asked = request(USER, tools=tools, choice=choice, parallel_tools=parallel)
    body, made = encoded(asked, **traits)
    return body, made.names


def functions(body):
    return [tool["function"]["name"] for tool in body["tools"]]


def test_functions():
    body, names = said(F, G, parallel=False)
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "does f",
                "parameters": SCHEMA,
                "strict": True,
            },
        },
        {"type": "function", "function": {"name": "g"}},
    ]
    assert body["parallel_tool_calls"] is False and names == {}


def test_names_that_the_family_does_not_have_come_back():
    long, odd = Tool("function", "x" * 65), Tool("function", "math.add")
    grouped = Tool("function", "read", namespace="mcp")
    body, names = said(long, odd, grouped, F)
    sent = functions(body)
    assert sent[2:] == ["mcp__read", "f"] and len(sent[0]) == 64 and sent[1].startswith("math_add_")
    assert names == dict(zip(sent[:3], (long, odd, grouped), strict=True))
    again, _ = said(odd, long)
    assert functions(again) == [sent[1], sent[0]]


def test_two_tools_never_get_one_name():
    grouped, plain = Tool("function", "b", namespace="a"), Tool("function", "a__b")
    body, names = said(grouped, plain)
    first, second = functions(body)
    assert first != second and names[first] is grouped and names[second] is plain


def test_calls_of_history_have_the_same_names():
    odd = Tool("function", "math.add")
    turn = Turn("assistant", (ToolCall("c", "math.add", "{}"), ToolCall("d", "gone.tool", "{}")))
    body, _ = encoded(request(USER, turn, tools=(odd,)))
    calls = [call["function"]["name"] for call in body["messages"][1]["tool_calls"]]
    assert calls[0] == functions(body)[0] and calls[1].startswith("gone_tool_")


def test_free_text_tools_are_functions_with_one_field_where_there_are_none():
    body, names = said(PATCH, choice=ToolChoice("one", ("patch",)))
    (tool,) = body["tools"]
    assert names == {"patch": PATCH}
    assert list(tool["function"]["parameters"]["properties"]) == ["input"]
    assert "a+" in tool["function"]["parameters"]["properties"]["input"]["description"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    body, names = said(PATCH, choice=ToolChoice("one", ("patch",)), custom_tools=True)
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    assert body["tools"] == [{"type": "custom", "custom": {"name": "patch", "format": grammar}}]
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "patch"}} and names == {}


def test_choices():
    assert said(F, choice=ToolChoice("auto"))[0]["tool_choice"] == "auto"
    assert said(F, choice=ToolChoice("none"))[0]["tool_choice"] == "none"
    assert said(F, choice=ToolChoice("any"))[0]["tool_choice"] == "required"
    assert "tool_choice" not in said(F)[0]
    gone = said(F, choice=ToolChoice("one", ("gone",)))[0]
    assert gone["tool_choice"] == "required"


def test_a_subset_of_the_tools():
    choice = ToolChoice("any", ("g",))
    body, _ = said(F, G, choice=choice)
    assert functions(body) == ["g"] and body["tool_choice"] == "required"
    body, _ = said(F, G, choice=choice, custom_tools=True)
    assert functions(body) == ["f", "g"]
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": "g"}}],
        },
    }


def test_the_vendors_own_tools_are_left_out_unless_the_model_searches():
    body, _ = said(SEARCH, choice=ToolChoice("any"), parallel=True)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    body, _ = said(SEARCH, F, search=True)
    assert functions(body) == ["f"] and body["web_search_options"] == {}


def test_a_subset_without_a_tool_is_no_tools():
    for extras in (False, True):
        body, _ = said(F, choice=ToolChoice("auto", ("gone",)), custom_tools=extras)
        assert not {"tools", "tool_choice"} & set(body)
