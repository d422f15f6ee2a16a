"""Answers for clients, whole and streamed."""

import json

import httpx2
import pytest
from anthropic import Anthropic
from anthropic.types import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Citation, Media, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from adapters.messages.parts import UNSIGNED
from store.values.usage import Usage
from tests.adapters.builders import fault_of, slot
from tests.adapters.messages.calls import CONTEXT, USAGE, frames, text, written

CODECS = CODECS_BY_FAMILY["messages"]


def answer(*parts, usage=USAGE, **fields):
    choices = (Choice(parts, **fields),)
    body = json.loads(at_once(CODECS.client.encode_answer(choices, usage, CONTEXT)))
    Message.model_validate(body, strict=True)
    return body


def usage_of(uncached=0, cache_5m=0, cache_1h=0, cache_read=0, output=0, thinking=0):
    return {
        "input_tokens": uncached,
        "cache_creation_input_tokens": cache_5m + cache_1h,
        "cache_read_input_tokens": cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": cache_5m,
            "ephemeral_1h_input_tokens": cache_1h,
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thinking},
        "service_tier": "standard",
    }


def test_a_message():
    assert answer(Text("Tea is ready.")) == {
        "id": "msg_Ab1",
        "type": "message",
        "role": "assistant",
        "model": "public",
        "content": [text("Tea is ready.")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage_of(200, 300, 100, 2000, 150, 60),
    }


def test_blocks():
    body = answer(
        Reasoning("hm", opaque="gw1.x"),
        Reasoning("unsigned"),
        Text(""),
        Text("b", citations=(Citation("https://example.com", "T", quoted="q"),)),
        ToolCall("functions.x:0", "tide", '{"port":"Brest"}'),
        ToolCall("b", "wind", ""),
        Media("image", "image/png", "AAAA"),
    )
    source = {"url": "https://example.com", "title": "T", "cited_text": "q"}
    kind = {"type": "web_search_result_location", "encrypted_index": UNSIGNED}
    tide = {"id": "gw_ZnVuY3Rpb25zLng6MA", "name": "tide", "input": {"port": "Brest"}}
    assert body["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "gw1.x"},
        {"type": "thinking", "thinking": "unsigned", "signature": UNSIGNED},
        text("b", citations=[kind | source]),
        {"type": "tool_use", **tide},
        {"type": "tool_use", "id": "b", "name": "wind", "input": {}},
        text("![picture](data:image/png;base64,AAAA)"),
    ]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tools", "tool_use"),
        ("pause", "pause_turn"),
        ("context_full", "model_context_window_exceeded"),
        ("error", "end_turn"),
    ],
)
def test_why_it_ended(finish, reason):
    body = answer(Text("a"), finish=finish)
    assert body["stop_reason"] == reason and "stop_details" not in body


def test_stop_sequences_and_refusals():
    body = answer(Text("a"), finish="stop_sequence", stop_sequence="END")
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "END")
    why = "It would sink a boat."
    body = answer(Refusal("No."), finish="refusal", detail=why)
    assert body["content"] == [text("No.")]
    assert body["stop_details"] == {"type": "refusal", "category": None, "explanation": why}
    assert answer(finish="filter")["stop_reason"] == "refusal"


def test_an_answer_of_nothing_and_a_count():
    assert answer()["content"] == []
    assert json.loads(at_once(CODECS.client.encode_answer((), Usage(), CONTEXT)))["content"] == []
    assert fault_of(answer, finish="error").condition is Condition.UPSTREAM_FAILED
    assert CODECS.client.encode_count(17) == b'{"input_tokens":17}'


# ---- streams -------------------------------------------------------------------------------------


