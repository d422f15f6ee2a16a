"""Recognition of events that repeat the last one: by their bytes, and never a wrong match."""

import json
import random

import pytest

from adapters.bridge import NativeBridge
from adapters.framing import event_template
from adapters.framing.event_template import LEARNED_MAX, EventTemplate
from adapters.registry import FAMILIES
from tests.adapters.builders import fed

EVENT = b'data: {"delta":{"content":"abc"},"finish_reason":null}\n\n'


def like(text: bytes) -> bytes:
    return EVENT.replace(b"abc", text)


def learned(event: bytes = EVENT, text: str = "abc") -> EventTemplate:
    template = EventTemplate()
    template.learn(event, text)
    return template


@pytest.mark.parametrize("text", [b"", b"x", b"two words!", b"{[:,]}", b"~" * 9000])
def test_plain_text_in_the_same_place(text):
    assert learned().text_length(like(text)) == len(text)


@pytest.mark.parametrize(
    "event",
    [
        *map(like, (b'"', b"\\n", b"a\nb", b"a\r", b"\xc3\xa9", b"\x7f", b"a\tb")),
        like(b'x","finish_reason":"stop","y":"'),
        like(b"x").replace(b"null", b'"stop"'),
        like(b"x") + b"\n",
        like(b"x") * 2,
        b" " + like(b"x"),
        EVENT[:30],
        b"",
    ],
)
def test_everything_else_is_something_else(event):
    assert learned().text_length(event) == -1


def test_nothing_fits_before_something_was_learned():
    assert EventTemplate().text_length(EVENT) == EventTemplate().text_length(b"") == -1


def test_the_places_before_and_behind_do_not_overlap():
    template = learned(b'{"aa":"x"}{"aa":""}', "x")
    assert template.text_length(b'{"aa":""}') == -1


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (b'{"a":"x","b":"x"}', "x"),  # ambiguous
        (b'{"x":1,"b":"\\u0078"}', "x"),  # the name of a field
        (b'{"x" : 1,"b":"\\u0078"}', "x"),
        (b'{"a":"caf\xc3\xa9"}', "caf\xe9"),
        (b'{"a":"a\\nb"}', "a\nb"),
        (b'{"a":"y"}', "x"),
        (b'{"a":"?"}', "\ud800"),
    ],
)
def test_what_cannot_be_placed_is_not_learned(event, text):
    template = learned(event, text)
    assert template.text_length(event) == -1


def test_events_that_differ_in_more_are_given_up():
    template = EventTemplate()
    for number in range(LEARNED_MAX + 1):
        template.learn(b'{"n":%d,"a":"x"}' % number, "x")
    assert template.text_length(b'{"n":%d,"a":"x"}' % LEARNED_MAX) == -1
    assert template.text_length(b'{"n":%d,"a":"x"}' % (LEARNED_MAX - 1)) == 1


CHAT_HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "up"}
TEXTS = ["a", " plain", "", 'a "quote"', "line\nbreak", "caf\xe9 \u4e16", "\\", "content", "{}"]
TEXTS.append("x" * 300)


def chat_events(rng: random.Random) -> list[bytes]:
    events = []
    for _ in range(60):
        field = rng.choice(["content"] * 5 + ["reasoning_content", "refusal"])
        choice = {"index": rng.choice([0, 0, 0, 1]), "delta": {field: rng.choice(TEXTS)}}
        choice["finish_reason"] = rng.choice([None] * 9 + ["stop"])
        chunk = {**CHAT_HEAD, "choices": [choice]}
        if rng.random() < 0.1:
            chunk["usage"] = {"prompt_tokens": 3, "completion_tokens": rng.randrange(9)}
        ascii_only = rng.random() < 0.5
        events.append(b"data: " + json.dumps(chunk, ensure_ascii=ascii_only).encode() + b"\n\n")
    return [*events, b"data: [DONE]\n\n"]


def message_events(rng: random.Random) -> list[bytes]:
    start = {"type": "message_start", "message": {"id": "m1", "model": "up", "usage": {}}}
    events = [b"event: message_start\ndata: " + json.dumps(start).encode() + b"\n\n"]
    for _ in range(60):
        field = rng.choice(["text"] * 4 + ["thinking", "partial_json", "signature"])
        delta = {"type": f"{field}_delta", field: rng.choice(TEXTS)}
        block = {"type": "content_block_delta", "index": rng.choice([0, 0, 1]), "delta": delta}
        events.append(b"event: content_block_delta\ndata: " + json.dumps(block).encode() + b"\n\n")
    return events


@pytest.mark.parametrize("public", ["up", "public"])
@pytest.mark.parametrize(
    ("family", "made"), [("chat_completions", chat_events), ("messages", message_events)]
)
def test_a_stream_is_read_the_same_with_and_without(family, made, public, monkeypatch):
    operation = FAMILIES[family].client.operations["generate"]
    for seed in range(40):
        events = made(random.Random(seed))
        ways = []
        for learned_max in (LEARNED_MAX, 0):
            monkeypatch.setattr(event_template, "LEARNED_MAX", learned_max)
            tap = FAMILIES[family].upstream.stream_tap(public, "up", False, operation)
            stream = NativeBridge(tap, 65536)
            sent = [fed(stream, event) for event in events]
            ways.append((sent, tap.output_units, tap.usage, tap.finished, tap.ended, tap.fault))
        assert ways[0] == ways[1]
        assert ways[0][1] > 0
