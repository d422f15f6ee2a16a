"""Each rule of the generate-content vendor: a good request passes, one change makes it a 400."""

import base64
import copy

import pytest

from demo.family import Route
from demo.speech import dummy, sign
from tests.vendor.family import Refusal
from tests.vendor.generate_content import GenerateContent
from tests.vendor.generate_request import check_query
from tests.vendor.proto_fields import written

TEXT = {"text": "hi"}
CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}
ANSWER = {"functionResponse": {"name": "f", "response": {"ok": True}}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "_-8="}}
SCHEMA = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]}
FUNCTION = {"name": "f", "parameters": SCHEMA}
SIGNATURE = sign(b"x" * 32)


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


def request(**fields):
    return {"contents": [user(TEXT)], **copy.deepcopy(fields)}


def config(**fields):
    return request(generationConfig=fields)


def json_config(**fields):
    return config(responseMimeType="application/json", **fields)


def functions(*declared, **fields):
    return request(tools=[{"functionDeclarations": list(declared)}], **fields)


def calling(mode, *allowed):
    chosen = {"mode": mode} | ({"allowedFunctionNames": list(allowed)} if allowed else {})
    return {"functionCallingConfig": chosen}


def read(body, name="m", task="generate", *, stream=False, query=None):
    route = Route(task, "POST", name, stream=stream, query=query or {})
    return GenerateContent().read(route, {}, body)


GOOD = [
    request(),
    request(model="models/m"),
    {"contents": [{"parts": [TEXT]}]},
    request(contents=[user(TEXT), user(TEXT), model(TEXT), user(TEXT, IMAGE)]),
    request(contents=[user(TEXT), model({"text": "t", "thought": True}, {"text": ""}), user(TEXT)]),
    request(contents=[user(TEXT), model(CALL), user(ANSWER)]),
    request(contents=[user(TEXT), model(TEXT, CALL, CALL), user(ANSWER, TEXT), user(ANSWER)]),
    request(contents=[user(TEXT), model(CALL), {"role": "function", "parts": [ANSWER]}]),
    request(contents=[user({"fileData": {"fileUri": "https://example.com/a.pdf"}})]),
    request(contents=[user({"executableCode": {"language": "PYTHON", "code": "1"}})]),
    request(systemInstruction={"role": "user", "parts": [TEXT]}),
    request(safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]),
    request(labels={"a": "b"}, serviceTier="flex", store=False),
    config(temperature=2, topP=0.95, topK=64, seed=7, maxOutputTokens=1, candidateCount=8),
    config(stopSequences=["a"] * 5, presencePenalty=-2, frequencyPenalty=2),
    config(responseModalities=["TEXT"], responseLogprobs=True, logprobs=3),
    config(thinkingConfig={"includeThoughts": True, "thinkingBudget": -1}),
    config(thinkingConfig={"thinkingLevel": "low"}),
    json_config(),
    json_config(responseSchema=SCHEMA),
    json_config(responseSchema={"type": "array", "items": {"type": "integer"}}),
    json_config(responseJsonSchema={"type": "object", "additionalProperties": False}),
    functions(FUNCTION, {"name": "_.g:h-1"}),
    functions({"name": "f", "parametersJsonSchema": {"type": "object", "properties": {}}}),
    functions(FUNCTION, toolConfig=calling("ANY", "f")),
    request(tools=[{"googleSearch": {}}, {"codeExecution": {}}, {"urlContext": {}}]),
    request(toolConfig=calling("AUTO")),
]


@pytest.mark.parametrize("body", GOOD)
def test_good_requests_pass(body):
    assert read(body).model == "m"


def nested(**schema):
    """A function whose parameter `a` has this schema."""
    return functions({"name": "f", "parameters": {"type": "OBJECT", "properties": {"a": schema}}})


