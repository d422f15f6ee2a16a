"""Decoding of clients' requests: fields and requested features, tools, messages."""

import pytest

from adapters.faults import Condition
from adapters.ir.parts import CacheMark, Media, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Thinking, Tool, ToolChoice
from tests.adapters.builders import features, refusal_of
from tests.adapters.chat_completions.calls import (
    HI,
    assistant,
    custom_call,
    decoded,
    function_call,
    function_tool,
    tool_result,
    user,
)

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}
FUNCTION = {"name": "get_tide", "description": "Tides", "parameters": SCHEMA, "strict": True}
TOOLS = [function_tool(**FUNCTION)]


def test_a_plain_request_asks_for_nothing():
    request = decoded(stream=True)
    assert (request.family, request.stream, request.asks) == ("chat_completions", True, ())
    assert not request.include_usage and request.max_output_tokens is None
    nothing = decoded(
        temperature=1, top_p=1.0, n=1, stop=[], logit_bias={}, parallel_tool_calls=True,
        store=False, modalities=["text"], metadata={}, frequency_penalty=0, logprobs=False,
        service_tier="auto", response_format={"type": "text"}, seed=None, moderation=None,
    )  # fmt: skip
    assert nothing.asks == ()


def test_sampling_and_bounds():
    request = decoded(
        temperature=0.5, top_p=0.9, top_k=7, seed=-3, frequency_penalty=-1, presence_penalty=2,
        logit_bias={"50256": -100}, n=3, stop="END", max_tokens=9, max_completion_tokens=8,
        logprobs=True, top_logprobs=2, verbosity="low",
    )  # fmt: skip
    assert (request.temperature, request.top_p, request.top_k, request.seed) == (0.5, 0.9, 7, -3)
    assert (request.frequency_penalty, request.presence_penalty) == (-1, 2)
    assert request.logit_bias == {"50256": -100} and request.n == 3 and request.stop == ("END",)
    assert request.max_output_tokens == 8 and request.logprobs == 2
    assert request.verbosity == "low"
    assert set(features(request)) == {
        *("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"),
        *("logit_bias", "n", "stop", "logprobs", "verbosity"),
    }
    assert decoded(max_tokens=9).max_output_tokens == 9
    assert decoded(logprobs=True).logprobs == 0
    assert decoded(top_logprobs=3).logprobs is None


def test_around_the_call():
    request = decoded(
        user="u", safety_identifier="s", prompt_cache_key="k", metadata={"a": "b"},
        service_tier="flex", store=True, parallel_tool_calls=False, unheard_of={"x": 1},
        prediction={"type": "content", "content": "x"}, modalities=["text", "audio"],
        stream_options={"include_usage": True, "include_obfuscation": True},
    )  # fmt: skip
    assert (request.end_user, request.cache_key, request.tier) == ("s", "k", "flex")
    assert request.metadata == {"a": "b"} and request.parallel_tools is False
    assert request.include_usage
    asks = {(ask.feature, ask.path) for ask in request.asks}
    assert {
        ("end_user", "user"), ("end_user", "safety_identifier"), ("cache_key", "prompt_cache_key"),
        ("metadata", "metadata"), ("tier", "service_tier"), ("other", "store"),
        ("parallel_tools", "parallel_tool_calls"), ("other", "unheard_of"),
        ("other", "stream_options.include_obfuscation"),
        ("prediction", "prediction"), ("output_modalities", "modalities"),
    } == asks  # fmt: skip
    fast = decoded(service_tier="fast")
    assert fast.tier == "priority" and features(fast) == {"speed": "service_tier"}
    assert features(decoded(service_tier="scale")) == {"other": "service_tier"}


def test_the_form_of_the_answer():
    said = {"name": "tea", "schema": SCHEMA, "strict": True, "description": "d"}
    request = decoded(response_format={"type": "json_schema", "json_schema": said})
    assert request.output == Output("schema", SCHEMA, "tea", "d", True)
    assert features(request) == {"schema_output": "response_format"}
    assert decoded(response_format={"type": "json_object"}).output == Output("json")


