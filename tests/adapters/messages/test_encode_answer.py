"""Answers for clients, whole and streamed."""

import json

import httpx2
import pytest
from anthropic import Anthropic
from anthropic.types import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Citation, Media, Reasoning, Refusal, Text, ToolCall
from adapters.ir.usage import Usage
from adapters.json.structure import at_once
from adapters.messages import CODECS
from adapters.messages.parts import UNSIGNED
from tests.adapters.messages.calls import CONTEXT, USAGE, frames, written


def answer(*parts, usage=USAGE, **fields):
    choices = (Choice(parts, **fields),)
    said = json.loads(at_once(CODECS.client.encode_answer(choices, usage, CONTEXT)))
    Message.model_validate(said, strict=True)
    return said


def test_a_message():
    assert answer(Text("Tea is ready.")) == {
        "id": "msg_Ab1",
        "type": "message",
        "role": "assistant",
        "model": "public",
        "content": [{"type": "text", "text": "Tea is ready."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 200,
            "cache_creation_input_tokens": 400,
            "cache_read_input_tokens": 2000,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 300,
                "ephemeral_1h_input_tokens": 100,
            },
            "output_tokens": 150,
            "output_tokens_details": {"thinking_tokens": 60},
            "service_tier": "standard",
        },
    }


def test_blocks():
    cited = Text("b", citations=(Citation("https://example.com", "T", quoted="q"),))
    said = answer(
        Reasoning("hm", opaque="gw1.x"),
        Reasoning("unsigned"),
        Text(""),
        cited,
        ToolCall("functions.x:0", "tide", '{"port":"Brest"}'),
        ToolCall("b", "wind", ""),
        Media("image", data="AAAA"),
    )
    source = {"url": "https://example.com", "title": "T", "cited_text": "q"}
    kind = {"type": "web_search_result_location", "encrypted_index": UNSIGNED}
    assert said["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "gw1.x"},
        {"type": "thinking", "thinking": "unsigned", "signature": UNSIGNED},
        {"type": "text", "text": "b", "citations": [kind | source]},
        {
            "type": "tool_use",
            "id": "gw_ZnVuY3Rpb25zLng6MA",
            "name": "tide",
            "input": {"port": "Brest"},
        },
        {"type": "tool_use", "id": "b", "name": "wind", "input": {}},
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
    said = answer(Text("a"), finish=finish)
    assert said["stop_reason"] == reason and "stop_details" not in said


def test_stop_sequences_and_refusals():
    said = answer(Text("a"), finish="stop_sequence", stop_sequence="END")
    assert (said["stop_reason"], said["stop_sequence"]) == ("stop_sequence", "END")
    said = answer(Refusal("No."), finish="refusal", detail="It would sink a boat.")
    assert said["content"] == [{"type": "text", "text": "No."}]
    assert said["stop_details"] == {
        "type": "refusal",
        "category": None,
        "explanation": "It would sink a boat.",
    }
    assert answer(finish="filter")["stop_reason"] == "refusal"


def test_an_answer_of_nothing():
    assert answer()["content"] == []
    assert json.loads(at_once(CODECS.client.encode_answer((), Usage(), CONTEXT)))["content"] == []
    with pytest.raises(Fault) as caught:
        answer(finish="error")
    assert caught.value.condition is Condition.UPSTREAM_FAILED


def test_a_count():
    assert CODECS.client.encode_count(17) == b'{"input_tokens":17}'


def read_by_sdk(stream):
    """The message that the official SDK makes of a stream; its checks on the way are ours."""

    def reply(request):
        return httpx2.Response(
            200, content=stream, headers={"content-type": "text/event-stream"}, request=request
        )

    http = httpx2.Client(transport=httpx2.MockTransport(reply))
    with (
        Anthropic(api_key="k", base_url="http://sluice.invalid", http_client=http) as client,
        client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "a"}]
        ) as events,
    ):
        return events.get_final_message()


def check_shape(stream):
    """Blocks are numbered without gaps and one at a time; returns what is in each."""
    blocks, is_open, kinds = [], False, []
    for name, said in frames(stream):
        kind = said["type"]
        assert name == kind
        kinds.append(kind)
        if kind == "content_block_start":
            assert not is_open and said["index"] == len(blocks)
            is_open = True
            blocks.append([said["content_block"]])
        elif kind == "content_block_delta":
            assert is_open and said["index"] == len(blocks) - 1
            blocks[-1].append(said["delta"])
        elif kind == "content_block_stop":
            assert is_open and said["index"] == len(blocks) - 1
            is_open = False
    assert kinds[:2] == ["message_start", "ping"] and kinds.count("message_start") == 1
    assert kinds[-2:] == ["message_delta", "message_stop"] and not is_open
    return blocks


