"""Ids of stored objects: those that requests name, and those that answers contain, by family."""

import json

import pytest

from adapters.family.stored import MAX_REFS, SEARCHED_BYTES
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.registry import FAMILIES

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILIES.values()
FILES = "https://generativelanguage.googleapis.com/v1beta/files/"


def refs(family, fields):
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    spans, kept = top_level(body), family.client.stored_fields
    may_name = kept.may_name(spans)
    assert at_once(kept.may_name_steps(spans)) == may_name
    found = [(one.kind, one.param, one.id) for one in at_once(kept.refs(spans))]
    assert may_name or not found
    return found


def turn(**part):
    return {"role": "user", "content": [{"type": "x", **part}]}


def at(path, value):
    """Return the fields of a body with a value at a path."""
    for name in reversed(path.replace("[0]", ".[0]").split(".")):
        value = [value] if name == "[0]" else {name: value}
    return value


# family, kind, path of the id
PATHS = [
    (RESPONSES, "answer", "previous_response_id"),
    (RESPONSES, "either", "conversation"),
    (RESPONSES, "either", "conversation.id"),
    (RESPONSES, "given", "prompt.id"),
    (RESPONSES, "given", "prompt.variables.scan.file_id"),
    (RESPONSES, "answer", "prompt_cache_options.comparison_response_id"),
    (RESPONSES, "answer", "input[0].id"),
    (RESPONSES, "given", "input[0].content[0].file_id"),
    (RESPONSES, "given", "input[0].output.file_id"),
    (RESPONSES, "given", "tools[0].vector_store_ids[0]"),
    (RESPONSES, "given", "input[0].tools[0].vector_store_ids[0]"),
    (RESPONSES, "either", "tools[0].container"),
    (RESPONSES, "given", "tools[0].container.file_ids[0]"),
    (RESPONSES, "either", "tools[0].environment.container_id"),
    (RESPONSES, "given", "tools[0].environment.skills[0].skill_id"),
    (RESPONSES, "given", "tools[0].input_image_mask.file_id"),
    (MESSAGES, "answer", "diagnostics.previous_message_id"),
    (MESSAGES, "either", "container"),
    (MESSAGES, "either", "container.id"),
    (MESSAGES, "given", "messages[0].content[0].source.file_id"),
    (CHAT, "given", "messages[0].content[0].file.file_id"),
    (CHAT, "answer", "messages[0].audio.id"),
    (CHAT, "given", "audio.voice.id"),
    (GENERATE, "given", "cachedContent"),
    (GENERATE, "given", "cached_content"),
    (GENERATE, "given", "generateContentRequest.cachedContent"),
    (GENERATE, "given", "tools[0].fileSearch.fileSearchStoreNames[0]"),
    (GENERATE, "given", "tools[0].retrieval.vertexRagStore.rag_corpora[0]"),
]
THOUGHT = {"type": "reasoning", "id": "id_1", "summary": [], "encrypted_content": None}
PICTURE = {"type": "image_generation_call", "id": "id_1", "status": "completed"}
SKILLS = [{"type": "anthropic", "skill_id": "pptx"}, {"type": "custom", "skill_id": "id_1"}]
TURN = "messages[0].content[0]"
PART = "contents[0].parts[0]"
LONG_FORM = "HTTPS://GenerativeLanguage.googleapis.com:443/x/files/abc"
# family, kind, path of the id, the id, fields
NAMED = [
    *((family, kind, path, "id_1", at(path, "id_1")) for family, kind, path in PATHS),
    (
        RESPONSES,
        "answer",
        "input[1].id",
        "id_1",
        {"input": [{"type": "message"}, {"type": "item_reference", "id": "id_1"}]},
    ),
    *(
        (RESPONSES, "answer", "input[0].id", "id_1", {"input": [item]})
        for item in (THOUGHT, PICTURE)
    ),
    (MESSAGES, "given", "container.skills[1].skill_id", "id_1", {"container": {"skills": SKILLS}}),
    (
        MESSAGES,
        "given",
        f"{TURN}.file_id",
        "id_1",
        {"messages": [turn(type="container_upload", file_id="id_1")]},
    ),
    (
        MESSAGES,
        "given",
        f"{TURN}.content[0].source.file_id",
        "id_1",
        {"messages": [turn(type="tool_result", content=[{"source": {"file_id": "id_1"}}])]},
    ),
    *(
        (GENERATE, "given", path, "files/abc", at(path, uri))
        for path, uri in (
            (f"{PART}.file_data.file_uri", FILES + "abc"),
            (f"{PART}.functionResponse.parts[0].fileData.fileUri", LONG_FORM),
        )
    ),
]


