"""The conversation for upstreams: roles, calls and results, media."""

import base64

import pytest

from adapters.faults import Condition
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
from tests.adapters.builders import refusal_of
from tests.adapters.messages.calls import asking, sent, text


def turn(role, parts):
    return Turn(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def user(*parts):
    return turn("user", parts)


def assistant(*parts):
    return turn("assistant", parts)


def system(*texts):
    return turn("system", texts)


def messages(*turns, **traits):
    """Return role and blocks of each message."""
    body, _ = sent(asking(*turns), **traits)
    return [(message["role"], message["content"]) for message in body["messages"]]


def call(call_id, name="tide", arguments="{}", **fields):
    return ToolCall(call_id, name, arguments, **fields)


def use(call_id, name="tide", arguments=None):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}}


def answered(call_id, *texts, **fields):
    return ToolResult(call_id, tuple(map(Text, texts)), **fields)


def result(call_id, content, **fields):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def test_turns_alternate_and_have_no_empty_texts():
    assert messages(user("a", " \n", ""), user("b"), assistant("c", ""), user("d")) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c")]),
        ("user", [text("d")]),
    ]
    assert messages(assistant("c"), user("d"))[0] == ("user", [text(OPENING)])


def test_system_turns_between_others():
    turns = user("a"), system("x", "y"), assistant("b"), user("c")
    reminder = text("<system-reminder>\nx\n\ny\n</system-reminder>")
    assert messages(*turns)[0] == ("user", [text("a"), reminder])
    native = [("user", [text("a")]), ("system", [text("x\n\ny")])]
    assert messages(*turns, system_turns=True)[:2] == native
    assert len(messages(user("a"), system(" "))) == 1


def test_what_an_assistant_has_begun():
    begun = [("user", [text("a")]), ("assistant", [text('{"cups":')])]
    assert messages(user("a"), assistant('{"cups": ')) == begun
    assert messages(user("a"), assistant("b"), prefill=False)[2:] == [("user", [text(GO_ON)])]


def test_results_come_first_in_one_message_in_the_order_of_the_calls():
    turns = (
        user("Tide and wind?"),
        assistant("Let me look.", call("a"), call("b", "wind", '{"port":"Brest"}')),
        user(answered("b", "gauge is broken", error=True)),
        user(answered("a", "high", "at two"), "Which pier?"),
    )
    results = [
        result("a", [text("high"), text("at two")]),
        result("b", "gauge is broken", is_error=True),
    ]
    assert messages(*turns)[1:] == [
        ("assistant", [text("Let me look."), use("a"), use("b", "wind", {"port": "Brest"})]),
        ("user", [*results, text("Which pier?")]),
    ]


def test_a_system_turn_does_not_part_calls_from_results():
    turns = user("a"), assistant(call("a")), system("x"), user(answered("a"))
    for native in (False, True):
        reminder = text("<system-reminder>\nx\n</system-reminder>")
        found = messages(*turns, system_turns=native)
        assert found[2:] == [("user", [result("a", ""), reminder])]


def test_calls_without_results_and_results_without_calls():
    lost = [text("Result of wind (z):"), text("late")]
    none = result("a", NO_RESULT)
    calls = user("a"), assistant(call("a"), call("b"))
    assert messages(*calls, user("go on", answered("z", "late", name="wind")))[2:] == [
        ("user", [none, result("b", NO_RESULT), text("go on"), *lost])
    ]
    assert messages(user("a"), assistant(call("a")))[2:] == [("user", [none])]
    assert messages(user("a"), assistant(call("a")), assistant(call("b")), user("c"))[2:4] == [
        ("user", [none]),
        ("assistant", [use("b")]),
    ]


def test_ids_are_fit_and_come_once():
    odd, empty = "functions.x:0", ""
    found = messages(
        user("a"),
        assistant(call(odd), call(empty)),
        user(answered(odd, "1"), answered(empty, "2")),
        assistant(call(odd)),
        user(answered(odd, "3")),
    )
    blocks = [block for _, blocks in found for block in blocks]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [
        (block["tool_use_id"], block["content"])
        for block in blocks
        if block["type"] == "tool_result"
    ]
    assert results == list(zip(ids, "123", strict=True))
    assert len(set(ids)) == 3
    assert all(each.replace("_", "").replace("-", "").isalnum() for each in ids)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        (" \n", {}),
        ("[1]", {"value": [1]}),
        ("7", {"value": 7}),
        ("null", {"value": None}),
        ('{"a":', {"_raw": '{"a":'}),
        ('{"a":NaN}', {"_raw": '{"a":NaN}'}),
        ("\ud800", {"_raw": "?"}),
    ],
)
def test_arguments_are_an_object(arguments, given):
    found = messages(user("a"), assistant(call("a", arguments=arguments)))
    assert found[1][1] == [use("a", arguments=given)]


