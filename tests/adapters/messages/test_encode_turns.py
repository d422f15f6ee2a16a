"""The conversation for upstreams: roles, calls and results, media."""

import base64

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import (
    CacheMark,
    Hosted,
    Media,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.messages.encode_turns import GO_ON, NO_RESULT, OPENING, encode_media
from adapters.messages.parts import sealed_data, sealed_thought
from tests.adapters.messages.calls import asking, sent


def user(*parts):
    return Turn("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts):
    return Turn("assistant", user(*parts).parts)


def text(words):
    return {"type": "text", "text": words}


def messages(*turns, **traits):
    """Role and blocks of each message."""
    body, _ = sent(asking(*turns), **traits)
    return [(message["role"], message["content"]) for message in body["messages"]]


def call(call_id, name="tide", arguments="{}", **fields):
    return ToolCall(call_id, name, arguments, **fields)


def use(call_id, name="tide", arguments=None):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}}


def result(call_id, content, **fields):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def test_turns_alternate_and_have_no_empty_texts():
    assert messages(user("a", " \n", ""), user("b"), assistant("c", ""), user("d")) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c")]),
        ("user", [text("d")]),
    ]


def test_a_conversation_that_the_assistant_begins():
    assert messages(assistant("c"), user("d"))[0] == ("user", [text(OPENING)])


def test_system_turns_between_others():
    turns = user("a"), Turn("system", (Text("x"), Text("y"))), assistant("b"), user("c")
    assert messages(*turns)[0] == (
        "user",
        [text("a"), text("<system-reminder>\nx\n\ny\n</system-reminder>")],
    )
    assert messages(*turns, system_turns=True)[:2] == [
        ("user", [text("a")]),
        ("system", [text("x\n\ny")]),
    ]
    assert len(messages(user("a"), Turn("system", (Text(" "),)))) == 1


def test_what_an_assistant_has_begun():
    assert messages(user("a"), assistant('{"cups": ')) == [
        ("user", [text("a")]),
        ("assistant", [text('{"cups":')]),
    ]
    assert messages(user("a"), assistant("b"), prefill=False)[2:] == [("user", [text(GO_ON)])]


def test_results_come_first_in_one_message_in_the_order_of_the_calls():
    turns = (
        user("Tide and wind?"),
        assistant("Let me look.", call("a"), call("b", "wind", '{"port":"Brest"}')),
        user(ToolResult("b", (Text("gauge is broken"),), error=True)),
        user(ToolResult("a", (Text("high"), Text("at two"))), "Which pier?"),
    )
    assert messages(*turns)[1:] == [
        ("assistant", [text("Let me look."), use("a"), use("b", "wind", {"port": "Brest"})]),
        (
            "user",
            [
                result("a", [text("high"), text("at two")]),
                result("b", "gauge is broken", is_error=True),
                text("Which pier?"),
            ],
        ),
    ]


def test_a_system_turn_does_not_part_calls_from_results():
    for native in (False, True):
        found = messages(
            user("a"),
            assistant(call("a")),
            Turn("system", (Text("x"),)),
            user(ToolResult("a", ())),
            system_turns=native,
        )
        reminder = text("<system-reminder>\nx\n</system-reminder>")
        assert found[2:] == [("user", [result("a", ""), reminder])]


def test_calls_without_results_and_results_without_calls():
    lost = ToolResult("z", (Text("late"),), name="wind")
    assert messages(user("a"), assistant(call("a"), call("b")), user("go on", lost))[2:] == [
        (
            "user",
            [
                result("a", NO_RESULT),
                result("b", NO_RESULT),
                text("go on"),
                text("Result of wind (z):"),
                text("late"),
            ],
        )
    ]
    assert messages(user("a"), assistant(call("a")))[2:] == [("user", [result("a", NO_RESULT)])]
    assert messages(user("a"), assistant(call("a")), assistant(call("b")), user("c"))[2:4] == [
        ("user", [result("a", NO_RESULT)]),
        ("assistant", [use("b")]),
    ]


def test_ids_are_fit_and_come_once():
    odd, empty = "functions.x:0", ""
    found = messages(
        user("a"),
        assistant(call(odd), call(empty)),
        user(ToolResult(odd, (Text("1"),)), ToolResult(empty, (Text("2"),))),
        assistant(call(odd)),
        user(ToolResult(odd, (Text("3"),))),
    )
    ids = [block["id"] for _, blocks in found for block in blocks if block["type"] == "tool_use"]
    answered = [
        (block["tool_use_id"], block["content"])
        for _, blocks in found
        for block in blocks
        if block["type"] == "tool_result"
    ]
    assert answered == list(zip(ids, "123", strict=True))
    assert len(set(ids)) == 3
    assert all(each.replace("_", "").replace("-", "").isalnum() for each in ids)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        (" \n", {}),
        ("[1]", {"value": [1]}),
        ("7", {"value": 7}),
        ('{"a":', {"_raw": '{"a":'}),
        ('{"a":NaN}', {"_raw": '{"a":NaN}'}),
        ("\ud800", {"_raw": "?"}),
    ],
)
def test_arguments_are_an_object(arguments, given):
    found = messages(user("a"), assistant(call("a", arguments=arguments)))
    assert found[1][1] == [use("a", arguments=given)]


def test_free_text_and_groups_of_tools_in_history():
    found = messages(
        user("a"), assistant(call("a", "patch", "*** Begin", custom=True, namespace="edit"))
    )
    assert found[1][1] == [use("a", "edit__patch", {"input": "*** Begin"})]


