"""Answers of upstreams, whole and streamed."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.generate_content import CODECS
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Logprob, Opened, Sealed
from adapters.ir.parts import Citation, Reasoning, Text, ToolCall
from adapters.json.structure import at_once
from tests.adapters.generate_content.bridged import STREAMS, WIRE, chunks_of


def sample(name):
    return at_once(CODECS.upstream.decode_answer((WIRE / f"{name}.json").read_bytes()))


def choices(*candidates, **more):
    return at_once(
        CODECS.upstream.decode_answer(json.dumps({"candidates": list(candidates), **more}).encode())
    )


def test_a_text():
    (choice,) = sample("text")
    assert choice == Choice((Text("Tea is ready: three cups, one pot — enjoy."),))


def test_a_thought_with_its_text_and_signature():
    (choice,) = sample("thinking")
    assert choice.parts == (
        Reasoning("The harbour has two gauges. I should ask both.", summary=True),
        Text("Tea is ready: three cups, one pot — enjoy."),
        Reasoning("", summary=True, opaque="text:b3BhcXVlIHRob3VnaHQgc2lnbmF0dXJl"),
    )


def test_calls():
    (choice,) = sample("tools_parallel")
    seal, *calls = choice.parts
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
    assert found == (
        Choice((Text("a"),), "length"),
        Choice((Text("b"),), logprobs=(Logprob("b", -1.0),)),
    )


def test_sources_have_their_places_in_characters():
    support = {"segment": {"startIndex": 3, "endIndex": 5}, "groundingChunkIndices": [0]}
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
        "groundingSupports": [support],
    }
    (choice,) = choices(
        {"content": {"parts": [{"text": "éé"}, {"text": "aé"}]}, "groundingMetadata": grounding}
    )
    assert choice.parts == (Text("ééaé", citations=(Citation("https://a.example", "A", 1, 3),)),)


def test_an_answer_without_anything_is_one_empty_choice():
    assert choices() == (Choice(()),)


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"\xff"])
def test_what_is_no_answer_is_the_upstreams_fault(body):
    for decode in (
        lambda body: at_once(CODECS.upstream.decode_answer(body)),
        CODECS.upstream.decode_count,
    ):
        with pytest.raises(Fault) as caught:
            decode(body)
        assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_a_count():
    assert CODECS.upstream.decode_count((WIRE / "count_tokens.json").read_bytes()) == 14
    with pytest.raises(Fault):
        CODECS.upstream.decode_count(b'{"totalTokens":-1}')


def chunk(*parts, finish=None, index=0, **more):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": index, **more}
    return {
        "candidates": [candidate | ({"finishReason": finish} if finish else {})],
        "responseId": "r1",
    }


def events_of(*chunks):
    decoder = CODECS.upstream.open_decoder()
    events = [event for said in chunks for event in decoder.read(None, said)]
    return [*events, *decoder.end()]


def wire_events(name):
    return events_of(*chunks_of(STREAMS[name].replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")))


def call(name="f", **fields):
    return {"functionCall": {"name": name, **fields}}


THOUGHT = {"text": "Hm.", "thought": True}
REASONING = Opened(0, "reasoning", summary=True)


def test_texts_that_follow_each_other_are_one_slot():
    assert events_of(
        chunk({"text": "a"}, {"text": "b"}),
        chunk({"text": ""}),
        chunk({"text": "c"}, finish="STOP"),
    ) == [
        Opened(0, "text"),
        Delta(0, "a"),
        Delta(0, "b"),
        Delta(0, "c"),
        Closed(0),
        Finished("stop"),
    ]


def test_the_chunk_that_switches_the_slot_keeps_its_text():
    assert events_of(chunk(THOUGHT), chunk(THOUGHT, {"text": "a"}, finish="STOP")) == [
        REASONING,
        Delta(0, "Hm."),
        Delta(0, "Hm."),
        Closed(0),
        Opened(1, "text"),
        Delta(1, "a"),
        Closed(1),
        Finished("stop"),
    ]


def test_calls_come_whole_and_have_ids():
    found = events_of(
        chunk({"text": "a"}, call(args={"é": [1]}), call("g", id="x")), chunk(call(), finish="STOP")
    )
    opened = [event for event in found if isinstance(event, Opened)]
    assert [event.kind for event in opened] == ["text", "call", "call", "call"]
    ids = [event.id for event in opened[1:]]
    assert ids[1] == "x"
    assert len(set(ids)) == 3
    assert all(len(each) <= 40 and each.replace("_", "").isalnum() for each in ids)
    assert [event.text for event in found if isinstance(event, Delta)] == [
        "a",
        '{"é":[1]}',
        "{}",
        "{}",
    ]
    assert found[-1] == Finished("stop")


def test_ids_of_calls_are_of_their_answer():
    def ids(response):
        found = events_of({**chunk(call(), finish="STOP"), "responseId": response})
        return [event.id for event in found if isinstance(event, Opened)]

    assert ids("r1") == ids("r1")
    assert ids("r1") != ids("r2")
    assert ids(None) != ids(None)  # two answers that do not say who they are


def test_a_signature_of_a_call_ends_the_thought_before():
    signed = {**call(id="x"), "thoughtSignature": "AAAA"}
    assert events_of(chunk(THOUGHT, signed, finish="STOP")) == [
        REASONING,
        Delta(0, "Hm."),
        Sealed(0, "call:AAAA"),
        Closed(0),
        Opened(1, "call", id="x", name="f"),
        Delta(1, "{}"),
        Closed(1),
        Finished("stop"),
    ]
    assert events_of(chunk({"text": "a"}, signed))[2:6] == [
        Closed(0),
        Opened(1, "reasoning", summary=True),
        Sealed(1, "call:AAAA"),
        Closed(1),
    ]


def test_a_signature_of_a_text_stands_behind_it():
    assert events_of(
        chunk({"text": "a"}), chunk({"text": "", "thoughtSignature": "AAAA"}, finish="STOP")
    ) == [
        Opened(0, "text"),
        Delta(0, "a"),
        Closed(0),
        Opened(1, "reasoning", summary=True),
        Sealed(1, "text:AAAA"),
        Closed(1),
        Finished("stop"),
    ]


def test_a_signature_of_a_thought_is_its_own():
    assert events_of(chunk({**THOUGHT, "thoughtSignature": "AAAA"}, THOUGHT)) == [
        REASONING,
        Delta(0, "Hm."),
        Sealed(0, "thought:AAAA"),
        Closed(0),
        Opened(1, "reasoning", summary=True),
        Delta(1, "Hm."),
        Closed(1),
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


def test_a_prompt_that_was_blocked():
    assert events_of({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}) == [
        Finished("filter", detail="SAFETY")
    ]


def test_candidates_are_choices():
    found = events_of(
        chunk({"text": "a"}),
        chunk({"text": "b"}, index=1, finish="STOP"),
        chunk(finish="MAX_TOKENS"),
    )
    assert found == [
        Opened(0, "text"),
        Delta(0, "a"),
        Opened(1, "text", 1),
        Delta(1, "b"),
        Closed(1),
        Finished("stop", 1),
        Closed(0),
        Finished("length"),
    ]


def test_nothing_comes_behind_the_end_of_a_candidate():
    assert events_of(chunk({"text": "a"}, finish="STOP"), chunk({"text": "b"}, finish="STOP"))[
        -1
    ] == (Finished("stop"))
    assert len(events_of(chunk(finish="STOP"), chunk({"text": "b"}))) == 1


def test_what_the_vendor_ran_itself_is_left_out():
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    assert events_of(chunk({"text": "a"}, code, result, image, {"text": "b"}, finish="STOP")) == [
        Opened(0, "text"),
        Delta(0, "a"),
        Delta(0, "b"),
        Closed(0),
        Finished("stop"),
    ]


def test_log_probabilities():
    result = {
        "chosenCandidates": [{"token": "a", "logProbability": -0.5}, {"token": "b"}],
        "topCandidates": [{"candidates": [{"token": "a", "logProbability": -0.5}]}],
    }
    found = events_of(chunk({"text": "ab"}, logprobsResult=result))
    assert found[1] == Delta(
        0, "ab", (Logprob("a", -0.5, (Logprob("a", -0.5),)), Logprob("b", 0.0))
    )


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
    assert events_of(chunk(call(id="x"), finish="STOP", groundingMetadata=GROUNDING))[1:] == [
        Delta(0, "{}"),
        Closed(0),
        Finished("stop"),
    ]


@pytest.mark.parametrize("name", sorted(set(STREAMS) - {"midstream_error"}))
def test_the_samples(name):
    found = wire_events(name)
    assert isinstance(found[-1], Finished)
    opened = {event.slot for event in found if isinstance(event, Opened)}
    assert opened == {event.slot for event in found if isinstance(event, Closed)}


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


def test_arguments_that_cannot_be_written_are_none():
    found = events_of(chunk(call(id="x", args={"a": float("inf")})))
    assert found[1] == Delta(0, "{}")


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
