"""Requests of generate-content clients in the hub's words."""

import base64
import json

import pytest

from adapters.faults import Condition, Fault
from adapters.generate_content import CODECS
from adapters.ir.parts import Hosted, Media, Reasoning, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Thinking, Tool, ToolChoice
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from tests.adapters.generate_content.calls import USER, decoded

WRAPPED = "gw1.messages.mark.dmFsdWU.AAAAAAAAAAAAAAAA"
SIGNED = base64.b64encode(WRAPPED.encode()).decode()
URL_SAFE = SIGNED.replace("+", "-").replace("/", "_").rstrip("=")
FUNCTIONS = [{"functionDeclarations": [{"name": "get_tide"}, {"name": "get_wind"}]}]


def turns_of(*contents):
    return decoded({"contents": list(contents)}).turns


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


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


def test_a_content_without_a_role_is_the_users():
    assert turns_of({"parts": [{"text": "Hi"}]}) == (Turn("user", (Text("Hi"),)),)


def test_neighbours_of_one_role_are_one_turn():
    found = turns_of(user({"text": "a"}), user({"text": "b"}), model({"text": "c"}), user())
    assert found == (
        Turn("user", (Text("a"), Text("b"))),
        Turn("assistant", (Text("c"),)),
    )


def test_one_part_may_stand_without_its_list():
    assert turns_of({"parts": {"text": "Hi"}}) == (Turn("user", (Text("Hi"),)),)


def test_the_role_of_a_system_instruction_means_nothing():
    request = decoded(system_instruction={"role": "user", "parts": [{"text": "a"}, {"text": ""}]})
    assert request.system == (Text("a"),)


@pytest.mark.parametrize("spelling", ["mimeType", "mime_type"])
@pytest.mark.parametrize("outer", ["inlineData", "inline_data"])
def test_url_safe_base64_becomes_standard_with_padding(spelling, outer):
    (turn,) = turns_of(user({outer: {spelling: "image/PNG; x=1", "data": "-_8"}}))
    (image,) = turn.parts
    assert (image.kind, image.mime, image.data) == ("image", "image/png", "+/8=")


@pytest.mark.parametrize(
    ("part", "wanted", "feature"),
    [
        (
            {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
            Media("audio", "audio/wav", "AAAA"),
            "audio",
        ),
        (
            {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}},
            Media("video", "video/mp4", "AAAA"),
            "video",
        ),
        (
            {"inlineData": {"mimeType": "application/pdf", "data": "AAAA", "displayName": "n"}},
            Media("file", "application/pdf", "AAAA", name="n"),
            "document_data",
        ),
        (
            {"inlineData": {"mimeType": "text/csv", "data": "YSxi"}},
            Media("file", "text/plain", "a,b", plain=True),
            "text_document",
        ),
        (
            {"fileData": {"fileUri": "https://a.example/b.PDF?x=1"}},
            Media("file", "application/pdf", url="https://a.example/b.PDF?x=1"),
            "document_url",
        ),
        (
            {"file_data": {"file_uri": "https://a.example/b", "mime_type": "image/png"}},
            Media("image", "image/png", url="https://a.example/b"),
            "image_url",
        ),
        (
            {"fileData": {"fileUri": "https://youtu.be/abc"}},
            Media("video", url="https://youtu.be/abc"),
            "video",
        ),
        (
            {"fileData": {"fileUri": "files/abc", "mimeType": "image/png"}},
            Media("image", "image/png", ref="files/abc"),
            "file_ref",
        ),
        (
            {"fileData": {"fileUri": "gs://bucket/a.pdf"}},
            Media("file", "application/pdf", ref="gs://bucket/a.pdf"),
            "file_ref",
        ),
    ],
)
def test_media_of_every_kind(part, wanted, feature):
    request = decoded({"contents": [user(part)]})
    (media,) = request.turns[0].parts
    kind = "inlineData" if "inlineData" in part else "fileData"
    assert media.path == f"contents[0].parts[0].{kind}"
    assert (
        Media(**{**{f: getattr(media, f) for f in media.__struct_fields__}, "path": ""}) == wanted
    )
    assert features(request) == [(feature, media.path)]


