"""Requests for upstreams of the generate-content family."""

import json

import pytest
from msgspec.structs import replace

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
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
from tests.adapters.generate_content.calls import called, config_of, encoded, inline, target

CODECS = CODECS_BY_FAMILY["generate_content"]

ASK = Turn("user", (Text("Is tea ready?"),))
OLD = "gemini-2.5-flash"  # this model does not sign its calls


def request(*turns, **fields):
    return Request("messages", False, turns or (ASK,), **fields)


def contents(*turns, model=OLD, **traits):
    return encoded(request(*turns), model, **traits)[0]["contents"]


def assistant(*parts):
    return Turn("assistant", parts)


def user(*parts):
    return Turn("user", parts)


def call(n, name="f", arguments="{}", **more):
    return ToolCall(f"id{n}", name, arguments, **more)


def result(n, text="high", **more):
    return ToolResult(f"id{n}", (Text(text),), **more)


def answered(n, name="f", **response):
    return {"functionResponse": {"id": f"id{n}", "name": name, "response": response}}


def declared(body):
    """Return the functions that a body declares."""
    (tool,) = body["tools"]
    return tool["functionDeclarations"]


NONE = {"error": "no result provided"}
ASKED = {"text": "Is tea ready?"}
A, B, IMAGE = Text("a"), Text("b"), Media("image", "image/png", "AAAA")
INLINE = inline("image/png")


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


def reminder(text):
    return {"text": f"<system-reminder>{text}</system-reminder>"}


@pytest.mark.parametrize(
    ("turns", "place", "parts"),
    [
        ([ASK, Turn("system", (A, B)), user(B)], 0, [ASKED, reminder("a\nb"), {"text": "b"}]),
        ([ASK, assistant(B), Turn("system", (Text("a\nb"),))], 2, [reminder("a\nb")]),
        ([ASK, Turn("system", (Text(""),)), user(B)], 0, [ASKED, {"text": "b"}]),
        (
            [ASK, assistant(call(1)), Turn("system", (A,)), user(result(1))],
            2,
            [answered(1, output="high"), reminder("a")],
        ),
        ([ASK, assistant(Text("")), user(Text(""), B)], 0, [ASKED, {"text": "b"}]),
        ([ASK, assistant(Hosted("server_tool_use", {}), A)], 1, [{"text": "a"}]),
    ],
    ids=["reminder", "reminder_last", "empty", "behind_results", "empty_texts", "hosted_parts"],
)
def test_later_system_turns_are_reminders_and_empty_parts_go(turns, place, parts):
    sent = contents(*turns)
    assert sent[place:] == [{"role": ["user", "model", "user"][place], "parts": parts}]


def test_the_user_speaks_first():
    found = contents(assistant(Text("Hello.")), ASK)
    assert [content["role"] for content in found] == ["user", "model", "user"]
    assert found[0]["parts"][0]["text"]


def test_a_prefix_of_a_conversation_is_encoded_as_it_was():
    turns = (
        *(ASK, assistant(A, call(1), call(2)), user(result(2), result(1), B)),
        *(assistant(B), Turn("system", (A,)), user(IMAGE)),
        *(assistant(call(3)), user(result(3))),
    )
    whole = contents(*turns)
    for count, sent in ((1, 1), (3, 3), (6, 5), (8, 7)):
        assert contents(*turns[:count]) == whole[:sent]


def test_system_text_alone_is_the_users():
    body, _ = encoded(request(Turn("user", ()), system=(A,)))
    assert body == {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}


# ---- calls and results ---------------------------------------------------------------------------


def test_results_stand_in_one_content_in_the_order_of_the_calls_with_names_and_ids():
    found = contents(
        ASK,
        assistant(Text("Let me look."), call(1, arguments='{"b":1,"a":2}'), call(2, "get_wind")),
        user(result(2, "broken", error=True), result(1), Text("Which pier?")),
    )
    calls = [called("id1", b=1, a=2), called("id2", "get_wind")]
    assert found[1]["parts"] == [{"text": "Let me look."}, *calls]
    assert list(found[1]["parts"][1]["functionCall"]["args"]) == ["b", "a"]
    assert found[2]["parts"] == [
        answered(1, output="high"),
        answered(2, "get_wind", error="broken"),
        {"text": "Which pier?"},
    ]


