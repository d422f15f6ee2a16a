"""Streams of the generate-content family: what vendors really send, and the edits."""

import json

import pytest

from adapters.bridge import NativeBridge
from adapters.faults import Condition, Fault
from adapters.generate_content import FAMILY
from store.values.usage import Usage

EVENTS = FAMILY.client.operations["stream"]
ARRAY = FAMILY.client.operations["stream_array"]
FRAMINGS = [EVENTS, ARRAY]


def chunk(*parts: object, finish: str | None = None, index: int | None = None, **fields) -> bytes:
    candidate: dict[str, object] = {"content": {"role": "model", "parts": list(parts)}}
    if index is not None:
        candidate["index"] = index
    if finish is not None:
        candidate["finishReason"] = finish
    return said(candidates=[candidate], **fields)


def said(**fields) -> bytes:
    return json.dumps({**fields, "modelVersion": "up", "responseId": "r1"}).encode()


def text(words: str) -> dict[str, str]:
    return {"text": words}


def usage(prompt: int | None, output: int | None, **fields) -> dict[str, object]:
    return {"promptTokenCount": prompt, "candidatesTokenCount": output, **fields}


def framed(chunks, operation) -> list[bytes]:
    if operation is EVENTS:
        return [b"data: " + one + b"\r\n\r\n" for one in chunks]
    return [(b"," if number else b"[") + one for number, one in enumerate(chunks)]


def tap_after(*chunks: bytes, operation=EVENTS, public="up"):
    tap = FAMILY.upstream.stream_tap(public, "up", True, operation)
    return tap, [tap.feed(one) for one in framed(chunks, operation)]


HELLO = chunk(text("hello"))


@pytest.mark.parametrize("operation", FRAMINGS)
def test_an_answer_from_its_beginning_to_its_end(operation):
    tap, sent = tap_after(HELLO, operation=operation)
    assert tap.accepted and tap.started and not tap.finished and not tap.whole
    assert tap.upstream_id == "r1" and sent == framed([HELLO], operation)
    assert tap.usage is None and tap.reported is None
    tap, _ = tap_after(HELLO, chunk(text("."), finish="STOP"), operation=operation)
    assert tap.finished and not tap.ended
    assert tap.whole == (operation is EVENTS)
    if operation is ARRAY:
        assert tap.feed(b"\r\n]") == b"\r\n]"
        assert tap.whole and tap.finished and not tap.ended
        assert tap.feed(b"\r\n") == b"\r\n" and not tap.ended
        assert tap.feed(b"more") is None and tap.whole and tap.ended
        assert tap.encode_fault(Fault(Condition.UPSTREAM_FAILED), "r") == b""


@pytest.mark.parametrize("operation", FRAMINGS)
def test_of_every_number_the_last_one_counts(operation):
    tap, _ = tap_after(
        chunk(text("a"), usageMetadata=usage(14, 4)),
        chunk(text("b"), usageMetadata=usage(14, 7)),
        chunk(text("c"), usageMetadata=usage(15, None, thoughtsTokenCount=3)),
        chunk(text("d"), usageMetadata=usage(16, None, thoughtsTokenCount=4)),
        chunk(text("e")),
        operation=operation,
    )
    assert tap.usage == Usage(16, 7, reasoning_tokens=4)
    details = [{"modality": "TEXT", "tokenCount": 17}]
    last = {"promptTokenCount": 17, "promptTokensDetails": details, "cachedContentTokenCount": 5}
    tap.feed(framed([HELLO, chunk(finish="STOP", usageMetadata=last)], operation)[1])
    assert tap.usage == Usage(12, 7, 5, reasoning_tokens=4)
    assert tap.reported == {**last, "candidatesTokenCount": 7, "thoughtsTokenCount": 4}
    # A last chunk with only usage, after the finish.
    tap.feed(framed([HELLO, said(usageMetadata=usage(17, 20))], operation)[1])
    assert tap.usage == Usage(12, 20, 5, reasoning_tokens=4) and tap.finished


@pytest.mark.parametrize("odd", [None, 7, [], "x"])
def test_odd_usage_is_not_reported(odd):
    tap, sent = tap_after(HELLO, chunk(text("b"), usageMetadata=odd), HELLO)
    assert tap.usage is None and tap.reported is None and None not in sent


def test_usage_that_cannot_be_read_is_left_out():
    bad = chunk(text("b"), usageMetadata={"promptTokenCount": 3, "x": "?"}).replace(b"?", b"\xff")
    good = chunk(text("b"), usageMetadata=usage(4, 5))
    tap, _ = tap_after(HELLO, good, bad)
    assert tap.fault is None and tap.usage == Usage(4, 5)


