"""Messages as turns of the hub."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import (
    CacheMark,
    Media,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from tests.adapters.chat_completions.calls import HI, asked_for, decoded


def call(call_id, name="f", arguments="{}"):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def tool(call_id, content="done"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def turns(*messages):
    return decoded([*HI, *messages]).turns[1:]


def test_leading_system_messages_are_the_system_text_and_later_ones_are_turns():
    request = decoded(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
            *HI,
            {"role": "system", "content": "Now in Dutch."},
        ]
    )
    assert request.system == (Text("Be brief."), Text("In French."))
    assert [turn.role for turn in request.turns] == ["user", "system"]
    assert asked_for(request) == {"system_turn": "messages[3]"}


def test_messages_of_one_role_are_one_turn():
    request = decoded([{"role": "user", "content": "a"}, {"role": "user", "content": ["b"]}])
    assert request.turns == (Turn("user", (Text("a"), Text("b"))),)


def test_results_come_first_in_the_order_of_their_calls():
    said = turns(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("c1"), call("c2", "g", '{"x":1}')],
        },
        {"role": "user", "content": "Go on."},
        tool("c2", [{"type": "text", "text": "two"}]),
        tool("c1", "one"),
    )
    assert said == (
        Turn("assistant", (ToolCall("c1", "f", "{}"), ToolCall("c2", "g", '{"x":1}'))),
        Turn(
            "user",
            (
                ToolResult("c1", (Text("one"),)),
                ToolResult("c2", (Text("two"),)),
                Text("Go on."),
            ),
        ),
    )


def test_free_text_calls_and_their_results():
    custom = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "+a"}}
    said = turns({"role": "assistant", "tool_calls": [custom]}, tool("c1"))
    assert said[0].parts == (ToolCall("c1", "patch", "+a", custom=True),)
    assert said[1].parts == (ToolResult("c1", (Text("done"),), custom=True),)


def test_functions_from_before_there_were_tools():
    said = turns(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "ok"},
    )
    assert said == (
        Turn("assistant", (ToolCall("call_f0", "f", "{}"),)),
        Turn("user", (ToolResult("call_f0", (Text("ok"),)),)),
    )


def test_refusals_and_reasoning_of_history():
    said = turns(
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "No."},
                {"type": "refusal", "refusal": "I won't."},
            ],
            "refusal": "Really.",
            "reasoning_content": "Hm.",
        },
        *HI,
    )
    parts = (Reasoning("Hm."), Text("No."), Refusal("I won't."), Refusal("Really."))
    assert said[0] == Turn("assistant", parts)
    assert turns({"role": "assistant", "content": "x", "reasoning": "Hm."}, *HI)[0].parts == (
        Reasoning("Hm."),
        Text("x"),
    )


def test_an_answer_that_is_to_be_continued():
    request = decoded([*HI, {"role": "assistant", "content": "It is"}])
    assert asked_for(request) == {"prefill": "messages[1]"}


def test_what_is_not_read_of_a_message_is_named():
    request = decoded(
        [
            {"role": "user", "content": "x", "name": "ann"},
            {"role": "assistant", "audio": {"id": "a"}},
            *HI,
        ]
    )
    assert {(ask.feature, ask.path) for ask in request.asks} == {
        ("other", "messages[0].name"),
        ("stored_state", "messages[1].audio"),
    }


def part(**said):
    request = decoded([{"role": "user", "content": [said]}])
    (found,) = request.turns[0].parts
    return found, asked_for(request)


def test_images():
    at = "messages[0].content[0]"
    assert part(
        type="image_url", image_url={"url": "DATA:image/PNG;x=y;base64,_-8", "detail": "low"}
    ) == (
        Media("image", "image/png", "/+8=", detail="low", path=at),
        {"image_detail": f"{at}.image_url.detail", "image_data": f"{at}.image_url"},
    )
    assert part(type="image_url", image_url="https://x.example/a.png") == (
        Media("image", url="https://x.example/a.png", path=at),
        {"image_url": f"{at}.image_url"},
    )
    assert part(type="image_url", image_url={"url": "https://x", "detail": "auto"})[1] == {
        "image_url": f"{at}.image_url"
    }


def test_recordings():
    assert part(type="input_audio", input_audio={"data": "AAAA", "format": "mp3"}) == (
        Media("audio", "audio/mpeg", "AAAA", path="messages[0].content[0]"),
        {"audio": "messages[0].content[0].input_audio"},
    )


@pytest.mark.parametrize(
    ("file", "media", "feature"),
    [
        (
            {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"},
            Media("file", "application/pdf", "JVBE", name="a.pdf"),
            "document_data",
        ),
        (
            {"file_data": "JVBE", "filename": "a.pdf"},
            Media("file", "application/pdf", "JVBE", name="a.pdf"),
            "document_data",
        ),
        (
            {"file_data": "data:text/markdown;base64,IyBUZWE=", "filename": "a.md"},
            Media("file", "text/plain", "# Tea", name="a.md", plain=True),
            "text_document",
        ),
        ({"file_id": "file-1"}, Media("file", ref="file-1"), "file_ref"),
    ],
)
def test_files(file, media, feature):
    found, asks = part(type="file", file=file)
    where = "messages[0].content[0]"
    assert found.path == where
    fields = ("kind", "mime", "data", "ref", "name", "plain")
    assert all(getattr(found, name) == getattr(media, name) for name in fields)
    assert list(asks) == [feature] and asks[feature].startswith(f"{where}.file")


def test_cache_marks():
    found, asks = part(
        type="text", text="x", prompt_cache_breakpoint={"mode": "explicit", "ttl": "12h"}
    )
    assert found.cache == CacheMark(43200)
    assert asks == {"cache_mark": "messages[0].content[0].prompt_cache_breakpoint"}
    found, _ = part(type="text", text="x", prompt_cache_breakpoint={"mode": "explicit"})
    assert found.cache == CacheMark(None)


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("messages[0].role", {}),
        ("messages[0].role", {"role": "robot", "content": "x"}),
        ("messages[0].content", {"role": "user", "content": 5}),
        ("messages[0].content[0]", {"role": "user", "content": [5]}),
        ("messages[0].content[0].type", {"role": "user", "content": [{}]}),
        ("messages[0].content[0].type", {"role": "user", "content": [{"type": "video"}]}),
        ("messages[0].content[0].text", {"role": "user", "content": [{"type": "text"}]}),
        (
            "messages[0].content[0].image_url",
            {"role": "user", "content": [{"type": "image_url", "image_url": 1}]},
        ),
        (
            "messages[0].content[0].image_url.url",
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png,x"}]},
        ),
        (
            "messages[0].content[0].input_audio.format",
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "x"}}
                ],
            },
        ),
        (
            "messages[0].content[0].file.file_data",
            {"role": "user", "content": [{"type": "file", "file": {}}]},
        ),
        (
            "messages[0].content[0].type",
            {"role": "system", "content": [{"type": "refusal", "refusal": "x"}]},
        ),
        ("messages[0].tool_call_id", {"role": "tool", "content": "x"}),
        ("messages[0].name", {"role": "function", "name": "f", "content": "x"}),
        ("messages[0].tool_calls", {"role": "assistant", "tool_calls": {}}),
        ("messages[0].tool_calls[0]", {"role": "assistant", "tool_calls": ["x"]}),
        ("messages[0].tool_calls[0].id", {"role": "assistant", "tool_calls": [{}]}),
        ("messages[0].tool_calls[0].function", {"role": "assistant", "tool_calls": [{"id": "x"}]}),
        (
            "messages[0].tool_calls[0].function.arguments",
            {
                "role": "assistant",
                "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": {}}}],
            },
        ),
    ],
)
def test_a_wrong_message_is_named(param, message):
    with pytest.raises(Fault) as caught:
        decoded([message])
    assert caught.value.param == param
    assert caught.value.condition in (Condition.INVALID_FIELD, Condition.FIELD_MISSING)


def test_a_picture_as_a_file_is_a_picture():
    found, _ = part(type="file", file={"file_data": "data:image/png;base64,AAAA"})
    assert (found.kind, found.mime) == ("image", "image/png")


def test_a_tool_does_not_refuse():
    said = {"role": "tool", "tool_call_id": "c", "content": [{"type": "refusal", "refusal": "x"}]}
    with pytest.raises(Fault) as caught:
        decoded([said])
    assert caught.value.param == "messages[0].content"
