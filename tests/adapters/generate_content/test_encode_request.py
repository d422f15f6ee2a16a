"""Requests for upstreams of the generate-content family."""

import json

import pytest
from msgspec.structs import replace

from adapters.faults import Condition, Fault
from adapters.generate_content import CODECS
from adapters.generate_content.parts import BYPASS, sealed
from adapters.ir.parts import (
    CacheMark,
    Hosted,
    Media,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.ir.request import Ask, Output, Request, Thinking, Tool, ToolChoice
from tests.adapters.generate_content.calls import config_of, encoded, target

ASK = Turn("user", (Text("Is tea ready?"),))
OLD = "gemini-2.5-flash"  # does not sign its calls


def request(*turns, **fields):
    return Request("messages", False, turns or (ASK,), **fields)


def contents(*turns, model=OLD, **traits):
    return encoded(request(*turns), model, **traits)[0]["contents"]


def assistant(*parts):
    return Turn("assistant", parts)


def user(*parts):
    return Turn("user", parts)


def call(n, name="get_tide", arguments="{}", **more):
    return ToolCall(f"id{n}", name, arguments, **more)


def result(n, text="high", **more):
    return ToolResult(f"id{n}", (Text(text),), **more)


def called(n, name="get_tide", **args):
    return {"functionCall": {"id": f"id{n}", "name": name, "args": args}}


def answered(n, name="get_tide", **response):
    return {"functionResponse": {"id": f"id{n}", "name": name, "response": response}}


NONE = {"error": "no result provided"}


# ---- turns ---------------------------------------------------------------------------------------


def test_turns_and_leading_system_texts():
    body, made = encoded(
        request(
            ASK,
            assistant(Text("No."), Refusal("Never.")),
            user(Text("And now?", CacheMark())),
            system=(Text("You keep the log."), Text(""), Text("Be brief.")),
        )
    )
    assert body == {
        "contents": [
            {"role": "user", "parts": [{"text": "Is tea ready?"}]},
            {"role": "model", "parts": [{"text": "No."}, {"text": "Never."}]},
            {"role": "user", "parts": [{"text": "And now?"}]},
        ],
        "systemInstruction": {"parts": [{"text": "You keep the log."}, {"text": "Be brief."}]},
    }
    assert (made.names, made.cut, made.dropped, made.output_tool) == ({}, (), (), "")


def test_a_later_system_turn_is_a_reminder_in_the_users_words():
    found = contents(ASK, Turn("system", (Text("a"), Text("b"))), user(Text("c")))
    reminder = {"text": "<system-reminder>a\nb</system-reminder>"}
    assert found == [
        {"role": "user", "parts": [{"text": "Is tea ready?"}, reminder, {"text": "c"}]}
    ]
    found = contents(ASK, assistant(Text("No.")), Turn("system", (Text("a\nb"),)))
    assert found[2] == {"role": "user", "parts": [reminder]}


def test_an_empty_system_turn_is_none():
    assert len(contents(ASK, Turn("system", (Text(""),)), user(Text("c")))) == 1


def test_a_reminder_between_calls_and_results_waits():
    found = contents(ASK, assistant(call(1)), Turn("system", (Text("a"),)), user(result(1)))
    assert found[2]["parts"] == [
        answered(1, output="high"),
        {"text": "<system-reminder>a</system-reminder>"},
    ]


def test_the_user_speaks_first():
    found = contents(assistant(Text("Hello.")), ASK)
    assert [content["role"] for content in found] == ["user", "model", "user"]
    assert found[0]["parts"][0]["text"]


def test_system_text_alone_is_the_users():
    body, _ = encoded(request(Turn("user", ()), system=(Text("You keep the log."),)))
    assert body == {"contents": [{"role": "user", "parts": [{"text": "You keep the log."}]}]}


def test_empty_texts_and_turns_go_and_their_neighbours_join():
    found = contents(ASK, assistant(Text("")), user(Text(""), Text("b")))
    assert found == [{"role": "user", "parts": [{"text": "Is tea ready?"}, {"text": "b"}]}]


def test_hosted_parts_of_another_vendor_go():
    found = contents(ASK, assistant(Hosted("server_tool_use", {}), Text("a")))
    assert found[1]["parts"] == [{"text": "a"}]


# ---- calls and results ---------------------------------------------------------------------------


def test_results_stand_in_one_content_in_the_order_of_the_calls_with_names_and_ids():
    found = contents(
        ASK,
        assistant(Text("Let me look."), call(1, arguments='{"b":1,"a":2}'), call(2, "get_wind")),
        user(result(2, "broken", error=True), result(1), Text("Which pier?")),
    )
    assert found[1]["parts"] == [
        {"text": "Let me look."},
        called(1, b=1, a=2),
        called(2, "get_wind"),
    ]
    assert list(found[1]["parts"][1]["functionCall"]["args"]) == ["b", "a"]
    assert found[2]["parts"] == [
        answered(1, output="high"),
        answered(2, "get_wind", error="broken"),
        {"text": "Which pier?"},
    ]


def test_calls_without_results_get_some():
    found = contents(ASK, assistant(call(1), call(2)), user(result(2), Text("b")))
    assert found[2]["parts"] == [answered(1, **NONE), answered(2, output="high"), {"text": "b"}]
    assert contents(ASK, assistant(call(1)))[2]["parts"] == [answered(1, **NONE)]
    found = contents(ASK, assistant(call(1)), assistant(Text("a")))
    assert [content["role"] for content in found] == ["user", "model", "user", "model"]


def test_results_without_calls_are_words_of_the_user():
    found = contents(user(result(1, name="get_tide"), result(2), Text("b")))
    assert found[0]["parts"] == [
        {"text": "Result of get_tide: high"},
        {"text": "Result: high"},
        {"text": "b"},
    ]


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        ("  ", {}),
        ('{"é": null}', {"é": None}),
        ("[1]", {"value": [1]}),
        ("null", {"value": None}),
        ('"a"', {"value": "a"}),
        ('{"a": ', {"_raw": '{"a": '}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ("\udc80", {"_raw": "\udc80"}),
    ],
)
def test_arguments_become_an_object(arguments, args):
    found = contents(ASK, assistant(call(1, arguments=arguments)))
    assert found[1]["parts"][0]["functionCall"]["args"] == args


