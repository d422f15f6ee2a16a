"""The translation between two families, with toy codecs: requests, whole answers, and streams for
any cut."""

import dataclasses
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.bridge import PREAMBLE_LIMIT_BYTES
from adapters.codecs import TRANSLATORS
from adapters.family.codec import MAX_EVENTS_AT_ONCE, AnswerContext, Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.ir.answer import Delta, Finished
from adapters.ir.parts import Text, Turn
from adapters.ir.request import Ask, Request
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.registry import FAMILIES
from adapters.translate import MAX_DROPPED, TranslatedBridge, Translator
from tests.adapters.builders import fault_of, fed
from tests.handlers.relay import toy
from tests.handlers.relay.toy import CLIENT, END, SAY, TRANSLATIONS, piece

TRANSLATOR = TRANSLATIONS["toy", "chat_completions"]
CONTEXT = AnswerContext("m", "CALL", 1, 11, include_usage=True)
ORIGIN = Origin("chat_completions", "mark", b"k" * 32, "user")
TARGET = Target("demo", "up", Traits())
REQUEST = Request("toy", False, (Turn("user", (Text("Who?"),)),))
MAX_EVENT_BYTES = 4096
WIRE = Path(__file__).parents[1] / "wire"


def begun(request=REQUEST, translator=TRANSLATOR, **fields):
    return at_once(translator.begin(request, TARGET, CONTEXT, ORIGIN, count=False, **fields))


def bridge() -> TranslatedBridge:
    return begun().open_bridge("m", "up", False, SAY, MAX_EVENT_BYTES)


def event(**fields):
    return b"data: %b\n\n" % json.dumps({"id": "c1", **fields}).encode()


def delta(index=0, finish=None, **fields):
    return event(choices=[{"index": index, "delta": fields, "finish_reason": finish}])


USAGE = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2})
DONE = b"data: [DONE]\n\n"
STREAM = (
    delta(role="assistant", content=""),
    b": wait\n\n",
    *(delta(content=text) for text in ("M", "e", ".", " é", "\U0001f600", "again", "again")),
    delta(finish="stop"),
    USAGE,
    DONE,
)


def fed_all(pieces, close=False):
    """Return the output for a stream in chunks, fed as the pump does, and its bridge."""
    made = bridge()
    out = b"".join([fed(made, piece) for piece in pieces])
    return out + (made.close() if close else b""), made


def cut(data, seed):
    rng = random.Random(seed)
    at = sorted(rng.choices(range(len(data) + 1), k=rng.randint(0, 12)))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


# ---- requests ------------------------------------------------------------------------------------


def test_a_request_is_refused_for_the_first_thing_that_matters():
    asks = (Ask("seed", "a"), Ask("metadata", "b"), Ask("n", "c"), Ask("n", "d"))
    fault = TRANSLATOR.refusal(replace(REQUEST, asks=asks), Traits())
    assert (fault.condition, fault.param) == (Condition.UNSUPPORTED, "c")
    assert TRANSLATOR.refusal(replace(REQUEST, asks=asks[:2]), Traits()) is None


def test_verdicts_are_those_for_the_model():
    special = {"n": "map", "image_data": "refuse", "stop": "note"}
    plain = toy.upstream_codec(n="refuse")
    codec = dataclasses.replace(
        plain,
        verdict=lambda feature, traits: (
            special if not traits.images and feature in special else {"n": "refuse"}
        ).get(feature, "map"),
    )
    translator = Translator(FAMILIES["chat_completions"], CLIENT, codec)
    asks = (Ask("n", "n"), Ask("stop", "stop"), Ask("image_data", "turns[0]"))
    request = replace(REQUEST, asks=asks)
    assert translator.refusal(request, Traits()).param == "n"
    assert translator.refusal(request, Traits(images=False)).param == "turns[0]"
    target = replace(TARGET, traits=Traits(images=False))
    made = at_once(translator.begin(request, target, CONTEXT, ORIGIN, count=False))
    assert made.dropped == ("stop",)


def test_dropped_fields_are_few_short_and_fit_for_a_header():
    names = ["metadata", "metadata", "a b", "a,b", "é\r\nx: y", "x" * 500, *map(str, range(99))]
    asks = tuple(Ask("metadata", name) for name in names)
    dropped = begun(replace(REQUEST, asks=asks)).dropped
    assert dropped[:4] == ("metadata", "a_b", "___x:_y", "x" * 96)
    assert len(dropped) == MAX_DROPPED


