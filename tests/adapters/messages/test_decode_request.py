"""Requests of clients: fields, tools and the choice among them, turns, blocks, media."""

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition
from adapters.ir.parts import (
    CacheMark,
    Citation,
    Hosted,
    Media,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.ir.request import Output, Thinking, Tool, ToolChoice
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.messages.parts import fit_id
from tests.adapters.builders import features
from tests.adapters.messages.calls import HELLO, assistant, decoded, refused, text, user

CODECS = CODECS_BY_FAMILY["messages"]

INVALID, MISSING = Condition.INVALID_FIELD, Condition.FIELD_MISSING
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


ADAPTIVE = {"type": "adaptive"}


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({"thinking": {"type": "disabled"}}, Thinking("off")),
        ({"thinking": ADAPTIVE}, Thinking("auto", show="full")),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            Thinking(budget_tokens=2048, show="full"),
        ),
        (
            {"thinking": ADAPTIVE | {"display": "omitted"}, "output_config": {"effort": "xhigh"}},
            Thinking("xhigh", show="none"),
        ),
        ({"thinking": ADAPTIVE | {"display": "summarized"}}, Thinking("auto", show="summary")),
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


def test_bounds_of_a_search_are_named():
    search = {**SEARCH, "max_uses": 3, "allowed_domains": []}
    request = decoded(tools=[search])
    assert features(request) == {"hosted_search": "tools[0]", "other": "tools[0].max_uses"}


