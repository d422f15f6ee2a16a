"""Answers of endpoints: whole, large, as events, as bytes; embeddings in the other form."""

import base64
import json
from array import array

import pytest

from adapters.endpoints.endpoint import EndpointPairing
from adapters.endpoints.table import ENDPOINTS, rows_of_name
from adapters.family import Peek
from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.registry import VENDORS
from store.values.usage import Usage

PEEK = Peek("m", False, 0, 1, include_usage=True)
EMBEDDINGS, COMPLETIONS = ENDPOINTS["/v1/embeddings"], ENDPOINTS["/v1/completions"]
IMAGES, SOUND = ENDPOINTS["/v1/images/generations"], ENDPOINTS["/v1/audio/transcriptions"]
SPEECH = ENDPOINTS["/v1/audio/speech"]
USAGE = {"prompt_tokens": 8, "completion_tokens": 4}


def pairing(row, family="chat_completions", body=b"{}", upstream="up"):
    return row.pairing(family, top_level(body), PEEK, upstream)


def whole(row, answer):
    body = answer if isinstance(answer, bytes) else dumps(answer)
    return pairing(row).read_answer(body, "m", "up", row)


def large(row, answer):
    body = answer if isinstance(answer, bytes) else dumps(answer)
    assert isinstance(pairing(row), EndpointPairing)
    return at_once(pairing(row).read_large_answer(body, "m", "up", row))


@pytest.mark.parametrize("read", [whole, large])
def test_whole_answers(read):
    rows = [{"index": 0, "embedding": [0.5] * 20_000}]
    answer = read(EMBEDDINGS, {"data": rows, "model": "up", "usage": USAGE})
    assert json.loads(answer.body)["model"] == "m" and answer.usage == Usage(8)
    assert read(EMBEDDINGS, {"data": rows}).output_units == 0, "vectors are not weighed"
    pictures = [{"b64_json": "A" * 70_000}] * 3
    assert read(IMAGES, {"data": pictures}).output_units == 3
    text = {"choices": [{"text": "once upon " * 9000}], "id": "cmpl-1"}
    answer = read(COMPLETIONS, text)
    assert answer.usage is None and answer.output_units > 20_000
    assert answer.upstream_id == "cmpl-1"
    assert read(SOUND, b"1\n00:00\nheard\n").output_units > 0
    assert read(SOUND, {"text": "heard it", "duration": 2}).usage == Usage(
        more=(("audio_second", 2000),)
    )
    assert whole(SOUND, {"text": "heard it"}).output_units == 2
    same = dumps({"data": rows, "model": "m"})
    assert pairing(EMBEDDINGS).read_answer(same, "m", "m", EMBEDDINGS).body is same


@pytest.mark.parametrize(
    ("row", "body"),
    [
        (EMBEDDINGS, b'{"error":{"message":"no"}}'),
        (EMBEDDINGS, b'{"object":"x"}'),
        (EMBEDDINGS, b"<html>"),
        (EMBEDDINGS, b'{"x":"%b"}' % (b"x" * 20_000)),
    ],
)
def test_what_is_no_answer(row, body):
    with pytest.raises(Fault):
        whole(row, body)


def event(data, name=""):
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + dumps(data) + b"\n\n"


def bridge(row, *, drop_usage=False):
    return pairing(row).open_bridge("m", "up", drop_usage, row, 1 << 16)


def test_events_of_completions():
    usage = event({"choices": [], "usage": USAGE, "id": "c"})
    for drop in (False, True):
        stream = bridge(COMPLETIONS, drop_usage=drop)
        choice = {"text": "once upon", "finish_reason": "stop"}
        sent = stream.feed(event({"id": "c", "model": "up", "choices": [choice, 5]}))
        assert b'"model":"m"' in sent and stream.whole and stream.output_units == 3
        assert stream.feed(usage) == (b"" if drop else usage)
        assert stream.feed(b"data: [DONE]\n\n") and stream.ended
        assert stream.usage == Usage(8, 4) and stream.upstream_id == "c"


def test_events_of_pictures_and_failures():
    stream = bridge(IMAGES)
    partial, last = ({"type": f"x.{kind}", "b64_json": "A"} for kind in ("partial", "completed"))
    assert stream.feed(event(partial, "x.partial")) and not stream.whole
    assert stream.feed(event(last)) and stream.whole and stream.output_units == 1
    for bad in (event({"error": {"message": "no"}}), event({"x": 1}, "error"), b"data: [DONE]\n\n"):
        stream = bridge(COMPLETIONS)
        assert stream.feed(bad) == b"" and stream.fault is not None and not stream.whole
        error = stream.encode_fault(Fault(Condition.UPSTREAM_FAILED), "id")
        assert json.loads(error[6:])["error"]["code"]
    stream = bridge(SOUND)
    assert stream.feed(event({"type": "transcript.text.delta", "delta": "heard it"}))
    assert stream.output_units == 2 and not stream.whole and stream.served == stream._tap.served


def test_bytes_pass_as_they_come():
    stream = bridge(SPEECH)
    assert stream.feed_repeat(b"x") is None and not stream.accepted
    assert stream.feed(b"ID3") == b"ID3" and stream.accepted and stream.whole and stream.aligned
    assert stream.feed_repeat(b"data: no event") == b"data: no event"
    assert stream.feed(b"more") == b"more" and stream.close() == b""
    assert stream.encode_fault(Fault(Condition.UPSTREAM_FAILED), "id") == b""
    assert not (stream.at_boundary or stream.started or stream.end_seen)
    stream.watch(print, stored=False)