def test_the_decoder_rests_in_a_long_turn():
    many = {"contents": [user(*[{"text": "a"}] * 2500)]}
    steps = CODECS.client.decode_request(top_level(json.dumps(many).encode()), True, "m")
    assert sum(1 for _ in steps) == 4


def test_how_a_film_is_cut_is_named():
    film = {"fileData": {"fileUri": "https://youtu.be/a"}, "videoMetadata": {"fps": 1}}
    request = decoded({"contents": [user(film)]})
    assert ("other", "contents[0].parts[0].videoMetadata") in features(request)


def test_names_of_fields_that_are_too_long_stay_as_they_are():
    name = "a_" * 40
    assert features(decoded(**{name: 1})) == [("other", name)]


def test_how_closely_images_are_looked_at():
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
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
    history = [user({"text": "?"}), model({"text": "a"}, call("t", {"é": 1}), call("t"))]
    short = turns_of(*history)
    long = turns_of(*history, user(answer("t", {"output": "x"})), model(call("t")))
    assert short[1] == long[1]
    calls = [part for turn in long for part in turn.parts if isinstance(part, ToolCall)]
    assert [made.id for made in calls] == ["call_1_0", "call_1_1", "call_3_0"]
    assert calls[0].arguments == '{"é":1}'


def test_results_find_their_calls_by_name_and_order_and_stand_in_the_order_of_the_calls():
    turns = turns_of(
        user({"text": "?"}),
        model(call("tide"), call("wind"), call("tide")),
        user(
            {"text": "And?"}, answer("wind", {"error": "broken"}), answer("tide", {"output": "a"})
        ),
        {"role": "function", "parts": [answer("tide", {"output": "b"})]},
    )
    assert len(turns) == 3
    assert turns[2].parts == (
        ToolResult("call_1_0", (Text("a"),), "tide"),
        ToolResult("call_1_1", (Text("broken"),), "wind", error=True),
        ToolResult("call_1_2", (Text("b"),), "tide"),
        Text("And?"),
    )


def test_ids_decide_where_there_are_some():
    turns = turns_of(
        user({"text": "?"}),
        model(call("tide", id="x"), call("tide", id="y")),
        user(answer("tide", {"output": "2"}, id="y"), answer("tide", {"output": "1"}, id="x")),
    )
    assert [(part.call_id, part.parts[0].text) for part in turns[2].parts] == [
        ("x", "1"),
        ("y", "2"),
    ]


def test_a_result_without_a_name_is_of_the_first_open_call():
    turns = turns_of(USER, model(call("a"), call("b")), user({"functionResponse": {}}))
    assert turns[2].parts == (ToolResult("call_1_0", (), "a"),)


def test_a_result_without_a_call_keeps_its_name():
    turns = turns_of(user(answer("tide", {"output": "a"}), answer("tide", {"output": "b"}, id="z")))
    assert [(part.call_id, part.name) for part in turns[0].parts] == [
        ("call_0_r0", "tide"),
        ("z", "tide"),
    ]


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


def test_an_empty_response_has_no_parts_and_media_come_with_it():
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    (turn,) = turns_of(user(answer("f", {}, parts=[image])))
    (image,) = turn.parts[0].parts
    assert (image.kind, image.path) == (
        "image",
        "contents[0].parts[0].functionResponse.parts[0].inlineData",
    )


def test_parts_of_the_vendors_own_tools_are_named():
    raw = {"language": "PYTHON", "code": "1"}
    request = decoded({"contents": [USER, model({"executableCode": raw}, {"text": "1"})]})
    path = "contents[1].parts[0].executableCode"
    assert request.turns[1].parts == (
        Hosted("executableCode", {"executableCode": raw}, path),
        Text("1"),
    )
    assert features(request) == [("hosted_history", path)]


# ---- thoughts and their state --------------------------------------------------------------------