def test_the_body_is_kept_until_an_answer_is_accepted():
    made = begun()
    assert json.loads(made.body)["model"] == "up"
    assert made.request_body(None, None, SAY, "up", None) is made.body
    made.free_body()
    assert made.body == b""


# ---- whole answers -------------------------------------------------------------------------------


def answer(text, **fields):
    message = {"role": "assistant", "content": text}
    return json.dumps({"id": "c1", "choices": [{"message": message}], **fields}).encode()


def test_a_whole_answer_with_and_without_usage():
    reported = {"prompt_tokens": 5, "completion_tokens": 2}
    read = begun().read_answer(answer("Me.", usage=reported), "m", "up", SAY)
    assert json.loads(read.body) == {"said": "Me.", "used": 5, "model": "m"}
    assert (read.usage.output_tokens, read.reported, read.upstream_id) == (2, reported, "c1")
    read = begun().read_answer(answer("Me."), "m", "up", SAY)
    assert json.loads(read.body)["used"] == 11 and read.usage is None and read.output_units > 0


def test_a_large_answer_is_read_as_a_small_one():
    for usage in {"prompt_tokens": 5, "completion_tokens": 2}, None:
        body = answer("word " * 100_000, usage=usage)
        whole = begun().read_answer(body, "m", "up", SAY)
        in_steps = at_once(begun().read_large_answer(body, "m", "up", SAY))
        assert (in_steps.body, in_steps.usage) == (whole.body, whole.usage)
        assert in_steps.output_units == pytest.approx(whole.output_units, rel=0.1)


def test_an_error_inside_an_answer_is_one():
    body = b'{"error": {"message": "busy", "type": "server_error"}}'
    for read in begun().read_answer, lambda *args: at_once(begun().read_large_answer(*args)):
        assert fault_of(read, body, "m", "up", SAY).condition is Condition.UPSTREAM_FAILED


# ---- streams -------------------------------------------------------------------------------------


def test_so_many_events_are_translated_at_once_and_the_others_are_asked_for():
    events, whole = [delta(content=str(number)) for number in range(600)], bridge()
    cut = bridge()
    sent = [cut.feed(b"".join(events) + delta(finish="stop"))]
    while cut.busy:
        assert not cut.aligned
        sent.append(cut.feed(b""))
    assert len(sent) == 3
    assert b"".join(sent) == b"".join(map(whole.feed, [*events, delta(finish="stop")]))


def test_an_event_that_would_become_too_many_ends_the_stream():
    calls = [{"index": 0, "function": {"arguments": "x"}}] * (MAX_EVENTS_AT_ONCE + 1)
    stream = bridge()
    stream.feed(delta(content="x"))
    assert stream.feed(delta(tool_calls=calls)) == b""
    assert stream.fault.condition is Condition.UPSTREAM_INVALID and stream.ended


def test_a_stream_event_by_event():
    out, made = fed_all(STREAM)
    texts = ("M", "e", ".", " é", "\U0001f600", "again", "again")
    assert out == b"".join(map(piece, texts)) + END
    assert made.ended and made.whole and made.end_seen and made.fault is None
    assert (made.usage.output_tokens, made.upstream_id) == (2, "c1")


