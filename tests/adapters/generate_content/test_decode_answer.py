"""Answers of upstreams, whole and streamed."""

import json

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Finished,
    Logprob,
    Opened,
    Pictured,
    Sealed,
)
from adapters.ir.parts import Citation, Media, Reasoning, Text, ToolCall
from adapters.json.structure import at_once
from tests.adapters.generate_content.calls import WIRE

CODECS = CODECS_BY_FAMILY["generate_content"]


def sample(name):
    return at_once(CODECS.upstream.decode_answer((WIRE / f"{name}.json").read_bytes()))


def choices(*candidates):
    body = json.dumps({"candidates": list(candidates)})
    return at_once(CODECS.upstream.decode_answer(body.encode()))


TEA = Text("Tea is ready: three cups, one pot — enjoy.")


def test_samples_of_whole_answers():
    assert sample("text") == (Choice((TEA,)),)
    assert sample("thinking")[0].parts == (
        Reasoning("The harbour has two gauges. I should ask both.", summary=True),
        TEA,
        Reasoning("", summary=True, opaque="text:b3BhcXVlIHRob3VnaHQgc2lnbmF0dXJl"),
    )
    seal, *calls = sample("tools_parallel")[0].parts
    assert seal.opaque.startswith("call:")
    assert calls == [
        ToolCall("tide1", "get_tide", '{"port":"Brest"}'),
        ToolCall("wind2", "get_wind", '{"port":"Brest","unit":"knots"}'),
    ]


@pytest.mark.parametrize(
    ("name", "finish", "detail"),
    [
        ("max_tokens", "length", ""),
        ("safety_stop", "filter", "SAFETY"),
        ("blocked_prompt", "filter", "SAFETY"),
    ],
)
def test_why_an_answer_ended(name, finish, detail):
    (choice,) = sample(name)
    assert (choice.finish, choice.detail) == (finish, detail)
    assert name == "max_tokens" or choice.parts == ()


def test_several_choices_with_log_probabilities():
    logprobs = {"chosenCandidates": [{"token": "b", "logProbability": -1}]}
    found = choices(
        {"index": 1, "content": {"parts": [{"text": "b"}]}, "logprobsResult": logprobs},
        {"content": {"parts": [{"text": "a"}]}, "finishReason": "MAX_TOKENS"},
    )
    second = Choice((Text("b"),), logprobs=(Logprob("b", -1.0),))
    assert found == (Choice((Text("a"),), "length"), second)


def test_sources_have_their_places_in_characters():
    support = {"segment": {"startIndex": 3, "endIndex": 5}, "groundingChunkIndices": [0]}
    web = {"web": {"uri": "https://a.example", "title": "A"}}
    grounding = {"groundingChunks": [web], "groundingSupports": [support]}
    content = {"parts": [{"text": "éé"}, {"text": "aé"}]}
    (choice,) = choices({"content": content, "groundingMetadata": grounding})
    assert choice.parts == (Text("ééaé", citations=(Citation("https://a.example", "A", 1, 3),)),)


def test_an_answer_without_anything_is_one_empty_choice():
    assert choices() == (Choice(()),)


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"\xff"])
def test_what_is_no_answer_is_the_upstreams_fault(body):
    for decode in (
        CODECS.upstream.decode_answer,
        CODECS.upstream.decode_count,
    ):
        with pytest.raises(Fault) as caught:
            at_once(decode(body))
        assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_a_count():
    assert CODECS.upstream.decode_count((WIRE / "count_tokens.json").read_bytes()) == 14
    with pytest.raises(Fault):
        CODECS.upstream.decode_count(b'{"totalTokens":-1}')


def chunk(*parts, finish=None, index=0, **more):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": index, **more}
    candidate |= {"finishReason": finish} if finish else {}
    return {"candidates": [candidate], "responseId": "r1"}


def last(*parts, **more):
    return chunk(*parts, finish="STOP", **more)


def events_of(*chunks):
    decoder = CODECS.upstream.open_decoder()
    events = [event for said in chunks for event in decoder.read(None, said)]
    return [*events, *decoder.end()]


def call(name="f", **fields):
    return {"functionCall": {"name": name, **fields}}


def slot(number, kind, *said, choice=0, **fields):
    """Return the events of a slot: texts become deltas, other items stay unchanged."""
    opened = Opened(number, kind, choice, **fields)
    inner = [Delta(number, each) if isinstance(each, str) else each for each in said]
    return [opened, *inner, Closed(number)]