@pytest.mark.parametrize(
    ("word", "effort"),
    [("none", "off"), ("minimal", "minimal"), ("high", "high"), ("xhigh", "xhigh"), ("max", "max")],
)
def test_effort(word, effort):
    request = decoded(reasoning_effort=word)
    assert request.thinking == Thinking(effort, show="none" if effort == "off" else "full")
    assert features(request) == {"reasoning": "reasoning_effort"}
    assert decoded(reasoning_effort=None).thinking is None


REQUIRED = {"mode": "required", "tools": [function_tool(name="get_tide"), {"name": "g"}]}


def test_functions():
    request = decoded(tools=TOOLS)
    assert request.tools == (Tool("function", "get_tide", "Tides", SCHEMA, True, path="tools[0]"),)
    assert features(request) == {"strict_tool": "tools[0].function.strict"}
    (bare,) = decoded(tools=[function_tool(name="f")]).tools
    assert (bare.schema, bare.strict) == (None, None)


def test_free_text_tools():
    grammar = {"syntax": "regex", "definition": "a+"}
    custom = {"name": "patch", "format": {"type": "grammar", "grammar": grammar}}
    request = decoded(tools=[{"type": "custom", "custom": custom}])
    tool = Tool("custom", "patch", grammar="a+", grammar_syntax="regex", path="tools[0]")
    assert request.tools == (tool,)
    assert features(request) == {"custom_tool": "tools[0]"}


def test_functions_from_before_there_were_tools():
    request = decoded(
        [
            *HI,
            assistant(content=None, function_call={"name": "f", "arguments": "{}"}),
            {"role": "function", "name": "f", "content": "ok"},
        ],
        functions=[{"name": "f"}],
        function_call={"name": "f"},
    )
    assert request.tools == (Tool("function", "f", path="functions[0]"),)
    assert request.choice == ToolChoice("one", ("f",))
    assert request.function_call and request.parallel_tools is False
    assert features(request) == {"other": "messages[2].name"}
    assert request.turns[1:] == (
        Turn("assistant", (ToolCall("call_f0", "f", "{}"),)),
        Turn("user", (ToolResult("call_f0", (Text("ok"),)),)),
    )
    assert decoded(functions=[{"name": "f"}], function_call="none").choice == ToolChoice("none")


def test_a_search_by_the_vendor():
    request = decoded(web_search_options={"search_context_size": "low"})
    (tool,) = request.tools
    assert (tool.kind, tool.search, tool.path) == ("hosted", True, "web_search_options")
    assert features(request) == {"hosted_search": "web_search_options"}


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("any")),
        (function_tool(name="get_tide"), ToolChoice("one", ("get_tide",))),
        ({"type": "custom", "custom": {"name": "patch"}}, ToolChoice("one", ("patch",))),
        (
            {"type": "allowed_tools", "allowed_tools": REQUIRED},
            ToolChoice("any", ("get_tide", "g")),
        ),
    ],
)
def test_choices(said, choice):
    assert decoded(tools=TOOLS, tool_choice=said).choice == choice
    assert decoded(tool_choice=said).choice is None  # means nothing without tools


# ---- messages ------------------------------------------------------------------------------------


def turns(*messages):
    return decoded([*HI, *messages]).turns[1:]


def test_leading_system_messages_are_the_system_text_and_later_ones_are_turns():
    request = decoded(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
            *HI,
            {"role": "system", "content": "Now in Dutch."},
        ]
    )
    assert request.system == (Text("Be brief."), Text("In French."))
    assert [turn.role for turn in request.turns] == ["user", "system"]
    assert features(request) == {"system_turn": "messages[3]"}


def test_messages_of_one_role_are_one_turn():
    assert decoded([user("a"), user(["b"])]).turns == (Turn("user", (Text("a"), Text("b"))),)


