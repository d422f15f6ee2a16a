"""Items of Codex other than messages: tools in the conversation, its search for tools, messages
between agents, unknown items."""

import json

import pytest
from msgspec.structs import replace
from openai.types.responses import Response

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.ir.answer import Choice, Closed, Delta, Finished, Opened
from adapters.ir.parts import Text, ToolCall, ToolResult
from adapters.json.structure import at_once
from tests.adapters.builders import features
from tests.adapters.responses.calls import CONTEXT, USAGE, assistant, decoded, frames, user

CODECS = CODECS_BY_FAMILY["responses"]

HI = {"role": "user", "content": "Hi"}
READ = {"type": "function", "name": "read", "description": "new"}
PATCH = {"type": "custom", "name": "patch"}
DOCS = {"type": "namespace", "name": "docs", "tools": [READ]}
SEARCH = {"type": "tool_search", "execution": "client", "description": "Finds tools."}
BY_CLIENT = {"call_id": "c", "execution": "client", "status": "completed"}
QUERY = {"type": "tool_search_call", **BY_CLIENT, "arguments": {"query": "docs"}}
RESULT = {"type": "tool_search_output", **BY_CLIENT, "tools": [DOCS, PATCH]}
ADDED = {"type": "additional_tools", "role": "developer", "tools": [READ, {"type": "web_search"}]}


def named(request):
    return [(tool.namespace, tool.name, tool.path) for tool in request.tools]


def test_tools_of_an_item_join_those_of_the_request():
    request = decoded([ADDED, HI], tools=[{**READ, "description": "old"}, PATCH])
    assert named(request) == [
        ("", "read", "input[0].tools[0]"),
        ("", "patch", "tools[1]"),
        ("", "web_search", "input[0].tools[1]"),
    ]
    assert request.tools[0].description == "new"
    assert features(request) == {
        "custom_tool": "tools[1]", "hosted_search": "input[0].tools[1]",
    }  # fmt: skip


def test_the_tools_that_a_search_came_to_can_be_called():
    request = decoded([HI, QUERY, RESULT], tools=[SEARCH])
    assert named(request) == [
        ("", "tool_search", "tools[0]"),
        ("docs", "read", "input[2].tools[0].tools[0]"),
        ("", "patch", "input[2].tools[1]"),
    ]
    assert request.tools[0].kind == "function" and request.tool_search
    assert request.turns[1:] == (
        assistant(ToolCall("c", "tool_search", '{"query":"docs"}')),
        user(ToolResult("c", (Text('{"tools":["docs__read","patch"]}'),))),
    )


def test_a_search_that_the_vendor_runs_is_left_out():
    by_vendor = {"execution": "server", "call_id": None}
    items = [HI, {**QUERY, **by_vendor}, {**RESULT, **by_vendor}]
    request = decoded(items, tools=[{"type": "tool_search"}, READ])
    assert not request.tool_search and [tool.kind for tool in request.tools] == [
        "hosted", "function",
    ]  # fmt: skip
    assert features(request) == {"hosted_tool": "tools[0]", "hosted_history": "input[2]"}


@pytest.mark.parametrize("arguments", ['{"query":"docs"}', "", "no object"])
def test_a_search_comes_back_as_its_own_item(arguments):
    context = replace(CONTEXT, tool_search=True)
    call, plain = (
        ToolCall("c", "tool_search", arguments),
        ToolCall("d", "tool_search", "{}", False, "n"),
    )
    whole = at_once(CODECS.client.encode_answer((Choice((call, plain)),), USAGE, context))
    encoder = CODECS.client.open_encoder(context)
    events = [
        *(Opened(0, "call", id="c", name="tool_search"), Delta(0, arguments), Closed(0)),
        *(Opened(1, "call", id="d", name="tool_search", namespace="n"), Closed(1)),
        Finished("tools"),
    ]
    written = b"".join([encoder.begin(), *map(encoder.write, events), encoder.end(USAGE)])
    done = frames(written)[-1]["response"]
    output = json.loads(whole)["output"]
    assert done["output"] == output and Response.model_validate(done)
    expected = {"query": "docs"} if arguments.startswith("{") else {}
    assert output[0] == {
        "type": "tool_search_call", "id": "tsc_Ab1_0", "call_id": "c", "status": "completed",
        "execution": "client", "arguments": expected,
    }  # fmt: skip
    assert output[1]["type"] == "function_call"
    added = next(frame for frame in frames(written) if frame["type"].endswith("item.added"))
    assert (added["item"]["status"], added["item"]["arguments"]) == ("in_progress", {})


def sealed(content):
    return {"type": "encrypted_content", "encrypted_content": content}


@pytest.mark.parametrize(
    ("content", "text", "asks"),
    [
        ([{"type": "input_text", "text": "Go on."}], "Go on.", {}),
        ("Go on.", "Go on.", {}),
        ([{"type": "input_text", "text": "A"}, sealed("Do it.")], "A\nDo it.", {}),
        (
            [{"type": "input_text", "text": "A"}, sealed("gAAAAABq_-x==")],
            "A",
            {"other": "input[1].content"},
        ),
        ([1, sealed(None)], None, {"other": "input[1].content"}),
        (None, None, {}),
    ],
)
def test_what_an_agent_writes_to_another_is_text(content, text, asks):
    item = {"type": "agent_message", "author": "a", "recipient": "b", "content": content}
    request = decoded([HI, item])
    texts = [] if text is None else [Text(f"Message from a to b:\n{text}")]
    assert request.turns == (user(Text("Hi"), *texts),)
    assert features(request) == asks


def test_an_item_that_nobody_knows_is_left_out_and_named():
    request = decoded([HI, {"type": "new", "text": "x"}])
    assert request.turns == (user(Text("Hi")),) and features(request) == {"other": "input[1]"}
