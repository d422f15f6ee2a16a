"""Refusals of the generate-content family and the places they name: one change to a valid request
each."""

import base64

import pytest

from demo.family import Route
from demo.speech import sign
from tests.vendor.family import Refusal, written
from tests.vendor.generate_content import GenerateContent
from tests.vendor.generate_request import check_query
from tests.vendor.proto_fields import read_message
from tests.vendor.request_rows import ABSENT, changed, refused_at, wrong


def read(body, name="m", task="generate", *, stream=False, query=None):
    route = Route(task, "POST", name, stream=stream, query=query or {})
    return GenerateContent().read(route, {}, body)


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


TEXT = {"text": "hi"}
CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}
ANSWER = {"functionResponse": {"name": "f", "response": {"ok": True}}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "_-8="}}
SCHEMA = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]}
BODY = {
    "contents": [user(TEXT, IMAGE), model(CALL), user(ANSWER)],
    "tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]}],
    "systemInstruction": {"role": "user", "parts": [TEXT]},
    "generationConfig": {"responseMimeType": "application/json"},
}


def calling(mode, *allowed):
    return {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": list(allowed)}}


CONFIG = "generationConfig"


def config(name, value, at=None):
    place = f"generation_config.{name if at is None else at}"
    return wrong(f"{CONFIG}.{name}", value, place)


DECLARED, DECLARATION = "tools.0.function_declarations.0", "tools.0.functionDeclarations.0"


def declared(value, at):
    return wrong(DECLARATION, {"name": "f", **value}, f"{DECLARED}.{at}")


def parameter(at, **schema):
    """Return a row for a function with a parameter `a` of this schema."""
    parameters = {"type": "OBJECT", "properties": {"a": schema}}
    return declared({"parameters": parameters}, f"parameters.properties[a].{at}")


PART, PART_AT = "contents.0.parts.1", "contents.0.parts.1"
RESPONSE = "contents.2.parts.0.functionResponse"
REFUSED = [
    *(wrong("contents", value) for value in (ABSENT, [])),
    *(wrong("contents.0.parts", value) for value in (ABSENT, [])),
    *(wrong(PART, value, f"{PART_AT}.data") for value in ({}, {"thought": True})),
    wrong(PART, {**TEXT, **IMAGE}),
    wrong(f"{PART}.inlineData.data", ABSENT, f"{PART_AT}.inline_data"),
    wrong(f"{PART}.inlineData.mimeType", ABSENT, f"{PART_AT}.inline_data.mime_type"),
    wrong("contents.1.parts.0.functionCall.name", ABSENT, "contents.1.parts.0.function_call.name"),
    wrong(f"{RESPONSE}.response", ABSENT, "contents.2.parts.0.function_response.response"),
    wrong(f"{RESPONSE}.name", "g", "contents.2.parts.0.function_response.name"),
    wrong("systemInstruction.parts", [IMAGE], "system_instruction.parts.0"),
    *(config("temperature", value) for value in (2.1, -0.1)),
    config("topP", 1.5, "top_p"),
    config("topK", 0, "top_k"),
    config("maxOutputTokens", 0, "max_output_tokens"),
    config("candidateCount", 9, "candidate_count"),
    config("presencePenalty", 3, "presence_penalty"),
    config("logprobs", 3),
    *(config("stopSequences", value, "stop_sequences") for value in (["a"] * 6, [""])),
    config("thinkingConfig", {"thinkingBudget": -2}, "thinking_config.thinking_budget"),
    config("responseMimeType", "image/png", "response_mime_type"),
    wrong(CONFIG, {"responseSchema": SCHEMA}, "generation_config.response_schema"),
    wrong(CONFIG, {"responseJsonSchema": {}}, "generation_config.response_json_schema"),
    config("responseJsonSchema", [], "response_json_schema"),
    config("responseSchema", {"type": "ARRAY"}, "response_schema.items"),
    wrong(
        CONFIG,
        {**BODY[CONFIG], "responseSchema": SCHEMA, "responseJsonSchema": {}},
        "generation_config.response_schema",
    ),
    *(wrong(f"{DECLARATION}.name", name, f"{DECLARED}.name") for name in ("1f", "f" * 129, ABSENT)),
    declared({"parameters": SCHEMA, "parametersJsonSchema": {}}, "parameters"),
    declared({"parametersJsonSchema": 1}, "parameters_json_schema"),
    declared({"parameters": {"type": "STRING"}}, "parameters"),
    declared({"parameters": {"type": "OBJECT"}}, "parameters.properties"),
    declared({"parameters": {**SCHEMA, "required": ["a", "b"]}}, "parameters.required.1"),
    parameter("items", type="ARRAY"),
    parameter("properties", type="OBJECT"),
    parameter("enum", type="INTEGER", enum=["1"]),
    parameter("format", type="STRING", format="email"),
    parameter("any_of.1.items", anyOf=[{"type": "STRING"}, {"type": "ARRAY"}]),
    parameter("items.items", type="ARRAY", items={"type": "ARRAY"}),
    *(
        wrong(
            "toolConfig",
            calling(*mode),
            "tool_config.function_calling_config.allowed_function_names",
        )
        for mode in (("ANY", "g"), ("AUTO", "f"))
    ),
    wrong("tools", [{"functionDeclarations": [{"name": f"f{n}"} for n in range(513)]}]),
]
BETWEEN_FIELDS = [
    ({"contents.0.role": "assistant"}, "valid role"),
    ({"contents.0.parts": [CALL]}, "of the role model"),
    ({"contents.1.parts": [ANSWER]}, "of the role model"),
    ({"contents": [model(CALL), user(ANSWER)]}, "immediately after a user turn"),
    ({"contents": [user(TEXT), model(CALL)]}, "number of function response parts"),
    ({"contents.2": user(TEXT)}, "number of function response"),
    ({"contents.1.parts": [CALL, CALL]}, "number of function response"),
    ({"contents": [user(ANSWER)]}, "number of function response parts"),
    ({f"{PART}.inlineData.mimeType": "image/gif"}, "Unsupported MIME type: image/gif"),
    ({f"{PART}.inlineData.mimeType": "png"}, "Unsupported MIME type: png"),
    ({f"{PART}.inlineData.data": ""}, "Unable to process input"),
    (
        {CONFIG: {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}},
        "thinking budget and thinking level",
    ),
    ({CONFIG: {"responseModalities": ["TEXT", "IMAGE"]}}, "response modalities"),
    ({"tools": BODY["tools"] * 2}, "Duplicate function declaration found: f"),
    ({"tools": ABSENT, "toolConfig": calling("ANY")}, "without function_declarations"),
]


@pytest.mark.parametrize(("changes", "place"), REFUSED)
def test_refused(changes, place):
    assert refused_at(read, changed(BODY, changes)) == place


@pytest.mark.parametrize(("changes", "words"), BETWEEN_FIELDS)
def test_refused_between_fields(changes, words):
    with pytest.raises(Refusal, match=words) as caught:
        read(changed(BODY, changes))
    assert (caught.value.kind, caught.value.status) == ("plain", 400)


def test_other_refusals():
    with pytest.raises(Refusal) as caught:
        read(changed(BODY, {"cachedContent": "cachedContents/x"}))
    assert caught.value.status == 403
    with pytest.raises(Refusal, match="unexpected model name format"):
        read(BODY, "models/m")
    check_query(Route("generate", "POST", query={"alt": "sse", "key": "k", "prettyPrint": "false"}))
    check_query(Route("models", "GET", query={"pageSize": "3"}), "pageSize")
    for query, words in (({"beta": "true"}, 'Unknown name "beta"'), ({"alt": "xml"}, "'xml'")):
        with pytest.raises(Refusal, match=words):
            check_query(Route("generate", "POST", query=query))


@pytest.mark.parametrize(
    ("ids", "good"),
    [(("2", "1"), True), (("1", None), True), (("1", "1"), False), (("1", "3"), False)],
)
def test_ids_of_calls(ids, good):
    calls = [{"functionCall": {"id": name, "name": "f"}} for name in ("1", "2")]
    answers = [{"functionResponse": {"id": name, "name": "f", "response": {}}} for name in ids]
    body = {"contents": [user(TEXT), model(*calls), user(*answers)]}
    if good:
        assert read(body).fresh is False
    else:
        with pytest.raises(Refusal, match="answers no function call"):
            read(body)


SIGNATURE = sign(b"x" * 32)


def signed(value=SIGNATURE):
    return {**CALL, "thoughtSignature": value}


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([user(TEXT), model(signed()), user(ANSWER)], None),
        ([user(TEXT), model(signed("skip_thought_signature_validator")), user(ANSWER)], None),
        ([user(TEXT), model(CALL), user(ANSWER), model(TEXT), user(TEXT)], None),
        ([user(TEXT), model(CALL), user(ANSWER)], "missing a thought_signature.*`f`"),
        ([user(TEXT), model(CALL, signed()), user(ANSWER, ANSWER)], "missing"),
        ([user(TEXT), model(signed("")), user(ANSWER)], "missing"),
        ([user(TEXT), model(signed()), user(ANSWER), model(CALL), user(ANSWER)], "missing"),
    ],
)
def test_models_that_sign_want_the_signatures_of_the_current_turn(contents, words):
    body = {"contents": contents}
    assert read(body, "gemini-2.5-pro").model == "gemini-2.5-pro"
    if words is None:
        assert read(body, "gemini-3-pro").model == "gemini-3-pro"
    else:
        with pytest.raises(Refusal, match=words):
            read(body, "gemini-3-pro")


