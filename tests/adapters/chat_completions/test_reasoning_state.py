"""Opaque reasoning: passed through a client, and removed from requests to native vendors."""

import json

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.ir.answer import Choice, Finished
from adapters.ir.parts import Reasoning, Text, ToolCall
from adapters.json.jsonio import top_level
from tests.adapters.builders import slot
from tests.adapters.chat_completions import calls

CODECS = CODECS_BY_FAMILY["chat_completions"]

OURS, GOOGLES = "gw1.messages.mark.c2ln.MACMACMACMACMACM", "gw1.generate_content.m.c2ln.MACMACMACM"
CALL, OTHER = ToolCall("c1", "f", "{}"), ToolCall("c2", "g", "{}")


def brought_back(said):
    """Return the assistant's turn of a history that contains this message."""
    results = [calls.tool_result(call["id"]) for call in said.get("tool_calls", ())]
    return calls.decoded([*calls.HI, said, *results, *calls.HI]).turns[1].parts


def through_the_sdk(*parts):
    answer = ChatCompletion.model_validate(calls.answered(Choice(parts)))
    return answer.choices[0].message.model_dump(exclude_none=True)


THOUGHT, HIDDEN = Reasoning("Hm.", opaque=OURS), Reasoning("", opaque=OURS)
SECOND = Reasoning("Two.", summary=True, opaque=OURS + "y")


@pytest.mark.parametrize(
    "parts",
    [
        (THOUGHT, Text("Look."), CALL),
        (THOUGHT, Text("Tea.")),
        # thoughts between calls and after the text keep their places
        (THOUGHT, Reasoning("", opaque=OURS + "x"), CALL, SECOND, OTHER),
        (Text("Look."), THOUGHT, CALL),
        (Reasoning("A.", opaque=OURS + "x"), Text("Tea."), HIDDEN),
        (Reasoning("", opaque=GOOGLES), CALL),
    ],
)
def test_thoughts_come_back(parts):
    assert brought_back(calls.message(*parts)) == brought_back(through_the_sdk(*parts)) == parts


def test_where_the_state_stands():
    said = calls.message(THOUGHT, Text("Look."), CALL)
    assert said["tool_calls"][0]["extra_content"] == {"gw": f"{OURS}/0:3"}
    assert "reasoning_opaque" not in said
    assert calls.message(THOUGHT, Text("Tea."))["reasoning_opaque"] == f"{OURS}/0:3"
    (call,) = calls.message(Reasoning("", opaque=GOOGLES), CALL)["tool_calls"]
    assert call["extra_content"] == {"google": {"thought_signature": f"{GOOGLES}/0:0"}}


def test_a_program_that_keeps_calls_alone_brings_the_state_without_its_text():
    said = calls.message(THOUGHT, CALL)
    assert brought_back(calls.assistant(tool_calls=said["tool_calls"])) == (HIDDEN, CALL)
    said["reasoning_opaque"] = f"{OURS}/0:3"  # a repeated one is read once
    assert brought_back(said) == (THOUGHT, CALL)


def test_what_is_not_of_ours_is_read_as_it_is():
    said = calls.message(CALL)
    said["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    assert brought_back(said) == (Reasoning("", opaque="c2ln"), CALL)
    for odd in (5, [], "x", {"google": 1, "gw": {}}, {"google": {"thought_signature": 5}}):
        said["tool_calls"][0]["extra_content"] = odd
        said["reasoning_opaque"] = 7
        assert brought_back(said) == (CALL,)


def cleaned(*messages):
    body = json.dumps({"model": "m", "messages": messages, "seed": 1}).encode()
    return json.loads(CODECS.client.without_foreign(top_level(body), "up"))["messages"]


NATIVE = {"google": {"thought_signature": "c2ln"}}
WITH_MORE = {"google": {"thought_signature": GOOGLES, "x": 1}}
TEA = calls.assistant(content="Tea.", refusal=None, tool_calls=None)


def test_a_native_vendor_sees_nothing_of_it():
    marked = {**TEA, "reasoning_opaque": f"{OURS}/0:3"}
    assert cleaned(*calls.HI, marked, "odd") == [*calls.HI, TEA, "odd"]
    said = calls.message(Reasoning("", opaque=GOOGLES), CALL, HIDDEN, OTHER)
    assert cleaned(said)[0]["tool_calls"] == calls.message(CALL, OTHER)["tool_calls"]
    # the vendor's own fields stay
    call, more = {"id": "c", "extra_content": {**NATIVE, "gw": "x"}}, {"extra_content": WITH_MORE}
    (left,) = cleaned({"tool_calls": [call, 5, more]})
    own = {"google": {"x": 1}}
    assert left["tool_calls"] == [{"id": "c", "extra_content": NATIVE}, 5, {"extra_content": own}]


def test_the_text_of_a_thought_goes_with_it_but_to_vendors_that_speak_messages_besides():
    thought = calls.assistant(content="Tea.", reasoning_content="Hm.")
    of_messages = {**thought, "reasoning_opaque": f"{OURS}/0:3"}
    of_others = {**thought, "reasoning_opaque": "gw1.responses.m.x.y/0:3"}
    left = [thought, thought, calls.assistant(content="Tea.")]
    assert cleaned(thought, of_messages, of_others) == left


def test_other_messages_keep_their_bytes():
    odd = b'{ "role":"user",  "content": 1.50 }'
    marked = b'{"reasoning_opaque":"gw1.x","role":"assistant"}'
    body = b'{"messages": [ %b ,%b], "model":"m"}' % (odd, marked)
    found = CODECS.client.without_foreign(top_level(body), "up")
    assert found == b'{"messages": [%b,{"role":"assistant"}], "model":"m"}' % odd
    assert CODECS.client.without_foreign(top_level(b"{}"), "up") == b"{}"


def test_a_streamed_thought_comes_back_as_the_sdk_has_it():
    events = [
        *slot(0, "reasoning", "Hm, ", "yes.", seal=OURS),
        *slot(1, "text", "Look."),
        *slot(2, "call", "{}", id="c1", name="f"),
        *slot(3, "reasoning", "So.", seal=OURS + "x", summary=True),
        *slot(4, "call", id="c2", name="g"),
        Finished("tools"),
    ]
    state = ChatCompletionStreamState()
    for chunk in calls.chunks(calls.written(events)):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    said = state.get_final_completion().choices[0].message.model_dump(exclude_none=True)
    for call in said["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    assert brought_back(said) == (
        Reasoning("Hm, yes.", opaque=OURS),
        Text("Look."),
        CALL,
        Reasoning("So.", summary=True, opaque=OURS + "x"),
        OTHER,
    )