def text(number, *said, **fields):
    return slot(number, "text", *said, **fields)


def thought(number, *said):
    return slot(number, "reasoning", *said, summary=True)


THOUGHT, A, B = {"text": "Hm.", "thought": True}, {"text": "a"}, {"text": "b"}
NOTHING = {"text": ""}
SIGNED = {"thoughtSignature": "AAAA"}
CALL, CALLED = call(id="x"), slot(1, "call", "{}", id="x", name="f")
SIGNED_CALL = {**CALL, **SIGNED}
UNWRITABLE = call(id="x", args={"a": float("inf")})
SEAL = Sealed(0, "call:AAAA")
END = Finished("stop")
RUN_BY_VENDOR = (
    {"executableCode": {"language": "PYTHON", "code": "1"}},
    {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "a"}, "thoughtSignature": "AAAA"},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
    {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
)
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
LOGPROBS = {
    "chosenCandidates": [{"token": "a", "logProbability": -0.5}, {"token": "b"}],
    "topCandidates": [{"candidates": [{"token": "a", "logProbability": -0.5}]}],
}
LOGPROB = Logprob("a", -0.5, (Logprob("a", -0.5),))


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        ([chunk(A, B), chunk(NOTHING), last(A)], [*text(0, "a", "b", "a"), END]),
        ([chunk(THOUGHT), last(THOUGHT, A)], [*thought(0, "Hm.", "Hm."), *text(1, "a"), END]),
        ([last(THOUGHT, SIGNED_CALL)], [*thought(0, "Hm.", SEAL), *CALLED, END]),
        (
            [chunk(A, SIGNED_CALL)],
            [
                *text(0, "a"),
                *thought(1, Sealed(1, "call:AAAA")),
                *slot(2, "call", "{}", id="x", name="f"),
            ],
        ),
        (
            [chunk(A), last({"text": "", **SIGNED})],
            [*text(0, "a"), *thought(1, Sealed(1, "text:AAAA")), END],
        ),
        (
            [chunk({**THOUGHT, **SIGNED}, THOUGHT)],
            [*thought(0, "Hm.", Sealed(0, "thought:AAAA")), *thought(1, "Hm.")],
        ),
        (
            [chunk(A), last(B, index=1), chunk(finish="MAX_TOKENS")],
            [
                *text(0, "a")[:2],
                *text(1, "b", choice=1),
                Finished("stop", 1),
                Closed(0),
                Finished("length"),
            ],
        ),
        ([last(A), last(B)], [*text(0, "a"), END]),
        ([last(), chunk(B)], [END]),
        ([last(A, *RUN_BY_VENDOR, B)], [*text(0, "a", "b"), END]),
        (
            [last(A, {**PICTURE, **SIGNED}, B)],
            [
                *text(0, "a"),
                Pictured("image/png", "AAAA"),
                *thought(1, Sealed(1, "text:AAAA")),
                *text(2, "b"),
                END,
            ],
        ),
        ([last({**PICTURE, "thought": True}, {"inlineData": 1})], [END]),
        ([chunk(A, logprobsResult=LOGPROBS)], text(0, Delta(0, "a", (LOGPROB, Logprob("b", 0.0))))),
        ([{"promptFeedback": {"blockReason": "SAFETY"}}], [Finished("filter", detail="SAFETY")]),
        ([last(A, UNWRITABLE)], [*text(0, "a"), *CALLED, END]),
    ],
    ids=[
        *("neighbours_are_one_slot", "a_switch_keeps_its_text", "a_call_seals_the_thought_before"),
        *("a_sealed_call_behind_a_text", "a_sealed_text", "a_sealed_thought", "candidates"),
        *(
            "behind_an_end",
            "behind_an_end_alone",
            "run_by_the_vendor",
            "a_picture",
            "no_picture",
            "logprobs",
        ),
        "blocked",
        "arguments_that_cannot_be_written",
    ],
)
def test_events(chunks, events):
    assert events_of(*chunks) == events


