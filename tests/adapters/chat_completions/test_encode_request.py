"""Requests of other families for an upstream of this one: fields, tools, messages."""

import re

import pytest

from adapters.chat_completions.encode_request import effort_of
from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.codec import Target
from adapters.family.traits import Traits
from adapters.faults import Condition
from adapters.ir.parts import Hosted, Media, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Request, Thinking, Tool, ToolChoice
from adapters.json.structure import at_once
from tests.adapters.builders import fault_of, refusal_of
from tests.adapters.chat_completions.calls import (
    assistant,
    custom_call,
    encoded,
    function_call,
    function_tool,
    request,
    sent_call,
    tool_result,
    user,
)

CODECS = CODECS_BY_FAMILY["chat_completions"]

HELLO = Turn("user", (Text("Is tea ready?"),))
MESSAGES = [user("Is tea ready?")]
SCHEMA = {"type": "object", "properties": {"cups": {"type": "integer"}}}


def fields(traits=None, **asked):
    """Return the body's fields except model and messages."""
    body, _ = encoded(request(HELLO, **asked), **(traits or {}))
    assert body.pop("model") == "up" and body.pop("messages") == MESSAGES
    return body


def test_streams_ask_for_usage_where_the_vendor_takes_the_field():
    body, _ = encoded(Request("messages", True, (HELLO,), include_usage=False))
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}
    target = Target("old", "up", Traits(), stream_options=False)
    made = at_once(
        CODECS.upstream.encode_request(Request("messages", True, (HELLO,)), target, False)
    )
    assert b'"stream":true' in made.body and b"stream_options" not in made.body


def test_sampling():
    assert fields() == {}
    asked = {
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 1.0,
        "presence_penalty": -1.0,
        "logit_bias": {"5": 1},
    }
    assert fields(seed=7, n=2, **asked) == {"seed": 7, "n": 2, **asked}
    assert fields({"sampling": False}, seed=7, **asked) == {"seed": 7}
    assert fields(top_k=5) == {}
    assert "logit_bias" not in fields({"logprobs": False}, **asked)
    assert fields(logprobs=0) == {"logprobs": True}
    assert fields(logprobs=2) == {"logprobs": True, "top_logprobs": 2}


def test_fields_that_a_server_refuses():
    asked = {"seed": 7, "presence_penalty": -1.0, "end_user": "u", "temperature": 0.5}
    refuses = ("seed", "presence_penalty", "end_user", "parallel_tools")
    assert fields({"refuses": refuses}, **asked) == {"temperature": 0.5}


CALL_IDS = ("call_123456", "Abc123xyz")


def test_ids_of_nine_letters_and_digits():
    turns = (
        HELLO,
        Turn("assistant", tuple(ToolCall(each, "get_tide", "{}") for each in CALL_IDS)),
        Turn("user", tuple(ToolResult(each, (Text("high"),)) for each in CALL_IDS)),
    )
    body, _ = encoded(request(*turns), call_ids="nine")
    _, answer, *results = body["messages"]
    ids = [call["id"] for call in answer["tool_calls"]]
    assert ids == [result["tool_call_id"] for result in results]
    assert ids[1] == "Abc123xyz" and re.fullmatch("[0-9a-z]{9}", ids[0])
    assert encoded(request(*turns), call_ids="nine")[0] == body


def test_the_bound_has_the_name_that_the_model_knows():
    assert fields(max_output_tokens=9) == {"max_completion_tokens": 9}
    assert fields({"token_bound": "max_tokens"}, max_output_tokens=9) == {"max_tokens": 9}


def test_stop_sequences_beyond_four_are_cut_by_the_gateway():
    stops = tuple("abcdef")
    body, made = encoded(request(HELLO, stop=stops))
    assert body["stop"] == list("abcd") and made.cut == ("e", "f")
    body, made = encoded(request(HELLO, stop=stops), sampling=False)
    assert "stop" not in body and made.cut == stops


def test_around_the_call():
    asked = {"end_user": "u", "tier": "flex", "cache_key": "k", "metadata": {"a": "b"}}
    assert fields(**asked) == {"user": "u"}
    assert fields({"openai_extras": True}, **asked) == {
        "safety_identifier": "u",
        "service_tier": "flex",
        "prompt_cache_key": "k",
    }
    assert fields({"verbosity": True}, verbosity="low") == {"verbosity": "low"}
    assert fields(verbosity="low") == {}