def test_media_of_a_result_follow_all_results():
    image = Media("image", "image/png", "AAAA")
    shown = ToolResult("id1", (image,))
    found = contents(ASK, assistant(call(1), call(2)), user(shown, result(2), Text("b")))
    assert found[2]["parts"] == [
        answered(1, output="See what is attached."),
        answered(2, output="high"),
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"text": "b"},
    ]


def test_a_tool_for_free_text_may_have_no_grammar():
    body, _ = encoded(request(tools=(Tool("custom", "patch"),)))
    assert "description" not in body["tools"][0]["functionDeclarations"][0]


def test_free_text_is_an_argument():
    tool = Tool("custom", "patch", "Patches.", grammar="start: /a/", grammar_syntax="lark")
    turns = (
        ASK,
        assistant(call(1, "patch", "*** Begin", custom=True)),
        user(result(1, custom=True)),
    )
    body, made = encoded(request(*turns, tools=(tool,)), OLD)
    (declared,) = body["tools"][0]["functionDeclarations"]
    assert declared["parametersJsonSchema"]["required"] == ["input"]
    assert declared["description"] == (
        "Patches.\n\nThe text must follow this lark grammar:\nstart: /a/"
    )
    assert body["contents"][1]["parts"] == [called(1, "patch", input="*** Begin")]
    assert made.names == {"patch": tool}


# ---- names ---------------------------------------------------------------------------------------


def test_names_that_the_family_does_not_take_are_mapped_and_mapped_back():
    tools = (
        Tool("function", "fine.name:1-x"),
        Tool("function", "2 much"),
        Tool("function", "2_much"),
        Tool("function", "run", namespace="mcp"),
        Tool("function", "mcp__run"),
        Tool("function", "n" * 200),
    )
    turns = (ASK, assistant(call(1, "run", namespace="mcp"), call(2, "2 much")))
    body, made = encoded(request(*turns, tools=tools), OLD)
    names = [each["name"] for each in body["tools"][0]["functionDeclarations"]]
    assert names[0] == "fine.name:1-x"
    assert len(set(names)) == len(names)
    assert all(len(name) <= 128 and (name[0].isalpha() or name[0] == "_") for name in names)
    assert {made.names[name].name for name in names[1:3]} == {"2 much", "2_much"}
    assert made.names["mcp__run"] is tools[3]
    assert [part["functionCall"]["name"] for part in body["contents"][1]["parts"]] == [
        "mcp__run",
        names[1],
    ]
    assert [part["functionResponse"]["name"] for part in body["contents"][2]["parts"]] == [
        "mcp__run",
        names[1],
    ]


