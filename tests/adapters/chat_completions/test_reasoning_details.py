"""Reasoning details, from an answer, whole or streamed, to the next request."""

import json

import pytest

from adapters.chat_completions.reasoning_details import (
    MAX_DETAILS,
    add_details,
    details_of,
    seal_details,
)
from adapters.ir.answer import Delta, Sealed
from adapters.ir.parts import Reasoning, Text, ToolCall, Turn
from adapters.json.structure import at_once
from tests.adapters.builders import slot
from tests.adapters.chat_completions.calls import (
    CODECS,
    chunk,
    encoded,
    function_call,
    read,
    request,
)

THOUGHT = {"type": "reasoning.text", "text": "Hm.", "format": "google-gemini-v1", "index": 0}
STATE = {"type": "reasoning.encrypted", "data": "EoE", "id": "a", "format": "google-gemini-v1"}
OTHER = {"format": "anthropic-claude-v1", "index": 0}
CALL = {"index": 0, **function_call("a", "f", "{}")}


def details(*listed):
    return {"reasoning_details": list(listed)}


def test_a_whole_answer_and_the_next_request():
    message = {"content": "", "reasoning": "Hm.", **details(THOUGHT, STATE), "tool_calls": [CALL]}
    body = json.dumps({"choices": [{"message": message}]}).encode()
    (choice,) = at_once(CODECS.upstream.decode_answer(body))
    thought, call = choice.parts
    assert (thought.text, details_of(thought.opaque)) == ("Hm.", [THOUGHT, STATE])
    sent, _ = encoded(request(Turn("user", (Text("?"),)), Turn("assistant", (thought, call))))
    assert sent["messages"][1]["reasoning_details"] == [THOUGHT, STATE]
    assert "extra_content" not in sent["messages"][1]["tool_calls"][0]


def test_details_alone_are_a_thought_without_text():
    body = json.dumps({"choices": [{"message": details(STATE)}]}).encode()
    (choice,) = at_once(CODECS.upstream.decode_answer(body))
    assert choice.parts == (Reasoning("", opaque=seal_details([STATE])),)


def call_slot(number):
    return slot(number, "call", "{}", id="a", name="f")


def events_of(*chunks):
    """Return the events, with details instead of their seals."""
    return [
        (event.slot, details_of(event.opaque)) if isinstance(event, Sealed) else event
        for event in read(*chunks)
    ]


def sealed(events, listed):
    """Return the events of a slot with details before its end."""
    return [*events[:-1], (events[0].slot, listed), events[-1]]


@pytest.mark.parametrize("finish", ["tool_calls", None])
def test_the_state_of_a_call_that_comes_behind_it_goes_before_it(finish):
    events = events_of(
        chunk(content="", reasoning="Hm.", **details(THOUGHT)),
        chunk(tool_calls=[{**CALL, "function": {"name": "f", "arguments": "{"}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "}"}}]),
        chunk(content="", **details(STATE)),
        *([chunk(finish=finish)] if finish else []),
    )
    opened, closed = slot(1, "call", id="a", name="f")
    assert events[:-1] == [
        *sealed(slot(0, "reasoning", "Hm."), [THOUGHT]),
        *sealed(slot(2, "reasoning"), [STATE]),
        opened, Delta(1, "{"), Delta(1, "}"), closed,
    ]  # fmt: skip


def test_a_call_of_any_other_model_comes_at_once():
    encrypted = {"type": "reasoning.encrypted", "data": "x", **OTHER}
    events = events_of(chunk(**details(encrypted)), chunk(tool_calls=[CALL]), chunk(finish="stop"))
    assert events[:-1] == [*sealed(slot(0, "reasoning"), [encrypted]), *call_slot(1)]
    decoder = CODECS.upstream.open_decoder()
    decoder.read(None, chunk(**details(encrypted)))
    assert len(decoder.read(None, chunk(tool_calls=[CALL]))) > 3


def test_pieces_of_a_thought_are_put_together():
    pieces = [{"type": "reasoning.text", "text": text, **OTHER} for text in "Hm"]
    signature = {"type": "reasoning.text", "text": "", "signature": "s", **OTHER}
    chunks = [chunk(reasoning=piece["text"], **details(piece)) for piece in pieces]
    events = events_of(*chunks, chunk(**details(signature)), chunk(content="A"))
    whole = {**pieces[0], "text": "Hm", "signature": "s"}
    assert events[:-1] == [*sealed(slot(0, "reasoning", *"Hm"), [whole]), *slot(1, "text", "A")]


def test_a_thought_with_details_is_never_skipped():
    decoder = CODECS.upstream.open_decoder()
    (_, delta) = decoder.read(None, chunk(reasoning="a"))
    assert decoder.may_skip(delta)
    (delta,) = decoder.read(None, chunk(reasoning="a", **details(THOUGHT)))
    assert not decoder.may_skip(delta)


def test_a_signature_behind_its_thought_joins_it_again():
    thought = {"type": "reasoning.text", "text": "Hm", **OTHER}
    signature = {"type": "reasoning.text", "signature": "s", "text": None, **OTHER}
    listed = [{**OTHER, "type": "reasoning.encrypted", "data": "x"}]
    add_details(listed, [thought, signature, {**thought, "index": 1}, {**thought, "id": "b"}])
    assert listed[1:] == [
        {**thought, "signature": "s"}, {**thought, "index": 1}, {**thought, "id": "b"},
    ]  # fmt: skip


def test_odd_details_are_ignored_and_have_a_bound():
    for odd in (1, {}, [1, None]):
        body = json.dumps({"choices": [{"message": {"content": "A", "reasoning_details": odd}}]})
        (choice,) = at_once(CODECS.upstream.decode_answer(body.encode()))
        assert choice.parts == (Text("A"),)
    listed = []
    add_details(listed, ({"type": "reasoning.encrypted"} for _ in range(MAX_DETAILS + 1)))
    assert len(listed) == MAX_DETAILS
    assert seal_details([{"x": float("inf")}]) == ""
    assert details_of("[1") == details_of("") == details_of("c2ln") == []
    turn = Turn("assistant", (Reasoning("", opaque="[]"), ToolCall("a", "f", "{}")))
    sent, _ = encoded(request(Turn("user", (Text("?"),)), turn))
    assert "reasoning_details" not in sent["messages"][1]