@pytest.mark.parametrize(
    ("tool", "feature"),
    [
        (SEARCH, "forced_search"),
        ({"type": "web_fetch_20250910", "name": "web_fetch"}, "forced_hosted_tool"),
    ],
)
def test_a_tool_of_the_vendor_that_must_run(tool, feature):
    request = decoded(tools=[tool], tool_choice={"type": "tool", "name": tool["name"]})
    assert features(request)[feature] == "tool_choice"
    assert request.choice == ToolChoice("auto")


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
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [{"role": "bot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"system": 7}, "system"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
    ],
)
def test_wrong_fields_are_refused_by_their_path(fields, path):
    assert refused(**fields) == (INVALID, path)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"budget_tokens": 1}}, "thinking.type"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"messages": [{"content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ],
)
def test_missing_fields_are_named(fields, path):
    assert refused(**fields) == (MISSING, path)


# ---- the conversation ----------------------------------------------------------------------------

CALL = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t"}


def test_system_text_in_all_its_places():
    blocks = [text("Be brief.", cache_control={"type": "ephemeral", "ttl": "1h"}), text("Kindly.")]
    request = decoded(
        [
            {"role": "system", "content": "Leading."},
            user(text("Hi")),
            {"role": "system", "content": [text("The clock says noon.")]},
            assistant(text("Hello")),
            user(text("And now?")),
        ],
        system=blocks,
    )
    assert request.system == (Text("Be brief.", CacheMark(3600)), Text("Kindly."), Text("Leading."))
    assert [turn.role for turn in request.turns] == ["user", "system", "assistant", "user"]
    assert features(request) == {
        "cache_mark": "system[0].cache_control",
        "system_turn": "messages[2]",
    }
    assert decoded(system="One text.").system == (Text("One text."),)
    assert decoded(system="").system == ()


def test_a_text_for_the_books_of_the_vendor_is_left_out():
    tag = text("x-anthropic-billing-header: cc_version=2.1.197; cch=00000;")
    request = decoded(system=[tag, text("Be brief.")])
    assert request.system == (Text("Be brief."),)
    assert features(request) == {"other": "system[0]"}


def test_neighbours_of_one_role_are_one_turn_and_a_last_one_is_to_be_continued():
    request = decoded([user(text("a")), user(text("b")), assistant(text("c")), user(text(""))])
    assert request.turns == (
        Turn("user", (Text("a"), Text("b"))),
        Turn("assistant", (Text("c"),)),
        Turn("user", ()),
    )
    assert features(decoded([user(text("a")), assistant(text("{"))])) == {"prefill": "messages[1]"}


def test_calls_and_results():
    odd = "functions.x:0"
    content = [
        text("broken"),
        {"type": "tool_reference", "tool_name": "gauge"},
        {"type": "search_result", "title": "Log", "source": "s", "content": [text("calm")]},
    ]
    request = decoded(
        [
            user(text("Tide?")),
            assistant(
                CALL | {"id": fit_id(odd), "name": "tide", "input": {"port": "Orléans"}},
                CALL | {"id": "t2", "name": "wind"},
            ),
            user(
                text("Here."),
                RESULT | {"tool_use_id": "t2", "is_error": True, "content": content},
                RESULT | {"tool_use_id": fit_id(odd), "content": "high"},
            ),
        ]
    )
    assert [turn.parts for turn in request.turns[1:]] == [
        (ToolCall(odd, "tide", '{"port":"Orléans"}'), ToolCall("t2", "wind", "{}")),
        (
            ToolResult("t2", (Text("broken"), Text("gauge"), Text("Log\ns\ncalm")), error=True),
            ToolResult(odd, (Text("high"),)),
            Text("Here."),
        ),
    ]


def test_thoughts_keep_what_the_client_has_of_their_maker():
    thought = {"type": "thinking", "thinking": "hm", "signature": "gw1.x"}
    hidden = {"type": "redacted_thinking", "data": "zz"}
    request = decoded([user(text("a")), assistant(thought, hidden, text("b")), user(text("c"))])
    thoughts = Reasoning("hm", opaque="gw1.x"), Reasoning("", opaque="zz")
    assert request.turns[1].parts[:2] == thoughts


def test_what_the_vendor_has_run_itself_is_named():
    searched = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    source = {"url": "https://example.com", "title": "T", "cited_text": "q"}
    cited = {"type": "web_search_result_location", "encrypted_index": "e", **source}
    said = text("b", citations=[cited, {"type": "page_location"}, 7])
    summary = {"type": "compaction", "content": "So far."}
    request = decoded(
        [
            user(text("a")),
            assistant(searched, found, said, summary),
            user({"type": "container_upload", "file_id": "f"}),
        ]
    )
    assert request.turns[1].parts == (
        Hosted("server_tool_use", searched, "messages[1].content[0]"),
        Hosted("web_search_tool_result", found, "messages[1].content[1]"),
        Text("b", citations=(Citation("https://example.com", "T", quoted="q"),)),
        Text("So far."),
    )
    assert features(request) == {
        "hosted_history": "messages[1].content[1]",
        "file_ref": "messages[2].content[0]",
    }


def media(kind, source, **fields):
    return user({"type": kind, "source": source, **fields})


def in_url(kind):
    return {"type": "url", "url": f"https://example.com/{kind}"}


IN_FILE = {"type": "file", "file_id": "f"}
PNG = {"type": "base64", "media_type": "image/PNG", "data": "iVBORw0KGgo"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
CALM = {"type": "text", "media_type": "text/plain", "data": "calm"}
MARKED = {"cache_control": {"type": "ephemeral"}}
NAMED = {"title": "Log", "context": "From the harbour.", "citations": {"enabled": True}}
INNER = {"type": "content", "content": [text("calm"), {"type": "image", "source": in_url("a")}]}
PATH = "messages[0].content[0]"


@pytest.mark.parametrize(
    ("turn", "parts", "asked"),
    [
        (
            media("image", PNG, **MARKED),
            [Media("image", "image/png", data="iVBORw0KGgo=", cache=CacheMark(), path=PATH)],
            {"cache_mark": ".cache_control", "image_data": ""},
        ),
        (
            media("image", in_url("a")),
            [Media("image", url="https://example.com/a", path=PATH)],
            {"image_url": ""},
        ),
        (media("image", IN_FILE), [Media("image", ref="f", path=PATH)], {"file_ref": ""}),
        (
            media("document", PDF, **NAMED),
            [
                Text("From the harbour."),
                Media("file", "application/pdf", data="JVBERi0=", name="Log", path=PATH),
            ],
            {"citations": ".citations", "document_data": ""},
        ),
        (
            media("document", CALM),
            [Media("file", "text/plain", data="calm", plain=True, path=PATH)],
            {"text_document": ""},
        ),
        (
            media("document", in_url("a.pdf")),
            [Media("file", "application/pdf", url="https://example.com/a.pdf", path=PATH)],
            {"document_url": ""},
        ),
        (media("document", IN_FILE), [Media("file", ref="f", path=PATH)], {"file_ref": ""}),
        (
            media("document", INNER),
            [
                Text("calm"),
                Media("image", url="https://example.com/a", path=PATH + ".source.content[1]"),
            ],
            {"image_url": ".source.content[1]"},
        ),
        (media("document", {"type": "content", "content": "calm"}), [Text("calm")], {}),
        (
            user(
                {"type": "search_result", "title": "Log", "source": "s", "content": [text("calm")]}
            ),
            [Text("Log\ns\ncalm")],
            {},
        ),
    ],
)
def test_media_and_documents(turn, parts, asked):
    request = decoded([turn])
    assert request.turns[0].parts == tuple(parts)
    assert features(request) == {feature: PATH + place for feature, place in asked.items()}


@pytest.mark.parametrize(
    ("turn", "condition", "path"),
    [
        (user("a"), INVALID, ""),
        (user({}), MISSING, ".type"),
        (user({"type": "video"}), INVALID, ".type"),
        (user(CALL), INVALID, ".type"),
        (user(text(7)), INVALID, ".text"),
        (user(text(None)), MISSING, ".text"),
        (user(text("a", cache_control="x")), INVALID, ".cache_control"),
        (user(RESULT | {"content": [{"type": "audio"}]}), INVALID, ".content[0].type"),
        (user(RESULT | {"is_error": "yes"}), INVALID, ".is_error"),
        (assistant(CALL | {"input": "x"}), INVALID, ".input"),
        (assistant(CALL | {"id": 1}), INVALID, ".id"),
        (assistant({"type": "image", "source": {}}), INVALID, ".type"),
        (media("image", None), MISSING, ".source"),
        (media("image", 7), INVALID, ".source"),
        (media("image", {"type": "ftp"}), INVALID, ".source.type"),
        (media("image", PNG | {"data": "?"}), INVALID, ".source.data"),
        (media("image", {"type": "url", "url": 7}), INVALID, ".source.url"),
        (media("document", {"type": "ftp"}), INVALID, ".source.type"),
        (media("document", {"type": "text", "data": 7}), INVALID, ".source.data"),
        (media("document", {"type": "content", "content": [7]}), INVALID, ".source.content[0]"),
    ],
)
def test_wrong_blocks_are_refused_by_their_path(turn, condition, path):
    assert refused([turn]) == (condition, PATH + path)
