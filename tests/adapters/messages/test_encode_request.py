"""Requests for upstreams: fields, tools, thinking, cache marks, schemas."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.faults import Condition
from adapters.ir.parts import CacheMark, Reasoning, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Ask, Output, Thinking, Tool, ToolChoice
from adapters.messages.encode_request import DEFAULT_MAX_TOKENS, fits_answer, for_answer, for_tool
from adapters.messages.encode_turns import MAX_NAME_CHARS, sent_name
from adapters.messages.parts import sealed_thought
from tests.adapters.builders import refusal_of
from tests.adapters.messages.calls import asking, sent, text, user

SCHEMA = {
    "type": "object",
    "properties": {"cups": {"type": "integer"}},
    "additionalProperties": False,
}


def test_the_least_request_and_its_bounds():
    body, made = sent(asking())
    assert body == {
        "model": "claude",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "messages": [user(text("Is tea ready?"))],
    }
    assert (made.names, made.output_tool, made.cut, made.dropped) == ({}, "", (), ())
    assert sent(asking(), limit=64000)[0] == body | {"max_tokens": 64000}
    assert sent(asking(max_output_tokens=7), limit=64000)[0] == body | {"max_tokens": 7}


def test_options():
    stops = ("END", " \n", "")
    options = {"temperature": 1.5, "top_k": 4, "stop": stops, "tier": "default"}
    body, made = sent(asking(end_user="u" * 300, **options))
    assert body == sent(asking())[0] | {
        "temperature": 1,
        "top_k": 4,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u" * 256},
        "service_tier": "standard_only",
    }
    assert made.cut == (" \n",)
    assert sent(asking(tier="priority"))[0]["service_tier"] == "auto"
    assert "stop_sequences" not in sent(asking(stop=("\n",)))[0]


def test_one_of_temperature_and_top_p():
    body, made = sent(asking(temperature=0.2, top_p=0.9))
    assert body["temperature"] == 0.2 and "top_p" not in body and made.dropped == ("top_p",)
    assert sent(asking(top_p=0.9))[0]["top_p"] == 0.9
    assert not {"temperature", "top_p"} & set(sent(asking(temperature=0.2), sampling=False)[0])


def test_streams_and_counts():
    request = asking(temperature=0.1, stop=("END",), thinking=Thinking("high"), end_user="u")
    streamed = replace(request, stream=True)
    assert sent(streamed)[0]["stream"] is True
    body, made = sent(streamed, count=True)
    assert set(body) == {"model", "messages", "thinking"} and made.cut == ()


def test_system_texts_are_blocks():
    request = asking(system=(Text("Be brief.", CacheMark()), Text(" "), Text("Kindly.")))
    marked = text("Be brief.", cache_control={"type": "ephemeral"})
    assert sent(request)[0]["system"] == [marked, text("Kindly.")]
    body, _ = sent(asking(Turn("user", ()), system=(Text("Count to three."),)))
    assert "system" not in body and body["messages"] == [user(text("Count to three."))]


def test_json_output():
    body, _ = sent(asking(output=Output("json")))
    assert "JSON object" in body["system"][0]["text"]
    body, _ = sent(asking(output=Output("schema", SCHEMA)))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    body, _ = sent(asking(tools=(WIND,), output=Output("schema", SCHEMA)))
    assert [tool["name"] for tool in body["tools"]] == ["wind"] and "tool_choice" not in body


def test_an_answer_of_names_that_are_not_known_before_is_a_tool():
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    body, made = sent(asking(output=Output("schema", schema)))
    assert "output_config" not in body and made.output_tool == "respond"
    assert body["tools"][0]["input_schema"] == schema
    rows = {"type": "array", "items": schema}
    assert sent(asking(output=Output("schema", rows)))[0]["output_config"]
    assert "tools" not in sent(asking(output=Output("schema", schema)), structured="none")[0]


def test_an_answer_that_is_no_object_cannot_be_a_tool():
    asks = (Ask("schema_output", "response_format"),)
    request = asking(output=Output("schema", {"type": "array"}), asks=asks)
    refused = refusal_of(sent, request, structured="tool")
    assert refused == (Condition.UNSUPPORTED, "response_format")


def test_an_answer_that_was_begun_is_not_thought_about_and_has_no_schema():
    turns = Turn("user", (Text("a"),)), Turn("assistant", (Text("{"),))
    body, made = sent(asking(*turns, thinking=Thinking("high")))
    assert "thinking" not in body and made.dropped == ("reasoning",)
    assert body["messages"][-1]["role"] == "assistant"
    body, _ = sent(asking(*turns, output=Output("schema", SCHEMA)))
    assert body["messages"][-1]["role"] == "user"


MARK = {"type": "ephemeral"}
ARGUMENTS = {"type": "object", "properties": {"port": {"type": "string"}}}
TIDE_AT_PORT = Tool("function", "tide", "When it is high.", ARGUMENTS)
WIND = Tool("function", "wind")
SEARCH = Tool("hosted", "", search=True, raw={"kind": "web_search"})


def test_function_tools():
    strict = Tool("function", "b", strict=True, schema=ARGUMENTS, cache=CacheMark(1800))
    body, made = sent(asking(tools=(TIDE_AT_PORT, WIND, strict, TIDE_AT_PORT)))
    assert body["tools"] == [
        {"name": "tide", "description": "When it is high.", "input_schema": ARGUMENTS},
        {"name": "wind", "input_schema": {"type": "object", "properties": {}}},
        {"name": "b", "input_schema": ARGUMENTS, "cache_control": MARK | {"ttl": "5m"}},
    ]
    assert made.names == {} and "tool_choice" not in body
    bare = Tool("function", "c", strict=True)  # accepts any arguments
    body, _ = sent(asking(tools=(strict, bare)), strict_tools=True)
    assert body["tools"][0]["strict"] is True and "strict" not in body["tools"][1]
    assert body["tools"][0]["input_schema"] == ARGUMENTS | {"additionalProperties": False}


def test_names_that_the_family_does_not_have():
    assert sent_name("get_tide-2") == "get_tide-2"
    assert sent_name("tide", "harbour") == "harbour__tide"
    for odd in ("a.b:c", "gezeiten_ü", "x" * 200, ""):
        name = sent_name(odd)
        assert name == sent_name(odd) != odd and 0 < len(name) <= MAX_NAME_CHARS
        assert name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    assert sent_name("a.b") != sent_name("a:b")
    odd = Tool("function", "a.b", schema=ARGUMENTS)
    flat = Tool("function", "tide", schema=ARGUMENTS, namespace="harbour")
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
    body, _ = sent(asking(tools=(TIDE_AT_PORT, SEARCH, other, SEARCH)), search=True)
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
    tools = (TIDE_AT_PORT, Tool("function", "a.b"))
    body, _ = sent(asking(tools=tools, choice=choice, parallel_tools=parallel))
    assert body.get("tool_choice") == sent_choice


@pytest.mark.parametrize(
    ("choice", "parallel", "sent_choice", "words"),
    [
        (ToolChoice("any"), None, None, "Answer by a call of one of the tools."),
        (ToolChoice("one", ("tide",)), None, None, "Answer by a call of the tool tide."),
        (
            ToolChoice("any"),
            False,
            {"type": "auto", "disable_parallel_tool_use": True},
            "Answer by a call of one of the tools.",
        ),
        (ToolChoice("none"), None, {"type": "none"}, None),
    ],
)
def test_a_model_that_refuses_forced_tools_is_asked_in_words(choice, parallel, sent_choice, words):
    asked = asking(tools=(TIDE, WIND), choice=choice, parallel_tools=parallel)
    body, _ = sent(asked, forced_tools=False)
    assert body.get("tool_choice") == sent_choice
    assert body.get("system") == ([{"type": "text", "text": words}] if words else None)


def test_a_subset_that_is_allowed():
    body, _ = sent(asking(tools=(TIDE_AT_PORT, WIND), choice=ToolChoice("any", ("wind",))))
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
    output = Output("schema", ARGUMENTS, description="A port.")
    forced = {"type": "tool", "name": "respond"}
    body, made = sent(asking(output=output), structured="tool")
    respond = {"name": "respond", "description": "A port.", "input_schema": ARGUMENTS}
    assert (body["tools"], body["tool_choice"]) == ([respond], forced)
    assert made.output_tool == "respond" and "output_config" not in body
    taken = Tool("function", "respond")
    body, made = sent(asking(output=output, tools=(TIDE_AT_PORT, taken)), structured="tool")
    assert made.output_tool == "respond_" and body["tool_choice"] == {"type": "any"}
    choice = ToolChoice("none")
    body, _ = sent(asking(output=output, tools=(TIDE_AT_PORT,), choice=choice), structured="tool")
    assert body["tool_choice"] == forced


EFFORTS = ("low", "medium", "high", "max")
TIDE = Tool("function", "tide")


def thinking_sent(requested, limit=None, bound=None, **traits):
    """Return the fields ``thinking`` and ``output_config``, the bound, and the dropped features."""
    request = asking(thinking=requested, max_output_tokens=bound)
    body, made = sent(request, limit=limit, **traits)
    return body.get("thinking"), body.get("output_config"), body["max_tokens"], made.dropped


@pytest.mark.parametrize(
    ("thinking", "sent_thinking", "effort"),
    [
        (None, None, None),
        (Thinking("off"), None, None),
        (Thinking(budget_tokens=0), None, None),
        (Thinking("auto"), {"type": "adaptive"}, None),
        (Thinking("minimal"), {"type": "adaptive"}, "low"),
        (Thinking("high", show="none"), {"type": "adaptive", "display": "omitted"}, "high"),
        (Thinking("xhigh", show="full"), {"type": "adaptive", "display": "summarized"}, "high"),
        (Thinking("max", show="summary"), {"type": "adaptive", "display": "summarized"}, "max"),
        (Thinking(budget_tokens=4096), {"type": "adaptive"}, "low"),
        (Thinking(budget_tokens=99999), {"type": "adaptive"}, "high"),
        (Thinking(show="full"), None, None),
    ],
)
def test_models_that_think_by_effort(thinking, sent_thinking, effort):
    config = {"effort": effort} if effort else None
    found = thinking_sent(thinking, thinking="adaptive", efforts=EFFORTS)
    assert found[:3] == (sent_thinking, config, 8192)


@pytest.mark.parametrize(
    ("thinking", "limit", "given", "budget", "bound"),
    [
        (Thinking("minimal"), None, None, 1024, 8192),
        (Thinking("low"), None, None, 2048, 8192),
        (Thinking("medium"), 64000, None, 8192, 64000),
        (Thinking("xhigh"), 64000, None, 32768, 64000),
        (Thinking("max"), 20000, None, 18976, 20000),
        (Thinking(budget_tokens=10), None, None, 1024, 8192),
        # a default bound is raised, a client's bound only as far as the model's known limit
        (Thinking("high"), None, None, 16384, 16384 + 8192),
        (Thinking("high"), 32000, 3000, 16384, 19384),
        (Thinking("high"), 17000, 3000, 15976, 17000),
        (Thinking("high"), None, 3000, 1976, 3000),
        (Thinking("max"), None, 1500, 1024, 1500),
    ],
)
def test_models_that_think_by_a_budget(thinking, limit, given, budget, bound):
    found = thinking_sent(thinking, limit, given)
    assert found == ({"type": "enabled", "budget_tokens": budget}, None, bound, ())


HIGH, OFF = Thinking("high"), Thinking("off")
OFF_EFFORTS = {"thinking": "adaptive", "efforts": ("off", "low")}


@pytest.mark.parametrize(
    ("thinking", "bound", "traits", "found"),
    [
        # a bound too small for thinking
        (HIGH, 321, {}, (None, None, 321, ("reasoning",))),
        (Thinking("auto"), None, {}, (None, None, 8192, ("reasoning",))),
        (HIGH, None, {"thinking": "none"}, (None, None, 8192, ("reasoning",))),
        (HIGH, None, {"thinking": "effort"}, (None, {"effort": "high"}, 8192, ())),
        # a model that thinks by default
        (OFF, None, OFF_EFFORTS, ({"type": "disabled"}, None, 8192, ())),
    ],
)
def test_models_and_bounds_without_a_budget(thinking, bound, traits, found):
    assert thinking_sent(thinking, bound=bound, **traits) == found


def test_a_forced_tool_excludes_a_budget():
    request = asking(thinking=Thinking("high"), tools=(TIDE,), choice=ToolChoice("any"))
    body, made = sent(request)
    assert "thinking" not in body and "reasoning" in made.dropped
    body, made = sent(request, thinking="adaptive")
    assert body["thinking"] == {"type": "adaptive"} and made.dropped == ()


def running(*thoughts, text=()):
    """Return a round of two calls; the thoughts come before the first one."""
    return (
        Turn("user", (Text("a"),)),
        Turn("assistant", (*thoughts, ToolCall("1", "tide", "{}"))),
        Turn("user", (ToolResult("1", ()), *text)),
        Turn("assistant", (ToolCall("2", "tide", "{}"),)),
        Turn("user", (ToolResult("2", ()),)),
    )


KEPT = Reasoning("hm", opaque=sealed_thought("hm", "s"))


@pytest.mark.parametrize(
    ("turns", "thinks"),
    [
        (running(KEPT), False),
        (running(KEPT)[:3], True),
        (running(Reasoning("hm"))[:3], False),
        (running(text=(Text("hurry"),))[:3], False),
        ((*running()[:-1], Turn("system", (Text("x"),)), running()[-1]), False),
        ((*running(), Turn("assistant", (Text("b"),)), Turn("user", (Text("c"),))), True),
        ((*running()[:2], Turn("user", (Text("stop"),))), False),  # the missing result is added
    ],
)
def test_a_round_of_tools_that_has_lost_its_thoughts_ends_thinking_by_a_budget(turns, thinks):
    request = asking(*turns, thinking=Thinking("high"), tools=(TIDE,))
    assert ("thinking" in sent(request)[0]) is thinks
    # switching thinking off would lose the cache, and these models may not have thought
    assert "thinking" in sent(request, thinking="adaptive")[0]


def test_no_sampling_beside_thinking():
    request = asking(thinking=Thinking("low"), temperature=0.5, top_k=4)
    body, made = sent(request)
    assert not {"temperature", "top_k"} & set(body)
    assert set(made.dropped) == {"temperature", "top_k"}


TALK = (
    Turn("user", (Text("a"),)),
    Turn("assistant", (Text("b"), ToolCall("1", "tide", "{}"))),
    Turn("user", (ToolResult("1", (Text("c"),)), Text("d"))),
)


def marked(body):
    """Return the places of cache marks."""
    places = [("tools", body.get("tools", ())), ("system", body.get("system", ()))]
    places += [(f"messages[{at}]", each["content"]) for at, each in enumerate(body["messages"])]
    return [
        f"{name}[{at}]"
        for name, blocks in places
        for at, block in enumerate(blocks)
        if "cache_control" in block
    ]


def test_what_the_next_call_begins_with_is_marked():
    request = asking(*TALK, tools=(TIDE, Tool("function", "wind")), system=(Text("s"), Text("t")))
    body, _ = sent(request, auto_cache=True)
    assert marked(body) == ["tools[1]", "system[1]", "messages[2][1]"]
    assert body["tools"][1]["cache_control"] == MARK
    assert marked(sent(request)[0]) == []


def test_a_single_question_is_not():
    assert marked(sent(asking(system=(Text("s"),)), auto_cache=True)[0]) == []
    assert marked(sent(asking(tools=(TIDE,)), auto_cache=True)[0]) == ["tools[0]", "messages[0][0]"]


def test_marks_of_the_client_are_enough():
    request = asking(*TALK, tools=(TIDE,), system=(Text("s", CacheMark(3600)),))
    body, _ = sent(request, auto_cache=True)
    assert marked(body) == ["system[0]"]
    assert body["system"][0]["cache_control"] == MARK | {"ttl": "1h"}


def test_four_at_most():
    texts = tuple(Text(f"{at}", CacheMark()) for at in range(6))
    system = (Text("s", CacheMark()), Text("t", CacheMark()))
    tool = Tool("function", "tide", cache=CacheMark())
    body, _ = sent(asking(Turn("user", texts), system=system, tools=(tool,)))
    assert marked(body) == ["system[1]", "messages[0][3]", "messages[0][4]", "messages[0][5]"]
    body, _ = sent(asking(Turn("user", texts)))
    assert marked(body) == [f"messages[0][{at}]" for at in range(2, 6)]


PORT = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
PIER = {"type": "object", "properties": {"pier": {"type": "string"}}, "required": ["pier"]}
BOTH = {"port": {"type": "string"}, "pier": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "root"),
    [
        (None, {"properties": {}}),
        ({}, {"properties": {}}),
        ({"properties": {}, "$schema": "x"}, {"properties": {}, "$schema": "x"}),
        (PORT | {"type": ["object", "null"]}, PORT),
        ({"type": "string"}, {"properties": {"value": {"type": "string"}}, "required": ["value"]}),
        ({"anyOf": [PORT, PIER]}, {"properties": BOTH}),
        ({"oneOf": [PORT, PORT | {"description": "x"}], "title": "t"}, PORT | {"title": "t"}),
        (
            {"allOf": [PORT, PIER, 7], "required": ["port"]},
            {"properties": BOTH, "required": ["port", "pier"]},
        ),
        *[
            ({"anyOf": odd, "properties": 7}, {"properties": {}})
            for odd in (None, 7, {"a": 1}, "x")
        ],
    ],
)
def test_the_root_of_a_tool_is_one_object(schema, root):
    assert for_tool(schema) == {"type": "object"} | root
    assert for_tool(PORT) is PORT


def test_objects_of_an_answer_are_closed_and_bounds_are_words():
    schema = {
        "type": "object",
        "properties": {
            "cups": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
            "type": {"type": "string", "minLength": 2},
            "rows": {"type": "array", "minItems": 2, "items": {"oneOf": [PORT, True]}},
            "some": {"type": "array", "minItems": 1},
        },
        "$defs": {"port": PORT},
        "required": ["cups"],
    }
    closed = PORT | {"additionalProperties": False}
    rows = {"type": "array", "items": {"anyOf": [closed, True]}, "description": "minItems: 2"}
    assert for_answer(schema) == {
        "type": "object",
        "properties": {
            "cups": {"type": "integer", "description": "How many. minimum: 1; maximum: 9"},
            "type": {"type": "string", "description": "minLength: 2"},
            "rows": rows,
            "some": {"type": "array", "minItems": 1},
        },
        "$defs": {"port": closed},
        "required": ["cups"],
        "additionalProperties": False,
    }


def test_a_schema_without_end_ends():
    deep: dict = {"type": "object"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    assert for_answer(deep)["items"]["type"] == "array"


CIRCLE = {"a": {"items": {"$ref": "#/definitions/b"}}, "b": {"items": {"$ref": "#/definitions/a"}}}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"by_port": {"patternProperties": {"x": PORT}}}},
        {"type": "array", "items": {"anyOf": [PORT, {"type": "object"}]}},
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/definitions/a"}}, "definitions": CIRCLE},
    ],
)
def test_schemas_that_the_vendor_cannot_hold_an_answer_to(schema):
    assert not fits_answer(schema)


def test_schemas_that_it_can():
    deep: dict = PORT
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    named = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": PORT, "b": True}}
    for schema in (PORT, named, deep, {"type": "string"}):
        assert fits_answer(schema)


KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "oneOf", "allOf", "required", "$defs", "$ref"),
        *("additionalProperties", "description", "minimum", "minItems", "enum", "definitions"),
    ]
)
ODD = st.recursive(
    st.sampled_from([None, True, 7, "object", "#", "#/$defs/a", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYWORDS, ODD, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_schema_is_written(schema):
    assert for_tool(schema)["type"] == "object"
    assert isinstance(fits_answer(schema), bool)
    for_answer(schema)