@pytest.mark.parametrize("signature", [SIGNED, URL_SAFE])
@pytest.mark.parametrize("name", ["thoughtSignature", "thought_signature"])
def test_state_on_a_call_belongs_to_the_thought_before(signature, name):
    thought = {"text": "Hm.", "thought": True}
    turns = turns_of(USER, model(thought, thought, {**call("f"), name: signature}))
    assert turns[1].parts[:1] == (Reasoning("Hm.Hm.", summary=True, opaque=WRAPPED),)


def test_state_without_a_thought_stands_before_the_texts_of_its_part():
    signed = {**call("f"), "thoughtSignature": SIGNED}
    turns = turns_of(USER, model(call("f"), {"text": "a"}, signed))
    assert turns[1].parts[1:3] == (Reasoning("", opaque=WRAPPED), Text("a"))


def test_state_behind_a_text_stands_before_the_text():
    thought = {"text": "Hm.", "thought": True}
    for last in ({"text": "b", "thoughtSignature": SIGNED},):
        turns = turns_of(USER, model(thought, {"text": "a"}, last))
        assert turns[1].parts == (Reasoning("Hm.", True, WRAPPED), Text("a"), Text("b"))
    turns = turns_of(USER, model({"text": "a"}, {"text": "", "thoughtSignature": SIGNED}))
    assert turns[1].parts == (Reasoning("", opaque=WRAPPED), Text("a"))
    turns = turns_of(USER, model({"text": "a"}, {"thoughtSignature": SIGNED}))
    assert turns[1].parts == (Reasoning("", opaque=WRAPPED), Text("a"))


def test_two_states_stay_two():
    other = base64.b64encode(b"gw1.other").decode()
    turns = turns_of(
        USER,
        model(
            {"text": "", "thoughtSignature": SIGNED},
            {"text": "Hm.", "thought": True},
            {"text": "a"},
            {**call("f"), "thoughtSignature": other},
        ),
    )
    assert turns[1].parts[:4] == (
        Reasoning("", opaque=WRAPPED),
        Reasoning("Hm.", summary=True, opaque="gw1.other"),
        Text("a"),
        ToolCall("call_1_0", "f", "{}"),
    )


@pytest.mark.parametrize("signature", ["/////w==", "no base64!", "é"])
def test_what_is_no_state_of_ours_is_left_out(signature):
    turns = turns_of(USER, model({"text": "a", "thoughtSignature": signature}))
    assert turns[1].parts == (Text("a"),)


def test_an_empty_thought_is_none():
    turns = turns_of(USER, model({"text": "", "thought": True}, {"text": "a"}))
    assert turns[1].parts == (Text("a"),)


def test_the_user_has_no_thoughts():
    assert turns_of(user({"text": "a", "thought": True}, {"text": "b"})) == (
        Turn("user", (Text("b"),)),
    )


# ---- tools ---------------------------------------------------------------------------------------


