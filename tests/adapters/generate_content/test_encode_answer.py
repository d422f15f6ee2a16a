"""Answers for clients, whole and streamed."""

import base64
import json

import pytest
from msgspec.structs import replace

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Logprob, Opened
from adapters.ir.parts import Citation, Hosted, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from store.values.usage import Usage
from tests.adapters.builders import slot
from tests.adapters.generate_content.calls import CONTEXT, called, chunks_of

CODECS = CODECS_BY_FAMILY["generate_content"]

USAGE = Usage(200, 90, 2000, 300, 100, 60)


def answer(*choices, usage=USAGE):
    return json.loads(at_once(CODECS.client.encode_answer(choices, usage, CONTEXT)))


def parts(*parts, finish="stop"):
    (candidate,) = answer(Choice(parts, finish))["candidates"]
    assert candidate["content"]["role"] == "model"
    return candidate["content"]["parts"]


def signed(opaque):
    return base64.b64encode(opaque.encode()).decode()


BASE = {"modelVersion": "public-model", "responseId": "CALL1"}
USAGE_FIELDS = {
    "promptTokenCount": 2600,
    "candidatesTokenCount": 90,
    "totalTokenCount": 2750,
    "cachedContentTokenCount": 2000,
    "thoughtsTokenCount": 60,
}
COUNTED = {"usageMetadata": USAGE_FIELDS}


def candidate(text, **fields):
    return {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **fields}


def test_a_whole_answer():
    assert answer(Choice((Text("Tea is ready."),))) == {
        "candidates": [candidate("Tea is ready.", finishReason="STOP")],
        **COUNTED,
        **BASE,
    }


def test_counts_that_are_zero_and_may_be_absent_are():
    assert answer(Choice(()), usage=Usage(5, 0))["usageMetadata"] == {
        "promptTokenCount": 5,
        "candidatesTokenCount": 0,
        "totalTokenCount": 5,
    }


def test_parts_of_every_kind():
    assert parts(
        Reasoning("Hm."),
        Text(""),
        Text("a"),
        Refusal("No."),
        ToolCall("x", "f", '{"b":1,"a":"\\u00e9"}'),
        ToolCall("", "g", "free", custom=True),
    ) == [
        {"text": "Hm.", "thought": True},
        {"text": "a"},
        {"text": "No."},
        {"functionCall": {"id": "x", "name": "f", "args": {"b": 1, "a": "é"}}},
        {"functionCall": {"name": "g", "args": {"input": "free"}}},
    ]


@pytest.mark.parametrize("finish", ["stop", "filter", "error"])
def test_an_answer_without_parts_has_an_empty_text(finish):
    assert parts(finish=finish) == [{"text": ""}]


def test_a_call_that_was_cut_is_not_in_a_whole_answer():
    cut, whole = ToolCall("x", "f", '{"a": "b'), ToolCall("y", "f", "{}")
    assert [part["functionCall"]["id"] for part in parts(whole, cut, finish="length")] == ["y"]
    assert parts(cut, finish="tools")[0]["functionCall"]["args"] == {"_raw": '{"a": "b'}


def test_state_goes_with_the_next_call_else_with_the_text_before():
    assert parts(
        Reasoning("", opaque="a"),
        Reasoning("Hm.", opaque="b"),
        Text("x"),
        Reasoning("So.", opaque="c"),
        ToolCall("1", "f", "{}"),
        ToolCall("2", "f", "{}"),
        Reasoning("", opaque="d"),
    ) == [
        {"text": "", "thoughtSignature": signed("a")},
        {"text": "Hm.", "thought": True},
        {"text": "x", "thoughtSignature": signed("b")},
        {"text": "So.", "thought": True},
        {"functionCall": {"id": "1", "name": "f", "args": {}}, "thoughtSignature": signed("c")},
        {"functionCall": {"id": "2", "name": "f", "args": {}}},
        {"text": "", "thoughtSignature": signed("d")},
    ]


def test_a_prompt_that_was_held_back():
    (candidate,) = answer(Choice((), "filter", detail="SAFETY: no"))["candidates"]
    assert (candidate["finishReason"], candidate["finishMessage"]) == ("SAFETY", "SAFETY: no")


def test_parts_that_answers_do_not_have_are_left_out():
    assert parts(Hosted("x", {}), Text("a")) == [{"text": "a"}]


def test_several_choices_and_log_probabilities():
    first, second = answer(
        Choice((Text("a"),), "length", logprobs=(Logprob("a", -1.0),)), Choice((Text("b"),))
    )["candidates"]
    assert (first["index"], first["finishReason"]) == (0, "MAX_TOKENS")
    assert (second["index"], second["finishReason"]) == (1, "STOP")
    assert first["logprobsResult"]["chosenCandidates"] == [{"token": "a", "logProbability": -1.0}]
    assert "logprobsResult" not in second


OTHER = Citation("https://b.example")