def test_results_come_first_in_the_order_of_their_calls():
    calls = [function_call("c1"), function_call("c2", "g", '{"x":1}')]
    assert turns(
        assistant(content=None, tool_calls=calls),
        user("Go on."),
        tool_result("c2", [{"type": "text", "text": "two"}]),
        tool_result("c1", "one"),
    ) == (
        Turn("assistant", (ToolCall("c1", "f", "{}"), ToolCall("c2", "g", '{"x":1}'))),
        Turn(
            "user",
            (ToolResult("c1", (Text("one"),)), ToolResult("c2", (Text("two"),)), Text("Go on.")),
        ),
    )


def test_free_text_calls_and_their_results():
    found = turns(assistant(tool_calls=[custom_call("c1", "patch", "+a")]), tool_result("c1"))
    assert found[0].parts == (ToolCall("c1", "patch", "+a", custom=True),)
    assert found[1].parts == (ToolResult("c1", (Text("done"),), custom=True),)


def test_refusals_and_reasoning_of_history():
    content = [{"type": "text", "text": "No."}, {"type": "refusal", "refusal": "I won't."}]
    said = assistant(content=content, refusal="Really.", reasoning_content="Hm.")
    parts = (Reasoning("Hm."), Text("No."), Refusal("I won't."), Refusal("Really."))
    assert turns(said, *HI)[0] == Turn("assistant", parts)
    parts = (Reasoning("Hm."), Text("x"))
    assert turns(assistant(content="x", reasoning="Hm."), *HI)[0].parts == parts


def test_an_answer_that_is_to_be_continued():
    assert features(decoded([*HI, assistant(content="It is")])) == {"prefill": "messages[1]"}


def test_what_is_not_read_of_a_message_is_named():
    request = decoded([user("x") | {"name": "ann"}, assistant(audio={"id": "a"}), *HI])
    assert {(ask.feature, ask.path) for ask in request.asks} == {
        ("other", "messages[0].name"),
        ("stored_state", "messages[1].audio"),
    }


AT = "messages[0].content[0]"


def part(**content):
    request = decoded([user([content])])
    (found,) = request.turns[0].parts
    return found, features(request)


def file(**fields):
    return {"type": "file", "file": fields}


def image(url):
    return {"type": "image_url", "image_url": url}


FILE = f"{AT}.file"
PDF = Media("file", "application/pdf", "JVBE", name="a.pdf", path=AT)
MARKDOWN = Media("file", "text/plain", "# Tea", name="a.md", plain=True, path=AT)


@pytest.mark.parametrize(
    ("content", "media", "asks"),
    [
        (
            image({"url": "DATA:image/PNG;x=y;base64,_-8", "detail": "low"}),
            Media("image", "image/png", "/+8=", detail="low", path=AT),
            {"image_detail": f"{AT}.image_url.detail", "image_data": f"{AT}.image_url"},
        ),
        (
            image("https://x.example/a.png"),
            Media("image", url="https://x.example/a.png", path=AT),
            {"image_url": f"{AT}.image_url"},
        ),
        (
            image({"url": "https://x", "detail": "auto"}),
            Media("image", url="https://x", detail="auto", path=AT),
            {"image_url": f"{AT}.image_url"},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            Media("audio", "audio/mpeg", "AAAA", path=AT),
            {"audio": f"{AT}.input_audio"},
        ),
        (
            file(file_data="data:application/pdf;base64,JVBE", filename="a.pdf"),
            PDF,
            {"document_data": FILE},
        ),
        (file(file_data="JVBE", filename="a.pdf"), PDF, {"document_data": FILE}),
        (
            file(file_data="data:text/markdown;base64,IyBUZWE=", filename="a.md"),
            MARKDOWN,
            {"text_document": FILE},
        ),
        (
            file(file_id="file-1"),
            Media("file", ref="file-1", path=AT),
            {"file_ref": f"{AT}.file.file_id"},
        ),
        (
            file(file_data="data:image/png;base64,AAAA"),
            Media("image", "image/png", "AAAA", path=AT),
            {"document_data": FILE},
        ),
    ],
)
def test_media(content, media, asks):
    assert part(**content) == (media, asks)