@pytest.mark.parametrize(
    ("turns", "parts"),
    [
        (
            [ASK, assistant(call(1), call(2)), user(ToolResult("id2", (IMAGE, A)), B)],
            [answered(1, **NONE), answered(2, output="a"), INLINE, {"text": "b"}],
        ),
        ([ASK, assistant(call(1))], [answered(1, **NONE)]),
        ([ASK, assistant(call(1)), assistant(A)], [answered(1, **NONE)]),
        (
            [ASK, assistant(A), user(result(1, name="f"), result(2), B)],
            [{"text": "Result of f: high"}, {"text": "Result: high"}, {"text": "b"}],
        ),
        (
            [ASK, assistant(call(1)), user(ToolResult("id1", (IMAGE,)), B)],
            [answered(1, output="See what is attached."), INLINE, {"text": "b"}],
        ),
    ],
    ids=["lost", "not_yet", "never", "of_no_call", "media"],
)
def test_results_of_odd_conversations(turns, parts):
    assert contents(*turns)[2] == {"role": "user", "parts": parts}


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


def test_free_text_is_an_argument():
    tool = Tool("custom", "patch", "Patches.", grammar="start: /a/", grammar_syntax="lark")
    patch = call(1, "patch", "*** Begin", custom=True)
    turns = (ASK, assistant(patch), user(result(1, custom=True)))
    body, made = encoded(request(*turns, tools=(tool,)), OLD)
    (function,) = declared(body)
    assert function["parametersJsonSchema"]["required"] == ["input"]
    assert function["description"] == (
        "Patches.\n\nThe text must follow this lark grammar:\nstart: /a/"
    )
    assert body["contents"][1]["parts"] == [called("id1", "patch", input="*** Begin")]
    assert made.names == {"patch": tool}
    (bare,) = declared(encoded(request(tools=(Tool("custom", "patch"),)))[0])
    assert "description" not in bare


# ---- names ---------------------------------------------------------------------------------------


def test_names_that_the_family_does_not_take_are_mapped_and_mapped_back():
    spelled = ("fine.name:1-x", "2 much", "2_much", "mcp__run", "n" * 200)
    tools = (Tool("function", "run", namespace="mcp"), *(Tool("function", n) for n in spelled))
    turns = (ASK, assistant(call(1, "run", namespace="mcp"), call(2, "2 much")))
    body, made = encoded(request(*turns, tools=tools), OLD)
    names = [each["name"] for each in declared(body)]
    assert names[1] == "fine.name:1-x"
    assert len(set(names)) == len(names)
    assert all(len(name) <= 128 and (name[0].isalpha() or name[0] == "_") for name in names)
    assert {made.names[name].name for name in names[2:4]} == {"2 much", "2_much"}
    assert made.names["mcp__run"] is tools[0]
    for content, kind in ((1, "functionCall"), (2, "functionResponse")):
        parts = body["contents"][content]["parts"]
        assert [part[kind]["name"] for part in parts] == ["mcp__run", names[2]]


def test_a_name_is_the_same_whatever_other_tools_there_are():
    alone, _ = encoded(request(tools=(Tool("function", "é"),)))
    among, _ = encoded(request(tools=(Tool("function", "a"), Tool("function", "é"))))
    assert declared(alone)[0] == declared(among)[1]


# ---- tools ---------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}
SCHEMA |= {"$defs": {"b": {"const": "c"}}}


def test_schemas_pass_as_they_are_or_in_the_subset():
    function = {"name": "f", "description": "Does."}
    bare = (Tool("function", "g"), Tool("function", "h", schema={}))
    tools = (Tool("function", "f", "Does.", SCHEMA), *bare)
    body, _ = encoded(request(tools=tools))
    whole = {**function, "parametersJsonSchema": SCHEMA}
    assert declared(body) == [whole, {"name": "g"}, {"name": "h"}]
    empty = Tool("function", "i", schema={"type": "object", "properties": {}})
    body, _ = encoded(request(tools=(*tools, empty)), schemas="subset")
    subset = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "enum": ["c"]}}}
    assert declared(body) == [{**function, "parameters": subset}, *({"name": n} for n in "ghi")]


BOTH = (Tool("function", "a"), Tool("function", "b", namespace="n"))
ALL = ["a", "n__b"]