def test_functions_with_schemas_in_each_of_the_ways():
    tools = [
        {
            "function_declarations": [
                {
                    "name": "a",
                    "description": "A",
                    "parameters": {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}},
                },
                {"name": "b", "parameters_json_schema": {"type": "object", "$schema": "s"}},
                {"name": "c"},
            ]
        },
    ]
    path = "tools[0].functionDeclarations"
    assert decoded(tools=tools).tools == (
        Tool(
            "function",
            "a",
            "A",
            {"type": "object", "properties": {"x": {"type": "string"}}},
            path=f"{path}[0]",
        ),
        Tool("function", "b", "", {"type": "object", "$schema": "s"}, path=f"{path}[1]"),
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


@pytest.mark.parametrize(
    ("calling", "choice", "asked"),
    [
        ({}, ToolChoice("auto"), []),
        ({"mode": "AUTO"}, ToolChoice("auto"), []),
        ({"mode": "none"}, ToolChoice("none"), []),
        ({"mode": "ANY"}, ToolChoice("any"), []),
        (
            {"mode": "ANY", "allowedFunctionNames": ["get_wind"]},
            ToolChoice("one", ("get_wind",)),
            [],
        ),
        (
            {"mode": "ANY", "allowed_function_names": ["get_wind", "get_tide"]},
            ToolChoice("any", ("get_wind", "get_tide")),
            ["allowed_tools"],
        ),
        (
            {"mode": "VALIDATED", "allowedFunctionNames": ["get_wind"]},
            ToolChoice("auto", ("get_wind",)),
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
    request = decoded(
        generation_config={
            "temperature": 0.5,
            "top_p": "0.25",
            "topK": 64.0,
            "seed": "7",
            "presencePenalty": -1,
            "frequency_penalty": 1,
            "max_output_tokens": 321,
            "stop_sequences": ["END", ""],
            "candidateCount": 2,
            "response_logprobs": True,
            "logprobs": 3,
        }
    )
    assert (request.temperature, request.top_p, request.top_k, request.seed) == (0.5, 0.25, 64, 7)
    assert (request.presence_penalty, request.frequency_penalty) == (-1, 1)
    assert (request.max_output_tokens, request.stop) == (321, ("END",))
    assert (request.n, request.logprobs) == (2, 3)
    assert {feature for feature, _ in features(request)} == {
        *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
        *("stop", "n", "logprobs"),
    }


def test_what_is_the_default_asks_for_nothing():
    config = {
        "candidateCount": 1,
        "responseModalities": ["TEXT"],
        "stopSequences": [],
        "seed": None,
    }
    config |= {"responseMimeType": "text/plain", "maxOutputTokens": 0, "responseLogprobs": False}
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


@pytest.mark.parametrize(
    ("config", "wanted", "asked"),
    [
        ({}, Output(), None),
        ({"responseMimeType": "application/json"}, Output("json"), "json_output"),
        (
            {
                "responseMimeType": "application/json",
                "response_schema": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}},
            },
            Output("schema", {"type": "object", "properties": {"n": {"type": "integer"}}}),
            "schema_output",
        ),
        (
            {"responseMimeType": "application/json", "response_json_schema": {"type": "array"}},
            Output("schema", {"type": "array"}),
            "schema_output",
        ),
        ({"responseMimeType": "text/x.enum"}, Output(), "output_modalities"),
    ],
)
def test_the_form_of_the_text(config, wanted, asked):
    request = decoded(generationConfig=config)
    assert request.output == wanted
    assert [feature for feature, _ in features(request)] == ([asked] if asked else [])


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
        (
            {"generationConfig": {"speechConfig": {"a": 1}}},
            ("output_modalities", "generationConfig.speechConfig"),
        ),
        (
            {"generationConfig": {"responseModalities": ["TEXT", "image"]}},
            ("output_modalities", "generationConfig.responseModalities"),
        ),
        (
            {"generationConfig": {"responseFormat": [{}]}},
            ("output_modalities", "generationConfig.responseFormat"),
        ),
        ({"toolConfig": {"retrievalConfig": {}}}, ("other", "toolConfig.retrievalConfig")),
    ],
)
def test_what_others_may_not_have_is_named(fields, asked):
    assert features(decoded(**fields)) == [asked]


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        ("flex", "flex"),
        ("SERVICE_TIER_PRIORITY", "priority"),
        ("standard", "default"),
        ("unspecified", ""),
    ],
)
def test_service_tiers(said, tier):
    request = decoded(serviceTier=said)
    assert request.tier == tier
    assert [feature for feature, _ in features(request)] == (["tier"] if tier else [])


def test_a_request_to_count_may_wrap_the_whole_request():
    inner = {
        "model": "models/m",
        "contents": [USER],
        "systemInstruction": {"parts": [{"text": "s"}]},
    }
    request = decoded({"generate_content_request": inner})
    assert request.turns == (Turn("user", (Text("Is tea ready?"),)),)
    assert request.system == (Text("s"),)
    with pytest.raises(Fault) as caught:
        decoded({"generateContentRequest": {"contents": [{"role": "x"}]}})
    assert caught.value.param == "generateContentRequest.contents[0].role"


def test_an_empty_string_is_no_system_instruction():
    assert decoded(systemInstruction="").system == ()