def test_results_with_media_marks_and_nothing():
    image = Media("image", "image/png", data="iVBORw0KGgo=", cache=CacheMark(3600))
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    found = messages(
        user("a"),
        assistant(call("a"), call("b")),
        user(ToolResult("a", (Text("see"), image)), ToolResult("b", (), error=True)),
    )
    assert found[2][1] == [
        result(
            "a",
            [text("see"), {"type": "image", "source": source}],
            cache_control={"type": "ephemeral", "ttl": "1h"},
        ),
        result("b", "The tool failed.", is_error=True),
    ]


def test_thoughts_come_back_as_they_were_made():
    thought = Reasoning("shown", opaque=sealed_thought("hm \ud83d", "sig=="))
    hidden = Reasoning("", opaque=sealed_data("zz"))
    others = Reasoning("lost"), Reasoning("", opaque="garbage"), Reasoning("", opaque='{"type":1}')
    found = messages(user("a"), assistant(thought, hidden, *others, "b"), user("c"))
    assert found[1][1] == [
        {"type": "thinking", "thinking": "hm \ud83d", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "zz"},
        text("b"),
    ]


def test_thoughts_begin_a_turn():
    thought = Reasoning("", opaque=sealed_thought("hm", "s"))
    found = messages(user("a"), assistant("b", thought, call("a"), thought), user("c"))
    kinds = [block["type"] for block in found[1][1]]
    assert kinds == ["thinking", "thinking", "text", "tool_use"]


def test_refusals_are_texts_and_what_others_have_run_is_left_out():
    found = messages(
        user("a"),
        assistant(Refusal("No."), Hosted("web_search_call", {}, "input[1]")),
        Turn("user", (Hosted("container_upload", {}), Text("c"))),
    )
    assert found[1][1] == [text("No.")] and found[2][1] == [text("c")]


def test_a_document_that_the_assistant_has_shown():
    media = Media("file", "text/plain", data="calm", plain=True)
    assert messages(user("a"), assistant(media), user("c"))[1][1][0]["type"] == "document"


def test_media_that_the_family_does_not_have_is_refused():
    film = Media("video", "video/mp4", data="AAAA", path="contents[0].parts[0]")
    image = Media("image", "image/png", data="iVBORw0KGgo=", path=film.path)
    for turn in (user(film), assistant(film), assistant(image)):
        with pytest.raises(Fault) as caught:
            sent(asking(turn))
        assert caught.value.condition is Condition.UNSUPPORTED
        assert caught.value.param == "contents[0].parts[0]"


PNG, JPEG, PDF = "iVBORw0KGgo=", "/9j/4AAQ", "JVBERi0="


def b64(text):
    return base64.b64encode(text.encode()).decode()


def source(media, documents=True):
    return encode_media(media, documents=documents)["source"]


@pytest.mark.parametrize(
    ("mime", "data", "sent"),
    [
        ("image/png", PNG, "image/png"),
        ("image/jpg", JPEG, "image/jpeg"),
        ("", PNG, "image/png"),
        ("image/x-unknown", "R0lGODlh", "image/gif"),
    ],
)
def test_images_by_data(mime, data, sent):
    block = encode_media(Media("image", mime, data=data), documents=True)
    assert block == {
        "type": "image",
        "source": {"type": "base64", "media_type": sent, "data": data},
    }


def test_images_by_url_and_as_files():
    image = Media("image", url="https://example.com/a", cache=CacheMark())
    assert encode_media(image, documents=True) == {
        "type": "image",
        "source": {"type": "url", "url": "https://example.com/a"},
        "cache_control": {"type": "ephemeral"},
    }
    assert encode_media(Media("file", "image/png", data=PNG), documents=True)["type"] == "image"


def test_documents():
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    assert encode_media(Media("file", "application/pdf", data=PDF, name="Log"), documents=True) == {
        "type": "document",
        "source": pdf,
        "title": "Log",
    }
    assert source(Media("file", "", data=PDF)) == pdf
    assert source(Media("file", "application/octet-stream", data=PDF)) == pdf
    assert source(Media("file", "application/pdf", url="https://example.com/a")) == {
        "type": "url",
        "url": "https://example.com/a",
    }
    plain = {"type": "text", "media_type": "text/plain", "data": "calm é"}
    assert source(Media("file", "text/plain", data="calm é", plain=True)) == plain
    assert source(Media("file", "text/markdown", data=b64("calm é"))) == plain


def test_text_documents_are_texts_for_models_that_read_none():
    media = Media("file", "text/plain", data="calm", name="Log", plain=True)
    assert encode_media(media, documents=False) == {"type": "text", "text": "Log\n\ncalm"}
    assert encode_media(Media("file", "text/csv", data=b64("a,b")), documents=False) == {
        "type": "text",
        "text": "a,b",
    }


@pytest.mark.parametrize(
    "media",
    [
        Media("audio", "audio/wav", data="AAAA", path="p"),
        Media("image", ref="file_1", path="p"),
        Media("image", "image/tiff", data="AAAA", path="p"),
        Media("file", "application/zip", data="AAAA", path="p"),
        Media("file", "", data="AAAA", path="p"),
    ],
)
def test_what_the_family_has_no_block_for(media):
    with pytest.raises(Fault) as caught:
        encode_media(media, documents=True)
    assert (caught.value.condition, caught.value.param) == (Condition.UNSUPPORTED, "p")


def test_a_text_document_that_is_no_text():
    with pytest.raises(Fault) as caught:
        encode_media(Media("file", "text/plain", data="/////w==", path="p"), documents=True)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, "p")