def grounding(*places):
    """Return the sources A and OTHER, and the byte range that the first one supports."""
    return {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"web": {"uri": "https://b.example", "title": "https://b.example"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": start, "endIndex": end}, "groundingChunkIndices": [0]}
            for start, end in places
        ],
    }


def test_sources_with_their_bytes_in_all_of_the_text():
    cited = Text("aé", citations=(Citation("https://a.example", "A", 1, 2), OTHER))
    (candidate,) = answer(Choice((Text("éa"), cited)))["candidates"]
    assert candidate["groundingMetadata"] == grounding((4, 6))


def test_a_count():
    assert json.loads(CODECS.client.encode_count(31)) == {"totalTokens": 31}


END = (Finished("stop"),)
EMPTY = {"text": ""}


def written(*events, usage=USAGE, context=CONTEXT):
    encoder = CODECS.client.open_encoder(context)
    sent = encoder.begin() + b"".join(map(encoder.write, events))
    return sent + encoder.end(usage)


def parts_of(*events):
    """Return the parts of each chunk but the last, and the last candidate."""
    *chunks, last = chunks_of(written(*events))
    assert all(chunk == {**chunk, **BASE} for chunk in chunks)
    return [chunk["candidates"][0]["content"]["parts"] for chunk in chunks], last["candidates"][0]


def text(number, *texts, kind="text", choice=0):
    return slot(number, kind, *texts, choice=choice)


def call(number, *pieces):
    return slot(number, "call", *pieces, id=f"id{number}", name="f")


def thought(number, said, opaque):
    return slot(number, "reasoning", *([said] if said else []), seal=opaque)


def test_each_piece_is_a_chunk_and_the_last_has_finish_and_usage():
    assert chunks_of(written(*text(0, "Tea", " is é\u2028"), *END)) == [
        {"candidates": [candidate("Tea")], **BASE},
        {"candidates": [candidate(" is é\u2028")], **BASE},
        {"candidates": [candidate("", finishReason="STOP")], **COUNTED, **BASE},
    ]
    assert "usageMetadata" not in chunks_of(written(*END, usage=None))[-1]


def test_frames_are_ascii():
    assert written(*text(0, "é\u2028\U0001f600"), *END).isascii()


def test_a_text_that_is_repeated_is_framed_as_the_one_before():
    encoder = CODECS.client.open_encoder(CONTEXT)
    encoder.begin()
    encoder.write(Opened(0, "text"))
    assert encoder.write(Delta(0, "one")).replace(b"one", b"two") == encoder.repeat(b"two")
    encoder.write(Closed(0))
    encoder.write(Opened(1, "reasoning"))
    assert encoder.write(Delta(1, "one")).replace(b"one", b"two") == encoder.repeat(b"two")


def test_a_repeated_element_of_an_array_has_its_comma():
    encoder = CODECS.client.open_encoder(replace(CONTEXT, framing="json_array"))
    sent = encoder.begin() + encoder.write(Opened(0, "text")) + encoder.write(Delta(0, "one"))
    sent += encoder.repeat(b"two") + encoder.write(Closed(0)) + encoder.write(Finished("stop"))
    chunks = json.loads(sent + encoder.end(USAGE))
    said = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks]
    assert said == ["one", "two", ""]


def test_an_array_is_one_json_text():
    context = replace(CONTEXT, framing="json_array")
    chunks = json.loads(written(*text(0, "a", "b"), *END, context=context))
    assert len(chunks) == 3
    assert chunks[-1]["usageMetadata"] == USAGE_FIELDS
    assert len(json.loads(written(*END, context=context))) == 1


THOUGHT = {"text": "Hm.", "thought": True}
ODD_CALL = {"functionCall": {"id": "id1", "name": "f", "args": {"_raw": "a=b"}}}


def sealed(part, opaque="gw1.x"):
    return {**part, "thoughtSignature": signed(opaque)}