def test_calls_come_whole_with_the_ids_that_they_have():
    events = events_of(chunk(A, call(args={"é": [1]}), call("g", id="x")), last(call()))
    assert events == [
        *text(0, "a"),
        *slot(1, "call", '{"é":[1]}', id="", name="f"),
        *slot(2, "call", "{}", id="x", name="g"),
        *slot(3, "call", "{}", id="", name="f"),
        END,
    ]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        *((word, "filter") for word in ("SAFETY", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")),
        *((word, "filter") for word in ("RECITATION", "IMAGE_SAFETY", "LANGUAGE", "MODEL_ARMOR")),
        ("CONTINUATION", "pause"),
        *((word, "error") for word in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")),
        *((word, "error") for word in ("TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "OTHER")),
        ("SOMETHING_NEW", "error"),
    ],
)
def test_why_a_stream_ended(reason, finish):
    last = events_of(chunk({"text": "a"}, finish=reason))[-1]
    assert last.finish == finish
    assert last.detail == (reason if finish in ("filter", "error", "pause") else "")
    told = events_of(chunk(finish=reason, finishMessage="why"))[-1]
    assert told.detail == ("why" if finish in ("filter", "error", "pause") else "")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("UNEXPECTED_TOOL_CALL", "tools"), ("MAX_TOKENS", "length"), ("SAFETY", "filter")],
)
def test_calls_that_were_made_can_be_answered(reason, finish):
    assert events_of(chunk(call(), finish=reason))[-1].finish == finish


GROUNDING = {
    "groundingChunks": [
        {"web": {"uri": "https://a.example", "title": "A"}},
        {"web": {"uri": "https://b.example"}},
        {"retrievedContext": {"uri": "gs://x"}},
    ],
    "groundingSupports": [
        {"segment": {"endIndex": 2}, "groundingChunkIndices": [0, 2, 9, "x"]},
        {"segment": {"startIndex": 3, "endIndex": 1}, "groundingChunkIndices": [0]},
    ],
}


def test_sources_are_of_the_text_that_is_open():
    found = events_of(chunk({"text": "abc"}), chunk(finish="STOP", groundingMetadata=GROUNDING))
    assert [event for event in found if isinstance(event, Cited)] == [
        Cited(0, Citation("https://a.example", "A", 0, 2)),
        Cited(0, Citation("https://a.example", "A")),
        Cited(0, Citation("https://b.example")),
    ]
    assert found.index(Closed(0)) > 3


def test_places_in_bytes_are_not_told_behind_other_characters():
    found = events_of(chunk({"text": "é"}), chunk(finish="STOP", groundingMetadata=GROUNDING))
    assert Cited(0, Citation("https://a.example", "A")) in found


def test_quotations_of_the_web_are_sources():
    cited = {"citationSources": [{"startIndex": 1, "endIndex": 2, "uri": "https://a.example"}, {}]}
    found = events_of(chunk({"text": "abc"}, citationMetadata=cited))
    assert Cited(0, Citation("https://a.example", "", 1, 2)) in found


def test_sources_without_a_text_are_left_out():
    sourced = last(CALL, groundingMetadata=GROUNDING)
    assert events_of(sourced) == [*slot(0, "call", "{}", id="x", name="f"), END]


@pytest.mark.parametrize(
    "said",
    [
        {"candidates": 7},
        {"candidates": [7, {"content": []}, {"content": {"parts": {}}}]},
        {"candidates": [{"content": {"parts": [{"text": 7}, {"functionCall": {"name": 7}}, 1]}}]},
        {"candidates": [{"index": "x", "finishReason": 7}]},
        {"candidates": [{"content": {"parts": [{"text": {}, "thought": True}]}}]},
        {"promptFeedback": []},
        {"candidates": [{"content": {"parts": [{"thoughtSignature": 7}]}}]},
    ],
)
def test_what_cannot_be_read_says_nothing(said):
    assert events_of(said) == []


def test_sources_that_are_repeated_are_one():
    said = [chunk({"text": "abc"}, groundingMetadata=GROUNDING) for _ in range(2)]
    cited = [event for event in events_of(*said) if isinstance(event, Cited)]
    assert len(cited) == len(set(cited)) == 3


def test_sources_have_a_bound():
    chunks = [{"web": {"uri": f"https://a.example/{number}"}} for number in range(1500)]
    found = events_of(chunk({"text": "a"}, groundingMetadata={"groundingChunks": chunks}))
    assert len([event for event in found if isinstance(event, Cited)]) == 1000


def test_odd_indexes_are_the_first_candidate():
    found = events_of(chunk({"text": "a"}, index=10**9), chunk({"text": "b"}, index=-1))
    assert len([event for event in found if isinstance(event, Opened)]) == 1


def test_a_picture_of_a_whole_answer():
    parts = {"parts": [A, PICTURE]}
    (choice,) = choices({"content": parts, "finishReason": "STOP"})
    assert choice.parts == (Text("a"), Media("image", "image/png", "AAAA"))