def test_a_long_name_of_the_user_is_hashed():
    first, second = (fields(end_user="x" * 65 + end)["user"] for end in "ab")
    assert len(first) == 64 and first != second
    assert fields(end_user="x" * 65 + "a")["user"] == first


def test_structured_output():
    output = Output("schema", SCHEMA, "tea cups!", "How many", True)
    (form,) = fields(output=output).values()
    said = form["json_schema"]
    assert form["type"] == "json_schema" and said.pop("name").startswith("tea_cups_")
    assert said == {"schema": SCHEMA, "description": "How many", "strict": True}
    (form,) = fields(output=Output("schema", SCHEMA)).values()
    assert form["json_schema"] == {"name": "response", "schema": SCHEMA}
    body, _ = encoded(request(HELLO, output=Output("json")))
    assert body["response_format"] == {"type": "json_object"}


def test_structured_output_as_a_tool():
    output = Output("schema", SCHEMA, description="How many")
    body, made = encoded(request(HELLO, output=output), structured="tool")
    assert made.output_tool == "respond" and "response_format" not in body
    respond = function_tool(name="respond", description="How many", parameters=SCHEMA)
    assert body["tools"] == [respond]
    assert body["tool_choice"] == function_tool(name="respond")
    tools = (Tool("function", "respond"),)
    body, made = encoded(request(HELLO, output=output, tools=tools), structured="tool")
    assert body["tool_choice"] == "required" and len(body["tools"]) == 2
    assert made.output_tool == body["tools"][1]["function"]["name"] != "respond"


@pytest.mark.parametrize(
    ("thinking", "efforts", "effort"),
    [
        (Thinking("high"), ("low", "medium", "high"), "high"),
        (Thinking("max"), ("low", "medium", "high"), "high"),
        (Thinking("minimal"), ("low", "high"), "low"),
        (Thinking("minimal"), ("off", "low"), "low"),
        (Thinking("medium"), ("low", "high"), "low"),
        (Thinking("off"), ("off", "low"), "off"),
        (Thinking("off"), ("low", "high"), "low"),
        (Thinking("low"), ("off",), None),
        (Thinking("auto"), ("low",), None),
        (Thinking(), ("low",), None),
        (Thinking(budget_tokens=0), ("off", "low"), "off"),
        (Thinking(budget_tokens=1024), ("minimal", "low"), "minimal"),
        (Thinking(budget_tokens=4096), ("minimal", "low"), "low"),
        (Thinking(budget_tokens=12288), ("medium", "high"), "medium"),
        (Thinking(budget_tokens=24576), ("high", "xhigh"), "high"),
        (Thinking(budget_tokens=24577), ("high", "xhigh"), "xhigh"),
    ],
)
def test_efforts_and_budgets(thinking, efforts, effort):
    assert effort_of(thinking, Traits(efforts=efforts)) == effort


def test_efforts_in_the_request():
    assert fields(thinking=Thinking("high")) == {"reasoning_effort": "high"}
    assert fields(thinking=Thinking("off")) == {"reasoning_effort": "none"}
    assert fields({"thinking": "none"}, thinking=Thinking("high")) == {}


def test_a_body_that_is_nested_too_deeply_is_the_clients_fault():
    schema: dict = {}
    for _ in range(1100):
        schema = {"items": schema}
    deep = request(HELLO, tools=(Tool("function", "f", schema=schema),))
    assert fault_of(encoded, deep).condition is Condition.INVALID_FIELD


THINK, NO_THINK = {"thinking": Thinking("high")}, {"thinking": Thinking("off")}
WITH_F, AS_SCHEMA = {"tools": (Tool("function", "f"),)}, {"output": Output("schema", SCHEMA)}
ANY, AUTO = {"choice": ToolChoice("any")}, {"choice": ToolChoice("auto")}
BESIDE_TOOLS, SWITCH = {"effort_with_tools": False}, {"thinking_switch": True}
DISABLED, HIGH, REASONING = {"type": "disabled"}, "high", ("reasoning",)