def test_results_with_media_marks_and_nothing():
    image = Media("image", "image/png", data=PNG, cache=CacheMark(3600))
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    found = messages(
        user("a"),
        assistant(call("a"), call("b")),
        user(ToolResult("a", (Text("see"), image)), answered("b", error=True)),
    )
    shown, hour = {"type": "image", "source": source}, {"type": "ephemeral", "ttl": "1h"}
    assert found[2][1] == [
        result("a", [text("see"), shown], cache_control=hour),
        result("b", "The tool failed.", is_error=True),
    ]


def test_thoughts_without_a_signature_go_to_vendors_that_sign_none():
    turns = user("a"), assistant("b", Reasoning("hm"), Reasoning("")), user("c")
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    assert messages(*turns, reasoning_echo=True)[1] == ("assistant", [thought, text("b")])
    assert messages(*turns)[1] == ("assistant", [text("b")])


def test_thoughts_come_back_as_they_were_made_and_begin_a_turn():
    thought = Reasoning("shown", opaque=sealed_thought("hm \ud83d", "sig=="))
    hidden = Reasoning("", opaque=sealed_data("zz"))
    others = Reasoning("lost"), Reasoning("", opaque="garbage"), Reasoning("", opaque='{"type":1}')
    found = messages(user("a"), assistant(thought, hidden, *others, "b"), user("c"))
    whole = {"type": "thinking", "thinking": "hm \ud83d", "signature": "sig=="}
    assert found[1][1] == [whole, {"type": "redacted_thinking", "data": "zz"}, text("b")]
    found = messages(user("a"), assistant("b", thought, call("a"), thought), user("c"))
    assert found[1][1] == [whole, whole, text("b"), use("a")]


def test_free_text_refusals_documents_and_what_others_have_run():
    patch = call("a", "patch", "*** Begin", custom=True, namespace="edit")
    found = messages(user("a"), assistant(patch))
    assert found[1][1] == [use("a", "edit__patch", {"input": "*** Begin"})]
    hosted = Hosted("web_search_call", {}, "input[1]"), Hosted("container_upload", {})
    found = messages(user("a"), assistant(Refusal("No."), hosted[0]), user(hosted[1], "c"))
    assert found[1][1] == [text("No.")] and found[2][1] == [text("c")]
    media = Media("file", "text/plain", data="calm", plain=True)
    assert messages(user("a"), assistant(media), user("c"))[1][1][0]["type"] == "document"


PNG, JPEG, PDF = "iVBORw0KGgo=", "/9j/4AAQ", "JVBERi0="


def b64(words):
    return base64.b64encode(words.encode()).decode()


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
    image = {"type": "base64", "media_type": sent, "data": data}
    block = encode_media(Media("image", mime, data=data), documents=True)
    assert block == {"type": "image", "source": image}


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
    named = Media("file", "application/pdf", data=PDF, name="Log")
    block = {"type": "document", "source": pdf, "title": "Log"}
    assert encode_media(named, documents=True) == block
    assert source(Media("file", "", data=PDF)) == pdf
    assert source(Media("file", "application/octet-stream", data=PDF)) == pdf
    linked = {"type": "url", "url": "https://example.com/a"}
    assert source(Media("file", "application/pdf", url="https://example.com/a")) == linked
    plain = {"type": "text", "media_type": "text/plain", "data": "calm é"}
    assert source(Media("file", "text/plain", data="calm é", plain=True)) == plain
    assert source(Media("file", "text/markdown", data=b64("calm é"))) == plain


def test_text_documents_are_texts_for_models_that_read_none():
    media = Media("file", "text/plain", data="calm", name="Log", plain=True)
    assert encode_media(media, documents=False) == text("Log\n\ncalm")
    media = Media("file", "text/csv", data=b64("a,b"))
    assert encode_media(media, documents=False) == text("a,b")


@pytest.mark.parametrize(
    ("media", "condition"),
    [
        (Media("audio", "audio/wav", data="AAAA", path="p"), Condition.UNSUPPORTED),
        (Media("image", ref="file_1", path="p"), Condition.UNSUPPORTED),
        (Media("image", "image/tiff", data="AAAA", path="p"), Condition.UNSUPPORTED),
        (Media("file", "application/zip", data="AAAA", path="p"), Condition.UNSUPPORTED),
        (Media("file", "", data="AAAA", path="p"), Condition.UNSUPPORTED),
        # not valid text
        (Media("file", "text/plain", data="/////w==", path="p"), Condition.INVALID_FIELD),
    ],
)
def test_what_the_family_has_no_block_for(media, condition):
    assert refusal_of(encode_media, media, documents=True) == (condition, "p")


def test_media_that_the_family_does_not_have_is_refused():
    film = Media("video", "video/mp4", data="AAAA", path="p")
    image = Media("image", "image/png", data=PNG, path="p")
    for said in (user(film), assistant(film), assistant(image)):
        assert refusal_of(sent, asking(said)) == (Condition.UNSUPPORTED, "p")
