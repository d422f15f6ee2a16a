"""Reading of requests to endpoints, and the edit of the model's name."""

import json

import pytest
from msgspec.structs import replace

from adapters.endpoints.form import form_of
from adapters.endpoints.table import ENDPOINTS
from adapters.faults import Fault
from adapters.framing.multipart import Part
from adapters.json.jsonio import top_level
from adapters.registry import ALL_ENDPOINTS, VENDORS

MODEL = "/v1beta/models/{model}:"
IMAGES, SPEECH, SOUND = "/v1/images/generations", "/v1/audio/speech", "/v1/audio/translations"
COMPLETIONS, EMBED, BATCH = "/v1/completions", MODEL + "embedContent", MODEL + "batchEmbedContents"


def spans_of(body):
    return top_level(body if isinstance(body, bytes) else json.dumps(body).encode())


def read(path, body, target=None):
    row = ENDPOINTS[path]
    return row.family.client.peek(spans_of(body), row, target)


def edited(path, body, public="m", upstream="up", target=None):
    row = ENDPOINTS[path]
    peek = read(path, body, target)
    assert peek.model == public
    spans = spans_of(body)
    return row.upstream.edit_request(spans, peek, row, upstream, VENDORS["openai"])


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/embeddings", {"input": "a"}, (False, 0, 1, ())),
        (COMPLETIONS, {"prompt": "a"}, (False, None, 1, ())),
        (COMPLETIONS, {"prompt": ["a", "b"], "best_of": 3, "stream": True, "max_tokens": 9},
         (True, 9, 6, ())),
        (COMPLETIONS, {"prompt": [1, 2, 3]}, (False, None, 1, ())),
        ("/v1/rerank", {"query": "q", "documents": ["a"] * 250},
         (False, 0, 1, (("search_unit", 3),))),
        (IMAGES, {"prompt": "a", "n": "3"}, (False, None, 3, (("image", 3),))),
        (IMAGES, {"prompt": "a", "n": "", "stream": "true"}, (True, None, 1, (("image", 1),))),
        (SPEECH, {"input": "héllo"}, (True, None, 1, (("character", 5),))),
    ],
)  # fmt: skip
def test_fields(path, body, expected):
    peek = read(path, {"model": "m", **body})
    assert (peek.stream, peek.max_output_tokens, peek.choices, peek.asks.uses) == expected


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"model": "m"}, "input"),
        ("/v1/embeddings", {"model": "m", "input": None}, "input"),
        ("/v1/embeddings", {"input": "a"}, "model"),
        (COMPLETIONS, {"model": "m", "n": -1}, "n"),
        (COMPLETIONS, {"model": "m", "n": "x"}, "n"),
        (COMPLETIONS, {"model": "m", "stream": 7}, "stream"),
        (SPEECH, {"model": "m"}, "input"),
        (SPEECH, {"model": "m", "input": 5}, "input"),
        (EMBED, {}, "model"),
    ],
)
def test_faults(path, body, param):
    with pytest.raises(Fault) as raised:
        read(path, body)
    assert raised.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"requests": 5}, "requests"),
        ({"requests": [5]}, "requests[0]"),
        ({"requests": [{"model": "models/other"}]}, "requests[0].model"),
        ({"requests": [], "model": "other"}, "model"),
        ({"content": {}}, "requests"),
    ],
)
def test_faults_of_batches(body, param):
    with pytest.raises(Fault) as raised:
        read(BATCH, body, "m")
    assert raised.value.param == param


def test_the_name_of_the_model():
    body = b'{ "input":"a" , "model" : "m"}'
    assert edited("/v1/embeddings", body) == body.replace(b'"m"', b'"up"')
    spans = spans_of(body)
    row = ENDPOINTS["/v1/embeddings"]
    peek = row.family.client.peek(spans, row, None)
    assert row.upstream.edit_request(spans, peek, row, "m", VENDORS["openai"]) is spans.body
    default = "omni-moderation-latest"
    moderation = edited("/v1/moderations", {"input": "a"}, default)
    assert json.loads(moderation) == {"model": "up", "input": "a"}
    stream = edited(COMPLETIONS, {"model": "m", "stream": True})
    assert json.loads(stream)["stream_options"] == {"include_usage": True}
    content = {"content": {"parts": []}}
    requests = [{"model": "models/m", **content}, content, {"model": "m"}]
    batch = json.loads(edited(BATCH, {"requests": requests}, target="m"))
    assert [one.get("model") for one in batch["requests"]] == ["models/up", None, "models/up"]
    row, spans = ENDPOINTS[EMBED], spans_of(content)
    peek = row.family.client.peek(spans, row, "m")
    for upstream in ("m", "up"):
        assert (
            row.upstream.edit_request(spans, peek, row, upstream, VENDORS["gemini"]) == spans.body
        )


def test_forms():
    def part(name, start, text):
        made = Part(name, start, None if text is None else bytearray(text))
        made.end = start + len(text or b"abc")
        return made

    parts = [part("model", 0, b"m"), part("file", 1, None), part("image[]", 4, None)]
    form = form_of([*parts, part("image[]", 7, None)], b"mabcabcabc")
    row = ENDPOINTS[SOUND]
    peek = row.family.client.peek(form, row, None)
    assert (peek.model, peek.asks.uses) == ("m", (("audio_second", 0),))
    assert row.upstream.edit_request(form, peek, row, "up", VENDORS["openai"]) == b"upabcabcabc"
    assert form.media_tokens == 3 * 4800 and form.value("file") is None
    assert replace(form, audio_ms=2000).media_tokens == 100
    for wrong in ([parts[0], part("model", 2, b"n")], [part("model", 0, b"\xff")]):
        with pytest.raises(Fault):
            form_of(wrong, b"")


def test_every_row_has_a_vendor():
    rows = {row.row for row in ENDPOINTS.values()}
    assert rows == ALL_ENDPOINTS == VENDORS["openai-compatible"].endpoints
    assert all(vendor.endpoints <= rows for vendor in VENDORS.values())
    assert all(vendor.paths.keys() <= vendor.endpoints for vendor in VENDORS.values())