def read_by_sdk(stream):
    """Return the message that the official SDK accumulates from a stream."""

    def reply(request):
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, content=stream, headers=headers, request=request)

    http = httpx2.Client(transport=httpx2.MockTransport(reply))
    messages = [{"role": "user", "content": "a"}]
    with (
        Anthropic(api_key="k", base_url="http://sluice.invalid", http_client=http) as client,
        client.messages.stream(model="m", max_tokens=9, messages=messages) as events,
    ):
        return events.get_final_message()


def check_shape(stream):
    """Return each block's content; check that blocks are numbered without gaps and come one at a
    time."""
    blocks, is_open, kinds = [], False, []
    for name, fields in frames(stream):
        kind = fields["type"]
        assert name == kind
        kinds.append(kind)
        if kind == "content_block_start":
            assert not is_open and fields["index"] == len(blocks)
            is_open = True
            blocks.append([fields["content_block"]])
        elif kind == "content_block_delta":
            assert is_open and fields["index"] == len(blocks) - 1
            blocks[-1].append(fields["delta"])
        elif kind == "content_block_stop":
            assert is_open and fields["index"] == len(blocks) - 1
            is_open = False
    assert kinds[:2] == ["message_start", "ping"] and kinds.count("message_start") == 1
    assert kinds[-2:] == ["message_delta", "message_stop"] and not is_open
    return blocks


def joined(blocks):
    """Return kind and text of each block."""
    fields = ("text", "thinking", "partial_json")
    return [
        (
            first["type"],
            "".join(delta[name] for delta in deltas for name in fields if name in delta),
        )
        for first, *deltas in blocks
    ]


def test_a_text():
    stream = written(slot(0, "text", "Tea é ", "", '"now"'))
    pieces = [{"type": "text_delta", "text": piece} for piece in ("Tea é ", '"now"')]
    assert check_shape(stream) == [[text(""), *pieces]]
    message = read_by_sdk(stream)
    assert message.content[0].text == 'Tea é "now"'
    assert (message.id, message.model, message.stop_reason) == ("msg_Ab1", "public", "end_turn")
    assert message.usage.input_tokens == 200 and message.usage.output_tokens == 150


def test_message_start_has_an_estimate_and_every_count():
    name, fields = next(iter(frames(written([]))))
    assert name == "message_start"
    assert fields["message"]["usage"] == usage_of(10)
    assert (fields["message"]["content"], fields["message"]["stop_reason"]) == ([], None)


def test_thoughts_are_signed_once_before_their_end():
    stream = written([*slot(0, "reasoning", "hm", seal="gw1.x"), *slot(1, "reasoning")])
    begun = {"type": "thinking", "thinking": "", "signature": ""}
    assert check_shape(stream) == [
        [
            begun,
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "gw1.x"},
        ],
        [begun, {"type": "signature_delta", "signature": UNSIGNED}],
    ]
    assert read_by_sdk(stream).content[0].signature == "gw1.x"


