"""The conversation in requests of clients: turns, blocks, media."""

import pytest

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
from adapters.messages.parts import fit_id
from tests.adapters.messages.calls import decoded, features, refused

CALL = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t"}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(words, **fields):
    return {"type": "text", "text": words, **fields}


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


def test_neighbours_of_one_role_are_one_turn():
    request = decoded([user(text("a")), user(text("b")), assistant(text("c")), user(text(""))])
    assert request.turns == (
        Turn("user", (Text("a"), Text("b"))),
        Turn("assistant", (Text("c"),)),
        Turn("user", ()),
    )


def test_a_last_turn_of_the_assistant_is_to_be_continued():
    assert features(decoded([user(text("a")), assistant(text("{"))])) == {"prefill": "messages[1]"}


def test_calls_and_results():
    odd = "functions.x:0"
    request = decoded(
        [
            user(text("Tide?")),
            assistant(
                {
                    "type": "tool_use",
                    "id": fit_id(odd),
                    "name": "tide",
                    "input": {"port": "Orléans"},
                },
                CALL | {"id": "t2", "name": "wind"},
            ),
            user(
                text("Here."),
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "is_error": True,
                    "content": [
                        text("broken"),
                        {"type": "tool_reference", "tool_name": "gauge"},
                        {
                            "type": "search_result",
                            "title": "Log",
                            "source": "https://example.com",
                            "content": [text("calm")],
                        },
                    ],
                },
                {"type": "tool_result", "tool_use_id": fit_id(odd), "content": "high"},
            ),
        ]
    )
    assert request.turns[1].parts == (
        ToolCall(odd, "tide", '{"port":"Orléans"}'),
        ToolCall("t2", "wind", "{}"),
    )
    found = (Text("broken"), Text("gauge"), Text("Log\nhttps://example.com\ncalm"))
    assert request.turns[2].parts == (
        ToolResult("t2", found, error=True),
        ToolResult(odd, (Text("high"),)),
        Text("Here."),
    )


def test_thoughts_keep_what_the_client_has_of_their_maker():
    request = decoded(
        [
            user(text("a")),
            assistant(
                {"type": "thinking", "thinking": "hm", "signature": "gw1.x"},
                {"type": "redacted_thinking", "data": "zz"},
                text("b"),
            ),
            user(text("c")),
        ]
    )
    assert request.turns[1].parts[:2] == (
        Reasoning("hm", opaque="gw1.x"),
        Reasoning("", opaque="zz"),
    )


def test_what_the_vendor_has_run_itself_is_named():
    searched = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    cited = {
        "type": "web_search_result_location",
        "url": "https://example.com",
        "title": "T",
        "cited_text": "q",
        "encrypted_index": "e",
    }
    request = decoded(
        [
            user(text("a")),
            assistant(
                searched,
                found,
                text("b", citations=[cited, {"type": "page_location"}, 7]),
                {"type": "compaction", "content": "So far."},
            ),
            user({"type": "container_upload", "file_id": "f"}),
        ]
    )
    parts = request.turns[1].parts
    assert parts[:2] == (
        Hosted("server_tool_use", searched, "messages[1].content[0]"),
        Hosted("web_search_tool_result", found, "messages[1].content[1]"),
    )
    assert parts[2:] == (
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
INVALID, MISSING = Condition.INVALID_FIELD, Condition.FIELD_MISSING
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
    ],
)
def test_media_and_documents(turn, parts, asked):
    request = decoded([turn])
    assert request.turns[0].parts == tuple(parts)
    assert features(request) == {feature: PATH + place for feature, place in asked.items()}


def test_search_results_are_texts_with_their_source():
    content = [{"type": "text", "text": "calm"}]
    found = {"type": "search_result", "title": "Log", "source": "s", "content": content}
    request = decoded([{"role": "user", "content": [found]}])
    assert request.turns[0].parts == (Text("Log\ns\ncalm"),)


@pytest.mark.parametrize(
    ("messages", "condition", "path"),
    [
        ("hello", INVALID, "messages"),
        (["hello"], INVALID, "messages[0]"),
        ([{"role": "bot", "content": "a"}], INVALID, "messages[0].role"),
        ([{"content": "a"}], MISSING, "messages[0].role"),
        ([{"role": "user", "content": 7}], INVALID, "messages[0].content"),
        ([{"role": "user"}], MISSING, "messages[0].content"),
    ],
)
def test_wrong_turns_are_refused_by_their_path(messages, condition, path):
    assert refused(messages) == (condition, path)


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
        (
            media("image", PNG | {"data": "?"}),
            INVALID,
            ".source.data",
        ),
        (media("image", {"type": "url", "url": 7}), INVALID, ".source.url"),
        (media("document", {"type": "ftp"}), INVALID, ".source.type"),
        (media("document", {"type": "text", "data": 7}), INVALID, ".source.data"),
        (media("document", {"type": "content", "content": [7]}), INVALID, ".source.content[0]"),
    ],
)
def test_wrong_blocks_are_refused_by_their_path(turn, condition, path):
    assert refused([turn]) == (condition, PATH + path)


def test_system_text_is_text():
    assert refused(system=7) == (INVALID, "system")
    assert refused(system=[{"type": "image"}]) == (INVALID, "system[0].type")