def test_the_decoder_rests_after_each_turn():
    body = json.dumps({"contents": [USER, model({"text": "a"}), USER]}).encode()
    steps = CODECS.client.decode_request(top_level(body), True, "m")
    assert [next(steps) for _ in range(4)] == [True, False, False, False]
    assert at_once(steps).stream is True


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"text": 7}, ".text"),
        ({"text": "a", "inlineData": {}}, ""),
        ({"inlineData": {"data": "AAAA"}}, ".inlineData.mimeType"),
        ({"inlineData": {"mimeType": "image/png", "data": "!"}}, ".inlineData.data"),
        ({"inlineData": {"mimeType": "image/png", "data": ""}}, ".inlineData.data"),
        ({"inlineData": []}, ".inlineData"),
        ({"inlineData": {"mimeType": "text/plain", "data": "/w=="}}, ".inlineData.data"),
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
        ({"role": "model", "parts": [answer("f", {})]}, ".parts[0].functionResponse"),
        (
            {"role": "model", "parts": [{"functionCall": {"args": {}}}]},
            ".parts[0].functionCall.name",
        ),
        (
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": []}}]},
            ".parts[0].functionCall.args",
        ),
        ("text", ""),
    ],
)
def test_contents_that_cannot_be_meant(content, place):
    assert refusal({"contents": [content]}) == f"contents[0]{place}"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"contents": {}}, "contents"),
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": 7}]}]},
            "tools[0].functionDeclarations[0].parametersJsonSchema",
        ),
        ({"systemInstruction": "text"}, "systemInstruction"),
        ({"systemInstruction": {"parts": [{"inlineData": {}}]}}, "systemInstruction.parts[0]"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0].name"),
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "parameters": 7}]}]},
            "tools[0].functionDeclarations[0].parameters",
        ),
        (
            {
                "tools": [
                    {
                        "functionDeclarations": [
                            {"name": "f", "parameters": {}, "parametersJsonSchema": {}}
                        ]
                    }
                ]
            },
            "tools[0].functionDeclarations[0].parameters",
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            "toolConfig.functionCallingConfig.mode",
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "SOME"}}},
            "toolConfig.functionCallingConfig.mode",
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["x"]}}},
            "toolConfig.functionCallingConfig.allowedFunctionNames[0]",
        ),
        ({"generationConfig": {"temperature": "warm"}}, "generationConfig.temperature"),
        ({"generationConfig": {"temperature": "nan"}}, "generationConfig.temperature"),
        ({"generationConfig": {"stopSequences": ["x"] * 17}}, "generationConfig.stopSequences"),
        (
            {"generationConfig": {"stop_sequences": ["x", "x" * 257]}},
            "generationConfig.stopSequences[1]",
        ),
        ({"generationConfig": {"temperature": True}}, "generationConfig.temperature"),
        ({"generationConfig": {"seed": 1.5}}, "generationConfig.seed"),
        ({"generationConfig": {"maxOutputTokens": -1}}, "generationConfig.maxOutputTokens"),
        ({"generationConfig": {"stopSequences": [1]}}, "generationConfig.stopSequences[0]"),
        (
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}},
            "generationConfig.thinkingConfig.thinkingBudget",
        ),
        (
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": -2}}},
            "generationConfig.thinkingConfig.thinkingBudget",
        ),
        (
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "DEEP"}}},
            "generationConfig.thinkingConfig.thinkingLevel",
        ),
        ({"generationConfig": {"responseSchema": {}}}, "generationConfig.responseMimeType"),
        (
            {
                "generationConfig": {
                    "responseMimeType": "application/json",
                    "responseSchema": {},
                    "responseJsonSchema": {},
                }
            },
            "generationConfig.responseSchema",
        ),
        (
            {"generationConfig": {"responseMimeType": "application/json", "responseSchema": []}},
            "generationConfig.responseSchema",
        ),
        ({"labels": []}, "labels"),
        ({"contents": [{"parts": [{"text": "a", "thought": 1}]}]}, "contents[0].parts[0].thought"),
        (
            {"toolConfig": {"functionCallingConfig": {}, "function_calling_config": {}}},
            "toolConfig.functionCallingConfig",
        ),
    ],
)
def test_fields_that_cannot_be_meant(fields, path):
    assert refusal({"contents": [USER], **fields}) == path
