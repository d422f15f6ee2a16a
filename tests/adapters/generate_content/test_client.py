"""Requests of generate-content: the fields that are read, edits, paths, headers; errors, lists of
models."""

import json

import pytest

from adapters.family import ModelEntry, Vendor
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.generate_content import FAMILY
from adapters.json.jsonio import top_level

PLAIN, EVENTS, COUNT, ARRAY = FAMILY.client.operations.values()
TURN = [{"role": "user", "parts": [{"text": "x"}]}]
GEMINI = Vendor("gemini", frozenset({"generate_content"}), "x-goog-api-key")


def peek_bytes(body: bytes, operation=PLAIN):
    return FAMILY.client.peek(top_level(body), operation, "m")


def peek(operation=PLAIN, **fields):
    body = {"contents": TURN, **fields}
    body = {name: value for name, value in body.items() if value is not ...}
    return peek_bytes(json.dumps(body).encode(), operation)


def test_what_is_read():
    read = peek()
    assert (read.model, read.stream, read.max_output_tokens, read.choices) == ("m", False, None, 1)
    assert read.include_usage
    assert peek(EVENTS).stream and peek(ARRAY).stream and not peek(COUNT).stream


@pytest.mark.parametrize("config", ["generationConfig", "generation_config"])
@pytest.mark.parametrize("bound", ["maxOutputTokens", "max_output_tokens"])
@pytest.mark.parametrize("choices", ["candidateCount", "candidate_count"])
def test_both_spellings_are_read(config, bound, choices):
    read = peek(**{config: {"topK": 1, bound: 7, choices: 3}})
    assert (read.max_output_tokens, read.choices) == (7, 3)


@pytest.mark.parametrize("config", [None, {}, {"maxOutputTokens": None, "candidateCount": 0},
                                    {"maxOutputTokens": 0}])  # fmt: skip
def test_no_bounds(config):
    read = peek(generationConfig=config)
    assert (read.max_output_tokens, read.choices) == (None, 1)


DOUBLED = {"max_output_tokens": 5, "maxOutputTokens": 50000}


@pytest.mark.parametrize(
    ("fields", "condition", "param"),
    [
        ({"contents": ...}, "E13", "contents"),
        ({"contents": {}}, "E12", "contents"),
        ({"generationConfig": []}, "E12", "generationConfig"),
        ({"generation_config": 7}, "E12", "generation_config"),
        ({"generationConfig": {}, "generation_config": {}}, "E12", "generationConfig"),
        ({"system_instruction": 1, "systemInstruction": 1}, "E12", "systemInstruction"),
        *(
            ({config: fields}, "E12", f"{config}.{name}")
            for config, fields, name in (
                ("generationConfig", {"maxOutputTokens": "5"}, "maxOutputTokens"),
                ("generation_config", {"max_output_tokens": -1}, "max_output_tokens"),
                ("generationConfig", {"candidateCount": 1.5}, "candidateCount"),
                ("generationConfig", DOUBLED, "maxOutputTokens"),
            )
        ),
        ({"model": 7}, "E12", "model"),
        ({"generateContentRequest": {"model": []}}, "E12", "generateContentRequest.model"),
        ({"contents": ..., "generateContentRequest": {}}, "E13", "contents"),
    ],
)
def test_refusals(fields, condition, param):
    with pytest.raises(Fault) as caught:
        peek(**fields)
    assert (caught.value.condition, caught.value.param) == (Condition(condition), param)
    assert param in caught.value.message


@pytest.mark.parametrize("spelling", ["generationConfig", "generation_config"])
def test_a_field_of_the_configuration_comes_once(spelling):
    body = b'{"contents":[],"%b":{"topK":1,"maxOutputTokens":5,"maxOutputTokens":50000}}'
    with pytest.raises(Fault) as caught:
        peek_bytes(body % spelling.encode())
    assert caught.value.message == f"The field '{spelling}.maxOutputTokens' comes twice."


def test_a_configuration_without_end_is_refused():
    many = ",".join(f'"f{number}":1' for number in range(3000))
    with pytest.raises(Fault) as caught:
        peek_bytes(b'{"contents":[],"generationConfig":{%b}}' % many.encode())
    assert caught.value.condition is Condition.INVALID_FIELD


def test_counting_takes_a_whole_request():
    for name in ("generateContentRequest", "generate_content_request"):
        read = peek(COUNT, **{"contents": ..., name: {"model": "models/m", "contents": TURN}})
        assert read.max_output_tokens is None
    for fields, param in (
        ({}, "contents"),
        ({"generateContentRequest": None}, "contents"),
        ({"generateContentRequest": "x"}, "generateContentRequest"),
    ):
        with pytest.raises(Fault) as caught:
            peek(COUNT, **{"contents": ..., **fields})
        assert caught.value.param == param


