"""Requests of clients: fields, tools, and the choice among them."""

import pytest

from adapters.faults import Condition
from adapters.ir.parts import CacheMark, Text
from adapters.ir.request import Output, Thinking, Tool, ToolChoice
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.messages import CODECS
from tests.adapters.messages.calls import HELLO, decoded, features, refused

SCHEMA = {"type": "object", "properties": {"cups": {"type": "integer"}}}


def test_a_plain_request_asks_for_nothing_special():
    request = decoded(stream=True)
    assert (request.family, request.stream, request.max_output_tokens) == ("messages", True, 100)
    assert request.turns[0].parts == (Text("Is tea ready?"),)
    assert request.asks == () and request.thinking is None and request.output == Output()


def test_sampling_stop_user_and_tier():
    request = decoded(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        stop_sequences=["END", "\n"],
        metadata={"user_id": "u-7"},
        service_tier="standard_only",
        speed="fast",
    )
    assert (request.temperature, request.top_p, request.top_k) == (0.5, 0.9, 40)
    assert (request.stop, request.end_user, request.tier) == (("END", "\n"), "u-7", "default")
    assert features(request) == {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "stop": "stop_sequences",
        "end_user": "metadata.user_id",
        "tier": "service_tier",
        "speed": "speed",
    }
    assert decoded(service_tier="auto", speed="standard").asks == ()


def test_a_bound_of_nothing_is_the_least_bound():
    assert decoded(max_tokens=0).max_output_tokens == 1
    spans = top_level(dumps({"model": "m", "messages": HELLO}))  # a request to count tokens
    assert at_once(CODECS.client.decode_request(spans, False, None)).max_output_tokens is None


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({"thinking": {"type": "disabled"}}, Thinking("off")),
        ({"thinking": {"type": "adaptive"}}, Thinking("auto", show="full")),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            Thinking(budget_tokens=2048, show="full"),
        ),
        (
            {
                "thinking": {"type": "adaptive", "display": "omitted"},
                "output_config": {"effort": "xhigh"},
            },
            Thinking("xhigh", show="none"),
        ),
        (
            {"thinking": {"type": "adaptive", "display": "summarized"}},
            Thinking("auto", show="summary"),
        ),
        ({"output_config": {"effort": "low"}}, Thinking("low")),
    ],
)
def test_thinking(fields, thinking):
    request = decoded(**fields)
    assert request.thinking == thinking
    assert set(features(request)) == {"reasoning"}


def test_the_schema_of_the_answer_in_both_spellings():
    form = {"type": "json_schema", "schema": SCHEMA}
    new, old = decoded(output_config={"format": form}), decoded(output_format=form)
    assert new.output == old.output == Output("schema", SCHEMA)
    assert features(new) == {"schema_output": "output_config.format"}
    assert features(old) == {"schema_output": "output_format"}


def test_what_is_not_carried_is_named():
    request = decoded(
        context_management={"edits": [{}]},
        container="c1",
        mcp_servers=[{"url": "https://example.com"}],
        cache_control={"type": "ephemeral"},
        inference_geo="eu",
        output_config={"task_budget": {"total": 3}},
        diagnostics=None,
        fallbacks=[],
    )
    assert [(ask.feature, ask.path) for ask in request.asks] == [
        ("other", "output_config.task_budget"),
        ("context_management", "context_management"),
        ("container", "container"),
        ("hosted_tool", "mcp_servers"),
        ("cache_mark", "cache_control"),
        ("vendor_terms", "inference_geo"),
    ]


ARGUMENTS = {"type": "object", "properties": {}}
TIDE = {"name": "tide", "description": "When it is high.", "input_schema": ARGUMENTS}
SEARCH = {"type": "web_search_20260318", "name": "web_search"}


def test_tools():
    bash = {"type": "bash_20250124", "name": "bash"}
    strict = TIDE | {"name": "b", "strict": True, "defer_loading": True, "type": "custom"}
    marked = SEARCH | {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
    request = decoded(tools=[TIDE | {"eager_input_streaming": True}, strict, bash, marked])
    described = {"description": "When it is high.", "schema": ARGUMENTS}
    assert request.tools == (
        Tool("function", "tide", path="tools[0]", **described),
        Tool("function", "b", strict=True, path="tools[1]", **described),
        Tool("hosted", "bash", raw={"kind": "bash_20250124", **bash}, path="tools[2]"),
        Tool(
            "hosted",
            "web_search",
            search=True,
            cache=CacheMark(300),
            raw={"kind": "web_search_20260318", **marked},
            path="tools[3]",
        ),
    )
    assert features(request) == {
        "other": "tools[1].defer_loading",
        "strict_tool": "tools[1].strict",
        "hosted_tool": "tools[2]",
        "cache_mark": "tools[3].cache_control",
        "hosted_search": "tools[3]",
    }


@pytest.mark.parametrize(
    ("given", "choice", "parallel"),
    [
        (None, None, None),
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("any"), False),
        ({"type": "auto", "disable_parallel_tool_use": False}, ToolChoice("auto"), True),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "tool", "name": "tide"}, ToolChoice("one", ("tide",)), None),
    ],
)
def test_choice(given, choice, parallel):
    request = decoded(tools=[TIDE], tool_choice=given)
    assert (request.choice, request.parallel_tools) == (choice, parallel)
    path = "tool_choice.disable_parallel_tool_use"
    assert features(request) == ({"parallel_tools": path} if parallel is False else {})


def test_a_search_that_must_run():
    request = decoded(tools=[SEARCH], tool_choice={"type": "tool", "name": "web_search"})
    assert features(request)["forced_hosted_tool"] == "tool_choice"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [1]}, "stop_sequences[0]"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
        ({"stop_sequences": ["x" * 256] * 15 + ["x" * 257]}, "stop_sequences[15]"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"user_id": 7}}, "metadata.user_id"),
        ({"service_tier": 1}, "service_tier"),
        ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": "8"}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type"),
        ({"output_format": {"type": "json_schema", "schema": 1}}, "output_format.schema"),
        ({"tools": {}}, "tools"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [TIDE | {"name": 7}]}, "tools[0].name"),
        ({"tools": [TIDE | {"description": 7}]}, "tools[0].description"),
        ({"tools": [TIDE | {"input_schema": "x"}]}, "tools[0].input_schema"),
        ({"tools": [TIDE], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [TIDE], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tools": [TIDE], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
    ],
)
def test_wrong_fields_are_refused_by_their_path(fields, path):
    assert refused(**fields) == (Condition.INVALID_FIELD, path)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"budget_tokens": 1}}, "thinking.type"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
    ],
)
def test_missing_fields_are_named(fields, path):
    assert refused(**fields) == (Condition.FIELD_MISSING, path)
