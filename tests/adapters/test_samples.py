"""The samples of answers: a stream has the same content as the whole answer."""

import json
import pathlib

import pytest

from adapters.codecs import CODECS
from adapters.framing.sse import EventSplitter, event_fields
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once

WIRE = pathlib.Path(__file__).parents[1] / "wire"
STREAMS = [path for path in sorted(WIRE.glob("*/*.sse")) if path.stem != "midstream_error"]


def part_of(slot):
    """Return the part that a slot's events form together."""
    opened = slot[0]
    text = "".join(event.text for event in slot if isinstance(event, Delta))
    opaque = "".join(event.opaque for event in slot if isinstance(event, Sealed))
    citations = tuple(event.citation for event in slot if isinstance(event, Cited))
    return {
        "text": Text(text, citations=citations),
        "refusal": Refusal(text),
        "reasoning": Reasoning(text, opened.summary, opaque),
        "call": ToolCall(opened.id, opened.name, text, opened.custom, opened.namespace),
    }[opened.kind]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_streamed_sample_is_the_whole_one(path):
    codec = CODECS[path.parent.name].upstream
    decoder = codec.open_decoder()
    events = []
    for event in EventSplitter(1 << 20).feed(path.read_bytes()):
        name, data = event_fields(bytes(event))
        if data and data != b"[DONE]":
            events += decoder.read(name, json.loads(data))
    *events, last = [*events, *decoder.end()]
    slots = {event.slot: [] for event in events if isinstance(event, Opened)}
    for event in events:
        slots[event.slot].append(event)
    assert all(isinstance(slot[-1], Closed) for slot in slots.values())
    parts = tuple(map(part_of, slots.values()))
    assert isinstance(last, Finished)
    (whole,) = at_once(codec.decode_answer(path.with_suffix(".json").read_bytes()))
    finish = last.finish
    # The family reports every completed answer like this.
    if path.parent.name == "responses" and finish == "stop":
        finish = whole.finish
    assert whole == Choice(parts, finish, last.stop_sequence, detail=last.detail)
