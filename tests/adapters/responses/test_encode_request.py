"""Requests for upstreams: the fields of the body."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import Text, Turn
from adapters.ir.request import Ask, Output, Request, Thinking, Tool, ToolChoice
from tests.adapters.responses.calls import encoded

TURNS = (Turn("user", (Text("Tide?"),)),)
SCHEMA = {"type": "object", "properties": {}}
LONG = "x" * 70


def request(**fields) -> Request:
    return Request("messages", fields.pop("stream", False), fields.pop("turns", TURNS), **fields)


def body_of(count=False, traits=None, **fields):
    return encoded(request(**fields), count, **(traits or {}))[0]


def test_a_short_request():
    assert body_of(stream=True) == {
        "model": "up",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Tide?"}],
            }
        ],
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
    }


def test_settings():
    body = body_of(
        system=(Text("One."), Text(""), Text("Two.")),
        max_output_tokens=5,
        temperature=0.5,
        top_p=0.9,
        logprobs=2,
        metadata={"a": "b", "n": 1},
        end_user=LONG,
        tier="flex",
        cache_key="k",
        verbosity="low",
    )
    assert body["instructions"] == "One.\n\nTwo." and body["max_output_tokens"] == 16
    assert (body["temperature"], body["top_p"], body["top_logprobs"]) == (0.5, 0.9, 2)
    assert body["include"][0] == "message.output_text.logprobs"
    assert body["metadata"] == {"a": "b"} and body["text"] == {"verbosity": "low"}
    assert len(body["safety_identifier"]) == 64 and body["prompt_cache_key"] == "k"
    assert body["service_tier"] == "flex"


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
        (
            Output("schema", SCHEMA),
            {"type": "json_schema", "name": "response", "schema": SCHEMA},
        ),
        (
            Output("schema", SCHEMA, "tea", "Tea.", False),
            {
                "type": "json_schema",
                "name": "tea",
                "schema": SCHEMA,
                "description": "Tea.",
                "strict": False,
            },
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
    asked = request(
        output=Output("schema", SCHEMA), tools=(Tool("function", "respond"),), choice=choice
    )
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
