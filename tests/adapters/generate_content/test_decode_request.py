"""Decoding of requests of generate-content clients."""

import base64
import json

import pytest
from msgspec.structs import replace

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
from adapters.ir.parts import Hosted, Media, Reasoning, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Thinking, Tool, ToolChoice
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from tests.adapters.generate_content.calls import USER, decoded, inline

CODECS = CODECS_BY_FAMILY["generate_content"]

WRAPPED = "gw1.messages.mark.dmFsdWU.AAAAAAAAAAAAAAAA"
SIGNATURE = base64.b64encode(WRAPPED.encode()).decode()
URL_SAFE = SIGNATURE.replace("+", "-").replace("/", "_").rstrip("=")
SIGNED = {"thoughtSignature": SIGNATURE}
FUNCTIONS = [{"functionDeclarations": [{"name": "get_tide"}, {"name": "get_wind"}]}]
A, B, THOUGHT = {"text": "a"}, {"text": "b"}, {"text": "Hm.", "thought": True}


def turns_of(*contents):
    return decoded({"contents": list(contents)}).turns


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


def linked(uri, **more):
    return {"fileData": {"fileUri": uri, **more}}


def call(name, args=None, **more):
    return {"functionCall": {"name": name, **({"args": args} if args else {}), **more}}


def answer(name, response, **more):
    return {"functionResponse": {"name": name, "response": response, **more}}


def features(request):
    return [(ask.feature, ask.path) for ask in request.asks]


def refusal(body):
    with pytest.raises(Fault) as caught:
        decoded(body)
    assert caught.value.condition is Condition.INVALID_FIELD
    return caught.value.param


# ---- turns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contents", "turns"),
    [
        ([{"parts": [A]}], [Turn("user", (Text("a"),))]),
        ([user(A), user(B), user()], [Turn("user", (Text("a"), Text("b")))]),
        ([user(A), model(B)], [Turn("user", (Text("a"),)), Turn("assistant", (Text("b"),))]),
        ([{"parts": A}], [Turn("user", (Text("a"),))]),
        ([user({**A, "thought": True}, B)], [Turn("user", (Text("b"),))]),
    ],
    ids=["no_role", "neighbours_of_one_role", "two_roles", "no_list", "a_thought_of_the_user"],
)
def test_turns(contents, turns):
    assert turns_of(*contents) == tuple(turns)


@pytest.mark.parametrize(
    ("instruction", "system"),
    [({"role": "user", "parts": [A, {"text": ""}]}, (Text("a"),)), ("", ())],
)
def test_system_instructions(instruction, system):
    assert decoded(system_instruction=instruction).system == system


PICTURE = Media("image", "image/png", "+/8=")  # from URL-safe base64 without padding
PDF_URL = "https://a.example/b.PDF?x=1"


@pytest.mark.parametrize(
    ("part", "media", "feature"),
    [
        *(
            ({outer: {spelling: "image/PNG; x=1", "data": "-_8"}}, PICTURE, "image_data")
            for outer in ("inlineData", "inline_data")
            for spelling in ("mimeType", "mime_type")
        ),
        (inline("audio/wav"), Media("audio", "audio/wav", "AAAA"), "audio"),
        (inline("video/mp4"), Media("video", "video/mp4", "AAAA"), "video"),
        (
            inline("application/pdf", displayName="n"),
            Media("file", "application/pdf", "AAAA", name="n"),
            "document_data",
        ),
        (
            inline("text/csv", "YSxi"),
            Media("file", "text/plain", "a,b", plain=True),
            "text_document",
        ),
        (linked(PDF_URL), Media("file", "application/pdf", url=PDF_URL), "document_url"),
        (
            {"file_data": {"file_uri": "https://a.example/b", "mime_type": "image/png"}},
            Media("image", "image/png", url="https://a.example/b"),
            "image_url",
        ),
        (linked("https://youtu.be/a"), Media("video", url="https://youtu.be/a"), "video"),
        (
            linked("files/abc", mimeType="image/png"),
            Media("image", "image/png", ref="files/abc"),
            "file_ref",
        ),
        (linked("gs://b/a.pdf"), Media("file", "application/pdf", ref="gs://b/a.pdf"), "file_ref"),
    ],
)
def test_media_of_every_kind(part, media, feature):
    path = f"contents[0].parts[0].{'inlineData' if 'inline' in str(part) else 'fileData'}"
    request = decoded({"contents": [user(part)]})
    assert request.turns[0].parts == (replace(media, path=path),)
    assert features(request) == [(feature, path)]