@pytest.mark.parametrize("operation", FRAMINGS)
@pytest.mark.parametrize(
    ("part", "units"),
    [
        (text("x" * 16), 4),
        ({"text": "x" * 16, "thought": True}, 4),
        ({"text": "", "thoughtSignature": "y" * 99}, 0),
        ({"functionCall": {"name": "f", "args": {"a": "xxxxxxxx"}}}, 4),
        ({"functionCall": {"name": "f"}}, 0),
        (text("\ud83d" + "x" * 15), 6),
        ({"text": 7}, 0),
        (7, 0),
    ],
)
def test_output_is_counted(part, units, operation):
    """In the first chunk, in a later one, and in an unusual form."""
    for chunks in ([chunk(part)], [chunk(), chunk(part)], [chunk(), chunk(part, index=0)]):
        tap, sent = tap_after(*chunks, operation=operation)
        assert tap.output_units == units and sent == framed(chunks, operation)
    tap, _ = tap_after(chunk(part), chunk(part, finish="STOP"), chunk(part), operation=operation)
    assert abs(tap.output_units - 3 * units) <= 1


def ended(tap, *chunks):
    """Return True if the stream is finished after these chunks."""
    for event in framed(chunks, EVENTS):
        tap.feed(event)
    assert tap.whole == tap.finished
    return tap.finished


def test_every_candidate_needs_its_finish():
    tap, _ = tap_after(chunk(text("a"), index=0), chunk(text("b"), index=1))
    assert not ended(tap, chunk(finish="STOP", index=1))
    assert ended(tap, chunk(finish="MAX_TOKENS"))
    assert ended(tap, chunk(text("late"), index=1))
    assert not ended(tap, chunk(text("c"), index=2))


def test_two_candidates_in_one_chunk():
    both = [{"index": i, "content": {"parts": [text("x" * 16)]}} for i in (0, 1)]
    ends = [{"index": i, "finishReason": "STOP"} for i in (0, 1)]
    tap, _ = tap_after(said(candidates=both), said(candidates=both))
    assert tap.output_units == 16 and not tap.finished
    assert ended(tap, said(candidates=ends))


@pytest.mark.parametrize("operation", FRAMINGS)
def test_a_blocked_prompt_is_a_whole_answer(operation):
    blocked = said(promptFeedback={"blockReason": "SAFETY"}, usageMetadata={"totalTokenCount": 9})
    tap, _ = tap_after(blocked, operation=operation)
    assert tap.accepted and tap.finished
    tap, _ = tap_after(said(promptFeedback={"safetyRatings": []}), operation=operation)
    assert tap.accepted and not tap.finished
    tap, _ = tap_after(HELLO, blocked, operation=operation)
    assert not tap.finished


@pytest.mark.parametrize("operation", FRAMINGS)
@pytest.mark.parametrize(
    "odd",
    [
        said(),
        said(candidates=None),
        said(candidates=[7]),
        said(candidates=[{"content": None}, {"content": {"parts": 7}}]),
        said(candidates=[{"index": "x"}]),
        said(usageMetadata=[]),
        said(promptFeedback=7),
        said(error=None, candidates=[]),
    ],
)
def test_oddities_pass_as_they_are(odd, operation):
    for chunks in ([HELLO, odd], [odd, HELLO]):
        tap, sent = tap_after(*chunks, operation=operation)
        assert sent == framed(chunks, operation) and tap.fault is None and not tap.ended


def test_the_end_marker_of_another_family_is_left_out():
    tap, _ = tap_after(HELLO)
    assert tap.feed(b"data: [DONE]\n\n") is None and tap.fault is None and not tap.whole
    tap, _ = tap_after(HELLO, chunk(finish="STOP"))
    assert tap.feed(b"data: [DONE]\r\n\r\n") is None and tap.whole


def test_the_id_may_come_late():
    without = HELLO.replace(b"responseId", b"x")
    tap, _ = tap_after(without, without.replace(b'"r1"', b"7"), without)
    assert tap.upstream_id is None
    tap.feed(framed([HELLO], EVENTS)[0])
    assert tap.upstream_id == "r1"


@pytest.mark.parametrize("operation", FRAMINGS)
@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (b'{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}', "E27"),
        (b'{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}', "E25"),
        (b'[{"error":{"code":500,"message":"m"}}]', "E26"),
        (b'{"error":"m"}', "E30"),
        (b'{"candidates":[],"error":{"code":504}}', "E28"),
        (b"{nonsense}", "E30"),
        (b"[]", "E30"),
        (b"7", "E30"),
    ],
)
def test_errors(bad, condition, operation):
    for chunks in ([bad], [HELLO, bad]):
        tap, sent = tap_after(*chunks, operation=operation)
        assert sent[-1] is None and tap.fault.condition == condition and tap.ended
        assert not tap.whole and tap.accepted == (len(chunks) == 2)


@pytest.mark.parametrize("operation", FRAMINGS)
@pytest.mark.parametrize("first", [b"{}", b'{"message":"m"}', b'{"choices":[]}'])
def test_a_first_chunk_has_something_of_an_answer(first, operation):
    tap, sent = tap_after(first, operation=operation)
    assert sent == [None] and tap.fault.condition == "E30" and not tap.accepted
    tap, sent = tap_after(HELLO, first, operation=operation)
    assert tap.fault is None and sent[1] is not None