@pytest.mark.parametrize(
    ("choice", "calling", "names"),
    [
        (None, None, ALL),
        (ToolChoice("auto"), {"mode": "AUTO"}, ALL),
        (ToolChoice("auto", ("a",)), {"mode": "AUTO"}, ["a"]),
        (ToolChoice("none"), {"mode": "NONE"}, ALL),
        (ToolChoice("any"), {"mode": "ANY"}, ALL),
        (
            ToolChoice("any", ("a", "b")),
            {"mode": "ANY", "allowedFunctionNames": ["a", "n__b"]},
            ALL,
        ),
        (ToolChoice("one", ("b",)), {"mode": "ANY", "allowedFunctionNames": ["n__b"]}, ALL),
    ],
)
def test_which_tools_must_be_called(choice, calling, names):
    body, _ = encoded(request(tools=BOTH, choice=choice, parallel_tools=False))
    assert body.get("toolConfig") == ({"functionCallingConfig": calling} if calling else None)
    assert [each["name"] for each in declared(body)] == names


def test_a_choice_without_tools_says_nothing():
    body, _ = encoded(request(choice=ToolChoice("none")))
    assert set(body) == {"contents"}


def test_a_search_is_the_vendors_own_unless_there_are_functions():
    search = Tool("hosted", "web_search", search=True)
    other = Tool("hosted", "code_interpreter")
    body, made = encoded(request(tools=(other, search)))
    assert (body["tools"], made.dropped) == ([{"googleSearch": {}}], ())
    both = request(tools=(BOTH[0], search))
    body, made = encoded(both, search_beside_functions=False)
    functions = {"functionDeclarations": [{"name": "a"}]}
    assert (body["tools"], "toolConfig" in body) == ([functions], False)
    assert made.dropped == ("hosted_search",)
    body, made = encoded(both, search_beside_functions=True)
    assert (body["tools"], made.dropped) == ([functions, {"googleSearch": {}}], ())
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}


# ---- media ---------------------------------------------------------------------------------------


URL = "https://a.example/b"


@pytest.mark.parametrize(
    ("media", "part"),
    [
        (Media("image", "image/png", "+/8="), inline("image/png", "+/8=")),
        (Media("image", "image/jpg", "AAAA"), inline("image/jpeg")),
        (Media("audio", "audio/wav", "AAAA"), inline("audio/wav")),
        (Media("file", "", "AAAA"), inline("application/pdf")),
        (Media("file", "text/plain", "é", plain=True), inline("text/plain", "w6k=")),
        (
            Media("image", url=f"{URL}.jpg"),
            {"fileData": {"mimeType": "image/jpeg", "fileUri": f"{URL}.jpg"}},
        ),
        (Media("image", url=URL), {"fileData": {"fileUri": URL}}),
    ],
)
def test_media(media, part):
    assert contents(user(media)) == [{"role": "user", "parts": [part]}]


@pytest.mark.parametrize(
    "media",
    [
        Media("image", ref="file-1", path="p"),
        Media("image", url="http://a.example/b.png", path="p"),
        Media("image", url="https://a.example/b.gif", path="p"),
        Media("image", "image/gif", "AAAA", path="p"),
    ],
)
def test_what_the_vendor_cannot_read_is_refused(media):
    with pytest.raises(Fault) as caught:
        contents(user(media))
    assert (caught.value.condition, caught.value.param) == (Condition.UNSUPPORTED, "p")


# ---- settings ------------------------------------------------------------------------------------


PLAIN = {"temperature": 1.5, "seed": 7}


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        (PLAIN, PLAIN),
        ({"top_p": 0.9, "top_k": 40}, {"topP": 0.9, "topK": 40}),
        ({"frequency_penalty": 0.5}, {"frequencyPenalty": 0.5}),
        ({"presence_penalty": -0.5}, {"presencePenalty": -0.5}),
        ({"max_output_tokens": 321, "n": 2}, {"maxOutputTokens": 321, "candidateCount": 2}),
        ({"stop": ("a", "", "b", "a")}, {"stopSequences": ["a", "b"]}),
        ({"logprobs": 30}, {"responseLogprobs": True, "logprobs": 20}),
        ({"logprobs": 0}, {"responseLogprobs": True}),
    ],
)
def test_sampling_and_bounds(fields, config):
    assert config_of(request(**fields)) == config


