"""Turns of other families as messages for an upstream of this one."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import (
    Hosted,
    Media,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.ir.request import Tool
from tests.adapters.chat_completions.calls import encoded, request

USER = Turn("user", (Text("Go."),))
CALL = ToolCall("c1", "get_tide", '{"port":"Brest"}')
PNG = Media("image", "image/png", "AAAA", detail="high", path="messages[0].content[0]")


def messages(*turns, system=(), tools=(), **traits):
    body, _ = encoded(request(*turns, system=system, tools=tools), **traits)
    return body["messages"]


def sent(call, call_id="c1"):
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call_id, "type": "function", "function": function}


def test_system_texts_are_one_message():
    system = (Text("Be brief."), Text(""), Text("In French."))
    said = messages(USER, Turn("system", (Text("Now."),)), USER, system=system)
    assert said[0] == {"role": "system", "content": "Be brief.\n\nIn French."}
    assert said[2] == {"role": "system", "content": "Now."}
    assert messages(USER, system=system, system_role="developer")[0]["role"] == "developer"


def test_the_text_of_an_assistant_is_one_string():
    said = messages(USER, Turn("assistant", (Text("It is "), Text("ready."), Refusal("No."))))
    assert said[1] == {"role": "assistant", "content": "It is ready.", "refusal": "No."}


def test_results_follow_their_calls_and_other_words_come_behind():
    calls = (Text("Let me look."), CALL, ToolCall("c2", "get_wind", ""))
    results = (
        ToolResult("c2", (Text("a"), Text("b"))),
        ToolResult("c1", (Text("broken"),), error=True),
        Text("Which pier?"),
    )
    said = messages(USER, Turn("assistant", calls), Turn("user", results))
    assert said[1:] == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [sent(CALL), sent(ToolCall("c2", "get_wind", "{}"), "c2")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Error: broken"},
        {"role": "tool", "tool_call_id": "c2", "content": "a\nb"},
        {"role": "user", "content": "Which pier?"},
    ]


def test_results_follow_their_calls_also_past_a_system_turn():
    said = messages(
        USER,
        Turn("assistant", (CALL,)),
        Turn("system", (Text("Hurry."),)),
        Turn("user", (ToolResult("c1", (Text("ok"),)),)),
    )
    assert [one["role"] for one in said] == ["user", "assistant", "tool", "system"]
    assert said[1]["content"] is None


def test_a_call_without_a_result_gets_one():
    said = messages(USER, Turn("assistant", (CALL,)), USER)
    assert said[2] == {"role": "tool", "tool_call_id": "c1", "content": "no result provided"}
    assert messages(USER, Turn("assistant", (CALL,)))[2]["role"] == "tool"


def test_a_result_without_a_call_is_told_by_the_user():
    said = messages(Turn("user", (ToolResult("c9", (Text("high at 14:05"),)), Text("Well?"))))
    assert said[0]["content"] == "Result of the tool call c9:\nhigh at 14:05\n\nWell?"
    twice = (ToolResult("c1", (Text("a"),)), ToolResult("c1", (Text("b"),)))
    said = messages(USER, Turn("assistant", (CALL,)), Turn("user", twice))
    assert said[2]["content"] == "a" and said[3]["content"].endswith("\nb")


def test_images_of_a_result_come_in_the_users_message():
    result = ToolResult("c1", (Text("See:"), PNG))
    said = messages(USER, Turn("assistant", (CALL,)), Turn("user", (result, Text("Well?"))))
    assert said[2]["content"] == "See:\n[image: see the next user message]"
    note, image, text = said[3]["content"]
    assert "c1" in note["text"] and text == {"type": "text", "text": "Well?"}
    assert image["image_url"] == {"url": "data:image/png;base64,AAAA", "detail": "high"}


def test_ids_that_are_missing_come_from_the_position():
    calls = (ToolCall("", "f", "{}"), ToolCall("", "g", "{}"))
    results = (ToolResult("", (Text("1"),)), ToolResult("", (Text("2"),)))
    said = messages(USER, Turn("assistant", calls), Turn("user", results))
    assert [call["id"] for call in said[1]["tool_calls"]] == ["call_1_0", "call_1_1"]
    assert [(one["tool_call_id"], one["content"]) for one in said[2:]] == [
        ("call_1_0", "1"),
        ("call_1_1", "2"),
    ]


def test_thoughts_go_only_to_models_that_want_them():
    turns = (USER, Turn("assistant", (Reasoning("Hm."), Text("Yes."))), USER)
    assert "reasoning_content" not in messages(*turns)[1]
    assert messages(*turns, reasoning_echo=True)[1]["reasoning_content"] == "Hm."
    turns = (USER, Turn("assistant", (CALL,)))
    assert messages(*turns, reasoning_echo=True)[1]["reasoning_content"] == ""


def test_a_signature_of_google_goes_back_with_its_call():
    said = messages(USER, Turn("assistant", (Reasoning("", opaque="c2ln"), CALL)))
    assert said[1]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}


def test_calls_and_results_of_the_vendors_own_tools_are_left_out():
    hosted = Hosted("web_search_call", {})
    assert len(messages(USER, Turn("assistant", (hosted,)), USER)) == 2
    said = messages(USER, Turn("assistant", (hosted, Text("Found."))))
    assert said[1] == {"role": "assistant", "content": "Found."}


def test_free_text_calls():
    call = ToolCall("c1", "patch", "+a", custom=True)
    tools = (Tool("custom", "patch"),)
    native = messages(USER, Turn("assistant", (call,)), tools=tools, custom_tools=True)
    custom = {"name": "patch", "input": "+a"}
    assert native[1]["tool_calls"] == [{"id": "c1", "type": "custom", "custom": custom}]
    plain = messages(USER, Turn("assistant", (call,)), tools=tools)
    function = {"name": "patch", "arguments": '{"input":"+a"}'}
    assert plain[1]["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]


@pytest.mark.parametrize(
    ("media", "sent"),
    [
        (Media("image", url="https://x"), {"type": "image_url", "image_url": {"url": "https://x"}}),
        (
            Media("audio", "audio/mp3", "AAAA"),
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        ),
        (
            Media("audio", "audio/x-wav", "AAAA"),
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ),
        (
            Media("file", "application/pdf", "JVBE"),
            {
                "type": "file",
                "file": {
                    "filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,JVBE",
                },
            },
        ),
        (
            Media("file", "text/plain", "# Tea", name="a.md", plain=True),
            {"type": "text", "text": "a.md:\n\n# Tea"},
        ),
        (Media("file", "text/csv", "YSxi"), {"type": "text", "text": "a,b"}),
    ],
)
def test_media(media, sent):
    said = messages(Turn("user", (Text("Look:"), media)), audio=True, openai_extras=True)
    assert said[0]["content"] == [{"type": "text", "text": "Look:"}, sent]


@pytest.mark.parametrize(
    ("media", "traits"),
    [
        (PNG, {"images": False}),
        (Media("image", ref="file-1", path=PNG.path), {}),
        (Media("audio", "audio/mp3", "AAAA", path=PNG.path), {}),
        (Media("audio", "audio/ogg", "AAAA", path=PNG.path), {"audio": True}),
        (Media("file", "application/pdf", "JVBE", path=PNG.path), {"documents": False}),
        (Media("file", url="https://x/a.pdf", path=PNG.path), {}),
        (Media("video", "video/mp4", "AAAA", path=PNG.path), {}),
    ],
)
def test_media_that_the_model_does_not_take(media, traits):
    with pytest.raises(Fault) as caught:
        messages(Turn("user", (media,)), **traits)
    assert caught.value.condition is Condition.UNSUPPORTED and caught.value.param == PNG.path


def test_texts_of_the_user_are_one_string_where_servers_take_no_other():
    turn = Turn("user", (Text("a"), Text(""), Text("b")))
    assert messages(turn) == [{"role": "user", "content": "a\n\nb"}]
    parts = messages(turn, openai_extras=True)[0]["content"]
    assert parts == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_a_made_up_id_is_never_that_of_another_call():
    calls = (
        ToolCall("", "f", "{}"),
        ToolCall("call_1_0", "g", "{}"),
        ToolCall("call_1_0", "h", ""),
    )
    said = messages(USER, Turn("assistant", calls))
    ids = [call["id"] for call in said[1]["tool_calls"]]
    assert len(set(ids)) == 3 and ids[1] == "call_1_0"


def test_what_a_user_cannot_say_is_left_out():
    assert messages(Turn("user", (Reasoning("Hm."), Text("Go.")))) == [
        {"role": "user", "content": "Go."}
    ]