def array_of(*pieces: bytes, public="up"):
    tap = FAMILY.upstream.stream_tap(public, "up", True, ARRAY)
    return tap, [tap.feed(one) for one in pieces]


NO_BEGIN = (b"<html>", b"[]", b"[ ]", b"]", b"," + HELLO, HELLO, b"[," + HELLO)
NO_SECOND = (HELLO, b"[" + HELLO, b",]", b",7]", b"}", b",," + HELLO)


@pytest.mark.parametrize(
    "pieces", [*([piece] for piece in NO_BEGIN), *([b"[" + HELLO, piece] for piece in NO_SECOND)]
)
def test_what_is_no_array_of_chunks(pieces):
    tap, sent = array_of(*pieces)
    assert sent[-1] is None and tap.fault.condition == "E30" and not tap.whole
    assert sent[:-1] == pieces[:-1]


def test_an_error_in_place_of_an_array():
    alone = b' \n{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}'
    tap, sent = array_of(alone)
    assert sent == [None] and tap.fault.condition == "E27"
    tap, sent = array_of(b"[" + HELLO, alone)
    assert sent[1] is None and tap.fault.condition == "E27"


def test_blanks_of_an_array_pass():
    pieces = [b"\xef\xbb\xbf \r\n[\n" + HELLO, b"\r\n,\r\n " + HELLO, b" ]"]
    for public in ("up", "a/b"):
        tap, sent = array_of(*pieces, public=public)
        renamed = f'"modelVersion": "{public}"'.encode()
        assert sent == [piece.replace(b'"modelVersion": "up"', renamed) for piece in pieces]
        assert tap.whole and tap.output_units == 3


@pytest.mark.parametrize("operation", FRAMINGS)
def test_the_model_is_renamed_and_nothing_else(operation):
    last = b'"modelVersion": "%b", "responseId": "r1"}'
    chunks = [
        chunk(text('"modelVersion": "up"')),
        chunk(text("b")),
        chunk(text("c"), model="up"),
        chunk(text("\\")),
        chunk(text("d"), x={"modelVersion": "up"}),
        chunk(text("e"), index=1),
        chunk(text("f"), finish="STOP"),
        b'{"modelVersion":"up","candidates":[]}',
        b'{ "candidates":[], "modelVersion" :\t"up" }',
        b'{"candidates":[],"modelVersio\\u006e":"up"}',
    ]
    assert all(one.endswith(last % b"up") for one in chunks[:7])
    renamed = [one.removesuffix(last % b"up") + last % b"a/b" for one in chunks[:7]]
    renamed += [one.replace(b'"up"', b'"a/b"') for one in chunks[7:]]
    sent = tap_after(*chunks, operation=operation, public="a/b")[1]
    assert sent == framed(renamed, operation)


@pytest.mark.parametrize("operation", FRAMINGS)
def test_another_version_stays(operation):
    chunks = [HELLO.replace(b'"up"', b'"up-002"')] * 3 + [HELLO, b'{"candidates":[]}']
    sent = tap_after(*chunks, operation=operation, public="a/b")[1]
    assert sent[:3] == framed(chunks, operation)[:3]
    assert b'"a/b"' in sent[3] and sent[4] == framed(chunks, operation)[4]


@pytest.mark.parametrize("operation", FRAMINGS)
def test_a_key_behind_an_escaped_quote_is_no_key(operation):
    tricky = b'{"candidates":[],"\\"modelVersion": "up", "responseId": "r1"}'
    chunks = [HELLO, HELLO, tricky, b'{"candidates":[],"modelVersion":"up","\\"modelVersion":"up"}']
    sent = tap_after(*chunks, operation=operation, public="a/b")[1]
    assert sent[2] == framed(chunks, operation)[2]
    assert sent[3] == framed(chunks, operation)[3].replace(b'"up"', b'"a/b"', 1)


@pytest.mark.parametrize("operation", FRAMINGS)
def test_a_doubled_model_is_not_let_through(operation):
    doubled = HELLO.replace(b'{"candidates"', b'{"modelVersion": "up", "candidates"')
    for chunks in ([doubled], [HELLO, doubled], [HELLO, HELLO, doubled]):
        tap, sent = tap_after(*chunks, operation=operation, public="a/b")
        assert sent[-1] is None and tap.fault.condition == "E30"
        assert tap.accepted == (len(chunks) > 1)


def stream_of():
    return NativeBridge(FAMILY.upstream.stream_tap("up", "up", True, ARRAY), 20)


def test_an_oversized_element():
    stream, big = stream_of(), b"[" + chunk(text("x" * 100))
    assert stream.feed(big[:50]) == big[:50] and stream.accepted and not stream.at_boundary
    assert stream.feed(big[50:]) == big[50:] and stream.at_boundary
    assert stream.encode_fault(Fault(Condition.UPSTREAM_FAILED), "r").startswith(b",")
    assert stream.feed(b',{"candidates":[]}]') == b',{"candidates":[]}]' and stream.whole
    garbage = stream_of()
    assert garbage.feed(b"[" + b"7," * 20) == b"" and garbage.fault.condition == "E30"
