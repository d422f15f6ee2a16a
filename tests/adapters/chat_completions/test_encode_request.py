"""Requests of other families for an upstream of this one: the fields around the messages."""

import pytest

from adapters.chat_completions import CODECS
from adapters.chat_completions.encode_request import effort_of
from adapters.family.codec import Target
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.ir.parts import Text, Turn
from adapters.ir.request import Output, Request, Thinking, Tool, ToolChoice
from adapters.json.structure import at_once
from tests.adapters.chat_completions.calls import encoded, request

HELLO = Turn("user", (Text("Is tea ready?"),))
MESSAGES = [{"role": "user", "content": "Is tea ready?"}]
SCHEMA = {"type": "object", "properties": {"cups": {"type": "integer"}}}


def fields(traits=None, **asked):
    """The body's fields besides model and messages."""
    body, _ = encoded(request(HELLO, **asked), **(traits or {}))
    assert body.pop("model") == "up" and body.pop("messages") == MESSAGES
    return body


def test_a_plain_request_has_nothing_else():
    assert fields() == {}


def test_streams_ask_for_usage_where_the_vendor_takes_the_field():
    body, _ = encoded(Request("messages", True, (HELLO,), include_usage=False))
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}
    target = Target("old", "up", Traits(), stream_options=False)
    made = at_once(
        CODECS.upstream.encode_request(Request("messages", True, (HELLO,)), target, False)
    )
    assert b'"stream":true' in made.body and b"stream_options" not in made.body


def test_sampling():
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
    function = {"name": "respond", "description": "How many", "parameters": SCHEMA}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "respond"}}
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
        (Thinking(budget_tokens=-1), ("off", "low"), None),
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
    with pytest.raises(Fault) as caught:
        encoded(request(HELLO, tools=(Tool("function", "f", schema=schema),)))
    assert caught.value.condition is Condition.INVALID_FIELD


def test_models_that_refuse_to_think_beside_tools_are_told_not_to():
    tools, thinking = (Tool("function", "f"),), Thinking("high")
    body, made = encoded(request(HELLO, tools=tools, thinking=thinking), effort_with_tools=False)
    assert body["reasoning_effort"] == "none" and made.dropped == ("reasoning",)
    body, made = encoded(request(HELLO, tools=tools), effort_with_tools=False)
    assert body["reasoning_effort"] == "none" and made.dropped == ()
    body, made = encoded(request(HELLO, thinking=thinking), effort_with_tools=False)
    assert body["reasoning_effort"] == "high" and made.dropped == ()
    traits = {"effort_with_tools": False, "efforts": ("low", "high")}
    body, _ = encoded(request(HELLO, tools=tools, thinking=thinking), **traits)
    assert "reasoning_effort" not in body


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


def test_models_that_think_unless_told_otherwise_are_told_so_before_a_forced_tool():
    tools = (Tool("function", "f"),)
    off, forced = {"type": "disabled"}, ToolChoice("any")
    asked = request(HELLO, tools=tools, choice=forced, thinking=Thinking("high"))
    body, made = encoded(asked, thinking_switch=True)
    assert body["thinking"] == off and "reasoning_effort" not in body
    assert made.dropped == ("reasoning",)
    assert fields({"thinking_switch": True}, thinking=Thinking("off")) == {"thinking": off}
    asked = request(HELLO, tools=tools, choice=ToolChoice("auto"), thinking=Thinking("high"))
    body, made = encoded(asked, thinking_switch=True)
    assert body["reasoning_effort"] == "high" and "thinking" not in body and made.dropped == ()
    asked = request(HELLO, output=Output("schema", SCHEMA))
    body, made = encoded(asked, thinking_switch=True, structured="tool")
    assert body["thinking"] == off and made.dropped == ()