def test_how_a_film_is_cut_is_named():
    film = {**linked("https://youtu.be/a"), "videoMetadata": {"fps": 1}}
    request = decoded({"contents": [user(film)]})
    assert ("other", "contents[0].parts[0].videoMetadata") in features(request)


def test_how_closely_images_are_looked_at():
    image = inline("image/png")
    high = {**image, "mediaResolution": {"level": "MEDIA_RESOLUTION_HIGH"}}
    config = {"media_resolution": "MEDIA_RESOLUTION_LOW"}
    request = decoded({"contents": [user(image, high)], "generationConfig": config})
    assert [part.detail for part in request.turns[0].parts] == ["low", "high"]
    assert [path for feature, path in features(request) if feature == "image_detail"] == [
        "contents[0].parts[1].mediaResolution",
        "generationConfig.mediaResolution",
    ]


# ---- calls and results ---------------------------------------------------------------------------


def test_calls_without_ids_get_one_by_their_place_which_stays():
    history = [USER, model(A, call("t", {"é": 1}), call("t"))]
    short = turns_of(*history)
    long = turns_of(*history, user(answer("t", {"output": "x"})), model(call("t")))
    assert short[1] == long[1]
    calls = [part for turn in long for part in turn.parts if isinstance(part, ToolCall)]
    assert [one.id for one in calls] == ["call_1_0", "call_1_1", "call_3_0"]
    assert calls[0].arguments == '{"é":1}'


OUTPUT, NAMELESS = {"output": "a"}, {"functionResponse": {}}
ATTACHED = "contents[2].parts[0].functionResponse.parts[0].inlineData"


@pytest.mark.parametrize(
    ("contents", "results"),
    [
        (
            [
                model(call("tide"), call("wind"), call("tide")),
                user(B, answer("wind", {"error": "broken"}), answer("tide", OUTPUT)),
                {"role": "function", "parts": [answer("tide", {"output": "b"})]},
            ],
            [
                ToolResult("call_1_0", (Text("a"),), "tide"),
                ToolResult("call_1_1", (Text("broken"),), "wind", error=True),
                ToolResult("call_1_2", (Text("b"),), "tide"),
                Text("b"),
            ],
        ),
        (
            [
                model(call("tide", id="x"), call("tide", id="y")),
                user(answer("tide", {}, id="y"), answer("tide", OUTPUT, id="x")),
            ],
            [ToolResult("x", (Text("a"),), "tide"), ToolResult("y", (), "tide")],
        ),
        ([model(call("a"), call("b")), user(NAMELESS)], [ToolResult("call_1_0", (), "a")]),
        (
            [model(call("a")), user(answer("a", {}, parts=[inline("image/png")]))],
            [ToolResult("call_1_0", (replace(PICTURE, data="AAAA", path=ATTACHED),), "a")],
        ),
        (
            [model(A), user(answer("tide", OUTPUT), answer("tide", OUTPUT, id="z"))],
            [ToolResult(call_id, (Text("a"),), "tide") for call_id in ("call_2_r0", "z")],
        ),
    ],
    ids=["by_name_and_order", "by_id", "without_a_name", "media", "without_a_call"],
)
def test_results_find_their_calls_and_stand_in_their_order(contents, results):
    turns = turns_of(USER, *contents)
    assert len(turns) == 3 and turns[2].parts == tuple(results)


