"""Empty answers of every family: whole, streamed, native and translated."""

import json

import pytest

from adapters.bridge import NativeBridge
from adapters.codecs import PAIRINGS
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from tests.adapters.pairs import serving

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILIES
TEXT = {
    CHAT: {"content": "Tea."},
    RESPONSES: {"type": "message", "content": [{"type": "output_text", "text": "Tea."}]},
    MESSAGES: {"type": "text", "text": "Tea."},
    GENERATE: {"text": "Tea."},
}
BLANK = {
    CHAT: [{}, {"role": "assistant", "content": "", "refusal": None, "tool_calls": []}],
    RESPONSES: [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "", "annotations": []}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
    ],
    MESSAGES: [{"type": "text", "text": ""}, {"type": "thinking", "thinking": "", "signature": ""}],
    GENERATE: [{"text": ""}],
}  # fmt: skip
# Content without text that could be counted.
CONTENT = {
    CHAT: [
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"audio": {"id": "audio_1", "data": "AA=="}},
    ],
    RESPONSES: [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed"},
        {"type": "reasoning", "summary": [], "encrypted_content": "abc"},
    ],
    MESSAGES: [
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "redacted_thinking", "data": "abc"},
    ],
    GENERATE: [
        {"functionCall": {"name": "f"}},
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"text": "", "thoughtSignature": "c2ln"},
    ],
}
PLAIN = {CHAT: "stop", RESPONSES: "completed", MESSAGES: "end_turn", GENERATE: "STOP"}
OTHER = {
    CHAT: ["length", "content_filter"],
    RESPONSES: ["incomplete"],
    MESSAGES: ["max_tokens", "refusal", "pause_turn"],
    GENERATE: ["MAX_TOKENS", "SAFETY"],
}
ZEROS = {
    CHAT: {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    RESPONSES: {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
    MESSAGES: {"input_tokens": 0, "output_tokens": 0},
    GENERATE: {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
}
COUNTED = {family: dict.fromkeys(counts, 3) for family, counts in ZEROS.items()}
USAGE = {CHAT: "usage", RESPONSES: "usage", MESSAGES: "usage", GENERATE: "usageMetadata"}


def whole(family, parts, finish, usage):
    """Return a whole answer with these parts, as a decoded body."""
    counts = {} if usage is None else {USAGE[family]: usage}
    if family == CHAT:
        message = {name: value for part in parts for name, value in part.items()}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {"id": "c", "model": "up", "choices": [choice], **counts}
    if family == RESPONSES:
        return {"id": "resp_1", "model": "up", "status": finish, "output": parts, **counts}
    if family == MESSAGES:
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "up"}
        return {**answer, "content": parts, "stop_reason": finish, **counts}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish}
    return {"responseId": "r", "modelVersion": "up", "candidates": [candidate], **counts}


def stream(family, parts, finish, usage):
    """Return the same as events; the last one is the family's marker, if it has one."""
    answer = whole(family, parts, finish, usage)
    if family == GENERATE:
        return [encoded(answer, named=False)]
    if family == CHAT:
        deltas = [{"delta": part} for part in ({"role": "assistant"}, *parts)]
        pieces = [*deltas, {"delta": {}, "finish_reason": finish}]
        chunks = [{"id": "c", "choices": [{"index": 0, **piece}]} for piece in pieces]
        if usage is not None:
            chunks.append({"id": "c", "choices": [], "usage": usage})
        return [*(encoded(chunk, named=False) for chunk in chunks), b"data: [DONE]\n\n"]
    if family == RESPONSES:
        events = [{"type": "response.created", "response": {"id": "resp_1", "output": []}}]
        for part in parts:
            events.append({"type": "response.output_item.added", "output_index": 0, "item": part})
            events.append({"type": "response.output_item.done", "output_index": 0, "item": part})
        return list(map(encoded, [*events, {"type": f"response.{finish}", "response": answer}]))
    events = [{"type": "message_start", "message": answer | {"content": []}}]
    for index, part in enumerate(parts):
        place = {"index": index}
        events.append({"type": "content_block_start", **place, "content_block": part})
        events.append({"type": "content_block_stop", **place})
    events.append({"type": "message_delta", "delta": {"stop_reason": finish}, "usage": usage})
    return list(map(encoded, [*events, {"type": "message_stop"}]))


def encoded(data, named=True):
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def judged(client, family, events):
    """Return what a client received and its bridge, after a stream that ended with its
    connection."""
    if client == family:
        upstream = FAMILIES[family].upstream
        operation = FAMILIES[client].client.operations["generate"]
        bridge = NativeBridge(upstream.stream_tap("up", "up", False, operation), 1 << 20)
    else:
        bridge = opened(client, family)
    sent = [bridge.feed(event) for event in events]
    return [*sent, bridge.close()], bridge


def opened(client, family):
    operation = FAMILIES[client].client.operations["generate"]
    return serving(client, family).open_bridge("up", "up", False, operation, 1 << 20)


def read(client, family, answer):
    pairing = PAIRINGS[client, family] if client == family else serving(client, family)
    operation = FAMILIES[client].client.operations["generate"]
    return pairing.read_answer(json.dumps(answer).encode(), "up", "up", operation)


EMPTY = [
    (family, parts, usage)
    for family in FAMILIES
    for parts in ([], *([blank] for blank in BLANK[family]), BLANK[family])
    for usage in (None, ZEROS[family])
]
SOME = [
    *((family, [part], PLAIN[family], None)
      for family in FAMILIES for part in (TEXT[family], *CONTENT[family])),
    *((family, BLANK[family], finish, None) for family in FAMILIES for finish in OTHER[family]),
    *((family, BLANK[family], PLAIN[family], COUNTED[family]) for family in FAMILIES),
]  # fmt: skip


@pytest.mark.parametrize("client", FAMILIES)
@pytest.mark.parametrize(("family", "parts", "usage"), EMPTY)
def test_an_empty_answer_is_none(client, family, parts, usage):
    with pytest.raises(Fault) as caught:
        read(client, family, whole(family, parts, PLAIN[family], usage))
    assert caught.value.condition is Condition.UPSTREAM_INVALID
    assert caught.value.message == "The upstream sent an empty answer."


@pytest.mark.parametrize("client", FAMILIES)
@pytest.mark.parametrize(("family", "parts", "usage"), EMPTY)
def test_an_empty_stream_ends_in_a_fault(client, family, parts, usage):
    events = stream(family, parts, PLAIN[family], usage)
    sent, bridge = judged(client, family, events)
    assert bridge.empty and bridge.ended and not bridge.whole
    assert bridge.fault.condition is Condition.UPSTREAM_INVALID
    if client == family:  # everything passes except the marker of a good end
        marked = family != GENERATE
        assert sent == [*events[: len(events) - marked], *[b""] * (1 + marked)]


@pytest.mark.parametrize("client", FAMILIES)
@pytest.mark.parametrize(("family", "parts", "finish", "usage"), SOME)
def test_an_answer_of_something_passes(client, family, parts, finish, usage):
    answer = whole(family, parts, finish, usage)
    read(client, family, answer)
    events = stream(family, parts, finish, usage)
    sent, bridge = judged(client, family, events)
    assert bridge.fault is None and not bridge.empty and bridge.whole
    if client == family:
        assert sent == [*events, b""]


def test_an_empty_array_ends_in_an_element_of_the_error():
    operation = FAMILIES[GENERATE].client.operations["stream_array"]
    tap = FAMILIES[GENERATE].upstream.stream_tap("up", "up", False, operation)
    bridge = NativeBridge(tap, 1 << 20)
    first = b"[" + json.dumps(whole(GENERATE, [], "STOP", None)).encode()
    assert bridge.feed(first) == first and bridge.feed(b"]") == b"" and bridge.empty
    assert json.loads(first + bridge.encode_fault(bridge.fault, "id"))[1]["error"]["code"] == 500