@pytest.mark.parametrize("name", ["gemini-3-pro", "gemini-2.5-pro"])
@pytest.mark.parametrize(
    "signature", ["AAAA", base64.b64encode(b"demo signature " + bytes(64)).decode()]
)
def test_signatures_of_others_are_refused(name, signature):
    said = {**TEXT, "thoughtSignature": signature}
    for part, answer in ((signed(signature), ANSWER), (said, TEXT)):
        with pytest.raises(Refusal, match="Corrupted thought signature"):
            read({"contents": [user(TEXT), model(part), user(answer)]}, name)


def test_counting_takes_contents_or_a_whole_request():
    plain = {"contents": [user(TEXT)]}
    whole = {"generateContentRequest": {"model": "models/m", **BODY}}
    assert read(whole, task="count").input_tokens > read(plain, task="count").input_tokens > 0
    for body, words in (
        ({}, "contents is not specified"),
        ({**plain, **whole}, "may not be set together"),
        ({**plain, "tools": []}, 'Unknown name "tools"'),
    ):
        with pytest.raises(Refusal, match=words):
            read(body, task="count")


# Proto3 JSON.


def refusal_of(message, value):
    with pytest.raises(Refusal) as caught:
        read_message(message, value)
    assert (caught.value.kind, caught.value.status) == ("type", 400)
    return written(caught.value.path), caught.value.message


