"""Decoding of clients' requests: settings, tools and the choice among them."""

import pytest

from adapters.ir.parts import Text, Turn
from adapters.ir.request import Output, Thinking, Tool, ToolChoice
from tests.adapters.builders import features
from tests.adapters.responses.calls import decoded, refusal

LOGPROBS = "message.output_text.logprobs"


def test_a_short_request():
    request = decoded(instructions="Be brief.", max_output_tokens=50, stream=True)
    assert request.family == "responses" and request.max_output_tokens == 50
    assert request.system == (Text("Be brief."),)
    assert request.turns == (Turn("user", (Text("Is tea ready?"),)),)
    assert request.asks == ()


@pytest.mark.parametrize(
    ("sent", "fields", "asks"),
    [
        ({"temperature": 0.5}, {"temperature": 0.5}, {"temperature": "temperature"}),
        ({"top_p": 1}, {"top_p": 1}, {"top_p": "top_p"}),
        (
            {"top_logprobs": 3, "include": ["reasoning.encrypted_content", "a.results", LOGPROBS]},
            {"logprobs": 3},
            {"include": "include[1]", "logprobs": "include[2]"},
        ),
        (
            {"parallel_tool_calls": False},
            {"parallel_tools": False},
            {"parallel_tools": "parallel_tool_calls"},
        ),
        (
            {"reasoning": {"effort": "none", "summary": "auto", "mode": "pro"}},
            {"thinking": Thinking("off", show="summary")},
            {"reasoning": "reasoning", "other": "reasoning.mode"},
        ),
        (
            {"reasoning": {"summary": "auto"}},
            {"thinking": Thinking("auto", show="summary")},
            {"reasoning": "reasoning"},
        ),
        (
            {"reasoning": {"effort": "low"}},
            {"thinking": Thinking("low")},
            {"reasoning": "reasoning"},
        ),
        (
            {"text": {"verbosity": "low", "format": {"type": "json_object"}}},
            {"verbosity": "low", "output": Output("json")},
            {"verbosity": "text.verbosity", "json_output": "text.format"},
        ),
        ({"metadata": {"a": "b"}}, {"metadata": {"a": "b"}}, {"metadata": "metadata"}),
        ({"user": "old", "safety_identifier": "new"}, {"end_user": "new"}, {"end_user": "user"}),
        ({"service_tier": "flex"}, {"tier": "flex"}, {"tier": "service_tier"}),
        ({"prompt_cache_key": "k"}, {"cache_key": "k"}, {"cache_key": "prompt_cache_key"}),
        ({"truncation": "auto"}, {}, {"truncation": "truncation"}),
        (
            {"context_management": [{"type": "compaction"}]},
            {},
            {"context_management": "context_management"},
        ),
        *(({name: value}, {}, {"other": name}) for name, value in (
            ("store", True), ("client_metadata", {"x": "y"}), ("max_tool_calls", 3)
        )),
        ({"previous_response_id": "resp_1"}, {}, {"stored_state": "previous_response_id"}),
        ({"conversation": "conv_1"}, {}, {"stored_state": "conversation"}),
        ({"prompt": {"id": "p"}}, {}, {"stored_state": "prompt"}),
        ({"background": True}, {}, {"background": "background"}),
        ({"service_tier": "ultrafast"}, {}, {"speed": "service_tier"}),
    ],
)  # fmt: skip
def test_fields_and_what_they_ask_for(sent, fields, asks):
    request = decoded(**sent)
    assert {field: getattr(request, field) for field in fields} == fields
    assert features(request) == asks


def test_what_changes_nothing_asks_for_nothing():
    nothing = {"store": False, "truncation": "disabled", "background": False, "include": []}
    nothing |= {"parallel_tool_calls": True, "service_tier": "auto", "reasoning": {"effort": None}}
    nothing |= {"text": {"format": {"type": "text"}}, "metadata": {}, "top_logprobs": 5}
    nothing |= {"previous_response_id": None, "stream_options": {"include_obfuscation": False}}
    request = decoded(**nothing)
    assert request.asks == () and request.tier == "auto" and request.logprobs is None


def test_a_prompt_of_the_vendor_may_stand_for_the_input():
    assert decoded(None, prompt={"id": "p"}).turns == ()


