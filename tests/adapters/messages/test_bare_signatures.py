"""Signatures without words behind a text: never the last block, where clients seek the answer."""

import json

from adapters.ir.answer import Choice, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Reasoning, Text, ToolCall
from adapters.json.structure import at_once
from adapters.messages import CODECS
from tests.adapters.messages.calls import CONTEXT, USAGE, written

TEXT = [Opened(0, "text"), Delta(0, "Tea."), Closed(0)]
SEAL = [Opened(1, "reasoning"), Sealed(1, "sig"), Closed(1)]
CALL = [Opened(2, "call", id="a", name="f"), Delta(2, "{}"), Closed(2)]


def blocks(*events):
    """The blocks of the stream, in their order."""
    sent = written(events)
    said = [json.loads(line[6:]) for line in sent.splitlines() if line.startswith(b"data: ")]
    starts = [one for one in said if one["type"] == "content_block_start"]
    stops = [one for one in said if one["type"] == "content_block_stop"]
    assert [one["index"] for one in starts] == [one["index"] for one in stops]
    return [one["content_block"]["type"] for one in starts], sent


def test_at_the_end_of_a_stream():
    kinds, sent = blocks(*TEXT, *SEAL, Finished("stop"))
    assert kinds == ["text"]
    assert b"sig" not in sent


def test_before_a_call():
    kinds, sent = blocks(*TEXT, *SEAL, *CALL, Finished("tools"))
    assert kinds == ["text", "thinking", "tool_use"]
    assert b'"signature":"sig"' in sent


def test_before_more_text():
    more = [Opened(2, "text"), Delta(2, "Hot."), Closed(2)]
    assert blocks(*TEXT, *SEAL, *more, Finished("stop"))[0] == ["text", "thinking", "text"]


def test_a_thought_with_words():
    thought = [Opened(1, "reasoning"), Delta(1, "Hm."), Sealed(1, "sig"), Closed(1)]
    kinds, sent = blocks(*TEXT, *thought, Finished("stop"))
    assert kinds == ["text", "thinking"]
    assert b'"thinking":"Hm."' in sent and b'"signature":"sig"' in sent


def test_a_signature_before_the_text():
    seal = [Opened(5, "reasoning"), Sealed(5, "sig"), Closed(5)]
    assert blocks(*seal, *TEXT, Finished("stop"))[0] == ["thinking", "text"]


def test_in_a_whole_answer():
    def kinds(*parts):
        body = at_once(CODECS.client.encode_answer((Choice(parts),), USAGE, CONTEXT))
        return [block["type"] for block in json.loads(body)["content"]]

    text, seal = Text("Tea."), Reasoning("", opaque="sig")
    assert kinds(text, seal) == ["text"]
    assert kinds(seal) == ["thinking"]
    assert kinds(text, Reasoning("Hm.", opaque="sig")) == ["text", "thinking"]
    assert kinds(text, seal, ToolCall("a", "f", "{}")) == ["text", "thinking", "tool_use"]