@pytest.mark.parametrize(
    ("response", "text", "error"),
    [
        ({"output": "high"}, "high", False),
        ({"output": {"a": 1}}, '{"a":1}', False),
        ({"output": 7}, "7", False),
        ({"error": "no"}, "no", True),
        ({"error": {"code": 1}}, '{"code":1}', True),
        ({"result": "x"}, '{"result":"x"}', False),
        ({"output": "x", "more": 1}, '{"output":"x","more":1}', False),
        ({"error": "x", "more": 1}, '{"error":"x","more":1}', True),
    ],
)
def test_what_a_function_has_answered(response, text, error):
    (turn,) = turns_of(user(answer("f", response)))
    assert turn.parts[0].parts == (Text(text),)
    assert turn.parts[0].error is error


def test_parts_of_the_vendors_own_tools_are_named():
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    request = decoded({"contents": [USER, model(code, A)]})
    path = "contents[1].parts[0].executableCode"
    assert request.turns[1].parts == (Hosted("executableCode", code, path), Text("a"))
    assert features(request) == [("hosted_history", path)]


# ---- thoughts and their state --------------------------------------------------------------------

STATE, SEALED = Reasoning("", opaque=WRAPPED), Reasoning("Hm.", True, WRAPPED)
OTHER = {"thoughtSignature": base64.b64encode(b"gw1.other").decode()}


@pytest.mark.parametrize(
    ("parts", "read"),
    [
        ([THOUGHT, THOUGHT, {**A, **SIGNED}], [Reasoning("Hm.Hm.", True, WRAPPED), Text("a")]),
        ([THOUGHT, {**A, "thoughtSignature": URL_SAFE}], [SEALED, Text("a")]),
        ([THOUGHT, {**A, "thought_signature": SIGNATURE}], [SEALED, Text("a")]),
        ([THOUGHT, {**call("f", id="x"), **SIGNED}], [SEALED, ToolCall("x", "f", "{}")]),
        (
            [call("f", id="x"), A, {**call("f", id="y"), **SIGNED}],
            [ToolCall("x", "f", "{}"), STATE, Text("a"), ToolCall("y", "f", "{}")],
        ),
        ([THOUGHT, A, {**B, **SIGNED}], [SEALED, Text("a"), Text("b")]),
        ([A, {"text": "", **SIGNED}], [STATE, Text("a")]),
        ([A, SIGNED], [STATE, Text("a")]),
        (
            [{"text": "", **SIGNED}, THOUGHT, A, {**call("f", id="x"), **OTHER}],
            [STATE, Reasoning("Hm.", True, "gw1.other"), Text("a"), ToolCall("x", "f", "{}")],
        ),
        *(([{**A, "thoughtSignature": odd}], [Text("a")]) for odd in ("/////w==", "no!", "é")),
        ([{"text": "", "thought": True}, A], [Text("a")]),
    ],
)
def test_state_belongs_to_the_thought_before_it(parts, read):
    assert turns_of(USER, model(*parts))[1].parts == tuple(read)


# ---- tools ---------------------------------------------------------------------------------------


def test_functions_with_schemas_in_each_of_the_ways():
    dialect = {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}}
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    functions = [
        {"name": "a", "description": "A", "parameters": dialect},
        {"name": "b", "parameters_json_schema": {"$schema": "s"}},
        {"name": "c"},
    ]
    path = "tools[0].functionDeclarations"
    assert decoded(tools=[{"function_declarations": functions}]).tools == (
        Tool("function", "a", "A", schema, path=f"{path}[0]"),
        Tool("function", "b", "", {"$schema": "s"}, path=f"{path}[1]"),
        Tool("function", "c", path=f"{path}[2]"),
    )