def test_an_output_schema():
    form = {"type": "json_schema", "name": "tea", "schema": {"type": "object"}, "strict": True}
    request = decoded(text={"format": form})
    assert request.output == Output("schema", {"type": "object"}, "tea", strict=True)
    assert features(request) == {"schema_output": "text.format"}


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
        *(
            ({"text": {"format": form}}, f"text.format{place}")
            for form, place in (
                ("json", ""),
                ({"type": "xml"}, ".type"),
                ({"type": "json_schema", "schema": 1}, ".schema"),
                ({"type": "json_schema", "schema": {}, "strict": 1}, ".strict"),
            )
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
    assert refusal(**fields) == ("E12", param)


# ---- tools ---------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}
TIDE = {"type": "function", "name": "tide", "description": "The tide.", "parameters": SCHEMA}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
PATCH = {"type": "custom", "name": "apply_patch", "format": GRAMMAR}
SEARCH = {"type": "web_search_preview_2025_03_11"}
SHELL = {"type": "local_shell"}


def test_tools_as_codex_sends_them():
    space = {"type": "namespace", "name": "agents", "tools": [{**TIDE, "strict": True}, PATCH]}
    request = decoded(tools=[{**TIDE, "strict": None}, space, PATCH, SEARCH, SHELL])
    assert request.tools[0] == Tool("function", "tide", "The tide.", SCHEMA, path="tools[0]")
    inner = request.tools[1]
    assert (inner.namespace, inner.strict, inner.path) == ("agents", True, "tools[1].tools[0]")
    assert (request.tools[2].namespace, request.tools[2].kind) == ("agents", "custom")
    assert request.tools[3].grammar == "start: x" and request.tools[3].raw == PATCH
    assert request.tools[4:] == (
        Tool("hosted", SEARCH["type"], search=True, raw=SEARCH, path="tools[3]"),
        Tool("hosted", "local_shell", raw=SHELL, path="tools[4]"),
    )
    assert features(request) == {
        "tool_namespace": "tools[1]",
        "strict_tool": "tools[1].tools[0].strict",
        "custom_tool": "tools[2]",
        "hosted_search": "tools[3]",
        "hosted_tool": "tools[4]",
    }


def allowed(mode, *tools):
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


@pytest.mark.parametrize(
    ("choice", "read", "asks"),
    [
        ("auto", ToolChoice("auto"), []),
        ("none", ToolChoice("none"), []),
        ("required", ToolChoice("any"), []),
        ({"type": "function", "name": "tide"}, ToolChoice("one", ("tide",)), []),
        ({"type": "custom", "name": "tide"}, ToolChoice("one", ("tide",)), []),
        (
            allowed("required", TIDE, {"type": "mcp"}),
            ToolChoice("any", ("tide",)),
            ["allowed_tools"],
        ),
        (allowed("auto"), ToolChoice("auto"), ["allowed_tools"]),
        ({"type": "web_search"}, None, ["forced_search"]),
        ({"type": "image_generation"}, None, ["forced_hosted_tool"]),
    ],
)
def test_choices(choice, read, asks):
    request = decoded(tools=[TIDE], tool_choice=choice)
    assert request.choice == read
    assert features(request) == dict.fromkeys(asks, "tool_choice")


def test_any_tool_of_the_vendors_own_is_forced():
    request = decoded(tools=[SHELL], tool_choice="required")
    assert features(request)["forced_hosted_tool"] == "tool_choice"
    search = {**SEARCH, "filters": {"allowed_domains": ["example.com"]}}
    assert features(decoded(tools=[search]))["other"] == "tools[0].filters"
    request = decoded(tools=[SEARCH], tool_choice="required")
    assert features(request)["forced_search"] == "tool_choice"


@pytest.mark.parametrize(
    ("tool", "place"),
    [
        (1, ""),
        ({}, ".type"),
        ({"type": "function"}, ".name"),
        ({**TIDE, "parameters": []}, ".parameters"),
        ({**TIDE, "strict": "yes"}, ".strict"),
        ({**TIDE, "description": 1}, ".description"),
        ({"type": "namespace", "name": "x"}, ".tools"),
        ({"type": "namespace", "name": "x", "tools": [1]}, ".tools[0]"),
        ({**PATCH, "format": {"type": "grammar"}}, ".format.definition"),
    ],
)
def test_a_wrong_tool_is_named(tool, place):
    condition, param = refusal(tools=[tool])
    assert condition in ("E12", "E13") and param == f"tools[0]{place}"


@pytest.mark.parametrize(
    ("choice", "place"),
    [
        (1, ""),
        ({"type": "function"}, ".name"),
        ({"type": "allowed_tools"}, ".tools"),
        ({"type": "allowed_tools", "tools": [1]}, ".tools[0]"),
    ],
)
def test_a_wrong_choice_is_named(choice, place):
    assert refusal(tools=[TIDE], tool_choice=choice)[1] == f"tool_choice{place}"