def test_values_that_the_vendor_refuses_are_left_out_with_a_note():
    _, made = encoded(request(seed=2**31, top_k=0))
    assert made.dropped == ("top_k", "seed")


def test_a_model_without_sampling_gets_none():
    assert config_of(request(temperature=1.0, top_p=1.0, seed=1), sampling=False) == {}


def test_stop_sequences_beyond_the_vendors_bound_are_cut_by_the_gateway():
    body, made = encoded(request(stop=tuple("abcdefg")))
    assert body["generationConfig"]["stopSequences"] == list("abcde")
    assert made.cut == ("f", "g")


JSON = {"responseMimeType": "application/json"}
ARRAY = Output("schema", {"type": "array", "items": {"type": "string"}})
SUBSET = {"type": "ARRAY", "items": {"type": "STRING"}}


@pytest.mark.parametrize(
    ("output", "schemas", "config"),
    [
        (Output(), "json_schema", {}),
        (Output("json"), "json_schema", JSON),
        (ARRAY, "json_schema", {**JSON, "responseJsonSchema": ARRAY.schema}),
        (ARRAY, "subset", {**JSON, "responseSchema": SUBSET}),
    ],
)
def test_the_form_of_the_answer(output, schemas, config):
    assert config_of(request(output=output), schemas=schemas) == config


THREE, FLASH, PRO = "gemini-3-pro-preview", "gemini-2.5-flash", "models/gemini-2.5-pro"
THREE_FLASH = "gemini-3-flash"


@pytest.mark.parametrize(
    ("model", "thinking", "wanted"),
    [
        (THREE_FLASH, Thinking("off"), {"thinkingLevel": "MINIMAL"}),
        (THREE, Thinking("off"), {"thinkingLevel": "LOW"}),
        (THREE, Thinking("medium"), {"thinkingLevel": "LOW", "includeThoughts": True}),
        (THREE, Thinking("max", show="none"), {"thinkingLevel": "HIGH"}),
        (THREE_FLASH, Thinking("xhigh", show="none"), {"thinkingLevel": "HIGH"}),
        ("another", Thinking("xhigh", show="none"), {"thinkingLevel": "XHIGH"}),
        (THREE, Thinking("auto", show="full"), {"includeThoughts": True}),
        (THREE, Thinking("auto", show="none"), {}),
        (FLASH, Thinking("off", show="summary"), {"thinkingBudget": 0}),
        (THREE_FLASH, Thinking(budget_tokens=500, show="none"), {"thinkingLevel": "MINIMAL"}),
        (THREE_FLASH, Thinking(budget_tokens=2048, show="none"), {"thinkingLevel": "LOW"}),
        (THREE_FLASH, Thinking(budget_tokens=8192, show="none"), {"thinkingLevel": "MEDIUM"}),
        (THREE_FLASH, Thinking(budget_tokens=31999, show="none"), {"thinkingLevel": "HIGH"}),
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
    ("tier", "asks", "sent"),
    [
        *((tier, (), None) for tier in ("", "auto")),
        *((tier, (), tier) for tier in ("flex", "priority")),
        ("default", (), "standard"),
        ("default", (Ask("speed", "speed"),), "priority"),
    ],
)
def test_service_tiers(tier, asks, sent):
    assert encoded(request(tier=tier, asks=asks))[0].get("serviceTier") == sent


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
        {**called("id1"), "thoughtSignature": "C1"},
        called("id2"),
        {**called("id3"), "thoughtSignature": "C2"},
        {"text": "", "thoughtSignature": "X2"},
    ]


@pytest.mark.parametrize("opaque", ["", "AAAA", "call:", "other:AAAA"])
def test_thoughts_without_a_signature_go(opaque):
    sent = contents(ASK, assistant(Reasoning("Hm.", opaque=opaque), A))
    assert sent[1]["parts"] == [{"text": "a"}]


def test_a_signature_that_comes_before_its_text_goes_with_it():
    sent = contents(ASK, assistant(thought("text", "X1"), A, B))
    assert sent[1]["parts"] == [{"text": "a", "thoughtSignature": "X1"}, {"text": "b"}]


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