def test_tools_that_the_vendor_runs():
    request = decoded(tools=[{"googleSearch": {}}, {"code_execution": {}}, {"urlContext": {}}])
    assert [(tool.kind, tool.name, tool.search) for tool in request.tools] == [
        ("hosted", "googleSearch", True),
        ("hosted", "codeExecution", False),
        ("hosted", "urlContext", False),
    ]
    assert features(request) == [
        ("hosted_search", "tools[0].googleSearch"),
        ("hosted_tool", "tools[1].codeExecution"),
        ("hosted_tool", "tools[2].urlContext"),
    ]


WIND = ("get_wind",)


@pytest.mark.parametrize(
    ("calling", "choice", "asked"),
    [
        ({}, ToolChoice("auto"), []),
        ({"mode": "AUTO"}, ToolChoice("auto"), []),
        ({"mode": "none"}, ToolChoice("none"), []),
        ({"mode": "ANY"}, ToolChoice("any"), []),
        ({"mode": "ANY", "allowedFunctionNames": WIND}, ToolChoice("one", WIND), []),
        (
            {"mode": "ANY", "allowed_function_names": [*WIND, "get_tide"]},
            ToolChoice("any", (*WIND, "get_tide")),
            ["allowed_tools"],
        ),
        (
            {"mode": "VALIDATED", "allowedFunctionNames": WIND},
            ToolChoice("auto", WIND),
            ["allowed_tools"],
        ),
    ],
)
def test_which_tools_must_be_called(calling, choice, asked):
    request = decoded(tools=FUNCTIONS, toolConfig={"functionCallingConfig": calling})
    assert request.choice == choice
    assert [feature for feature, _ in features(request)] == asked


# ---- settings ------------------------------------------------------------------------------------


def test_sampling_and_bounds_in_either_spelling():
    config = {"temperature": 0.5, "top_p": "0.25", "topK": 64.0, "seed": "7", "logprobs": 3}
    config |= {"presencePenalty": -1, "frequency_penalty": 1, "max_output_tokens": 321}
    config |= {"stop_sequences": ["END", ""], "candidateCount": 2, "response_logprobs": True}
    request = decoded(generation_config=config)
    fields = {"temperature": 0.5, "top_p": 0.25, "top_k": 64, "seed": 7, "n": 2, "logprobs": 3}
    fields |= {"presence_penalty": -1, "frequency_penalty": 1, "stop": ("END",)}
    assert request.max_output_tokens == 321
    assert {field: getattr(request, field) for field in fields} == fields
    assert {feature for feature, _ in features(request)} == set(fields)


def test_what_is_the_default_asks_for_nothing():
    config = {"candidateCount": 1, "responseModalities": ["TEXT"], "stopSequences": []}
    config |= {"seed": None, "responseMimeType": "text/plain", "maxOutputTokens": 0}
    config |= {"responseLogprobs": False}
    request = decoded(generationConfig=config, safetySettings=[], cachedContent="", labels={})
    assert request.asks == ()
    assert (request.n, request.logprobs, request.max_output_tokens) == (1, None, None)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"thinkingBudget": 0}, Thinking("off")),
        ({"thinking_budget": -1}, Thinking("auto")),
        ({"thinkingBudget": 2000}, Thinking(budget_tokens=2000)),
        ({"thinking_level": "low"}, Thinking("low")),
        ({"thinkingLevel": "XHIGH"}, Thinking("xhigh")),
        ({"include_thoughts": True}, Thinking(show="summary")),
        ({"includeThoughts": False, "thinkingLevel": "MINIMAL"}, Thinking("minimal", show="none")),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, Thinking()),
    ],
)
def test_how_much_to_think(said, wanted):
    request = decoded(generationConfig={"thinking_config": said})
    assert request.thinking == wanted
    assert features(request) == [("reasoning", "generationConfig.thinkingConfig")]


JSON = {"responseMimeType": "application/json"}
ARRAY = Output("schema", {"type": "array"})


