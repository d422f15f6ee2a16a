"""Decoding of input items into turns and their parts: texts, images, documents, recordings."""

import time

import pytest
from msgspec.structs import replace

from adapters.ir import parts as ir
from adapters.ir.parts import Media, Reasoning, Text, ToolCall, ToolResult, Turn
from tests.adapters.builders import features
from tests.adapters.responses.calls import assistant, decoded, refusal, user

A, B = Text("A"), Text("B")


def message(role, text):
    return {"type": "message", "role": role, "content": text}


def call(call_id, name="f", **more):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def output(call_id, text="A"):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


USER = message("user", "Tide?")
TIDE = Text("Tide?")


def called(call_id):
    return ToolCall(call_id, "f", "{}")


ANSWERED = (assistant(called("a")), user(ToolResult("a", (A,))))


# ---- turns ---------------------------------------------------------------------------------------


def test_neighbours_of_one_role_are_one_turn():
    items = [
        {"role": "developer", "content": "One."},
        message("system", [{"type": "input_text", "text": "Two."}]),
        {"role": "user", "content": "Tide?"},
        message("user", "And wind?"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        message("assistant", [{"type": "output_text", "text": "Yes."}]),
        call("a", namespace="sea"),
        message("assistant", [{"type": "refusal", "refusal": "No."}]),
    ]
    request = decoded(items, instructions="Zero.")
    assert request.system == (Text("Zero."), Text("One."), Text("Two."))
    sea = ToolCall("a", "f", "{}", namespace="sea")
    assert request.turns == (
        user(TIDE, Text("And wind?")),
        assistant(Reasoning("Hm.", summary=True), Text("Yes."), sea, ir.Refusal("No.")),
    )
    assert features(request) == {"prefill": "input"}


PATCH = {"type": "custom_tool_call", "call_id": "p", "name": "patch", "input": "*** Begin"}
PATCHED = ToolCall("p", "patch", "*** Begin", custom=True)
REFUSED = [{"type": "refusal", "refusal": "A"}]
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": text} for text in "ab"],
    "encrypted_content": "gw1.x",
}
SEARCH, SHELL = {"type": "web_search_call", "id": "ws"}, {"type": "shell_call_output"}


@pytest.mark.parametrize(
    ("items", "turns", "asks"),
    [
        (
            [call("a"), call("b"), USER, output("b", "B"), output("a")],
            [
                assistant(called("a"), called("b")),
                user(ToolResult("a", (A,)), ToolResult("b", (B,)), TIDE),
            ],
            {},
        ),
        (
            [call("a"), output("a"), call("b"), output("b")],
            [*ANSWERED, assistant(called("b")), user(ToolResult("b", (A,)))],
            {},
        ),
        (
            [call("a"), message("system", "A"), message("assistant", "B"), USER, output("a")],
            [*ANSWERED, Turn("system", (A,)), assistant(B), user(TIDE)],
            {"system_turn": "input[2]"},
        ),
        (
            [PATCH, {**PATCH, "type": "custom_tool_call_output", "output": REFUSED}],
            [assistant(PATCHED), user(ToolResult("p", (A,), custom=True))],
            {},
        ),
        (
            [THOUGHT, message("assistant", "Yes."), USER],
            [assistant(Reasoning("a\n\nb", opaque="gw1.x"), Text("Yes.")), user(TIDE)],
            {},
        ),
        (
            [SEARCH, SHELL, USER],
            [
                assistant(ir.Hosted("web_search_call", SEARCH, "input[1]")),
                user(ir.Hosted("shell_call_output", SHELL, "input[2]"), TIDE),
            ],
            {"hosted_history": "input[2]"},
        ),
        (
            [{"type": "item_reference", "id": "rs_1"}, call("a"), output("a")],
            ANSWERED,
            {"other": "input[1]"},
        ),
    ],
    ids=[
        *("results_in_the_order_of_calls", "calls_one_after_the_other", "a_late_result"),
        *("custom_tools", "encrypted_reasoning", "the_vendors_own_tools", "a_stored_thought"),
    ],
)
def test_items(items, turns, asks):
    request = decoded([USER, *items])
    assert request.turns == (user(TIDE), *turns)
    assert features(request) == asks


def test_a_result_of_no_call_is_kept_for_the_upstream_to_say():
    assert decoded([USER, output("x")]).turns == (user(ToolResult("x", (A,)), TIDE),)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference"},
        {"type": "compaction", "encrypted_content": "of the vendor"},
        {"type": "additional_tools", "status": "completed"},
        {"type": "new"},
    ],
)
def test_items_that_stand_for_what_the_vendor_has(item):
    assert features(decoded([USER, {**item, "id": "x"}])) == {"stored_state": "input[1]"}


@pytest.mark.parametrize(
    ("item", "place", "condition"),
    [
        (1, "", "E12"),
        ({"type": 1}, ".type", "E12"),
        ({"content": "x"}, ".role", "E13"),
        (message("king", "x"), ".role", "E12"),
        (message("user", 1), ".content", "E12"),
        (message("user", [1]), ".content[0]", "E12"),
        (call(None), ".call_id", "E13"),
        (call("a", name=2), ".name", "E12"),
        ({"type": "function_call_output"}, ".call_id", "E13"),
        ({"type": "reasoning", "encrypted_content": 1}, ".encrypted_content", "E12"),
    ],
)
def test_a_wrong_item_is_named(item, place, condition):
    assert refusal([item]) == (condition, f"input[0]{place}")