DEEP_SCHEMA = {"type": "STRING"}
for _ in range(200):
    DEEP_SCHEMA = {"items": DEEP_SCHEMA}


@pytest.mark.parametrize(
    ("value", "place", "name"),
    [
        ({"foo": 1}, "", "foo"),
        ({"contents": [{"parts": [{"txt": ""}]}]}, "contents[0].parts[0]", "txt"),
        (
            {CONFIG: {"responseSchema": {"properties": {"a": {"$ref": "#"}}}}},
            "generation_config.response_schema.properties[0].value",
            "$ref",
        ),
    ],
)
def test_unknown_fields(value, place, name):
    at = f" at '{place}'" if place else ""
    problem = f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'
    assert refusal_of("GenerateContentRequest", value) == (place, problem)


@pytest.mark.parametrize(
    ("message", "value", "place", "problem"),
    [
        *(
            ("GenerationConfig", {"temperature": value}, "temperature", "TYPE_FLOAT")
            for value in ("warm", True, float("inf"))
        ),
        *(("GenerationConfig", {"topK": value}, "top_k", "TYPE_INT32") for value in (1.5, 2**31)),
        ("GenerationConfig", {"responseLogprobs": 1}, "response_logprobs", "TYPE_BOOL"),
        ("GenerationConfig", {"responseMimeType": 5}, "response_mime_type", "TYPE_STRING"),
        ("GenerationConfig", {"stopSequences": [None]}, "stop_sequences[0]", "TYPE_STRING"),
        ("GenerationConfig", {"mediaResolution": "HUGE"}, "media_resolution", "MediaResolution"),
        ("GenerationConfig", {"speechConfig": "x"}, "speech_config", "Struct"),
        ("GenerationConfig", {"thinkingConfig": "x"}, "thinking_config", "ThinkingConfig"),
        ("GenerationConfig", {"topP": 1, "top_p": 1}, "", "already set"),
        ("GenerateContentRequest", {"systemInstruction": [{}]}, "", "cannot start list"),
        ("GenerateContentRequest", {"labels": {"a": 1}}, "labels[0].value", "TYPE_STRING"),
        ("GenerateContentRequest", {"labels": "a"}, "labels", "Map"),
        *(("Blob", {"data": value}, "data", "TYPE_BYTES") for value in ("*", "a", "ab c", "aé", 5)),
        ("Schema", DEEP_SCHEMA, "items", "too deep"),
        ("Content", {"parts": "x" * 10_000}, "parts[0]", "Part"),
    ],
)
def test_values_that_are_refused(message, value, place, problem):
    where, words = refusal_of(message, value)
    assert where == place
    assert problem in words
    assert len(words) < 300