@pytest.mark.parametrize(
    ("traits", "asked", "effort", "switch", "dropped"),
    [
        # models that cannot think when there are tools
        (BESIDE_TOOLS, WITH_F | THINK, "none", None, REASONING),
        (BESIDE_TOOLS, WITH_F, "none", None, ()),
        (BESIDE_TOOLS, THINK, HIGH, None, ()),
        (BESIDE_TOOLS | {"efforts": ("low", "high")}, WITH_F | THINK, None, None, REASONING),
        # models that think by default, with a forced tool
        (SWITCH, WITH_F | ANY | THINK, None, DISABLED, REASONING),
        (SWITCH, NO_THINK, None, DISABLED, ()),
        (SWITCH, WITH_F | AUTO | THINK, HIGH, None, ()),
        (SWITCH | {"structured": "tool"}, AS_SCHEMA, None, DISABLED, ()),
    ],
)
def test_models_that_are_told_not_to_think(traits, asked, effort, switch, dropped):
    body, made = encoded(request(HELLO, **asked), **traits)
    assert (body.get("reasoning_effort"), body.get("thinking")) == (effort, switch)
    assert made.dropped == dropped


def test_the_word_that_json_output_wants_is_said():
    body, _ = encoded(request(HELLO, output=Output("json")))
    assert body["messages"][0]["role"] == "system" and "JSON" in body["messages"][0]["content"]
    asked = Turn("user", (Text("Tea as Json"),))
    assert len(encoded(request(asked, output=Output("json")))[0]["messages"]) == 1
    body, _ = encoded(request(HELLO, system=(Text("Be brief."),), output=Output("json")))
    assert body["messages"][0]["content"] == "Be brief.\n\nAnswer with one JSON object."


@pytest.mark.parametrize("structured", ["schema", "tool"])
def test_a_schema_of_something_else_than_an_object_is_asked_for_in_words(structured):
    output = Output("schema", {"type": "array", "items": {"type": "string"}})
    body, made = encoded(request(HELLO, output=output), structured=structured)
    assert not {"response_format", "tools"} & set(body) and made.dropped == ("schema_output",)
    assert '{"type":"array","items":{"type":"string"}}' in body["messages"][0]["content"]


# ---- tools ---------------------------------------------------------------------------------------

F, G = Tool("function", "f", "does f", SCHEMA, True), Tool("function", "g")
PATCH = Tool("custom", "patch", grammar="a+", grammar_syntax="regex")
SEARCH = Tool("hosted", "web_search", search=True, raw={"type": "web_search"})


def said(*tools, choice=None, parallel=None, **traits):
    asked = request(HELLO, tools=tools, choice=choice, parallel_tools=parallel)
    body, made = encoded(asked, **traits)
    return body, made.names


def functions(body):
    return [tool["function"]["name"] for tool in body["tools"]]


def test_functions():
    body, names = said(F, G, parallel=False)
    f = function_tool(name="f", description="does f", parameters=SCHEMA, strict=True)
    assert body["tools"] == [f, function_tool(name="g")]
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
    body, _ = encoded(request(HELLO, turn, tools=(odd,)))
    calls = [call["function"]["name"] for call in body["messages"][1]["tool_calls"]]
    assert calls[0] == functions(body)[0] and calls[1].startswith("gone_tool_")


def test_free_text_tools_are_functions_with_one_field_where_there_are_none():
    body, names = said(PATCH, choice=ToolChoice("one", ("patch",)))
    (tool,) = body["tools"]
    assert names == {"patch": PATCH}
    assert list(tool["function"]["parameters"]["properties"]) == ["input"]
    assert "a+" in tool["function"]["parameters"]["properties"]["input"]["description"]
    assert body["tool_choice"] == function_tool(name="patch")
    body, names = said(PATCH, choice=ToolChoice("one", ("patch",)), custom_tools=True)
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    assert body["tools"] == [{"type": "custom", "custom": {"name": "patch", "format": grammar}}]
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "patch"}} and names == {}


@pytest.mark.parametrize(
    ("choice", "word"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("none"), "none"),
        (ToolChoice("any"), "required"),
        (ToolChoice("one", ("gone",)), "required"),
        (None, None),
    ],
)
def test_choices(choice, word):
    assert said(F, choice=choice)[0].get("tool_choice") == word


def test_a_subset_of_the_tools():
    choice = ToolChoice("any", ("g",))
    body, _ = said(F, G, choice=choice)
    assert functions(body) == ["g"] and body["tool_choice"] == "required"
    body, _ = said(F, G, choice=choice, custom_tools=True)
    assert functions(body) == ["f", "g"]
    allowed = {"mode": "required", "tools": [function_tool(name="g")]}
    assert body["tool_choice"] == {"type": "allowed_tools", "allowed_tools": allowed}