def test_the_path_names_the_model():
    spans = top_level(b'{"model":"other"}')
    assert FAMILY.client.model_name(spans, "vendor/m:8b") == "vendor/m:8b"
    for nothing in (None, ""):
        with pytest.raises(Fault) as caught:
            FAMILY.client.model_name(spans, nothing)
        assert caught.value.condition is Condition.MODEL_MISSING


def edited(body: bytes, upstream: str, operation=PLAIN) -> bytes:
    spans = top_level(body)
    read = FAMILY.client.peek(spans, operation, "pub/m")
    return FAMILY.upstream.edit_request(spans, read, operation, upstream, GEMINI)


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b', "model" : null',
        b',"generateContentRequest":{"model.model":"other"}',
        b',"generationConfig":{"model":"pub/m"}',
        b',"labels":{"model":"pub/m"},"x":"pub/m"',
    ],
)
def test_a_body_passes_as_it_is(rest):
    body = b'{ "contents":[{"parts":[{"text":"pub/m"}]}]' + rest + b"}"
    assert edited(body, "up") is body
    assert edited(body, "pub/m") is body


_CAMEL, _SNAKE = b"generateContentRequest", b"generate_content_request"


@pytest.mark.parametrize(
    "name", ["other", "", "pub", "models/other", "models/models/pub/m", "PUB/m"]
)
@pytest.mark.parametrize("operation", [PLAIN, EVENTS, ARRAY, COUNT])
def test_a_body_that_names_another_model_than_the_path_is_e12(name, operation):
    mention = b'"model":' + json.dumps(name).encode()
    inside = b'"contents":[],"generateContentRequest":{"contents":[],%b}' % mention
    for body, param in (
        (b'{"contents":[],%b}' % mention, "model"),
        (b"{%b}" % inside, "generateContentRequest.model"),
        (b"{%b}" % inside.replace(_CAMEL, _SNAKE), "generate_content_request.model"),
    ):
        with pytest.raises(Fault) as caught:
            FAMILY.client.peek(top_level(body), operation, "pub/m")
        assert caught.value.condition is Condition.INVALID_FIELD
        assert caught.value.param == param


@pytest.mark.parametrize(
    ("upstream", "bare", "whole"),
    [
        ("up:1", b'"up:1"', b'"models/up:1"'),
        ("models/up", b'"up"', b'"models/up"'),
        ("tunedModels/t", b'"tunedModels/t"', b'"tunedModels/t"'),
    ],
)
def test_a_mention_of_the_model_follows_its_name(upstream, bare, whole):
    body = b'{"model" : "%b","contents":[],"x":"pub/m"}'
    assert edited(body % b"pub/m", upstream) == body.replace(b'"%b"', bare)
    assert edited(body % b"models\\/pub/m", upstream) == body.replace(b'"%b"', whole)
    same = body % b"models/pub/m"
    assert edited(same, "pub/m") is same
    inner = b' {"generateContentRequest": {"contents":[ ], "model":%b }, "y":"pub/m"}'
    assert edited(inner % b'"models/pub/m"', upstream, COUNT) == inner % whole
    inner = inner.replace(b"generateContentRequest", b"generate_content_request")
    assert edited(inner % b'"pub/m"', upstream, COUNT) == inner % bare


@pytest.mark.parametrize(
    ("upstream", "resource"),
    [
        ("gemini-2.5-pro", "models/gemini-2.5-pro"),
        ("vendor/qwen3:8b", "models/vendor/qwen3:8b"),
        ("models/x_y@1=b", "models/x_y@1=b"),
        ("tunedModels/my-1", "tunedModels/my-1"),
        ("a" * 128, "models/" + "a" * 128),
    ],
)
def test_paths(upstream, resource):
    paths = [FAMILY.upstream.path(one, upstream, "m") for one in (PLAIN, EVENTS, ARRAY, COUNT)]
    assert paths == [
        f"/v1beta/{resource}:generateContent",
        f"/v1beta/{resource}:streamGenerateContent?alt=sse",
        f"/v1beta/{resource}:streamGenerateContent",
        f"/v1beta/{resource}:countTokens",
    ]


@pytest.mark.parametrize(
    "upstream",
    [
        *("", "models/", "/a", "a/", "a//b", "a/../b", "..", "a b", "a?b", "a#b", "a%2F", "é"),
        *("a\n", "a\\b", "models//a", "a" * 129, "tunedModels/"),
    ],
)
def test_names_that_cannot_stand_in_a_path(upstream):
    with pytest.raises(Fault) as caught:
        FAMILY.upstream.path(PLAIN, upstream, "pub")
    assert caught.value.condition is Condition.CHANNEL_MISCONFIGURED
    assert "'pub'" in caught.value.message