@pytest.mark.parametrize(
    ("events", "parts"),
    [
        ([], [EMPTY]),
        (text(0, "", "a", ""), [{"text": "a"}, EMPTY]),
        (text(0, "Hm.", kind="reasoning"), [THOUGHT, EMPTY]),
        (text(0, "No.", kind="refusal"), [{"text": "No."}, EMPTY]),
        (
            [
                *(Opened(0, "call", id="a", name="f"), Opened(1, "call", id="b", name="g")),
                *(Delta(0, '{"x"'), Delta(1, ""), Delta(0, ": 1}"), Closed(1), Closed(0)),
            ],
            [called("b", "g"), called("a", x=1), EMPTY],
        ),
        (
            [Opened(0, "call", id="a", name="f", custom=True), Delta(0, '{"x'), Closed(0)],
            [called("a", input='{"x'), EMPTY],
        ),
        (call(1, "a=b"), [ODD_CALL]),
        (
            [*thought(0, "Hm.", "gw1.x"), *text(1, "a"), *call(2, "{}"), *call(3)],
            [THOUGHT, {"text": "a"}, sealed(called("id2")), called("id3"), EMPTY],
        ),
        ([*thought(0, "Hm.", "gw1.x"), *text(1, "a")], [THOUGHT, {"text": "a"}, sealed(EMPTY)]),
        (
            [*thought(0, "", "gw1.x"), *thought(1, "Hm.", "gw1.y"), *call(2)],
            [sealed(EMPTY), THOUGHT, sealed(called("id2"), "gw1.y"), EMPTY],
        ),
    ],
    ids=[
        *("nothing", "empty_texts", "thought", "refusal", "calls_are_whole_when_they_close"),
        *("free_text_call", "odd_arguments", "state_goes_with_the_next_call"),
        *("state_without_a_call", "each_state_has_a_part"),
    ],
)
def test_each_part_is_a_chunk(events, parts):
    chunks, last = parts_of(*events, *END)
    assert [*chunks, last["content"]["parts"]] == [[part] for part in parts]


def test_a_call_that_was_cut_is_not_shown():
    parts, last = parts_of(*call(0, "{}"), *call(1, '{"a": "b'), Finished("length"))
    assert (parts, last["content"]["parts"]) == ([[called("id0")]], [EMPTY])
    assert last["finishReason"] == "MAX_TOKENS"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "STOP"),
        ("stop_sequence", "STOP"),
        ("length", "MAX_TOKENS"),
        ("tools", "STOP"),
        ("filter", "SAFETY"),
        ("refusal", "SAFETY"),
        ("pause", "STOP"),
        ("context_full", "MAX_TOKENS"),
        ("error", "OTHER"),
    ],
)
def test_why_an_answer_ended(finish, reason):
    last = parts_of(*text(0, "a"), Finished(finish, detail="why"))[1]
    assert last["finishReason"] == reason
    assert ("finishMessage" in last) == (finish in ("filter", "refusal", "error"))


def test_several_choices_end_in_one_chunk():
    events = (*text(0, "a"), *text(1, "b", choice=1), Finished("length", 1), Finished("stop", 0))
    *chunks, last = chunks_of(written(*events))
    assert [chunk["candidates"][0]["index"] for chunk in chunks] == [0, 1]
    ends = [(each["index"], each["finishReason"]) for each in last["candidates"]]
    assert ends == [(0, "STOP"), (1, "MAX_TOKENS")]


def test_log_probabilities_come_with_their_text():
    first, second = Logprob("a", -0.5), Logprob("b", -1.0)
    logprob = replace(first, top=(first, second))
    events = (Opened(0, "text"), Delta(0, "a", (logprob,)), Closed(0), *END)
    a, b = {"token": "a", "logProbability": -0.5}, {"token": "b", "logProbability": -1.0}
    assert chunks_of(written(*events))[0]["candidates"][0]["logprobsResult"] == {
        "topCandidates": [{"candidates": [a, b]}],
        "chosenCandidates": [a],
    }


def test_sources_stand_in_the_last_chunk_with_their_bytes():
    source = Citation("https://a.example", "A", 1, 3)
    behind = (Delta(1, "é"), Cited(1, replace(OTHER, start=1, end=2)), Closed(1))
    events = (
        *(Opened(0, "text"), Delta(0, "abc"), Cited(0, source), Closed(0)),
        *(Opened(1, "text"), Delta(1, "defg"), Cited(1, source), Cited(1, OTHER), *behind, *END),
    )
    assert parts_of(*events)[1]["groundingMetadata"] == grounding((1, 3), (4, 6))


# ---- failures ------------------------------------------------------------------------------------

FAULT = Fault(Condition.UPSTREAM_FAILED)
ERROR = b'{"error":{"code":503,"message":"%b","status":"UNAVAILABLE"}}' % FAULT.message.encode()


def test_a_failure_is_the_last_chunk_and_stands_bare_behind_it():
    encoder = CODECS.client.open_encoder(CONTEXT)
    assert encoder.encode_fault(FAULT, "id") == b"data: %b\r\n\r\n%b\n" % (ERROR, ERROR)


def test_a_failure_ends_an_array():
    encoder = CODECS.client.open_encoder(replace(CONTEXT, framing="json_array"))
    assert encoder.encode_fault(FAULT, "id") == b"[" + ERROR + b"]"
    encoder = CODECS.client.open_encoder(replace(CONTEXT, framing="json_array"))
    sent = encoder.begin() + encoder.write(Opened(0, "text")) + encoder.write(Delta(0, "a"))
    assert json.loads(sent + encoder.encode_fault(FAULT, "id"))[1] == json.loads(ERROR)


def test_nothing_stands_behind_the_end():
    encoder = CODECS.client.open_encoder(replace(CONTEXT, framing="json_array"))
    encoder.end(USAGE)
    assert encoder.encode_fault(FAULT, "id") == b""
