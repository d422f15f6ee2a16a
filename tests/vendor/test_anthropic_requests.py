"""Refusals of the messages family and the places they name: one change to a valid request each."""

import pytest

from demo.family import Route
from demo.messages import sign_thought
from tests.vendor.family import Refusal
from tests.vendor.messages import Messages
from tests.vendor.request_rows import ABSENT, SCHEMA, TEXT, changed, refused_at, user, wrong

CLOSED = {**SCHEMA, "additionalProperties": False}
OLD, NEW = "2023-06-01", "2026-10-21"


def read_messages(body, version=OLD, task="generate"):
    return Messages().read(Route(task), {"anthropic-version": version}, body)


MARK = {"cache_control": {"type": "ephemeral"}}
MARKED = {**TEXT, **MARK}
PICTURE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}
PAGES = {"type": "text", "media_type": "text/plain", "data": "of tea"}
THOUGHT = {"type": "thinking", "thinking": "t", "signature": sign_thought("t")}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}
RESULT2 = {**RESULT, "tool_use_id": "t2", "content": [TEXT]}
CITATION = {
    **{"type": "char_location", "cited_text": "x", "document_index": 0},
    **{"document_title": None, "start_char_index": 0, "end_char_index": 1},
}
TALK = {
    "model": "m",
    "max_tokens": 4096,
    "tools": [{"name": "f", "input_schema": SCHEMA}],
    "messages": [
        user([TEXT, {"type": "image", "source": PICTURE}]),
        {"role": "assistant", "content": [THOUGHT, USE, {**USE, "id": "t2"}]},
        user([RESULT2, RESULT, TEXT]),
    ],
}
ENABLED = {"type": "enabled", "budget_tokens": 1024}


def json_answer(**schema):
    return {"format": {"type": "json_schema", "schema": {**CLOSED, **schema}}}


MESSAGES_REFUSED = [
    wrong("unknown_field", 1),
    wrong("stream_options", {"include_usage": True}),
    *(wrong("model", value) for value in (ABSENT, "")),
    *(wrong("max_tokens", value) for value in (ABSENT, -1, "9")),
    *(wrong("messages", value) for value in (ABSENT, [])),
    wrong("messages", [{"role": "assistant", "content": [TEXT]}, user()]),
    wrong("messages.0.role", "tool"),
    *(wrong("messages.0.content", value) for value in (ABSENT, "", " \n")),
    *(wrong("messages.0.content.0.text", value) for value in ("", " ")),
    wrong("messages.0.content.0.type", "image_url"),
    wrong("messages.0.content.0.detail", "low"),
    wrong("messages.0.content.1.source.data", "*"),
    wrong("messages.0.content.1.source.media_type", "x/y"),
    wrong("messages.0.content.0", RESULT),
    wrong(
        "messages.0.content.1",
        {"type": "document", "source": {**PAGES, "type": "base64"}},
        "messages.0.content.1.source.media_type",
    ),
    wrong(
        "messages.1.content.2", {"type": "image", "source": PICTURE}, "messages.1.content.2.type"
    ),
    wrong("messages.1.content.0.thinking", "of another", "messages.1.content.0"),
    wrong("messages.1.content.0.signature", "c2ln", "messages.1.content.0"),
    wrong("messages.1.content.0.signature", ABSENT),
    wrong(
        "messages.1.content",
        [USE, {**USE, "id": "t2"}, THOUGHT],
        "messages.1.content.0",
        thinking=ENABLED,
    ),
    wrong("messages.1.content.1.id", "call.1"),
    wrong("messages.1.content.1.input", "{}"),
    wrong("messages.2", ABSENT, "messages.1"),
    wrong("messages.2.content", [RESULT], "messages.2"),
    wrong("messages.2.content", "no result", "messages.2"),
    wrong("messages.2.content", [TEXT, RESULT, RESULT2], "messages.2.content.0"),
    wrong("messages.0.content", [MARKED] * 3, "", system=[MARKED] * 2),
    wrong("system", [{"type": "image"}], "system.0.type"),
    wrong("temperature", 1.5),
    wrong("temperature", 0.5, thinking={"type": "adaptive"}),
    wrong("top_k", -1),
    wrong("stop_sequences", "x"),
    wrong("stop_sequences", ["x", "\n"], "stop_sequences.1"),
    wrong("thinking", {"type": "enabled"}, "thinking.budget_tokens"),
    wrong("thinking", {**ENABLED, "budget_tokens": 1000}, "thinking.budget_tokens"),
    wrong("thinking", {**ENABLED, "budget_tokens": 4096}, "thinking.budget_tokens"),
    wrong("tools.0.parameters", {}),
    wrong("tools.0.name", "a b"),
    wrong("tools.0.input_schema", ABSENT),
    wrong("tools.0.input_schema.type", "string"),
    wrong("tools.0.input_schema.anyOf", [{}], "tools.0.input_schema"),
    wrong("tools", TALK["tools"] * 2),
    wrong("tool_choice", {"type": "auto"}, tools=ABSENT),
    wrong("tool_choice", {"type": "required"}, "tool_choice.type"),
    wrong("tool_choice", {"type": "tool", "name": "g"}),
    wrong("tool_choice", {"type": "any"}, thinking=ENABLED),
    wrong("output_config", {"effort": "huge"}, "output_config.effort"),
    wrong("output_config", {"format": {"type": "json_schema"}}, "output_config.format.schema"),
    wrong(
        "output_config",
        json_answer(properties={"a": SCHEMA}),
        "output_config.format.schema.properties.a",
    ),
]


@pytest.mark.parametrize(("changes", "place"), MESSAGES_REFUSED)
def test_messages_refused(changes, place):
    assert refused_at(read_messages, changed(TALK, changes)) == place


@pytest.mark.parametrize(
    "changes",
    [
        *({name: 1} for name in ("temperature", "top_p", "top_k")),
        {"messages.1.content.0": {"type": "document", "source": PAGES}},
        {"messages.0.content.0": {**TEXT, "citations": [CITATION]}},
    ],
)
def test_messages_of_the_old_version(changes):
    body = changed(TALK, changes)
    assert read_messages(body).model == "m"
    with pytest.raises(Refusal):
        read_messages(body, NEW)


def test_counting_of_messages_takes_no_bound():
    count = {"task": "count"}
    with pytest.raises(Refusal, match="permitted"):
        read_messages(TALK, **count)
    assert read_messages(changed(TALK, {"max_tokens": ABSENT}), **count).input_tokens > 0