def joined(blocks):
    """Kind and text of each block."""
    fields = ("text", "thinking", "partial_json")
    return [
        (
            first["type"],
            "".join(delta[name] for delta in deltas for name in fields if name in delta),
        )
        for first, *deltas in blocks
    ]


def test_a_text():
    stream = written(
        [Opened(0, "text"), Delta(0, "Tea é "), Delta(0, ""), Delta(0, '"now"'), Closed(0)]
    )
    assert check_shape(stream) == [
        [
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "Tea é "},
            {"type": "text_delta", "text": '"now"'},
        ]
    ]
    message = read_by_sdk(stream)
    assert message.content[0].text == 'Tea é "now"'
    assert (message.id, message.model, message.stop_reason) == ("msg_Ab1", "public", "end_turn")
    assert message.usage.input_tokens == 200 and message.usage.output_tokens == 150


def test_message_start_has_an_estimate_and_every_count():
    name, said = next(iter(frames(written([]))))
    assert name == "message_start"
    assert said["message"]["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"thinking_tokens": 0},
        "service_tier": "standard",
    }
    assert (said["message"]["content"], said["message"]["stop_reason"]) == ([], None)


def test_thoughts_are_signed_once_before_their_end():
    stream = written(
        [
            Opened(0, "reasoning"),
            Delta(0, "hm"),
            Sealed(0, "gw1.x"),
            Closed(0),
            Opened(1, "reasoning"),
            Closed(1),
        ]
    )
    assert check_shape(stream) == [
        [
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "gw1.x"},
        ],
        [
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "signature_delta", "signature": UNSIGNED},
        ],
    ]
    assert read_by_sdk(stream).content[0].signature == "gw1.x"