def test_calls():
    stream = written(
        [
            *slot(0, "text", "Let me look."),
            *slot(1, "call", '{"port":', '"Brest"}', id="functions.x:0", name="tide"),
            *slot(2, "call", id="b", name="wind"),
            Finished("tools"),
        ]
    )
    blocks = check_shape(stream)
    assert blocks[1][:2] == [
        {"type": "tool_use", "id": "gw_ZnVuY3Rpb25zLng6MA", "name": "tide", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
    ]
    assert joined(blocks)[1:] == [("tool_use", '{"port":"Brest"}'), ("tool_use", "{}")]
    message = read_by_sdk(stream)
    assert [block.input for block in message.content[1:]] == [{"port": "Brest"}, {}]
    assert message.stop_reason == "tool_use"


TIDE, WIND = Opened(0, "call", id="a", name="tide"), Opened(1, "call", id="b", name="wind")


@pytest.mark.parametrize(
    ("events", "blocks"),
    [
        pytest.param(
            [
                *(TIDE, Delta(0, '{"a":'), WIND, Delta(1, '{"b":'), Opened(2, "text")),
                *(Delta(2, "hm"), Delta(0, "1}"), Delta(1, "2}"), Closed(1), Delta(2, "!")),
                *(Closed(0), Delta(2, "?"), Closed(2)),
            ],
            [("tool_use", '{"a":1}'), ("tool_use", '{"b":2}'), ("text", "hm!?")],
            id="calls that come interleaved wait for their turn",
        ),
        pytest.param(
            [
                *(Opened(0, "reasoning"), Delta(0, "hm"), Opened(1, "text"), Delta(1, "a")),
                *(Opened(2, "call", id="a", name="tide"), Delta(2, "{"), Delta(1, "b")),
                *(Delta(2, "}"), Delta(1, "c"), Closed(2), Sealed(0, "gw1.x"), Closed(1)),
                Closed(0),
            ],
            [
                *(("thinking", "hm"), ("text", "a"), ("tool_use", "{}"), ("text", "bc")),
                ("thinking", ""),
            ],
            id="a text that is open beside others goes on in another block",
        ),
        pytest.param(
            [TIDE, Delta(0, "{"), Opened(1, "text"), Delta(1, "a"), Opened(2, "text")],
            [("tool_use", "{"), ("text", "a"), ("text", "")],
            id="slots that were not closed are",
        ),
    ],
)
def test_slots_that_are_open_together(events, blocks):
    shown = check_shape(written(events))
    assert joined(shown) == blocks
    if blocks[-1][0] == "thinking":
        assert shown[-1][-1] == {"type": "signature_delta", "signature": "gw1.x"}


def test_a_call_with_all_its_arguments_does_not_hold_up_the_next():
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin()
    for event in (TIDE, Delta(0, "{}"), WIND, Delta(1, '{"b":1')):
        sent += encoder.write(event)
    assert b'"{\\"b\\":1"' in sent
    for event in (Delta(0, " "), Cited(0, Citation("u")), Closed(0), Delta(1, "}"), Closed(1)):
        sent += encoder.write(event)
    sent += encoder.end(None)
    assert joined(check_shape(sent)) == [("tool_use", "{}"), ("tool_use", '{"b":1}')]


def test_sources():
    stream = written([Opened(0, "text"), Delta(0, "a"), Cited(0, Citation("u", "T")), Closed(0)])
    source = {"url": "u", "title": "T", "cited_text": "", "encrypted_index": UNSIGNED}
    assert check_shape(stream)[0][-1] == {
        "type": "citations_delta",
        "citation": {"type": "web_search_result_location", **source},
    }
    assert read_by_sdk(stream).content[0].citations[0].url == "u"


def test_refusals_and_stop_sequences():
    message = read_by_sdk(
        written([*slot(0, "refusal", "No."), Finished("refusal", detail="Boats.")])
    )
    assert (message.content[0].text, message.stop_reason) == ("No.", "refusal")
    assert message.stop_details.explanation == "Boats."
    stream = written([Finished("stop_sequence", 0, "END")])
    assert check_shape(stream) == [] and read_by_sdk(stream).stop_sequence == "END"


def test_other_choices_are_not_shown():
    other = slot(0, "text", "x", seal="y", choice=1)
    stream = written([*other, Finished("length", 1), Finished("stop", 0)])
    assert check_shape(stream) == [] and b"end_turn" in stream


def test_failures():
    encoder = CODECS.client.open_encoder(CONTEXT)
    assert not encoder.started
    encoder.begin()
    assert encoder.started
    assert fault_of(encoder.write, Finished("error")).condition is Condition.UPSTREAM_FAILED
    ((name, fields),) = frames(encoder.encode_fault(Fault(Condition.UPSTREAM_TIMEOUT), "req_1"))
    assert (name, fields["error"]["type"]) == ("error", "timeout_error")
    encoder.write(Opened(0, "text"))
    assert encoder.write(Finished("error")) == b""


def test_a_repeated_delta_is_the_delta():
    for waits in (False, True):
        one, other = (CODECS.client.open_encoder(CONTEXT) for _ in range(2))
        for encoder in (one, other):
            if waits:
                encoder.write(Opened(7, "call", id="a", name="n"))
            encoder.write(Opened(0, "text"))
            encoder.write(Delta(0, "a"))
        assert one.repeat(b"more") == other.write(Delta(0, "more"))
        assert one.repeat(b"") == other.write(Delta(0, "")) == b""
        for encoder in (one, other):
            encoder.write(Closed(0))
        ends = [encoder.write(Closed(7)) + encoder.end(None) for encoder in (one, other)]
        assert ends[0] == ends[1]


@st.composite
def interleaved(draw):
    """Draw events of slots that are open at the same time, and the complete content of the
    slots."""
    kinds = draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), min_size=1, max_size=6))
    texts, queues = [], {}
    for number, kind in enumerate(kinds):
        pieces = draw(st.lists(st.text(max_size=3), max_size=4))
        if kind == "call":
            whole = '{"a":"%s"}' % ("x" * draw(st.integers(0, 4)))
            at = draw(st.integers(0, len(whole)))
            pieces = [whole[:at], whole[at:]]
        texts.append((kind, "".join(pieces)))
        queues[number] = slot(number, kind, *pieces, id=f"c{number}", name="n")
    events, begun = [], 0
    while queues:
        number = draw(st.sampled_from([each for each in queues if each <= begun]))
        begun = max(begun, number + 1)
        events.append(queues[number].pop(0))
        if not queues[number]:
            del queues[number]
    return texts, events