def test_many_late_results_cost_little():
    calls = [one for i in range(4000) for one in (call(f"c{i}"), message("system", "x"))]
    started = time.process_time()
    turns = decoded([USER, *calls, *(output(f"c{i}") for i in range(4000))]).turns
    assert sum(isinstance(turn.parts[0], ToolResult) for turn in turns) == 4000
    assert time.process_time() - started < 2


# ---- parts of messages ---------------------------------------------------------------------------

PATH = "input[0].content[0]"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
WEB = "https://example.org"


def image(**fields):
    return {"type": "input_image", **fields}


def file(**fields):
    return {"type": "input_file", **fields}


def audio(data, form):
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def marked(mark):
    return {"type": "input_text", "text": "x", "prompt_cache_breakpoint": mark}


def document(mime, data, **fields):
    return Media("file", mime, data, **fields)


@pytest.mark.parametrize(
    ("part", "read", "asks"),
    [
        (
            image(image_url="data:image/gif;base64,aGk"),
            Media("image", "image/gif", "aGk="),
            {"image_data": ""},
        ),
        (
            image(image_url=f"{WEB}/a.png", detail="low"),
            Media("image", url=f"{WEB}/a.png", detail="low"),
            {"image_url": "", "image_detail": ".detail"},
        ),
        (
            image(file_id="file-1", detail="auto"),
            Media("image", ref="file-1"),
            {"file_ref": ".file_id"},
        ),
        (
            file(file_data="data:application/pdf;base64,JVBE", filename="a.pdf"),
            document("application/pdf", "JVBE", name="a.pdf"),
            {"document_data": ""},
        ),
        (file(file_data="JVBE"), document("application/pdf", "JVBE"), {"document_data": ""}),
        (
            file(file_data="aGk=", filename="a.md"),
            document("text/plain", "hi", name="a.md", plain=True),
            {"text_document": ""},
        ),
        (
            file(file_url=f"{WEB}/a.csv?x=1"),
            Media("file", "text/csv", url=f"{WEB}/a.csv?x=1"),
            {"document_url": ""},
        ),
        (
            file(file_data="data:application/octet-stream;base64,UEs=", filename="a.docx"),
            document(DOCX, "UEs=", name="a.docx"),
            {"document_data": ""},
        ),
        (
            file(file_data="UEs=", filename="a.zip"),
            document("application/octet-stream", "UEs=", name="a.zip"),
            {"document_data": ""},
        ),
        (
            file(file_url=f"{WEB}/get.php?id=1", filename="a.pdf"),
            Media("file", "application/pdf", url=f"{WEB}/get.php?id=1", name="a.pdf"),
            {"document_url": ""},
        ),
        (file(file_id="f"), Media("file", ref="f"), {"file_ref": ".file_id"}),
        (audio("aGk=", "mp3"), Media("audio", "audio/mpeg", "aGk="), {"audio": ""}),
        (
            marked({"mode": "explicit", "ttl": "12h"}),
            Text("x", ir.CacheMark(43200)),
            {"cache_mark": ".prompt_cache_breakpoint"},
        ),
    ],
)
def test_parts(part, read, asks):
    request = decoded([{"role": "user", "content": [part]}])
    expected = replace(read, path=PATH) if isinstance(read, Media) else read
    assert request.turns == (user(expected),)
    assert features(request) == {feature: PATH + place for feature, place in asks.items()}


def test_sources_of_an_answer():
    source = {"type": "url_citation", "url": "https://a", "title": "A"}
    annotations = [
        {**source, "start_index": 1, "end_index": 2},
        {"type": "url_citation", "url": 1},
        {"type": "file_path", "file_id": "x"},
    ]
    part = {"type": "output_text", "text": "x", "annotations": annotations}
    turns = decoded([{"role": "assistant", "content": [part]}, USER]).turns
    assert turns[0].parts == (Text("x", citations=(ir.Citation("https://a", "A", 1, 2),)),)


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"text": "x"}, ".type"),
        ({"type": "input_video"}, ".type"),
        ({"type": "input_text"}, ".text"),
        (image(), ".image_url"),
        (image(image_url="data:image/png,raw"), ".image_url"),
        (image(image_url="data:image/png;base64,!"), ".image_url"),
        (image(image_url="x", detail=1), ".detail"),
        (file(), ".file_data"),
        (file(file_data="!"), ".file_data"),
        (file(file_data="data:text/plain;base64,/w=="), ".file_data"),
        ({"type": "input_audio"}, ".input_audio"),
        (audio("!", "wav"), ".input_audio.data"),
        (marked(1), ".prompt_cache_breakpoint"),
    ],
)
def test_a_wrong_part_is_named(part, place):
    condition, param = refusal([{"role": "user", "content": [part]}])
    assert condition in ("E12", "E13") and param == PATH + place