def test_cache_marks():
    mark = {"mode": "explicit", "ttl": "12h"}
    found, asks = part(type="text", text="x", prompt_cache_breakpoint=mark)
    assert found.cache == CacheMark(43200)
    assert asks == {"cache_mark": f"{AT}.prompt_cache_breakpoint"}
    found, _ = part(type="text", text="x", prompt_cache_breakpoint={"mode": "explicit"})
    assert found.cache == CacheMark(None)


# ---- refusals ------------------------------------------------------------------------------------

BARE = {"id": "x", "function": {"name": "f", "arguments": {}}}
REFUSAL = {"type": "refusal", "refusal": "x"}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "x"}}


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("messages", {"messages": []}),
        ("messages", {"messages": None}),
        ("messages[0]", {"messages": ["hello"]}),
        ("temperature", {"temperature": 3}),
        ("temperature", {"temperature": "warm"}),
        ("temperature", {"temperature": True}),
        ("seed", {"seed": 1.5}),
        ("n", {"n": 0}),
        ("n", {"n": 10**9}),
        ("max_tokens", {"max_tokens": 0}),
        ("stop", {"stop": [1]}),
        ("stop", {"stop": ["x"] * 17}),
        ("stop", {"stop": {}}),
        ("stop", {"stop": "x" * 257}),
        ("stop[1]", {"stop": ["x" * 256, "x" * 257]}),
        ("logit_bias.5", {"logit_bias": {"5": "x"}}),
        ("top_logprobs", {"top_logprobs": 21}),
        ("reasoning_effort", {"reasoning_effort": "huge"}),
        ("reasoning_effort", {"reasoning_effort": 5}),
        ("response_format.type", {"response_format": {"type": "xml"}}),
        ("response_format.json_schema", {"response_format": {"type": "json_schema"}}),
        (
            "response_format.json_schema.schema",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        ),
        ("verbosity", {"verbosity": "chatty"}),
        ("user", {"user": 5}),
        ("metadata", {"metadata": "x"}),
        ("stream_options.include_usage", {"stream_options": {"include_usage": 1}}),
        ("tools", {"tools": {}}),
        ("tools[0]", {"tools": [1]}),
        ("tools[0].type", {"tools": [{"type": "web"}]}),
        ("tools[0].function", {"tools": [{"type": "function"}]}),
        ("tools[0].function.name", {"tools": [function_tool()]}),
        ("tools[0].function.parameters", {"tools": [function_tool(name="f", parameters=[])]}),
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
def test_a_wrong_field_is_named(param, fields):
    condition, named = refusal_of(decoded, **{"messages": HI, **fields})
    assert named == param
    assert condition in (Condition.INVALID_FIELD, Condition.FIELD_MISSING)


@pytest.mark.parametrize(
    ("param", "message"),
    [
        (".role", {}),
        (".role", {"role": "robot", "content": "x"}),
        (".content", user(5)),
        (".content[0]", user([5])),
        (".content[0].type", user([{}])),
        (".content[0].type", user([{"type": "video"}])),
        (".content[0].text", user([{"type": "text"}])),
        (".content[0].image_url", user([image(1)])),
        (".content[0].image_url.url", user([image("data:image/png,x")])),
        (".content[0].input_audio.format", user([SOUND])),
        (".content[0].file.file_data", user([file()])),
        (".content[0].type", {"role": "system", "content": [REFUSAL]}),
        (".content", tool_result("c", [REFUSAL])),
        (".tool_call_id", {"role": "tool", "content": "x"}),
        (".name", {"role": "function", "name": "f", "content": "x"}),
        (".tool_calls", assistant(tool_calls={})),
        (".tool_calls[0]", assistant(tool_calls=["x"])),
        (".tool_calls[0].id", assistant(tool_calls=[{}])),
        (".tool_calls[0].function", assistant(tool_calls=[{"id": "x"}])),
        (".tool_calls[0].function.arguments", assistant(tool_calls=[BARE])),
    ],
)
def test_a_wrong_message_is_named(param, message):
    condition, named = refusal_of(decoded, [message])
    assert named == f"messages[0]{param}"
    assert condition in (Condition.INVALID_FIELD, Condition.FIELD_MISSING)