@given(interleaved())
@settings(max_examples=150, deadline=None)
def test_whatever_the_order_nothing_is_lost(case):
    texts, events = case
    blocks = joined(check_shape(written(events)))
    for kind, name in (("text", "text"), ("reasoning", "thinking")):
        shown = sorted("".join(words for which, words in blocks if which == name))
        assert shown == sorted("".join(words for which, words in texts if which == kind))
    calls = sorted(words for which, words in blocks if which == "tool_use")
    assert calls == sorted(words for which, words in texts if which == "call")


TEXT = slot(0, "text", "Tea.")
SEAL = slot(1, "reasoning", seal="sig")
THOUGHT = slot(1, "reasoning", "Hm.", seal="sig")
CALL = slot(2, "call", "{}", id="a", name="f")


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        ([*TEXT, *SEAL, Finished("stop")], ["text"]),
        ([*TEXT, *SEAL, *CALL, Finished("tools")], ["text", "thinking", "tool_use"]),
        ([*TEXT, *SEAL, *slot(2, "text", "Hot.")], ["text", "thinking", "text"]),
        ([*TEXT, *THOUGHT, Finished("stop")], ["text", "thinking"]),
        ([*slot(5, "reasoning", seal="sig"), *TEXT], ["thinking", "text"]),
    ],
)
def test_a_signature_alone_is_shown_but_at_the_end(events, kinds):
    stream = written(events)
    assert [first["type"] for first, *_ in check_shape(stream)] == kinds
    assert (b'"signature":"sig"' in stream) == ("thinking" in kinds) == (b"sig" in stream)
    assert (b'"thinking":"Hm."' in stream) == (Delta(1, "Hm.") in events)


def test_in_a_whole_answer():
    def kinds(*parts):
        body = at_once(CODECS.client.encode_answer((Choice(parts),), USAGE, CONTEXT))
        return [block["type"] for block in json.loads(body)["content"]]

    said, seal = Text("Tea."), Reasoning("", opaque="sig")
    assert kinds(said, seal) == ["text"]
    assert kinds(seal) == ["thinking"]
    assert kinds(said, Reasoning("Hm.", opaque="sig")) == ["text", "thinking"]
    assert kinds(said, seal, ToolCall("a", "f", "{}")) == ["text", "thinking", "tool_use"]