@pytest.mark.parametrize(
    ("config", "output", "asked"),
    [
        ({}, Output(), []),
        (JSON, Output("json"), ["json_output"]),
        ({**JSON, "response_schema": {"type": "ARRAY"}}, ARRAY, ["schema_output"]),
        ({**JSON, "response_json_schema": {"type": "array"}}, ARRAY, ["schema_output"]),
        ({"responseMimeType": "text/x.enum"}, Output(), ["output_modalities"]),
    ],
)
def test_the_form_of_the_text(config, output, asked):
    request = decoded(generationConfig=config)
    assert request.output == output
    assert [feature for feature, _ in features(request)] == asked


MODERATED = ("moderation", "safetySettings")


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"safety_settings": [{"category": "x"}]}, ("safety_settings", "safetySettings")),
        ({"safetySettings": [{"threshold": "OFF"}]}, ("safety_settings", "safetySettings")),
        ({"safetySettings": [{"threshold": "BLOCK_LOW_AND_ABOVE"}]}, MODERATED),
        ({"safetySettings": [{"threshold": 1}]}, MODERATED),
        ({"labels": {"a": "b"}}, ("metadata", "labels")),
        ({"cached_content": "cachedContents/a"}, ("cached_content", "cachedContent")),
        ({"continuationToken": "t"}, ("stored_state", "continuationToken")),
        ({"store": True}, ("other", "store")),
        ({"unheardOf": 1}, ("other", "unheardOf")),
        ({"a_" * 40: 1}, ("other", "a_" * 40)),  # too long for a name that is rewritten
        *(
            ({"generationConfig": {name: value}}, ("output_modalities", f"generationConfig.{name}"))
            for name, value in (
                ("speechConfig", {"a": 1}),
                ("responseModalities", ["TEXT", "image"]),
                ("responseFormat", [{}]),
            )
        ),
        ({"toolConfig": {"retrievalConfig": {}}}, ("other", "toolConfig.retrievalConfig")),
    ],
)
def test_what_others_may_not_have_is_named(fields, asked):
    assert features(decoded(**fields)) == [asked]


TIERS = {"flex": "flex", "SERVICE_TIER_PRIORITY": "priority", "standard": "default"}


@pytest.mark.parametrize(("sent", "tier"), [*TIERS.items(), ("unspecified", "")])
def test_service_tiers(sent, tier):
    request = decoded(serviceTier=sent)
    assert request.tier == tier
    assert [feature for feature, _ in features(request)] == (["tier"] if tier else [])


def test_a_request_to_count_may_wrap_the_whole_request():
    inner = {"model": "models/m", "contents": [USER], "systemInstruction": {"parts": [A]}}
    request = decoded({"generate_content_request": inner})
    assert request.turns == (Turn("user", (Text("Is tea ready?"),)),)
    assert request.system == (Text("a"),)
    with pytest.raises(Fault) as caught:
        decoded({"generateContentRequest": {"contents": [{"role": "x"}]}})
    assert caught.value.param == "generateContentRequest.contents[0].role"


def test_the_decoder_rests_after_each_turn_and_in_a_long_one():
    body = json.dumps({"contents": [USER, model(A), USER]}).encode()
    steps = CODECS.client.decode_request(top_level(body), True, "m")
    assert [next(steps) for _ in range(4)] == [True, False, False, False]
    assert at_once(steps).stream is True
    body = json.dumps({"contents": [user(*[A] * 2500)]}).encode()
    assert sum(1 for _ in CODECS.client.decode_request(top_level(body), True, "m")) == 4


# ---- refusals ------------------------------------------------------------------------------------