PART = "contents[0].parts[0]"
DECLARED = "tools[0].function_declarations[0]"
BAD = [
    ({}, "contents"),
    (request(contents=[]), "contents"),
    (request(contents=[{"role": "user"}]), "contents[0].parts"),
    (request(contents=[user()]), "contents[0].parts"),
    (request(contents=[user({})]), f"{PART}.data"),
    (request(contents=[user({"thought": True})]), f"{PART}.data"),
    (request(contents=[user({**TEXT, **IMAGE})]), PART),
    (request(contents=[user({"inlineData": {"mimeType": "image/png"}})]), f"{PART}.inline_data"),
    (
        request(contents=[user({"inlineData": {"data": "AAAA"}})]),
        f"{PART}.inline_data.mime_type",
    ),
    (
        request(contents=[user(TEXT), model({"functionCall": {"args": {}}})]),
        "contents[1].parts[0].function_call.name",
    ),
    (
        request(contents=[user(TEXT), model(CALL), user({"functionResponse": {"name": "f"}})]),
        "contents[2].parts[0].function_response.response",
    ),
    (
        request(
            contents=[
                user(TEXT),
                model(CALL),
                user({"functionResponse": {"name": "g", "response": {}}}),
            ]
        ),
        "contents[2].parts[0].function_response.name",
    ),
    (request(systemInstruction={"parts": [IMAGE]}), "system_instruction.parts[0]"),
    (config(temperature=2.1), "generation_config.temperature"),
    (config(temperature=-0.1), "generation_config.temperature"),
    (config(topP=1.5), "generation_config.top_p"),
    (config(topK=0), "generation_config.top_k"),
    (config(maxOutputTokens=0), "generation_config.max_output_tokens"),
    (config(candidateCount=9), "generation_config.candidate_count"),
    (config(presencePenalty=3), "generation_config.presence_penalty"),
    (config(logprobs=3), "generation_config.logprobs"),
    (config(stopSequences=["a"] * 6), "generation_config.stop_sequences"),
    (config(stopSequences=[""]), "generation_config.stop_sequences"),
    (
        config(thinkingConfig={"thinkingBudget": -2}),
        "generation_config.thinking_config.thinking_budget",
    ),
    (config(responseMimeType="image/png"), "generation_config.response_mime_type"),
    (config(responseSchema=SCHEMA), "generation_config.response_schema"),
    (config(responseJsonSchema={}), "generation_config.response_json_schema"),
    (json_config(responseJsonSchema=[]), "generation_config.response_json_schema"),
    (
        json_config(responseSchema=SCHEMA, responseJsonSchema={}),
        "generation_config.response_schema",
    ),
    (json_config(responseSchema={"type": "ARRAY"}), "generation_config.response_schema.items"),
    (functions({"name": "1f"}), f"{DECLARED}.name"),
    (functions({"name": "f" * 129}), f"{DECLARED}.name"),
    (functions({"description": "no name"}), f"{DECLARED}.name"),
    (functions({**FUNCTION, "parametersJsonSchema": {}}), f"{DECLARED}.parameters"),
    (functions({"name": "f", "parametersJsonSchema": 1}), f"{DECLARED}.parameters_json_schema"),
    (functions({"name": "f", "parameters": {"type": "STRING"}}), f"{DECLARED}.parameters"),
    (
        functions({"name": "f", "parameters": {"type": "OBJECT"}}),
        f"{DECLARED}.parameters.properties",
    ),
    (
        functions({"name": "f", "parameters": {**SCHEMA, "required": ["a", "b"]}}),
        f"{DECLARED}.parameters.required[1]",
    ),
    (nested(type="ARRAY"), f"{DECLARED}.parameters.properties[a].items"),
    (nested(type="OBJECT"), f"{DECLARED}.parameters.properties[a].properties"),
    (nested(type="INTEGER", enum=["1"]), f"{DECLARED}.parameters.properties[a].enum"),
    (nested(type="STRING", format="email"), f"{DECLARED}.parameters.properties[a].format"),
    (
        nested(anyOf=[{"type": "STRING"}, {"type": "ARRAY"}]),
        f"{DECLARED}.parameters.properties[a].any_of[1].items",
    ),
    (
        nested(type="ARRAY", items={"type": "ARRAY"}),
        f"{DECLARED}.parameters.properties[a].items.items",
    ),
    (
        functions(FUNCTION, toolConfig=calling("ANY", "g")),
        "tool_config.function_calling_config.allowed_function_names",
    ),
    (
        functions(FUNCTION, toolConfig=calling("AUTO", "f")),
        "tool_config.function_calling_config.allowed_function_names",
    ),
    (functions(*({"name": f"f{n}"} for n in range(513))), "tools"),
]


@pytest.mark.parametrize(("body", "path"), BAD)
def test_bad_requests_are_refused_where_they_are_wrong(body, path):
    with pytest.raises(Refusal) as caught:
        read(body)
    assert written(caught.value.path) == path
    assert caught.value.status == 400