@pytest.mark.parametrize(
    ("family", "kind", "param", "kept_id", "fields"),
    NAMED,
    ids=[f"{row[0].name}-{row[2]}" for row in NAMED],
)
def test_what_a_request_names(family, kind, param, kept_id, fields):
    assert refs(family, fields) == [(kind, param, kept_id)]
    # Names may be written with escapes, and a large body is searched in slices.
    escaped = json.dumps(fields)
    for name in ("id", "file_id", "container", "file_uri", "fileUri", "tools", "audio"):
        spelled = "".join(f"\\u{ord(char):04x}" for char in name)
        escaped = escaped.replace(f'"{name}":', f'"{spelled}":')
    assert refs(family, escaped.encode()) == [(kind, param, kept_id)]


def test_a_thread_is_asked_for():
    create, go_on = {"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}
    assert refs(MESSAGES, {"thread": create}) == [("thread", "thread", "")]
    assert refs(MESSAGES, {"thread": go_on}) == [
        ("thread", "thread", ""),
        ("answer", "thread.previous_message_id", "msg_1"),
    ]
    assert refs(MESSAGES, {"thread": None}) == []


UNNAMED = [
    (RESPONSES, {"input": [{"type": "compaction_trigger", "id": "ct_1"}]}),
    (RESPONSES, {"previous_response_id": None, "conversation": None, "prompt": None}),
    (RESPONSES, {"previous_response_id": "", "conversation": ""}),
    (RESPONSES, {"input": "file_id", "tools": []}),
    (RESPONSES, {"tools": [{"type": [], "file_id": "f"}]}),
    # parts of an answer repeated in the history
    (RESPONSES, {"input": [{"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}]}),
    (RESPONSES, {"input": [{"type": "message", "id": "msg_1", "content": "Hello."}]}),
    (RESPONSES, {"input": [{"type": "code_interpreter_call", "code": "1", "container_id": "c"}]}),
    (RESPONSES, {"input": [{"type": "reasoning", "id": "rs_gw1.messages.x.y.z", "summary": []}]}),
    # schemas and arguments of tools
    (RESPONSES, {"tools": [{"type": "function", "parameters": {"container": "x"}}]}),
    (RESPONSES, {"input": [{"type": "function_call", "arguments": '{"file_id":1}'}]}),
    (MESSAGES, {"messages": [turn(type="tool_use", input={"source": {"file_id": "x"}})]}),
    (MESSAGES, {"messages": [turn(type="code_execution_tool_result", content=[{"file_id": "x"}])]}),
    (MESSAGES, {"messages": [turn(source={"type": "url", "url": "https://x.example/file_id"})]}),
    (MESSAGES, {"container": None, "diagnostics": {"previous_message_id": None}}),
    (CHAT, {"audio": {"voice": "alloy"}, "messages": [turn(file={"file_data": "x"})]}),
    (GENERATE, {"cachedContent": None, "labels": {"cachedContent": "x"}}),
    (GENERATE, {"contents": [{"parts": [{"fileData": {"fileUri": "https://youtu.be/x"}},
                                        {"fileData": {"fileUri": "gs://bucket/files/x"}}]}]}),
    (GENERATE, {"contents": [{"parts": [{"functionCall": {"args": {"fileUri": "files/x"}}}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "fields"), UNNAMED)
def test_what_names_nothing(family, fields):
    assert refs(family, fields) == []


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_body_without_a_mark_is_not_decoded(family):
    plain = {
        "model": "m",
        "messages": [turn(text="one"), turn(type="tool_use", id="x", input={"id": "y"})],
        "input": [{"role": "user", "content": "one"}],
        "contents": [{"parts": [{"text": "one"}]}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    }
    assert not family.client.stored_fields.may_name(top_level(json.dumps(plain).encode()))


@pytest.mark.parametrize("offset", [-20, -10, -5, 0])
def test_a_mark_across_two_slices(offset):
    start = len(b'{"messages":')
    padding = "x" * (
        SEARCHED_BYTES + offset - start - len('[{"role":"user","content":[{"text":""},')
    )
    body = {
        "messages": [{"role": "user", "content": [{"text": padding}, {"source": {"file_id": "f"}}]}]
    }
    text = json.dumps(body, separators=(",", ":")).encode()
    assert refs(MESSAGES, text) == [("given", "messages[0].content[1].source.file_id", "f")]


@pytest.mark.parametrize(
    ("family", "fields", "param"),
    [
        (RESPONSES, {"previous_response_id": 7}, "previous_response_id"),
        (RESPONSES, {"previous_response_id": ["resp_1"]}, "previous_response_id"),
        (RESPONSES, {"conversation": 7}, "conversation"),
        (RESPONSES, {"conversation": {}}, "conversation.id"),
        (RESPONSES, {"conversation": {"id": 7}}, "conversation.id"),
        (GENERATE, {"cachedContent": 7}, "cachedContent"),
        # one might be checked and the other one used
        (RESPONSES, b'{"prompt":{"id":"a","id":"b"}}', "prompt.id"),
        (MESSAGES, b'{"messages":[{"content":[{"source":{"file_id":1,"file_id":"b"}}]}]}',
         "messages[0].file_id"),
        (RESPONSES, {"tools": [{"vector_store_ids": [f"vs_{n}" for n in range(MAX_REFS + 1)]}]},
         f"tools[0].vector_store_ids[{MAX_REFS}]"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(family, fields, param):
    with pytest.raises(Fault) as caught:
        refs(family, fields)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, param)


ITEMS = [
    {"type": "message", "id": "msg_1"},
    {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1"},
    {"type": "shell_call", "id": "sh_1", "environment": {"container_id": "cntr_2"}},
]


@pytest.mark.parametrize(
    ("family", "answer", "stored", "made"),
    [
        (
            RESPONSES,
            {"output": ITEMS, "conversation": {"id": "conv_1"}},
            True,
            ["conv_1", "msg_1", "ci_1", "cntr_1", "sh_1", "cntr_2"],
        ),
        (RESPONSES, {"output": ITEMS, "conversation": None}, False, ["cntr_1", "cntr_2"]),
        (RESPONSES, {"output": ITEMS[:1]}, False, []),
        (MESSAGES, {"content": [], "container": {"id": "container_1"}}, False, ["container_1"]),
        (MESSAGES, {"content": [], "container": None}, True, []),
        (CHAT, {"choices": [{"message": {"audio": {"id": "audio_1"}}}]}, False, ["audio_1"]),
        (CHAT, {"choices": [{"message": {"audio": None}}]}, False, []),
        (GENERATE, {"candidates": []}, False, []),
    ],
)
def test_what_an_answer_hands_out(family, answer, stored, made):
    body = json.dumps(answer, separators=(",", ":")).encode()
    assert family.upstream.issued_ids(body, stored) == made


EVENTS = [
    (RESPONSES, True, {"type": "x", "response": {"conversation": {"id": "conv_1"}}}, "conv_1"),
    (RESPONSES, True, {"type": "response.output_item.added", "item": ITEMS[0]}, "msg_1"),
    (RESPONSES, False, {"type": "response.output_item.added", "item": ITEMS[0]}, None),
    (RESPONSES, False, {"type": "response.output_item.done", "item": ITEMS[1]}, "cntr_1"),
    (RESPONSES, False, {"type": "response.output_item.done", "item": ITEMS[2]}, "cntr_2"),
    (MESSAGES, False, {"type": "message_start", "message": {"container": {"id": "c_1"}}}, "c_1"),
    (MESSAGES, False, {"type": "message_delta", "delta": {"container": {"id": "c_1"}}}, "c_1"),
    (CHAT, False, {"choices": [{"delta": {"audio": {"id": "audio_1", "data": "x"}}}]}, "audio_1"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "stored", "event", "made"), EVENTS)
def test_what_an_event_hands_out(family, stored, event, made):
    operation = family.client.operations["generate"]
    tap, told = family.upstream.stream_tap("m", "m", False, operation), []
    if family is CHAT:  # the fast path of nearly all events
        tap.feed(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
    tap.on_issued, tap.stored = told.extend, stored
    name = event.get("type", "")
    tap.feed(f"event: {name}\ndata: {json.dumps(event)}\n\n".encode() if name else
             f"data: {json.dumps(event)}\n\n".encode())  # fmt: skip
    assert told == ([made] if made else [])
