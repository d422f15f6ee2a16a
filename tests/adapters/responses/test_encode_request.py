"""Requests for upstreams: the fields of the body, tools, and names that upstreams do not accept."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Ask, Output, Request, Thinking, Tool, ToolChoice
from tests.adapters.responses.calls import encoded

TURNS = (Turn("user", (Text("Tide?"),)),)
SCHEMA = {"type": "object", "properties": {}}
LONG = "x" * 70
STATE = "reasoning.encrypted_content"
TIDE_TEXT = {"type": "input_text", "text": "Tide?"}


def request(**fields) -> Request:
    return Request("messages", fields.pop("stream", False), fields.pop("turns", TURNS), **fields)


def body_of(count=False, traits=None, **fields):
    return encoded(request(**fields), count, **(traits or {}))[0]


def test_a_short_request():
    assert body_of(stream=True) == {
        "model": "up",
        "input": [{"type": "message", "role": "user", "content": [TIDE_TEXT]}],
        "store": False,
        "stream": True,
        "include": [STATE],
    }


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"system": (Text("One."), Text(""), Text("Two."))}, {"instructions": "One.\n\nTwo."}),
        ({"max_output_tokens": 5}, {"max_output_tokens": 16}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        ({"logprobs": 2}, {"top_logprobs": 2, "include": ["message.output_text.logprobs", STATE]}),
        ({"metadata": {"a": "b", "n": 1}}, {"metadata": {"a": "b"}}),
        ({"end_user": "u"}, {"safety_identifier": "u"}),
        ({"tier": "flex", "cache_key": "k"}, {"service_tier": "flex", "prompt_cache_key": "k"}),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
    ],
)
def test_settings(fields, sent):
    assert body_of(**fields) == {**body_of(), **sent}
    assert len(body_of(end_user=LONG)["safety_identifier"]) == 64


def test_metadata_that_is_left_out_is_told():
    many = {f"n{i}": "x" for i in range(20)}
    body, made = encoded(request(metadata=many))
    assert len(body["metadata"]) == 16 and made.dropped == ("metadata",)
    assert encoded(request(metadata={"n": 1}))[1].dropped == ("metadata",)
    assert encoded(request(metadata={"n": "1"}))[1].dropped == ()


def test_a_count_has_no_settings():
    body = body_of(True, max_output_tokens=5, temperature=1, end_user="u", stream=True)
    assert body.keys() == {"model", "input"}


def test_stop_sequences_are_cut_by_the_gateway():
    assert encoded(request(stop=("END",)))[1].cut == ("END",)
    assert encoded(request(stop=("END",)), count=True)[1].cut == ()


def test_system_text_alone_is_something_to_answer():
    body = body_of(turns=(), system=(Text("Greet."),))
    assert "instructions" not in body
    assert body["input"][0]["role"] == "user"


@pytest.mark.parametrize(
    ("thinking", "traits", "reasoning"),
    [
        (None, {}, None),
        (Thinking("high"), {}, {"effort": "high"}),
        (Thinking("off", show="full"), {}, {"effort": "none"}),
        (Thinking("auto", show="summary"), {}, {"summary": "auto"}),
        (Thinking("auto"), {}, None),
        (Thinking(budget_tokens=0), {}, {"effort": "none"}),
        (Thinking(budget_tokens=1024), {}, {"effort": "minimal"}),
        (Thinking(budget_tokens=12288), {}, {"effort": "medium"}),
        (Thinking(budget_tokens=50000), {}, {"effort": "xhigh"}),
        (Thinking("max"), {"efforts": ["low", "high"]}, {"effort": "high"}),
        (Thinking("minimal"), {"efforts": ["low", "high"]}, {"effort": "low"}),
        (Thinking("high"), {"efforts": []}, None),
        (Thinking("high"), {"thinking": "none"}, None),
    ],
)
def test_depth_of_thought(thinking, traits, reasoning):
    body = body_of(thinking=thinking, traits=traits)
    assert body.get("reasoning") == reasoning
    silent = traits.get("thinking") == "none" or reasoning == {"effort": "none"}
    assert ("include" in body) is not silent


def test_a_model_without_sampling():
    body = body_of(temperature=1, top_p=1, traits={"sampling": False})
    assert not body.keys() & {"temperature", "top_p"}


@pytest.mark.parametrize(
    ("output", "form"),
    [
        (Output("json"), {"type": "json_object"}),
        (Output("schema", SCHEMA), {"type": "json_schema", "name": "response", "schema": SCHEMA}),
        (
            Output("schema", SCHEMA, "tea", "Tea.", False),
            {"type": "json_schema", "name": "tea", "schema": SCHEMA}
            | {"description": "Tea.", "strict": False},
        ),
    ],
)
def test_forms_of_the_text(output, form):
    assert body_of(output=output)["text"] == {"format": form}


def test_structured_output_as_a_tool():
    output = Output("schema", SCHEMA)
    body, made = encoded(request(output=output), structured="tool")
    assert made.output_tool == body["tools"][0]["name"] and "text" not in body
    assert body["tool_choice"] == {"type": "function", "name": made.output_tool}
    tools = (Tool("function", "tide"),)
    body, _ = encoded(request(output=output, tools=tools), structured="tool")
    assert body["tool_choice"] == "required" and len(body["tools"]) == 2


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("auto"), "required"),
        (ToolChoice("none"), {"type": "function", "name": "respond_"}),
        (ToolChoice("one", ("respond",)), {"type": "function", "name": "respond"}),
    ],
)
def test_a_choice_beside_structured_output_as_a_tool(choice, sent):
    tools = (Tool("function", "respond"),)
    asked = request(output=Output("schema", SCHEMA), tools=tools, choice=choice)
    body, made = encoded(asked, structured="tool")
    assert (body["tool_choice"], made.output_tool) == (sent, "respond_")


def test_vendors_that_lack_what_openai_has():
    settings = {"end_user": LONG, "tier": "flex", "cache_key": "k", "verbosity": "low"}
    body = body_of(traits={"openai_extras": False, "verbosity": False}, **settings)
    assert body.keys() == {"model", "input", "store", "user"} and body["user"] == LONG


def test_a_schema_that_cannot_be_written_is_a_fault():
    schema: dict = {}
    for _ in range(5000):
        schema = {"a": schema}
    with pytest.raises(Fault) as caught:
        body_of(output=Output("schema", schema))
    assert caught.value.condition is Condition.INVALID_FIELD


def test_choice_without_tools_is_not_sent():
    assert "tool_choice" not in body_of(choice=ToolChoice("any"), asks=(Ask("other", "x"),))


# ---- tools ---------------------------------------------------------------------------------------

TIDE = Tool("function", "tide", "The tide.", SCHEMA)
PATCH = Tool("custom", "patch", grammar="start: x", grammar_syntax="lark")
SEARCH = Tool("hosted", "web", search=True)
CODE = Tool("hosted", "code")
NAMED_PATCH = {"type": "custom", "name": "patch"}
ODD = "sea.tide:" + "x" * 80


def test_kinds():
    body, made = encoded(
        request(tools=(TIDE, Tool("function", "bare", strict=True), PATCH, SEARCH, CODE))
    )
    function = {"type": "function", "parameters": SCHEMA}
    form = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    assert body["tools"] == [
        {**function, "name": "tide", "description": "The tide.", "strict": False},
        {**function, "name": "bare", "strict": True},
        {"type": "custom", "name": "patch", "format": form},
        {"type": "web_search"},
    ]
    assert made.names == {}


def test_namespaces():
    inner = [Tool("function", name, namespace="sea") for name in ("tide", "wind")]
    body = body_of(tools=(inner[0], TIDE, inner[1]))
    assert [tool["type"] for tool in body["tools"]] == ["namespace", "function"]
    assert [tool["name"] for tool in body["tools"][0]["tools"]] == ["tide", "wind"]


def test_names_that_upstreams_refuse():
    odd = Tool("function", ODD)
    call = Turn("assistant", (ToolCall("a", ODD, "{}"),))
    turns = (*TURNS, call, Turn("user", (ToolResult("a", (Text("x"),)),)))
    body, made = encoded(request(tools=(odd,), turns=turns, choice=ToolChoice("one", (ODD,))))
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
        (ToolChoice("one", ("patch",)), NAMED_PATCH),
        (
            ToolChoice("any", ("patch", "gone")),
            {"type": "allowed_tools", "mode": "required", "tools": [NAMED_PATCH]},
        ),
        (ToolChoice("auto", ("gone",)), "auto"),
    ],
)
def test_choices(choice, sent):
    body = body_of(tools=(TIDE, PATCH), choice=choice, parallel_tools=False)
    assert body.get("tool_choice") == sent and body["parallel_tool_calls"] is False


def test_vendors_without_free_text_tools_get_functions():
    call = Turn("assistant", (ToolCall("a", "patch", 'é"', custom=True),))
    turns = (*TURNS, call, Turn("user", (ToolResult("a", (Text("x"),), custom=True),)))
    note = Tool("custom", "note")
    sent = request(turns=turns, tools=(TIDE, PATCH, SEARCH, note))
    body, made = encoded(sent, custom_tools=False)
    assert made.names == {"patch": PATCH, "note": note}
    kinds = [tool["type"] for tool in body["tools"]]
    assert kinds == ["function", "function", "web_search", "function"]
    assert "start: x" in body["tools"][1]["parameters"]["properties"]["input"]["description"]
    assert body["tools"][3]["parameters"]["properties"] == {"input": {"type": "string"}}
    assert body["input"][1]["arguments"] == '{"input":"é\\""}'
    assert body["input"][2]["type"] == "function_call_output"


@pytest.mark.parametrize(
    ("tools", "choice", "names", "sent"),
    [
        ((TIDE, PATCH), ToolChoice("any", ("tide",)), ["tide"], "required"),
        ((TIDE,), ToolChoice("any", ("gone",)), ["tide"], "required"),
        ((PATCH,), ToolChoice("one", ("patch",)), ["patch"], {"type": "function", "name": "patch"}),
    ],
)
def test_vendors_without_subsets_of_tools_get_the_subset(tools, choice, names, sent):
    body = body_of(traits={"custom_tools": False}, tools=tools, choice=choice)
    assert [tool["name"] for tool in body["tools"]] == names
    assert body["tool_choice"] == sent