CALLING = "toolConfig.functionCallingConfig"


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"text": 7}, ".text"),
        ({"text": "a", "inlineData": {}}, ""),
        ({"inlineData": {"data": "AAAA"}}, ".inlineData.mimeType"),
        (inline("image/png", "!"), ".inlineData.data"),
        (inline("image/png", ""), ".inlineData.data"),
        ({"inlineData": []}, ".inlineData"),
        (inline("text/plain", "/w=="), ".inlineData.data"),
        ({"fileData": {}}, ".fileData.fileUri"),
        ({"functionCall": {"name": "f"}}, ".functionCall"),
        ({"functionResponse": {"name": "f", "response": "x"}}, ".functionResponse.response"),
        ({"functionResponse": {"name": 1}}, ".functionResponse.name"),
        ({"functionResponse": {"name": "f", "parts": [{}]}}, ".functionResponse.parts[0]"),
        ({"unknown": 1}, ""),
        (7, ""),
    ],
)
def test_parts_that_cannot_be_meant(part, place):
    assert refusal({"contents": [user(part)]}) == f"contents[0].parts[0]{place}"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"role": "assistant", "parts": []}, ".role"),
        (model(answer("f", {})), ".parts[0].functionResponse"),
        (model({"functionCall": {"args": {}}}), ".parts[0].functionCall.name"),
        (model({"functionCall": {"name": "f", "args": []}}), ".parts[0].functionCall.args"),
        ("text", ""),
        ({"parts": [{**A, "thought": 1}]}, ".parts[0].thought"),
    ],
)
def test_contents_that_cannot_be_meant(content, place):
    assert refusal({"contents": [content]}) == f"contents[0]{place}"


@pytest.mark.parametrize(
    ("function", "place"),
    [
        ({}, "name"),
        ({"name": "f", "parameters": 7}, "parameters"),
        ({"name": "f", "parametersJsonSchema": 7}, "parametersJsonSchema"),
        ({"name": "f", "parameters": {}, "parametersJsonSchema": {}}, "parameters"),
    ],
)
def test_functions_that_cannot_be_meant(function, place):
    body = {"contents": [USER], "tools": [{"functionDeclarations": [function]}]}
    assert refusal(body) == f"tools[0].functionDeclarations[0].{place}"


@pytest.mark.parametrize(
    ("config", "place"),
    [
        *(({"temperature": odd}, "temperature") for odd in ("warm", "nan", True)),
        ({"stopSequences": ["x"] * 17}, "stopSequences"),
        ({"stop_sequences": ["x", "x" * 257]}, "stopSequences[1]"),
        ({"stopSequences": [1]}, "stopSequences[0]"),
        ({"seed": 1.5}, "seed"),
        ({"maxOutputTokens": -1}, "maxOutputTokens"),
        (
            {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}},
            "thinkingConfig.thinkingBudget",
        ),
        ({"thinkingConfig": {"thinkingBudget": -2}}, "thinkingConfig.thinkingBudget"),
        ({"thinkingConfig": {"thinkingLevel": "DEEP"}}, "thinkingConfig.thinkingLevel"),
        ({"responseSchema": {}}, "responseMimeType"),
        ({**JSON, "responseSchema": {}, "responseJsonSchema": {}}, "responseSchema"),
        ({**JSON, "responseSchema": []}, "responseSchema"),
    ],
)
def test_configurations_that_cannot_be_meant(config, place):
    body = {"contents": [USER], "generationConfig": config}
    assert refusal(body) == f"generationConfig.{place}"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"contents": {}}, "contents"),
        ({"systemInstruction": "text"}, "systemInstruction"),
        ({"systemInstruction": {"parts": [{"inlineData": {}}]}}, "systemInstruction.parts[0]"),
        *(
            ({"toolConfig": {"functionCallingConfig": calling}}, f"{CALLING}.{place}")
            for calling, place in (
                ({"mode": "ANY"}, "mode"),
                ({"mode": "SOME"}, "mode"),
                ({"allowedFunctionNames": ["x"]}, "allowedFunctionNames[0]"),
            )
        ),
        ({"toolConfig": {"functionCallingConfig": {}, "function_calling_config": {}}}, CALLING),
        ({"labels": []}, "labels"),
    ],
)
def test_fields_that_cannot_be_meant(fields, path):
    assert refusal({"contents": [USER], **fields}) == path