def test_a_subset_without_a_tool_is_no_tools():
    for extras in (False, True):
        body, _ = said(F, choice=ToolChoice("auto", ("gone",)), custom_tools=extras)
        assert not {"tools", "tool_choice"} & set(body)


def test_the_vendors_own_tools_are_left_out_unless_the_model_searches():
    body, _ = said(SEARCH, choice=ToolChoice("any"), parallel=True)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    body, _ = said(SEARCH, F, search=True)
    assert functions(body) == ["f"] and body["web_search_options"] == {}


# ---- messages ------------------------------------------------------------------------------------

CALL = ToolCall("c1", "get_tide", '{"port":"Brest"}')
PNG = Media("image", "image/png", "AAAA", detail="high", path="messages[0].content[0]")


def messages(*turns, system=(), tools=(), **traits):
    body, _ = encoded(request(*turns, system=system, tools=tools), **traits)
    return body["messages"]


def by_user(*parts):
    return Turn("user", parts)


def by_assistant(*parts):
    return Turn("assistant", parts)


def result(call_id, *texts, **fields):
    return ToolResult(call_id, tuple(map(Text, texts)), **fields)


def test_system_texts_are_one_message():
    system = (Text("Be brief."), Text(""), Text("In French."))
    found = messages(HELLO, Turn("system", (Text("Now."),)), HELLO, system=system)
    assert found[0] == {"role": "system", "content": "Be brief.\n\nIn French."}
    assert found[2] == {"role": "system", "content": "Now."}
    assert messages(HELLO, system=system, system_role="developer")[0]["role"] == "developer"


def test_the_text_of_an_assistant_is_one_string():
    found = messages(HELLO, by_assistant(Text("It is "), Text("ready."), Refusal("No.")))
    assert found[1] == assistant(content="It is ready.", refusal="No.")


def test_results_follow_their_calls_and_other_words_come_behind():
    calls = by_assistant(Text("Let me look."), CALL, ToolCall("c2", "get_wind", ""))
    broken = result("c1", "broken", error=True)
    found = messages(HELLO, calls, by_user(result("c2", "a", "b"), broken, Text("Which pier?")))
    both = [sent_call(CALL), function_call("c2", "get_wind")]
    assert found[1:] == [
        assistant(content="Let me look.", tool_calls=both),
        tool_result("c1", "Error: broken"),
        tool_result("c2", "a\nb"),
        user("Which pier?"),
    ]


def test_results_follow_their_calls_also_past_a_system_turn():
    system = Turn("system", (Text("Hurry."),))
    found = messages(HELLO, by_assistant(CALL), system, by_user(result("c1", "ok")))
    assert [each["role"] for each in found] == ["user", "assistant", "tool", "system"]
    assert found[1]["content"] is None


def test_a_call_without_a_result_gets_one():
    found = messages(HELLO, by_assistant(CALL), HELLO)
    assert found[2] == tool_result("c1", "no result provided")
    assert messages(HELLO, by_assistant(CALL))[2]["role"] == "tool"


def test_a_result_without_a_call_is_told_by_the_user():
    found = messages(by_user(result("c9", "high at 14:05"), Text("Well?")))
    assert found[0]["content"] == "Result of the tool call c9:\nhigh at 14:05\n\nWell?"
    twice = by_user(result("c1", "a"), result("c1", "b"))
    found = messages(HELLO, by_assistant(CALL), twice)
    assert found[2]["content"] == "a" and found[3]["content"].endswith("\nb")


def test_images_of_a_result_come_in_the_users_message():
    shown = ToolResult("c1", (Text("See:"), PNG))
    found = messages(HELLO, by_assistant(CALL), by_user(shown, Text("Well?")))
    assert found[2]["content"] == "See:\n[image: see the next user message]"
    note, image, text = found[3]["content"]
    assert "c1" in note["text"] and text == {"type": "text", "text": "Well?"}
    assert image["image_url"] == {"url": "data:image/png;base64,AAAA", "detail": "high"}


def test_ids_that_are_missing_come_from_the_position_and_never_twice():
    calls = by_assistant(ToolCall("", "f", "{}"), ToolCall("", "g", "{}"))
    found = messages(HELLO, calls, by_user(result("", "1"), result("", "2")))
    assert found[1:] == [
        assistant(
            content=None, tool_calls=[function_call("call_1_0"), function_call("call_1_1", "g")]
        ),
        tool_result("call_1_0", "1"),
        tool_result("call_1_1", "2"),
    ]
    names = ("", "f"), ("call_1_0", "g"), ("call_1_0", "h")
    found = messages(HELLO, by_assistant(*(ToolCall(*name, "{}") for name in names)))
    ids = [call["id"] for call in found[1]["tool_calls"]]
    assert len(set(ids)) == 3 and ids[1] == "call_1_0"