def test_a_name_is_the_same_whatever_other_tools_there_are():
    alone, _ = encoded(request(tools=(Tool("function", "é"),)))
    among, _ = encoded(request(tools=(Tool("function", "a"), Tool("function", "é"))))
    assert (
        alone["tools"][0]["functionDeclarations"][0]
        == (among["tools"][0]["functionDeclarations"][1])
    )


# ---- tools ---------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/b"}},
    "$defs": {"b": {"const": "c"}},
}


def test_schemas_pass_as_they_are_or_in_the_subset():
    tools = (
        Tool("function", "f", "Does.", SCHEMA),
        Tool("function", "g"),
        Tool("function", "h", schema={}),
    )
    body, _ = encoded(request(tools=tools))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "Does.", "parametersJsonSchema": SCHEMA},
                {"name": "g"},
                {"name": "h"},
            ]
        }
    ]
    empty = Tool("function", "i", schema={"type": "object", "properties": {}})
    body, _ = encoded(request(tools=(*tools, empty)), schemas="subset")
    assert body["tools"][0]["functionDeclarations"] == [
        {
            "name": "f",
            "description": "Does.",
            "parameters": {
                "type": "OBJECT",
                "properties": {"a": {"type": "STRING", "enum": ["c"]}},
            },
        },
        {"name": "g"},
        {"name": "h"},
        {"name": "i"},
    ]


BOTH = (Tool("function", "a"), Tool("function", "b", namespace="n"))


@pytest.mark.parametrize(
    ("choice", "calling", "declared"),
    [
        (None, None, ["a", "n__b"]),
        (ToolChoice("auto"), {"mode": "AUTO"}, ["a", "n__b"]),
        (ToolChoice("auto", ("a",)), {"mode": "AUTO"}, ["a"]),
        (ToolChoice("none"), {"mode": "NONE"}, ["a", "n__b"]),
        (ToolChoice("any"), {"mode": "ANY"}, ["a", "n__b"]),
        (
            ToolChoice("any", ("a", "b")),
            {"mode": "ANY", "allowedFunctionNames": ["a", "n__b"]},
            ["a", "n__b"],
        ),
        (
            ToolChoice("one", ("b",)),
            {"mode": "ANY", "allowedFunctionNames": ["n__b"]},
            ["a", "n__b"],
        ),
    ],
)
def test_which_tools_must_be_called(choice, calling, declared):
    body, _ = encoded(request(tools=BOTH, choice=choice, parallel_tools=False))
    assert body.get("toolConfig") == ({"functionCallingConfig": calling} if calling else None)
    assert [each["name"] for each in body["tools"][0]["functionDeclarations"]] == declared


def test_a_choice_without_tools_says_nothing():
    body, _ = encoded(request(choice=ToolChoice("none")))
    assert set(body) == {"contents"}


def test_a_search_is_the_vendors_own_unless_there_are_functions():
    search = Tool("hosted", "web_search", search=True)
    other = Tool("hosted", "code_interpreter")
    body, made = encoded(request(tools=(other, search)))
    assert (body["tools"], made.dropped) == ([{"googleSearch": {}}], ())
    body, made = encoded(request(tools=(BOTH[0], search)))
    assert body["tools"] == [{"functionDeclarations": [{"name": "a"}]}]
    assert made.dropped == ("hosted_search",)