def test_calls():
    stream = written(
        [
            Opened(0, "text"),
            Delta(0, "Let me look."),
            Closed(0),
            Opened(1, "call", id="functions.x:0", name="tide"),
            Delta(1, '{"port":'),
            Delta(1, '"Brest"}'),
            Closed(1),
            Opened(2, "call", id="b", name="wind"),
            Closed(2),
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


def test_calls_that_come_interleaved_wait_for_their_turn():
    stream = written(
        [
            Opened(0, "call", id="a", name="tide"),
            Delta(0, '{"a":'),
            Opened(1, "call", id="b", name="wind"),
            Delta(1, '{"b":'),
            Opened(2, "text"),
            Delta(2, "hm"),
            Delta(0, "1}"),
            Delta(1, "2}"),
            Closed(1),
            Delta(2, "!"),
            Closed(0),
            Delta(2, "?"),
            Closed(2),
        ]
    )
    assert joined(check_shape(stream)) == [
        ("tool_use", '{"a":1}'),
        ("tool_use", '{"b":2}'),
        ("text", "hm!?"),
    ]


def test_a_call_with_all_its_arguments_does_not_hold_up_the_next():
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin()
    for event in (
        Opened(0, "call", id="a", name="tide"),
        Delta(0, "{}"),
        Opened(1, "call", id="b", name="wind"),
        Delta(1, '{"b":1'),
    ):
        sent += encoder.write(event)
    assert b'"{\\"b\\":1"' in sent
    for event in (Delta(0, " "), Cited(0, Citation("u")), Closed(0), Delta(1, "}"), Closed(1)):
        sent += encoder.write(event)
    sent += encoder.end(None)
    assert joined(check_shape(sent)) == [("tool_use", "{}"), ("tool_use", '{"b":1}')]


def test_a_text_that_is_open_beside_others_goes_on_in_another_block():
    stream = written(
        [
            Opened(0, "reasoning"),
            Delta(0, "hm"),
            Opened(1, "text"),
            Delta(1, "a"),
            Opened(2, "call", id="a", name="tide"),
            Delta(2, "{"),
            Delta(1, "b"),
            Delta(2, "}"),
            Delta(1, "c"),
            Closed(2),
            Sealed(0, "gw1.x"),
            Closed(1),
            Closed(0),
        ]
    )
    blocks = check_shape(stream)
    assert joined(blocks) == [
        ("thinking", "hm"),
        ("text", "a"),
        ("tool_use", "{}"),
        ("text", "bc"),
        ("thinking", ""),
    ]
    assert blocks[-1][-1] == {"type": "signature_delta", "signature": "gw1.x"}


def test_sources():
    stream = written([Opened(0, "text"), Delta(0, "a"), Cited(0, Citation("u", "T")), Closed(0)])
    source = {"url": "u", "title": "T", "cited_text": "", "encrypted_index": UNSIGNED}
    assert check_shape(stream)[0][-1] == {
        "type": "citations_delta",
        "citation": {"type": "web_search_result_location", **source},
    }
    assert read_by_sdk(stream).content[0].citations[0].url == "u"


def test_refusals_and_stop_sequences():
    stream = written(
        [Opened(0, "refusal"), Delta(0, "No."), Closed(0), Finished("refusal", detail="Boats.")]
    )
    message = read_by_sdk(stream)
    assert (message.content[0].text, message.stop_reason) == ("No.", "refusal")
    assert message.stop_details.explanation == "Boats."
    stream = written([Finished("stop_sequence", 0, "END")])
    assert check_shape(stream) == [] and read_by_sdk(stream).stop_sequence == "END"


def test_other_choices_are_not_shown():
    stream = written(
        [
            Opened(0, "text", 1),
            Delta(0, "x"),
            Sealed(0, "y"),
            Closed(0),
            Finished("length", 1),
            Finished("stop", 0),
        ]
    )
    assert check_shape(stream) == [] and b"end_turn" in stream


def test_slots_that_were_not_closed_are():
    stream = written(
        [
            Opened(0, "call", id="a", name="tide"),
            Delta(0, "{"),
            Opened(1, "text"),
            Delta(1, "a"),
            Opened(2, "text"),
        ]
    )
    assert joined(check_shape(stream)) == [("tool_use", "{"), ("text", "a"), ("text", "")]


def test_failures():
    encoder = CODECS.client.open_encoder(CONTEXT)
    assert not encoder.started
    encoder.begin()
    assert encoder.started
    with pytest.raises(Fault) as caught:
        encoder.write(Finished("error"))
    assert caught.value.condition is Condition.UPSTREAM_FAILED
    said = encoder.encode_fault(Fault(Condition.UPSTREAM_TIMEOUT), "req_1")
    ((name, error),) = frames(said)
    assert (name, error["error"]["type"]) == ("error", "timeout_error")
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
    """Events of slots that are open together, and what the slots have said in all."""
    kinds = draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), min_size=1, max_size=6))
    pieces = {}
    for slot, kind in enumerate(kinds):
        text = draw(st.lists(st.text(max_size=3), max_size=4))
        if kind == "call":
            whole = '{"a":"%s"}' % ("x" * draw(st.integers(0, 4)))
            at = draw(st.integers(0, len(whole)))
            text = [whole[:at], whole[at:]]
        pieces[slot] = text
    queues = {
        slot: [Opened(slot, kind, id=f"c{slot}", name="n"), *(Delta(slot, t) for t in pieces[slot])]
        for slot, kind in enumerate(kinds)
    }
    events, begun = [], 0
    while queues:
        ready = [slot for slot in queues if slot <= begun]
        slot = draw(st.sampled_from(ready))
        begun = max(begun, slot + 1)
        if queues[slot]:
            events.append(queues[slot].pop(0))
        else:
            events.append(Closed(slot))
            del queues[slot]
    return kinds, pieces, events


@given(interleaved())
@settings(max_examples=150, deadline=None)
def test_whatever_the_order_nothing_is_lost(case):
    kinds, pieces, events = case
    found = joined(check_shape(written(events)))
    names = {"text": "text", "reasoning": "thinking"}
    for kind, name in names.items():
        said = sorted(text for which, text in found if which == name)
        wanted = sorted("".join(pieces[slot]) for slot, each in enumerate(kinds) if each == kind)
        assert sorted("".join(said)) == sorted("".join(wanted))
    calls = [text for which, text in found if which == "tool_use"]
    wanted = ["".join(pieces[slot]) for slot, each in enumerate(kinds) if each == "call"]
    assert sorted(calls) == sorted(wanted)


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