PLAIN = [
    (request(contents=[{"role": "assistant", "parts": [TEXT]}]), "valid role"),
    (request(contents=[user(CALL)]), "of the role model"),
    (request(contents=[user(TEXT), model(ANSWER)]), "of the role model"),
    (request(contents=[model(CALL), user(ANSWER)]), "immediately after a user turn"),
    (request(contents=[user(TEXT), model(CALL)]), "number of function response parts"),
    (request(contents=[user(TEXT), model(CALL), user(TEXT)]), "number of function response"),
    (
        request(contents=[user(TEXT), model(CALL, CALL), user(ANSWER)]),
        "number of function response",
    ),
    (request(contents=[user(ANSWER)]), "number of function response parts"),
    (
        request(contents=[user({"inlineData": {"mimeType": "image/gif", "data": "AA"}})]),
        "Unsupported MIME type: image/gif",
    ),
    (
        request(contents=[user({"inlineData": {"mimeType": "png", "data": "AA"}})]),
        "Unsupported MIME type: png",
    ),
    (
        request(contents=[user({"inlineData": {"mimeType": "image/png", "data": ""}})]),
        "Unable to process input",
    ),
    (
        config(thinkingConfig={"thinkingBudget": 1, "thinkingLevel": "LOW"}),
        "thinking budget and thinking level",
    ),
    (config(responseModalities=["TEXT", "IMAGE"]), "response modalities"),
    (functions(FUNCTION, FUNCTION), "Duplicate function declaration found: f"),
    (request(toolConfig=calling("ANY")), "without function_declarations"),
]


@pytest.mark.parametrize(("body", "words"), PLAIN)
def test_rules_between_fields(body, words):
    with pytest.raises(Refusal, match=words) as caught:
        read(body)
    assert (caught.value.kind, caught.value.status) == ("plain", 400)


def test_a_cache_that_is_not_there():
    with pytest.raises(Refusal) as caught:
        read(request(cachedContent="cachedContents/x"))
    assert caught.value.status == 403


def test_a_model_name_with_the_prefix_of_resources():
    with pytest.raises(Refusal, match="unexpected model name format"):
        read(request(), "models/m")


@pytest.mark.parametrize(
    ("ids", "good"),
    [
        (("1", "2"), True),
        (("2", "1"), True),
        ((None, None), True),
        (("1", None), True),
        (("1", "1"), False),
        (("1", "3"), False),
    ],
)
def test_ids_of_calls(ids, good):
    calls = [{"functionCall": {"id": name, "name": "f"}} for name in ("1", "2")]
    answers = [{"functionResponse": {"id": name, "name": "f", "response": {}}} for name in ids]
    body = request(contents=[user(TEXT), model(*calls), user(*answers)])
    if good:
        assert read(body).fresh is False
    else:
        with pytest.raises(Refusal, match="answers no function call"):
            read(body)


# Signatures.


def signed(value=SIGNATURE):
    return {**CALL, "thoughtSignature": value}


@pytest.mark.parametrize(
    "contents",
    [
        [user(TEXT), model(signed()), user(ANSWER)],
        [user(TEXT), model(signed(), CALL), user(ANSWER, ANSWER)],
        [user(TEXT), model(signed("skip_thought_signature_validator")), user(ANSWER)],
        [user(TEXT), model(signed("context_engineering_is_the_way_to_go")), user(ANSWER)],
        [user(TEXT), model(CALL), user(ANSWER), model(TEXT), user(TEXT)],
        [user(TEXT), model(CALL), user(ANSWER, TEXT)],
        [user(TEXT), model(signed()), user(ANSWER), model(signed()), user(ANSWER)],
    ],
)
def test_calls_of_the_current_turn_bring_their_signatures(contents):
    assert read(request(contents=contents), "gemini-3-pro").model == "gemini-3-pro"


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([user(TEXT), model(CALL), user(ANSWER)], "missing a thought_signature.*`f`"),
        ([user(TEXT), model(CALL, signed()), user(ANSWER, ANSWER)], "missing"),
        ([user(TEXT), model(signed("")), user(ANSWER)], "missing"),
        (
            [user(TEXT), model(signed()), user(ANSWER), model(CALL), user(ANSWER)],
            "missing",
        ),
    ],
)
def test_calls_without_signatures_are_refused_by_the_models_that_sign(contents, words):
    with pytest.raises(Refusal, match=words):
        read(request(contents=contents), "gemini-3-pro")
    assert read(request(contents=contents), "gemini-2.5-pro").model == "gemini-2.5-pro"