def test_speech_may_come_as_events():
    stream = bridge(SPEECH)
    done = {"type": "speech.audio.done", "usage": {"input_tokens": 1, "output_tokens": 2}}
    assert stream.feed(event({"type": "speech.audio.delta", "audio": "A"})) and stream.accepted
    assert not stream.whole
    sent = stream.feed(event(done)[:-1]) + stream.close()
    assert b"audio.done" in sent and stream.whole
    assert stream.usage == Usage(1, more=(("output_audio", 2),))


def translated(path, channel, body, peek=PEEK):
    row = ENDPOINTS[path]
    made = row.pairing(channel, top_level(dumps(body)), peek, "up")
    sent = made.request_body(None, peek, row, "up", VENDORS["gemini"])
    return made, json.loads(sent)


CONTENT_A = {"parts": [{"text": "a"}]}


def test_embeddings_for_gemini():
    body = {"model": "m", "input": "a", "user": "u", "odd": 1, "dimensions": 2}
    made, sent = translated("/v1/embeddings", "generate_content", body)
    assert sent == {
        "requests": [{"model": "models/up", "outputDimensionality": 2, "content": CONTENT_A}]
    }
    assert made.dropped == ("odd",) and made.translated
    upstream = {"embeddings": [{"values": [0.5]}], "usageMetadata": {"promptTokenCount": 3}}
    answer = made.read_answer(dumps(upstream), "m", "up", None)
    assert json.loads(answer.body)["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert answer.usage == Usage(3)
    for bad in (
        {"error": {"message": "no"}},
        {"embeddings": [5]},
        {"embeddings": [{"values": "A"}]},
    ):
        with pytest.raises(Fault):
            made.read_answer(dumps(bad), "m", "up", None)
    with pytest.raises(AssertionError):
        made.open_bridge()


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        ({"input": []}, Condition.INVALID_FIELD),
        ({"input": {}}, Condition.INVALID_FIELD),
        ({"input": ["a"] * 3000}, Condition.INVALID_FIELD),
        ({"input": [1, 2]}, Condition.UNSUPPORTED),
    ],
)
def test_what_gemini_does_not_embed(body, condition):
    with pytest.raises(Fault) as raised:
        translated("/v1/embeddings", "generate_content", body)
    assert raised.value.condition is condition


CONTENT = {"parts": [{"text": "a"}, {"text": "b"}]}
ONE, BATCH = "/v1beta/models/{model}:embedContent", "/v1beta/models/{model}:batchEmbedContents"


def test_embeddings_for_openai():
    body = {"content": {"parts": {"text": "a"}}, "output_dimensionality": 2, "taskType": "x"}
    made, sent = translated(ONE, "responses", body)
    assert sent == {"model": "up", "input": ["a"], "dimensions": 2} and made.dropped == (
        "taskType",
    )
    packed = base64.b64encode(array("f", [0.5]).tobytes()).decode()
    upstream = {"data": [{"index": 0, "embedding": packed}]}
    answer = made.read_answer(dumps(upstream), "m", "up", None)
    assert json.loads(answer.body) == {"embedding": {"values": [0.5]}} and answer.usage is None
    body = {"input": ["a"], "encoding_format": "base64"}
    made, sent = translated("/v1/embeddings", "generate_content", body)
    answer = made.read_answer(dumps({"embeddings": [{"values": [0.5]}]}), "m", "up", None)
    assert json.loads(answer.body)["data"][0]["embedding"] == packed
    assert len(sent["requests"]) == 1 and "dimensions" not in made.dropped
    made, sent = translated(BATCH, "chat_completions", {"requests": [{"content": CONTENT}]})
    assert sent == {"model": "up", "input": ["a\nb"]}
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    rows = [{"index": 1, "embedding": [1]}, {"embedding": [0]}]
    answer = made.read_answer(dumps({"data": rows, "usage": usage}), "m", "up", None)
    assert json.loads(answer.body) == {
        "embeddings": [{"values": [0]}, {"values": [1]}],
        "usageMetadata": {"promptTokenCount": 3},
    }
    for bad in ({"data": []}, {"data": [{"embedding": "!"}]}, {"data": [{"embedding": ["a"]}]}):
        with pytest.raises(Fault):
            made.read_answer(dumps(bad), "m", "up", None)


@pytest.mark.parametrize(
    "body",
    [
        {"requests": []},
        {"requests": [5]},
        {"requests": [{"content": {}}]},
        {"requests": [{"content": 5}]},
        {"requests": [{"content": {"parts": [{"inlineData": {}}]}}]},
    ],
)
def test_what_openai_does_not_embed(body):
    with pytest.raises(Fault):
        translated(BATCH, "chat_completions", body)


def test_names_that_say_what_a_model_is_for():
    for name, row in (
        *(("text-embedding-3-small", "embeddings"), ("BAAI/bge-m3", "embeddings")),
        *(("rerank-v3.5", "rerank"), ("gpt-image-1", "images"), ("tts-1", "speech")),
        *(("whisper-1", "transcriptions"), ("omni-moderation-latest", "moderations")),
    ):
        assert rows_of_name(name) == {row}
    assert "" in rows_of_name("gpt-5")


def test_channels_that_take_a_row():
    assert EMBEDDINGS.key == "chat_completions/embeddings" and EMBEDDINGS.path_is_listed
    assert EMBEDDINGS.family.client.conversation(top_level(b"{}")) == b""
    gemini, groq = VENDORS["gemini"], VENDORS["groq"]
    assert EMBEDDINGS.takes("generate_content", gemini, translate=True)
    assert not EMBEDDINGS.takes("generate_content", gemini, translate=False)
    assert not EMBEDDINGS.takes("chat_completions", groq, translate=True)
    assert SPEECH.takes("responses", groq, translate=False)