UNAVAILABLE = "is not available to this API key. Check the name and the channel status."
NO_MODEL = "The path must name a model: models/{model}:generateContent."
NOT_VALID = "API key not valid. Please pass a valid API key."
KEY_HEADERS = "the header 'x-goog-api-key: <API_KEY>' or 'Authorization: Bearer <API_KEY>'."


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(Condition.MISSING_KEY), f"No API key was sent. Use {KEY_HEADERS}"),
        (Fault(Condition.MODEL_MISSING), NO_MODEL),
        (Fault(Condition.MODEL_NOT_FOUND, model="demo-huge"), f"models/demo-huge {UNAVAILABLE}"),
        (Fault(Condition.MODEL_NOT_FOUND), f"This model {UNAVAILABLE}"),
        (Fault(Condition.MODEL_NOT_FOUND, "Words."), "Words."),
        (Fault(Condition.FIELD_MISSING, param="contents"), "Missing required field: 'contents'."),
        (wrong_type("a[0].b", "expected an array"), "Wrong type for 'a[0].b': expected an array."),
        (wrong_value("a", "expected 0 or more"), "Wrong value for 'a': expected 0 or more."),
        *(
            (Fault(Condition.INVALID_KEY, detail=detail), NOT_VALID)
            for detail in (None, "sk-slc-…wxyz")
        ),
    ],
)
def test_wordings(fault, message):
    envelope = FAMILY.client.encode_fault(fault, "r")
    assert json.loads(envelope.body)["error"]["message"] == message


def test_a_wait_is_told_twice():
    envelope = FAMILY.client.encode_fault(Fault(Condition.RATE_LIMITED, retry_after_s=7), "r")
    assert envelope.headers["retry-after"] == "7"
    assert json.loads(envelope.body)["error"]["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    ]
    envelope = FAMILY.client.encode_fault(Fault(Condition.WALLET_EMPTY), "r")
    assert "details" not in json.loads(envelope.body)["error"]
    assert envelope.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("condition", "code", "status"),
    [
        ("E24", 500, "INTERNAL"),
        ("E26", 503, "UNAVAILABLE"),
        ("E27", 503, "UNAVAILABLE"),
        ("E29", 503, "UNAVAILABLE"),
        ("E28", 504, "DEADLINE_EXCEEDED"),
        ("E30", 500, "INTERNAL"),
        ("E38", 503, "UNAVAILABLE"),
        ("E25", 429, "RESOURCE_EXHAUSTED"),
    ],
)
def test_errors_in_a_stream(condition, code, status):
    fault = Fault(Condition(condition), "é\u2028")
    ending = FAMILY.upstream.stream_tap("m", "m", True, EVENTS).encode_fault(fault, "01ABC")
    event, bare = ending.split(b"\r\n\r\n")
    assert event.startswith(b'data: {"error":{"code":') and event.endswith(b"}}")
    assert ending.isascii() and bare == event.removeprefix(b"data: ") + b"\n"
    error = {"code": code, "message": "é\u2028", "status": status}
    assert json.loads(bare) == {"error": error}
    tap = FAMILY.upstream.stream_tap("m", "m", True, ARRAY)
    assert json.loads(tap.encode_fault(fault, "01ABC")) == [{"error": error}]
    sent = tap.feed(b'[{"candidates":[]}')
    assert json.loads(sent + b"\r\n" + tap.encode_fault(fault, "01ABC"))[1:] == [{"error": error}]


MODELS = [ModelEntry(f"v/m{i:04}:8b", 1795000000 + i, 200_000, None) for i in range(1200)]


def page(**query):
    found = json.loads(FAMILY.client.model_list(MODELS, query))
    return [model["name"] for model in found["models"]], found.get("nextPageToken", "")


def names(first, last):
    return [f"models/{model.name}" for model in MODELS[first:last]]


def test_one_model():
    assert json.loads(FAMILY.client.model_entry(MODELS[3])) == {
        "name": "models/v/m0003:8b",
        "displayName": "v/m0003:8b",
        "inputTokenLimit": 200_000,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    known = json.loads(FAMILY.client.model_entry(ModelEntry("m", 1, None, 32_000)))
    assert "inputTokenLimit" not in known and known["outputTokenLimit"] == 32_000


def test_pages():
    assert page() == (names(0, 50), MODELS[49].name)
    assert page(pageSize="0") == page(pageSize="") == page(pageToken="") == page()
    assert page(pageSize="999999999") == (names(0, 1000), MODELS[999].name)
    assert page(pageToken=MODELS[999].name, pageSize="1000") == (names(1000, 1200), "")
    assert page(pageToken=MODELS[1199].name) == ([], "")
    assert json.loads(FAMILY.client.model_list([], {})) == {"models": []}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("pageSize", size) for size in ("-1", "x", "+5", "5_0", "٣", "9" * 10, "1.5")),
        ("pageToken", "gone"),
    ],
)
def test_queries_that_cannot_be_meant(name, value):
    with pytest.raises(Fault) as caught:
        page(**{name: value})
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, name)
