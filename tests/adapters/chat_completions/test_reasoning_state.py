"""Opaque reasoning on its way through a client, and out of what a vendor of its own gets."""

import json

from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from adapters.chat_completions import CODECS
from adapters.ir.answer import Choice, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Reasoning, Text, ToolCall
from adapters.json.jsonio import top_level
from tests.adapters.chat_completions.calls import (
    HI,
    answered,
    chunks,
    decoded,
    message,
    written,
)

OURS, GOOGLES = "gw1.messages.mark.c2ln.MACMACMACMACMACM", "gw1.generate_content.m.c2ln.MACMACMACM"
CALL, OTHER = ToolCall("c1", "f", "{}"), ToolCall("c2", "g", "{}")


def brought_back(said):
    """The assistant's turn of a history with this message."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
        for call in said.get("tool_calls", ())
    ]
    return decoded([*HI, said, *results, *HI]).turns[1].parts


def through_the_sdk(*parts):
    answer = ChatCompletion.model_validate(answered(Choice(parts)))
    return answer.choices[0].message.model_dump(exclude_none=True)


def test_a_thought_and_its_call_come_back():
    parts = (Reasoning("Hm.", opaque=OURS), Text("Look."), CALL)
    said = message(*parts)
    assert said["tool_calls"][0]["extra_content"] == {"gw": f"{OURS}/0:3"}
    assert "reasoning_opaque" not in said
    assert brought_back(said) == brought_back(through_the_sdk(*parts)) == parts


def test_thoughts_between_calls_stay_where_they_are():
    parts = (
        Reasoning("One.", opaque=OURS),
        Reasoning("", opaque=OURS + "x"),
        CALL,
        Reasoning("Two.", summary=True, opaque=OURS + "y"),
        OTHER,
    )
    assert brought_back(through_the_sdk(*parts)) == parts


def test_a_thought_without_a_call_comes_back():
    parts = (Reasoning("Hm.", opaque=OURS), Text("Tea."))
    said = message(*parts)
    assert said["reasoning_opaque"] == f"{OURS}/0:3"
    assert brought_back(said) == brought_back(through_the_sdk(*parts)) == parts


def test_a_thought_behind_the_text_stays_there():
    parts = (Text("Look."), Reasoning("Hm.", opaque=OURS), CALL)
    assert brought_back(through_the_sdk(*parts)) == parts
    parts = (Reasoning("A.", opaque=OURS + "x"), Text("Tea."), Reasoning("", opaque=OURS))
    assert brought_back(through_the_sdk(*parts)) == parts


def test_a_program_that_keeps_calls_alone_brings_the_state_without_its_text():
    said = message(Reasoning("Hm.", opaque=OURS), CALL)
    kept = {"role": "assistant", "tool_calls": said["tool_calls"]}
    assert brought_back(kept) == (Reasoning("", opaque=OURS), CALL)


def test_state_of_google_stands_where_google_puts_it():
    parts = (Reasoning("", opaque=GOOGLES), CALL)
    said = message(*parts)
    (call,) = said["tool_calls"]
    assert call["extra_content"] == {"google": {"thought_signature": f"{GOOGLES}/0:0"}}
    assert brought_back(said) == parts


def test_what_comes_twice_is_read_once():
    said = message(Reasoning("Hm.", opaque=OURS), CALL)
    said["reasoning_opaque"] = f"{OURS}/0:3"
    assert brought_back(said) == (Reasoning("Hm.", opaque=OURS), CALL)


def test_what_is_not_of_ours_is_read_as_it_is():
    said = message(CALL)
    said["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    assert brought_back(said) == (Reasoning("", opaque="c2ln"), CALL)
    for odd in (5, [], "x", {"google": 1, "gw": {}}, {"google": {"thought_signature": 5}}):
        said["tool_calls"][0]["extra_content"] = odd
        said["reasoning_opaque"] = 7
        assert brought_back(said) == (CALL,)


def cleaned(*messages):
    body = json.dumps({"model": "m", "messages": messages, "seed": 1}).encode()
    return json.loads(CODECS.client.without_foreign(top_level(body), "up"))["messages"]


def test_a_native_vendor_sees_nothing_of_it():
    plain = {"role": "assistant", "content": "Tea.", "refusal": None, "tool_calls": None}
    marked = {**plain, "reasoning_opaque": f"{OURS}/0:3"}
    assert cleaned(*HI, marked, "odd") == [*HI, plain, "odd"]
    said = message(Reasoning("", opaque=GOOGLES), CALL, Reasoning("", opaque=OURS), OTHER)
    assert cleaned(said)[0]["tool_calls"] == message(CALL, OTHER)["tool_calls"]


def test_a_signature_of_the_vendors_own_stays():
    call = {"id": "c", "extra_content": {"google": {"thought_signature": "c2ln"}, "gw": "x"}}
    assert cleaned({"tool_calls": [call, 5]}) == [
        {"tool_calls": [{**call, "extra_content": {"google": {"thought_signature": "c2ln"}}}, 5]}
    ]


def test_the_text_of_a_thought_goes_with_it_but_to_vendors_that_speak_messages_besides():
    thought = {"role": "assistant", "content": "Tea.", "reasoning_content": "Hm."}
    assert cleaned(thought) == [thought]
    of_messages = {**thought, "reasoning_opaque": f"{OURS}/0:3"}
    assert cleaned(of_messages) == [thought]
    (left,) = cleaned({**thought, "reasoning_opaque": "gw1.responses.m.x.y/0:3"})
    assert left == {"role": "assistant", "content": "Tea."}


def test_other_messages_keep_their_bytes():
    odd = b'{ "role":"user",  "content": 1.50 }'
    marked = b'{"reasoning_opaque":"gw1.x","role":"assistant"}'
    body = b'{"messages": [ %b ,%b], "model":"m"}' % (odd, marked)
    found = CODECS.client.without_foreign(top_level(body), "up")
    assert found == b'{"messages": [%b,{"role":"assistant"}], "model":"m"}' % odd
    assert CODECS.client.without_foreign(top_level(b"{}"), "up") == b"{}"


def test_what_else_google_says_of_a_call_stays():
    call = {"id": "c", "extra_content": {"google": {"thought_signature": GOOGLES, "x": 1}}}
    (message,) = cleaned({"tool_calls": [call]})
    assert message["tool_calls"] == [{"id": "c", "extra_content": {"google": {"x": 1}}}]


def test_a_streamed_thought_comes_back_as_the_sdk_has_it():
    events = [
        Opened(0, "reasoning"), Delta(0, "Hm, "), Delta(0, "yes."), Sealed(0, OURS), Closed(0),
        Opened(1, "text"), Delta(1, "Look."), Closed(1),
        Opened(2, "call", id="c1", name="f"), Delta(2, "{}"), Closed(2),
        Opened(3, "reasoning", summary=True), Delta(3, "So."), Sealed(3, OURS + "x"), Closed(3),
        Opened(4, "call", id="c2", name="g"), Closed(4),
        Finished("tools"),
    ]  # fmt: skip
    state = ChatCompletionStreamState()
    for chunk in chunks(written(events)):
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
