"""Turns as items for upstreams."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import Hosted, Media, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Request
from adapters.responses.encode_turns import NO_RESULT
from adapters.responses.reasoning_state import seal
from tests.adapters.responses.calls import assistant, encoded, user

ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}


def items_of(*turns, **traits):
    return encoded(Request("messages", False, turns), **traits)[0]["input"]


def message(role, *content):
    return {"type": "message", "role": role, "content": list(content)}


def said(text):
    return {"type": "input_text", "text": text}


def test_a_conversation_with_calls():
    sealed = seal(ITEM)
    items = items_of(
        user(Text("Tide?"), Text("")),
        assistant(
            Reasoning("Hm.", opaque=sealed),
            Reasoning("lost"),
            Text("Let me look."),
            Refusal("Not that."),
            ToolCall("a", "tide", ""),
            ToolCall("b", "patch", "*** Begin", custom=True),
        ),
        user(
            ToolResult("a", (Text("high"), Text("at 14:05")), error=True),
            ToolResult("b", (Text("ok"),)),
            Text("So?"),
        ),
        Turn("system", (Text("Hush."),)),
    )
    assert items == [
        message("user", said("Tide?")),
        {**ITEM, "summary": [{"type": "summary_text", "text": "Hm."}]},
        message(
            "assistant",
            {"type": "output_text", "text": "Let me look."},
            {"type": "refusal", "refusal": "Not that."},
        ),
        {"type": "function_call", "call_id": "a", "name": "tide", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "a", "output": "Error: high\nat 14:05"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "ok"},
        message("user", said("So?")),
        message("system", said("Hush.")),
    ]


@pytest.mark.parametrize(
    ("parts", "traits", "content"),
    [
        ((Text("a"), Text("b")), {}, "ab"),
        ((Text("a"), Refusal("b")), {"openai_extras": False}, "ab"),
        (
            (Text("a"), Refusal("b")),
            {},
            [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}],
        ),
    ],
)
def test_what_the_assistant_wrote_is_plain_text_for_strict_servers(parts, traits, content):
    (_, item) = items_of(ASK, assistant(*parts), **traits)
    assert item == {"type": "message", "role": "assistant", "content": content}


def call(call_id="a"):
    return assistant(ToolCall(call_id, "f", "{}"))


ASK, STOP = user(Text("?")), user(Text("Stop."))
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
IMAGE = Media("image", "image/png", "aGk=")


def output(value):
    return {"type": "function_call_output", "call_id": "a", "output": value}


@pytest.mark.parametrize(
    ("turns", "items"),
    [
        ([call(), STOP], [CALL, output(NO_RESULT), message("user", said("Stop."))]),
        ([call()], [CALL, output(NO_RESULT)]),
        (
            [call(), Turn("system", (Text("x"),)), user(ToolResult("a", (Text("y"),)))],
            [CALL, message("system", said("x")), output("y")],
        ),
        (
            [assistant(Text("x")), user(ToolResult("a", (Text("y"),)), Text("So?"))],
            [
                {"type": "message", "role": "assistant", "content": "x"},
                message("user", said("y"), said("So?")),
            ],
        ),
        (
            [call(), user(ToolResult("a", (Text(""), Text("see"), IMAGE), error=True))],
            [
                CALL,
                output(
                    [
                        *(said("Error:"), said("see")),
                        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
                    ]
                ),
            ],
        ),
        ([assistant(Hosted("web", {}))], []),
        *(
            ([assistant(Reasoning("x", opaque=opaque))], [])
            for opaque in ("", "not ours", "{}", '["a"]', '["a", 1]', "\ud800")
        ),
    ],
)
def test_turns(turns, items):
    assert items_of(ASK, *turns) == [message("user", said("?")), *items]


def test_the_role_of_system_turns():
    items = items_of(ASK, Turn("system", (Text("x"),)), system_role="developer")
    assert items[1]["role"] == "developer"


def test_long_ids_are_shortened_alike():
    long = "toolu_" + "x" * 80
    items = items_of(ASK, call(long), user(ToolResult(long, ())))
    assert items[1]["call_id"] == items[2]["call_id"] and len(items[1]["call_id"]) <= 64


def file(**fields):
    return {"type": "input_file", **fields}


@pytest.mark.parametrize(
    ("media", "part"),
    [
        (
            Media("image", url="https://a", detail="low"),
            {"type": "input_image", "image_url": "https://a", "detail": "low"},
        ),
        (
            Media("file", "application/pdf", "JVBE"),
            file(filename="document.pdf", file_data="data:application/pdf;base64,JVBE"),
        ),
        (
            Media("file", "text/plain", "hi", name="a.txt", plain=True),
            file(filename="a.txt", file_data="data:text/plain;base64,aGk="),
        ),
        (Media("file", url="https://a/b.pdf"), file(file_url="https://a/b.pdf")),
        (
            Media("audio", "audio/wav", "aGk="),
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        ),
    ],
)
def test_media(media, part):
    assert items_of(user(media)) == [message("user", part)]


def test_a_text_document_for_a_model_without_documents():
    plain = Media("file", "text/plain", "hi", plain=True)
    assert items_of(user(plain), documents=False) == [message("user", said("hi"))]


@pytest.mark.parametrize(
    "turn",
    [
        user(Media("image", ref="file-1", path="p")),
        user(Media("video", url="x", path="p")),
        user(Media("audio", "audio/ogg", "aGk=", path="p")),
        assistant(Media("image", "image/png", "aGk=", path="p")),
    ],
)
def test_what_items_cannot_carry_is_refused(turn):
    with pytest.raises(Fault) as caught:
        items_of(turn)
    assert (caught.value.condition, caught.value.param) == (Condition.UNSUPPORTED, "p")