WORDS = st.text('ab \\"\né\U0001f600\x00', max_size=5)
DELTAS = st.one_of(
    WORDS.map(lambda text: delta(content=text)),
    st.text("abc", min_size=1, max_size=3).map(lambda text: delta(content=text)),
    st.builds(lambda text: delta(index=1, content=text), st.text("abc", max_size=3)),
    st.just(b": wait\n\n"),
    st.just(delta(seal="s")),
    st.just(delta(content="x", refusal=None)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(DELTAS, max_size=20))
def test_the_short_way_of_a_repeated_event_equals_the_general_one(events):
    stream = [STREAM[0], *events, *STREAM[-3:]]
    short, by_event = fed_all(stream)
    made = bridge()
    assert short == b"".join([made.feed(event) for event in stream])
    assert by_event.output_units == made.output_units


def test_finishes_are_written_behind_the_usage(monkeypatch):
    seen = []
    write = toy.Encoder.write
    monkeypatch.setattr(toy.Encoder, "write", lambda self, e: seen.append(e) or write(self, e))
    made = bridge()
    for one in STREAM[:-1]:
        made.feed(one)
    assert not any(isinstance(one, Finished) for one in seen)
    made.feed(DONE)
    assert isinstance(seen[-1], Finished)


def test_a_cut_stream_without_words_and_one_that_lacks_its_last_blank_line_are_whole():
    out, made = fed_all([delta(role="assistant"), delta(finish="length"), DONE])
    assert out == END.replace(b"stop", b"length") and made.ended and made.whole
    out, made = fed_all([b"".join(STREAM)[:-2]], close=True)
    assert out == fed_all(STREAM)[0] and made.whole


def test_a_stream_that_breaks_off_is_not_whole():
    for size in range(1, len(STREAM) - 2):
        out, made = fed_all(STREAM[:size], close=True)
        assert not made.whole and END not in out
    _, made = fed_all([*STREAM[:4], STREAM[4][:-9]], close=True)
    assert not made.whole and made.fault is None
    assert b"oops" in made.encode_fault(Fault(Condition.UPSTREAM_FAILED), "id")


def test_the_vendors_error_ends_the_stream():
    error = event(error={"message": "busy", "type": "server_error"})
    out, made = fed_all([*STREAM[:4], error, *STREAM[4:]])
    assert out == piece("M") + piece("e") and made.ended and not made.whole
    assert made.fault.condition is Condition.UPSTREAM_FAILED
    assert made.feed(STREAM[3]) == b"" and made.close() == b""


def test_garbage_ends_the_stream():
    for odd in (b"data: {\n\n", b"data: [1]\n\n", b"data: 5\n\n", b"data: \xff\n\n"):
        out, made = fed_all([*STREAM[:3], odd])
        assert made.fault.condition is Condition.UPSTREAM_INVALID and out == piece("M")


def test_an_event_beyond_the_limit_ends_the_stream():
    huge = delta(content="x" * MAX_EVENT_BYTES)
    for pieces in [huge], [huge[:-1], huge[-1:]], cut(huge, 3):
        out, made = fed_all([*STREAM[:3], *pieces], close=True)
        assert made.fault.condition is Condition.UPSTREAM_INVALID and out == piece("M")


def test_comments_without_end_are_no_answer():
    made = bridge()
    for _ in range(PREAMBLE_LIMIT_BYTES // 8):
        made.feed(b": wait\n\n")
    assert not made.ended
    made.feed(b": wait\n\n")
    assert made.fault.condition is Condition.UPSTREAM_INVALID and not made.accepted


def test_what_a_decoder_cannot_make_sense_of_ends_the_stream(monkeypatch):
    read = toy.Decoder.read

    def strict(self, name, said):
        events = read(self, name, said)
        if any(isinstance(one, Delta) and one.text == " é" for one in events):
            raise Fault(Condition.UPSTREAM_INVALID)
        return events

    monkeypatch.setattr(toy.Decoder, "read", strict)
    out, made = fed_all(STREAM)
    assert out == piece("M") + piece("e") + piece(".") and made.ended
    assert made.fault.condition is Condition.UPSTREAM_INVALID and made.whole is False


def test_what_cannot_be_ended_is_a_fault(monkeypatch):
    def broken(self):
        raise Fault(Condition.UPSTREAM_INVALID)

    monkeypatch.setattr(toy.Decoder, "end", broken)
    out, made = fed_all(STREAM)
    assert END not in out and made.fault is not None and not made.whole


@pytest.mark.parametrize(
    ("sample", "fields", "sent"),
    [
        ("text", {"stop": ["cups"]}, [b'"content":"three "}', b'"finish_reason":"stop"']),
        (
            "tools_parallel",
            {"functions": [{"name": "get_tide"}]},
            [b'"function_call":{"name":"get_tide"', b'"finish_reason":"function_call"'],
        ),
    ],
)
def test_what_the_client_alone_knows_is_made_of_the_stream(sample, fields, sent):
    translator = TRANSLATORS["chat_completions", "responses"]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "?"}], **fields})
    request = at_once(translator.decode(top_level(body.encode()), True, None))
    made = begun(request, translator).open_bridge("m", "up", False, SAY, 1 << 20)
    stream = made.feed((WIRE / f"responses/{sample}.sse").read_bytes()) + made.close()
    assert made.whole and b"tool_calls" not in stream and b"one pot" not in stream
    assert [part in stream for part in sent] == [True, True]