# ---- media ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "part"),
    [
        (
            Media("image", "image/png", "+/8="),
            {"inlineData": {"mimeType": "image/png", "data": "+/8="}},
        ),
        (
            Media("image", "image/jpg", "AAAA"),
            {"inlineData": {"mimeType": "image/jpeg", "data": "AAAA"}},
        ),
        (
            Media("audio", "audio/wav", "AAAA"),
            {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
        ),
        (
            Media("file", "", "AAAA"),
            {"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}},
        ),
        (
            Media("file", "text/plain", "é", plain=True),
            {"inlineData": {"mimeType": "text/plain", "data": "w6k="}},
        ),
        (
            Media("image", url="https://a.example/b.jpg"),
            {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://a.example/b.jpg"}},
        ),
        (
            Media("image", url="https://a.example/b"),
            {"fileData": {"fileUri": "https://a.example/b"}},
        ),
    ],
)
def test_media(media, part):
    assert contents(user(media)) == [{"role": "user", "parts": [part]}]


@pytest.mark.parametrize(
    "media",
    [
        Media("image", ref="file-1", path="messages[0].content[0]"),
        Media("image", url="http://a.example/b.png", path="messages[0].content[0]"),
        Media("image", url="https://a.example/b.gif", path="messages[0].content[0]"),
        Media("image", "image/gif", "AAAA", path="messages[0].content[0]"),
    ],
)
def test_what_the_vendor_cannot_read_is_refused(media):
    with pytest.raises(Fault) as caught:
        contents(user(media))
    assert caught.value.condition is Condition.UNSUPPORTED
    assert caught.value.param == "messages[0].content[0]"


# ---- settings ------------------------------------------------------------------------------------


def test_sampling_and_bounds():
    config = config_of(
        request(
            temperature=1.5,
            top_p=0.9,
            top_k=40,
            seed=7,
            frequency_penalty=0.5,
            presence_penalty=-0.5,
            max_output_tokens=321,
            stop=("a", "", "b", "a"),
            n=2,
            logprobs=30,
        )
    )
    assert config == {
        "temperature": 1.5,
        "topP": 0.9,
        "topK": 40,
        "seed": 7,
        "frequencyPenalty": 0.5,
        "presencePenalty": -0.5,
        "maxOutputTokens": 321,
        "stopSequences": ["a", "b"],
        "candidateCount": 2,
        "responseLogprobs": True,
        "logprobs": 20,
    }
    assert config_of(request(logprobs=0)) == {"responseLogprobs": True}


def test_values_that_the_vendor_refuses_are_left_out_with_a_note():
    _, made = encoded(request(seed=2**31, top_k=0))
    assert made.dropped == ("top_k", "seed")


def test_a_model_without_sampling_gets_none():
    assert config_of(request(temperature=1.0, top_p=1.0, seed=1), sampling=False) == {}


def test_stop_sequences_beyond_the_vendors_bound_are_cut_by_the_gateway():
    body, made = encoded(request(stop=tuple("abcdefg")))
    assert body["generationConfig"]["stopSequences"] == list("abcde")
    assert made.cut == ("f", "g")


@pytest.mark.parametrize(
    ("output", "traits", "wanted"),
    [
        (Output(), {}, {}),
        (Output("json"), {}, {"responseMimeType": "application/json"}),
        (
            Output("schema", {"type": "array", "items": {"type": "string"}}),
            {},
            {
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "array", "items": {"type": "string"}},
            },
        ),
        (
            Output("schema", {"type": "array", "items": {"type": "string"}}),
            {"schemas": "subset"},
            {
                "responseMimeType": "application/json",
                "responseSchema": {"type": "ARRAY", "items": {"type": "STRING"}},
            },
        ),
    ],
)
def test_the_form_of_the_answer(output, traits, wanted):
    assert config_of(request(output=output), **traits) == wanted


THREE, FLASH, PRO = "gemini-3-pro-preview", "gemini-2.5-flash", "models/gemini-2.5-pro"


@pytest.mark.parametrize(
    ("model", "thinking", "wanted"),
    [
        ("gemini-3-flash", Thinking("off"), {"thinkingLevel": "MINIMAL"}),
        (THREE, Thinking("off"), {"thinkingLevel": "LOW"}),
        (THREE, Thinking("medium"), {"thinkingLevel": "LOW", "includeThoughts": True}),
        (THREE, Thinking("max", show="none"), {"thinkingLevel": "HIGH"}),
        ("gemini-3-flash", Thinking("xhigh", show="none"), {"thinkingLevel": "HIGH"}),
        ("another", Thinking("xhigh", show="none"), {"thinkingLevel": "XHIGH"}),
        (THREE, Thinking("auto", show="full"), {"includeThoughts": True}),
        (THREE, Thinking("auto", show="none"), {}),
        (FLASH, Thinking("off", show="summary"), {"thinkingBudget": 0}),
        ("gemini-3-flash", Thinking(budget_tokens=500, show="none"), {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash", Thinking(budget_tokens=2048, show="none"), {"thinkingLevel": "LOW"}),
        ("gemini-3-flash", Thinking(budget_tokens=8192, show="none"), {"thinkingLevel": "MEDIUM"}),
        (
            "gemini-3-flash",
            Thinking(budget_tokens=31999, show="summary"),
            {"thinkingLevel": "HIGH", "includeThoughts": True},
        ),
        (FLASH, Thinking("off"), {"thinkingBudget": 0}),
        (PRO, Thinking("off"), {"thinkingBudget": 128}),
        (FLASH, Thinking("auto", show="none"), {"thinkingBudget": -1}),
        (FLASH, Thinking("minimal", show="none"), {"thinkingBudget": 512}),
        (FLASH, Thinking("low", show="none"), {"thinkingBudget": 1024}),
        (FLASH, Thinking("medium", show="none"), {"thinkingBudget": 8192}),
        (FLASH, Thinking("high", show="none"), {"thinkingBudget": 24_576}),
        (FLASH, Thinking("xhigh", show="none"), {"thinkingBudget": 24_576}),
        (PRO, Thinking("max", show="none"), {"thinkingBudget": 32_768}),
        (PRO, Thinking(budget_tokens=5000), {"thinkingBudget": 5000, "includeThoughts": True}),
        (FLASH, Thinking(show="summary"), {"includeThoughts": True}),
        (FLASH, Thinking(), {}),
        (FLASH, None, {}),
        ("gemini-2.0-flash", Thinking("high"), {}),
    ],
)
def test_how_much_to_think(model, thinking, wanted):
    config = config_of(request(thinking=thinking), model)
    assert config.get("thinkingConfig", {}) == wanted


@pytest.mark.parametrize(
    ("tier", "wanted"),
    [
        ("", None),
        ("auto", None),
        ("default", "standard"),
        ("flex", "flex"),
        ("priority", "priority"),
    ],
)
def test_service_tiers(tier, wanted):
    assert encoded(request(tier=tier))[0].get("serviceTier") == wanted


def test_a_fast_answer_has_priority():
    fast = request(tier="default", asks=(Ask("speed", "speed"),))
    assert encoded(fast)[0]["serviceTier"] == "priority"


def test_a_request_to_count_is_wrapped_and_names_the_model():
    asked = request(system=(Text("s"),), max_output_tokens=5)
    plain, _ = encoded(asked)
    counted, _ = encoded(asked, count=True)
    assert counted == {"generateContentRequest": {"model": "models/gemini-3-flash", **plain}}
    counted, _ = encoded(asked, "tunedModels/mine", count=True)
    assert counted["generateContentRequest"]["model"] == "tunedModels/mine"


def test_a_number_that_cannot_be_written_is_refused():
    schema = {"type": "object", "default": float("inf")}
    with pytest.raises(Fault) as caught:
        encoded(request(tools=(Tool("function", "f", schema=schema),)))
    assert caught.value.condition is Condition.INVALID_FIELD


# ---- signatures ----------------------------------------------------------------------------------


def thought(place="call", signature="AAAA", text=""):
    return Reasoning(text, opaque=sealed(place, signature))


def test_signatures_go_back_to_their_parts():
    found = contents(
        ASK,
        assistant(
            Reasoning("Hm.", summary=True),
            thought("thought", "T1", "So."),
            Text("a"),
            thought("text", "X1"),
            thought("call", "C1", "Hm."),
            call(1),
            call(2),
            thought("call", "C2"),
            call(3),
            thought("text", "X2"),
        ),
    )
    assert found[1]["parts"] == [
        {"text": "So.", "thought": True, "thoughtSignature": "T1"},
        {"text": "a", "thoughtSignature": "X1"},
        {**called(1), "thoughtSignature": "C1"},
        called(2),
        {**called(3), "thoughtSignature": "C2"},
        {"text": "", "thoughtSignature": "X2"},
    ]


def test_a_signature_that_comes_before_its_text_goes_with_it():
    found = contents(ASK, assistant(thought("text", "X1"), Text("a"), Text("b")))
    assert found[1]["parts"] == [{"text": "a", "thoughtSignature": "X1"}, {"text": "b"}]


@pytest.mark.parametrize("opaque", ["", "AAAA", "call:", "other:AAAA"])
def test_thoughts_without_a_signature_go(opaque):
    found = contents(ASK, assistant(Reasoning("Hm.", opaque=opaque), Text("a")))
    assert found[1]["parts"] == [{"text": "a"}]


def test_calls_of_the_current_turn_that_another_model_made_have_the_documented_value():
    turns = (
        ASK,
        assistant(call(1)),
        user(result(1), Text("And now?")),
        assistant(call(2), call(3)),
        user(result(2), result(3)),
        assistant(thought(), call(4)),
        user(result(4)),
        assistant(Text("So.")),
    )
    found = contents(*turns, model="gemini-3-pro-preview")
    signatures = [
        part.get("thoughtSignature")
        for content in found
        for part in content["parts"]
        if "functionCall" in part
    ]
    assert signatures == [None, BYPASS, None, "AAAA"]
    assert "thoughtSignature" not in json.dumps(contents(*turns[:5], model="gemini-2.5-pro"))


def test_the_encoder_rests_after_each_turn():
    asked = replace(request(), turns=(ASK, assistant(Text("a")), ASK))
    steps = CODECS.upstream.encode_request(asked, target(), False)
    assert [next(steps) for _ in range(4)] == [False, False, False, True]