@pytest.mark.parametrize("name", ["gemini-3-pro", "gemini-2.5-pro"])
def test_signatures_of_others_are_refused(name):
    other = base64.b64encode(b"demo signature " + bytes(64)).decode()
    for signature in ("AAAA", other):
        for part in (signed(signature), {**TEXT, "thoughtSignature": signature}):
            after = user(ANSWER) if "functionCall" in part else user(TEXT)
            with pytest.raises(Refusal, match="Corrupted thought signature"):
                read(request(contents=[user(TEXT), model(part), after]), name)


# What is read.


def test_what_is_read():
    body = functions(
        FUNCTION,
        {"name": "g"},
        contents=[user(TEXT, IMAGE), model(TEXT), user({"text": "last"}, {"text": "words"})],
        toolConfig=calling("ANY", "g"),
        generationConfig={
            "maxOutputTokens": 9,
            "stop_sequences": ["x"],
            "candidateCount": 2,
            "thinkingConfig": {"include_thoughts": True},
        },
    )
    ask = read(body, stream=True, query={"alt": "sse"})
    assert (ask.prompt, ask.images, ask.fresh, ask.stream) == ("last\nwords", 1, True, True)
    assert (ask.limit_tokens, ask.stops, ask.choices) == (9, ("x",), 2)
    assert (ask.thinking, ask.thinking_shown, ask.tool_mode) == (True, True, "any")
    assert [tool.name for tool in ask.tools] == ["g"]
    assert ask.framing == "sse"
    assert read(body, stream=True).framing == "json_array"


@pytest.mark.parametrize(
    ("wanted", "thinking", "shown"),
    [
        ({}, False, False),
        ({"includeThoughts": False}, False, False),
        ({"includeThoughts": True}, True, True),
        ({"thinkingBudget": 100}, True, False),
        ({"thinkingBudget": -1}, True, False),
        ({"thinkingBudget": 0, "includeThoughts": True}, False, True),
        ({"thinkingLevel": "HIGH"}, True, False),
    ],
)
def test_thinking(wanted, thinking, shown):
    ask = read(config(thinkingConfig=wanted))
    assert (ask.thinking, ask.thinking_shown) == (thinking, shown)


@pytest.mark.parametrize(
    ("mode", "read_as"), [("AUTO", "auto"), ("ANY", "any"), ("none", "none"), ("VALIDATED", "auto")]
)
def test_modes(mode, read_as):
    assert read(functions(FUNCTION, toolConfig=calling(mode))).tool_mode == read_as


def test_schemas_of_the_vendors_own_kind():
    schema = {
        "type": "OBJECT",
        "properties": {
            "a": {"type": "ARRAY", "items": {"type": "INTEGER"}, "minItems": "2"},
            "b": {"anyOf": [{"type": "NUMBER"}, {"type": "STRING"}]},
        },
    }
    assert dummy(read(json_config(responseSchema=schema)).schema) == {"a": [7, 7], "b": 1.5}
    assert read(json_config()).schema == {}
    assert read(request()).schema is None


def test_counting_takes_contents_or_a_whole_request():
    plain = read(request(), task="count")
    longer = {
        "generateContentRequest": request(model="models/m", systemInstruction={"parts": TEXT})
    }
    assert read(longer, task="count").input_tokens > plain.input_tokens > 0
    assert plain.input_tokens == read(request()).input_tokens
    for body, words in (
        ({}, "contents is not specified"),
        ({**request(), **longer}, "may not be set together"),
        ({**request(), "tools": []}, 'Unknown name "tools"'),
    ):
        with pytest.raises(Refusal, match=words):
            read(body, task="count")


def test_the_query_is_checked():
    check_query(Route("generate", "POST", query={"alt": "sse", "key": "k", "prettyPrint": "false"}))
    check_query(Route("models", "GET", query={"pageSize": "3"}), "pageSize")
    with pytest.raises(Refusal, match='Unknown name "beta"'):
        check_query(Route("generate", "POST", query={"beta": "true"}))
    with pytest.raises(Refusal, match="'xml'"):
        check_query(Route("generate", "POST", query={"alt": "xml"}))
