"""Clients' requests in the hub's words."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import Text
from adapters.ir.request import Output, Thinking
from tests.adapters.responses.calls import asked_for, decoded

LOGPROBS = "message.output_text.logprobs"


def test_a_short_request():
    request = decoded(instructions="Be brief.", max_output_tokens=50, stream=True)
    assert request.family == "responses" and request.max_output_tokens == 50
    assert request.system == (Text("Be brief."),)
    assert [(turn.role, turn.parts) for turn in request.turns] == [
        ("user", (Text("Is tea ready?"),))
    ]
    assert request.asks == ()


def test_fields_and_what_they_ask_for():
    request = decoded(
        temperature=0.5,
        top_p=1,
        top_logprobs=3,
        include=["reasoning.encrypted_content", "file_search_call.results", LOGPROBS],
        parallel_tool_calls=False,
        reasoning={"effort": "none", "summary": "auto", "mode": "pro"},
        text={"verbosity": "low", "format": {"type": "json_object"}},
        metadata={"a": "b"},
        user="old",
        safety_identifier="new",
        service_tier="flex",
        prompt_cache_key="k",
        truncation="auto",
        store=True,
        context_management=[{"type": "compaction"}],
        client_metadata={"x": "y"},
        max_tool_calls=3,
    )
    assert (request.temperature, request.top_p, request.logprobs) == (0.5, 1, 3)
    assert request.parallel_tools is False and request.verbosity == "low"
    assert request.thinking == Thinking("off", show="summary")
    assert request.output == Output("json") and request.metadata == {"a": "b"}
    assert (request.end_user, request.tier, request.cache_key) == ("new", "flex", "k")
    others = [ask.path for ask in request.asks if ask.feature == "other"]
    assert others == ["store", "reasoning.mode", "client_metadata", "max_tool_calls"]
    asks = asked_for(request)
    assert asks["include"] == "include[1]" and asks["logprobs"] == "include[2]"
    assert asks["verbosity"] == "text.verbosity" and asks["truncation"] == "truncation"
    assert asks["end_user"] == "user" and asks["context_management"] == "context_management"
    assert {"temperature", "top_p", "parallel_tools", "reasoning", "json_output"} <= asks.keys()
    assert {"metadata", "tier", "cache_key"} <= asks.keys()


def test_who_wants_to_see_thoughts_wants_them():
    assert decoded(reasoning={"summary": "auto"}).thinking == Thinking("auto", show="summary")
    assert decoded(reasoning={"effort": "low"}).thinking == Thinking("low")


def test_what_changes_nothing_asks_for_nothing():
    request = decoded(
        store=False,
        truncation="disabled",
        background=False,
        parallel_tool_calls=True,
        service_tier="auto",
        text={"format": {"type": "text"}},
        reasoning={"effort": None},
        include=[],
        metadata={},
        top_logprobs=5,
        previous_response_id=None,
        stream_options={"include_obfuscation": False},
    )
    assert request.asks == () and request.tier == "auto" and request.logprobs is None


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"previous_response_id": "resp_1"}, "stored_state"),
        ({"conversation": "conv_1"}, "stored_state"),
        ({"prompt": {"id": "p"}}, "stored_state"),
        ({"background": True}, "background"),
        ({"service_tier": "ultrafast"}, "speed"),
    ],
)
def test_what_only_some_upstreams_have(fields, feature):
    assert asked_for(decoded(**fields)) == {feature: next(iter(fields))}


def test_a_prompt_of_the_vendor_may_stand_for_the_input():
    assert decoded(None, prompt={"id": "p"}).turns == ()


def test_an_output_schema():
    form = {"type": "json_schema", "name": "tea", "schema": {"type": "object"}, "strict": True}
    request = decoded(text={"format": form})
    assert request.output == Output("schema", {"type": "object"}, "tea", strict=True)
    assert asked_for(request) == {"schema_output": "text.format"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"instructions": 1}, "instructions"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"reasoning": "much"}, "reasoning"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"include": "all"}, "include"),
        ({"text": {"format": "json"}}, "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": 1}}}, "text.format.schema"),
        (
            {"text": {"format": {"type": "json_schema", "schema": {}, "strict": 1}}},
            "text.format.strict",
        ),
        ({"metadata": []}, "metadata"),
        ({"user": 1}, "user"),
        ({"service_tier": 1}, "service_tier"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "maybe"}, "tool_choice"),
    ],
)
def test_a_wrong_field_is_named(fields, param):
    with pytest.raises(Fault) as caught:
        decoded(**fields)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, param)