def test_thoughts_go_only_to_models_that_want_them():
    turns = (HELLO, by_assistant(Reasoning("Hm."), Text("Yes.")), HELLO)
    assert "reasoning_content" not in messages(*turns)[1]
    assert messages(*turns, reasoning_echo=True)[1]["reasoning_content"] == "Hm."
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    content = messages(*turns, thinking_parts=True)[1]["content"]
    assert content == [thinking, {"type": "text", "text": "Yes."}]
    (content,) = messages(HELLO, by_assistant(Reasoning("Hm."), CALL), thinking_parts=True)[1][
        "content"
    ]
    assert content == thinking
    turns = (HELLO, by_assistant(CALL))
    assert messages(*turns, reasoning_echo=True)[1]["reasoning_content"] == ""
    signed = messages(HELLO, by_assistant(Reasoning("", opaque="c2ln"), CALL))[1]["tool_calls"][0]
    assert signed["extra_content"] == {"google": {"thought_signature": "c2ln"}}


def test_what_the_vendor_ran_and_what_a_user_cannot_say_is_left_out():
    hosted = Hosted("web_search_call", {})
    assert len(messages(HELLO, by_assistant(hosted), HELLO)) == 2
    found = messages(HELLO, by_assistant(hosted, Text("Found.")))
    assert found[1] == assistant(content="Found.")
    assert messages(by_user(Reasoning("Hm."), Text("Go."))) == [user("Go.")]


def test_free_text_calls():
    call = ToolCall("c1", "patch", "+a", custom=True)
    tools = (Tool("custom", "patch"),)
    native = messages(HELLO, by_assistant(call), tools=tools, custom_tools=True)
    assert native[1]["tool_calls"] == [custom_call("c1", "patch", "+a")]
    plain = messages(HELLO, by_assistant(call), tools=tools)
    assert plain[1]["tool_calls"] == [function_call("c1", "patch", '{"input":"+a"}')]


def sound(form):
    return {"type": "input_audio", "input_audio": {"data": "AAAA", "format": form}}


PDF = {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBE"}


@pytest.mark.parametrize(
    ("media", "sent"),
    [
        (Media("image", url="https://x"), {"type": "image_url", "image_url": {"url": "https://x"}}),
        (Media("audio", "audio/mp3", "AAAA"), sound("mp3")),
        (Media("audio", "audio/x-wav", "AAAA"), sound("wav")),
        (Media("file", "application/pdf", "JVBE"), {"type": "file", "file": PDF}),
        (
            Media("file", "text/plain", "# Tea", name="a.md", plain=True),
            {"type": "text", "text": "a.md:\n\n# Tea"},
        ),
        (Media("file", "text/csv", "YSxi"), {"type": "text", "text": "a,b"}),
    ],
)
def test_media(media, sent):
    found = messages(by_user(Text("Look:"), media), audio=True, openai_extras=True)
    assert found == [user([{"type": "text", "text": "Look:"}, sent])]


@pytest.mark.parametrize(
    ("media", "traits"),
    [
        (PNG, {"images": False}),
        (Media("image", ref="file-1", path=PNG.path), {}),
        (Media("audio", "audio/mp3", "AAAA", path=PNG.path), {}),
        (Media("audio", "audio/ogg", "AAAA", path=PNG.path), {"audio": True}),
        (Media("file", "application/pdf", "JVBE", path=PNG.path), {"documents": False}),
        (Media("file", url="https://x/a.pdf", path=PNG.path), {}),
        (Media("video", "video/mp4", "AAAA", path=PNG.path), {}),
    ],
)
def test_media_that_the_model_does_not_take(media, traits):
    refused = refusal_of(messages, by_user(media), **traits)
    assert refused == (Condition.UNSUPPORTED, PNG.path)


def test_texts_of_the_user_are_one_string_where_servers_take_no_other():
    turn = by_user(Text("a"), Text(""), Text("b"))
    assert messages(turn) == [user("a\n\nb")]
    parts = messages(turn, openai_extras=True)[0]["content"]
    assert parts == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
