"""Tools and the choice among them in requests of messages clients."""

import pytest

from adapters.faults import Condition
from adapters.ir.parts import CacheMark
from adapters.ir.request import Tool, ToolChoice
from tests.adapters.messages.calls import decoded, features, refused

SCHEMA = {"type": "object", "properties": {}}
TIDE = {"name": "tide", "description": "When it is high.", "input_schema": SCHEMA}
SEARCH = {"type": "web_search_20260318", "name": "web_search"}


def test_tools():
    bash = {"type": "bash_20250124", "name": "bash"}
    strict = TIDE | {"name": "b", "strict": True, "defer_loading": True, "type": "custom"}
    marked = SEARCH | {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
    request = decoded(tools=[TIDE | {"eager_input_streaming": True}, strict, bash, marked])
    described = {"description": "When it is high.", "schema": SCHEMA}
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
def test_wrong_tools_are_refused_by_their_path(fields, path):
    assert refused(**fields) == (Condition.INVALID_FIELD, path)


def test_missing_fields_are_named():
    assert refused(tools=[{"name": "a"}]) == (Condition.FIELD_MISSING, "tools[0].input_schema")
    assert refused(tools=[{"input_schema": {}}]) == (Condition.FIELD_MISSING, "tools[0].name")
