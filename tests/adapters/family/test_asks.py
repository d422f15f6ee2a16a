"""Features that requests of each family ask for, by their fields."""

import json

import pytest

from adapters.family.asks import (
    MAX_ASKS,
    MAX_TOOL_VALUES,
    MAX_TOOLS,
    NOTHING_ASKED,
    Ask,
    Asks,
    ModelAsk,
    bounded_steps,
)
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.registry import FAMILIES
from store.values.features import FEATURES
from store.values.usage import Served

CHAT, RESPONSES, MESSAGES, GOOGLE = FAMILIES
PLAIN = {
    CHAT: {"model": "m", "messages": []},
    RESPONSES: {"model": "m", "input": "Hi"},
    MESSAGES: {"model": "m", "messages": [], "max_tokens": 9},
    GOOGLE: {"contents": []},
}
SCHEMA = {"type": "object", "properties": {"type": {"type": "string"}}}
FUNCTIONS = {
    CHAT: {"type": "function", "function": {"name": "tea", "parameters": SCHEMA}},
    RESPONSES: {"type": "function", "name": "tea", "parameters": SCHEMA},
    MESSAGES: {"name": "tea", "input_schema": SCHEMA},
    GOOGLE: {"functionDeclarations": [{"name": "tea", "parameters": SCHEMA}]},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
ADVISOR = {"type": "advisor_20260301", "name": "advisor", "model": "wise"}


def asks_of(family, fields, job="generate"):
    side = FAMILIES[family].client
    spans = top_level(json.dumps(PLAIN[family] | fields).encode())
    return side.peek(spans, side.operations[job], "m").asks


def features(family, fields, job="generate"):
    """Return feature and path of each ask; a third item marks those that a translation may leave
    out."""
    return [
        (ask.feature, ask.path, *["droppable"] * ask.droppable)
        for ask in asks_of(family, fields, job).features
    ]


def a_tool(kind, **more):
    return {"tools": [{"type": kind, **more}]}


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        *((family, {}) for family in (CHAT, RESPONSES, MESSAGES)),
        *((family, {"tools": [tool]}) for family, tool in FUNCTIONS.items() if family != GOOGLE),
        *((family, {"tools": None}) for family in (CHAT, RESPONSES, MESSAGES)),
        *((CHAT, {"service_tier": word}) for word in ("auto", "AUTO", None, 7)),
        (CHAT, {"modalities": ["text"], "web_search_options": None, "store": False}),
        (CHAT, a_tool("custom", custom={"name": "x"})),
        (RESPONSES, {"store": False, "background": False, "conversation": None}),
        *((RESPONSES, a_tool(kind)) for kind in ("custom", "local_shell", "shell", "apply_patch")),
        (RESPONSES, a_tool("namespace", name="n", tools=[FUNCTIONS[RESPONSES]])),
        (RESPONSES, a_tool("shell", environment={"type": "local"})),
        (RESPONSES, a_tool("tool_search", execution="client")),
        *((MESSAGES, a_tool(kind, name="x")) for kind in ("bash_20250124", "memory_20250818")),
        (MESSAGES, a_tool("text_editor_20250728", name="str_replace_based_edit_tool")),
        (MESSAGES, {"service_tier": "auto", "speed": "standard", "inference_geo": "global"}),
        (MESSAGES, {"fallbacks": [], "mcp_servers": [], "thread": None, "speed": None}),
        (MESSAGES, {"fallbacks": None, "inference_geo": None}),
    ],
)
def test_nothing_is_asked_for(family, fields):
    assert asks_of(family, fields) is NOTHING_ASKED


@pytest.mark.parametrize(
    ("family", "fields", "expected"),
    [
        (CHAT, {"service_tier": "flex"}, [("tier.flex", "service_tier")]),
        (CHAT, {"service_tier": "fast"}, [("tier.priority", "service_tier")]),
        (CHAT, {"service_tier": "turbo"}, [("tier", "service_tier")]),
        (CHAT, {"service_tier": "batch"}, []),
        (CHAT, {"modalities": ["text", "audio"]}, [("audio_output", "modalities")]),
        (CHAT, {"modalities": ["image", "text"]}, [("image_output", "modalities")]),
        (CHAT, {"web_search_options": {}}, [("web_search", "web_search_options", "droppable")]),
        (CHAT, a_tool("openrouter:web_search"), [("web_search", "tools[0]", "droppable")]),
        (CHAT, a_tool("orbit_lookup"), [("any_other_tool", "tools[0]", "droppable")]),
        (CHAT, {"store": True}, [("stored", "store")]),
        (RESPONSES, {"service_tier": "Ultrafast"}, [("tier.ultrafast", "service_tier")]),
        (RESPONSES, {"background": True}, [("background", "background")]),
        (RESPONSES, {"store": True}, [("stored", "store")]),
        (RESPONSES, {"previous_response_id": "r"}, [("stored", "previous_response_id")]),
        (RESPONSES, {"conversation": {"id": "c"}}, [("stored", "conversation")]),
        *(
            (RESPONSES, a_tool(kind), [(feature, "tools[0]", "droppable")])
            for kind, feature in {
                "web_search_preview_2025_03_11": "web_search",
                "file_search": "file_search",
                "code_interpreter": "code_execution",
                "image_generation": "image_generation",
                "computer_use_preview": "computer",
                "computer": "computer",
                "mcp": "mcp",
                "tool_search": "any_other_tool",
                "programmatic_tool_calling": "any_other_tool",
            }.items()
        ),
        (
            RESPONSES,
            a_tool("shell", environment={"type": "container_auto"}),
            [("code_execution", "tools[0]", "droppable")],
        ),
        (
            RESPONSES,
            a_tool("namespace", name="n", tools=[FUNCTIONS[RESPONSES], {"type": "mcp"}]),
            [("mcp", "tools[0].tools[1]", "droppable")],
        ),
        (MESSAGES, {"speed": "fast"}, [("speed.fast", "speed")]),
        (MESSAGES, {"speed": "warp"}, [("speed", "speed")]),
        (MESSAGES, {"inference_geo": "us"}, [("geo", "inference_geo")]),
        (MESSAGES, {"tools": [FUNCTIONS[MESSAGES], SEARCH]},
         [("web_search", "tools[1]", "droppable")]),
        *(
            (MESSAGES, a_tool(kind, name="x"), [(feature, "tools[0]", "droppable")])
            for kind, feature in {
                "web_fetch_20250910": "web_fetch",
                "code_execution_20260120": "code_execution",
                "computer_20250124": "computer",
                "computer_toolset_20260801": "computer",
                "mcp_toolset": "mcp",
                "advisor_20260301": "advisor",
                "tool_search_tool_regex_20251119": "any_other_tool",
                "browser_toolset_20260801": "any_other_tool",
            }.items()
        ),
        (MESSAGES, {"mcp_servers": [{"url": "u"}]}, [("mcp", "mcp_servers", "droppable")]),
        (MESSAGES, {"fallbacks": "default"}, [("fallbacks.default", "fallbacks")]),
        (MESSAGES, {"fallbacks": [{"model": "x"}, {"model": "y", "speed": "fast"}]},
         [("fallbacks", "fallbacks"), ("speed.fast", "fallbacks[1].speed")]),
        (MESSAGES, {"thread": {"type": "create"}}, [("threads", "thread")]),
        (GOOGLE, {"serviceTier": "FLEX"}, [("tier.flex", "serviceTier")]),
        (GOOGLE, {"service_tier": "SERVICE_TIER_PRIORITY"}, [("tier.priority", "service_tier")]),
        (GOOGLE, {"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}},
         [("image_output", "generationConfig.responseModalities")]),
        (GOOGLE, {"generation_config": {"response_modalities": ["audio"]}},
         [("audio_output", "generation_config.response_modalities")]),
        *(
            (GOOGLE, {"tools": [FUNCTIONS[GOOGLE], {kind: {}}]},
             [(feature, f"tools[1].{path}", "droppable")])
            for kind, path, feature in (
                ("googleSearch", "googleSearch", "web_search"),
                ("google_search_retrieval", "googleSearchRetrieval", "web_search"),
                ("url_context", "urlContext", "web_fetch"),
                ("fileSearch", "fileSearch", "file_search"),
                ("code_execution", "codeExecution", "code_execution"),
                ("computerUse", "computerUse", "computer"),
                ("google_maps", "googleMaps", "maps"),
                ("orbitLookup", "orbitLookup", "any_other_tool"),
            )
        ),
        (GOOGLE, {"tools": [{"x" * 500: {}}]},
         [("any_other_tool", f"tools[0].{'x' * 128}", "droppable")]),
        (GOOGLE, {"tools": [{"googleSearch": None}], "serviceTier": "standard"}, []),
    ],
)  # fmt: skip
def test_features(family, fields, expected):
    assert features(family, fields) == expected
    words = {feature for feature, *_ in expected} - {"tier", "speed"}
    assert words <= FEATURES.keys()


FUNCTION_AND_SEARCH = {"tools": [FUNCTIONS[MESSAGES], SEARCH]}


@pytest.mark.parametrize(
    ("family", "fields", "forced"),
    [
        (MESSAGES, FUNCTION_AND_SEARCH | {"tool_choice": {"type": "any"}}, False),
        (MESSAGES, FUNCTION_AND_SEARCH | {"tool_choice": {"type": "tool", "name": "tea"}}, False),
        (MESSAGES, FUNCTION_AND_SEARCH | {"tool_choice": {"type": "tool", "name": ["x"]}}, False),
        (
            MESSAGES,
            FUNCTION_AND_SEARCH | {"tool_choice": {"type": "tool", "name": "web_search"}},
            True,
        ),
        (MESSAGES, {"tools": [SEARCH], "tool_choice": {"type": "any"}}, True),
        (RESPONSES, a_tool("web_search") | {"tool_choice": "auto"}, False),
        (RESPONSES, a_tool("web_search") | {"tool_choice": "required"}, True),
        (RESPONSES, a_tool("web_search") | {"tool_choice": {"type": "web_search"}}, True),
        (RESPONSES, a_tool("mcp") | {"tool_choice": {"type": "mcp", "server_label": "s"}}, True),
        (RESPONSES, a_tool("web_search") | {"tool_choice": None}, False),
    ],
)
def test_what_is_forced_cannot_be_left_out(family, fields, forced):
    (ask,) = asks_of(family, fields).features
    assert ask.droppable is not forced


@pytest.mark.parametrize(
    ("family", "fields", "served"),
    [
        (CHAT, {"service_tier": "default"}, Served("default")),
        (RESPONSES, {"service_tier": "standard"}, Served("default")),
        (MESSAGES, {"service_tier": "standard_only"}, Served("default")),
        (GOOGLE, {"serviceTier": "STANDARD"}, Served("default")),
        (GOOGLE, {"serviceTier": "unspecified"}, Served()),
        (RESPONSES, {"service_tier": "Fast"}, Served("priority")),
        (MESSAGES, {"speed": "FAST", "inference_geo": "US"}, Served("", "fast", "us")),
        (MESSAGES, {"fallbacks": [{"model": "x", "speed": "fast"}]}, Served(speed="fast")),
    ],
)
def test_conditions(family, fields, served):
    assert asks_of(family, fields).conditions == served


PICTURES = ("output_image",)


@pytest.mark.parametrize(
    ("family", "fields", "uses", "outputs"),
    [
        (CHAT, {"web_search_options": {}}, {"web_search": 5}, ()),
        (CHAT, {"modalities": ["audio", "text"]}, {}, ("output_audio",)),
        (RESPONSES, a_tool("code_interpreter"), {"code_interpreter": 5}, ()),
        (RESPONSES, a_tool("image_generation"), {"image_generation": 5}, PICTURES),
        (RESPONSES, a_tool("file_search") | {"max_tool_calls": 9}, {"file_search": 9}, ()),
        (MESSAGES, {"tools": [SEARCH | {"max_uses": 3}]}, {"web_search": 3}, ()),
        (MESSAGES, {"tools": [SEARCH | {"max_uses": "3"}, SEARCH]}, {"web_search": 10}, ()),
        (GOOGLE, {}, {}, PICTURES),
        (GOOGLE, {"tools": [FUNCTIONS[GOOGLE]]}, {}, PICTURES),
        (GOOGLE, {"tools": [{"googleMaps": {}}]}, {"maps": 5}, PICTURES),
        (GOOGLE, {"generationConfig": {"responseModalities": ["TEXT"]}}, {}, ()),
        (GOOGLE, {"generationConfig": {"responseModalities": ["AUDIO"]}}, {}, ("output_audio",)),
    ],
)
def test_meters(family, fields, uses, outputs):
    asks = asks_of(family, fields)
    assert (dict(asks.uses), asks.outputs) == (uses, outputs)


def test_other_models():
    advisor = ADVISOR | {"max_uses": 2, "max_tokens": 700}
    fields = {
        "tools": [FUNCTIONS[MESSAGES], advisor],
        "fallbacks": [{"model": "a"}, {"model": "b", "max_tokens": 50}],
    }
    models = (
        ModelAsk("tools", 1, "wise", 2, 700),
        ModelAsk("fallbacks", 0, "a"),
        ModelAsk("fallbacks", 1, "b", 1, 50),
    )
    assert asks_of(MESSAGES, fields).models == models
    assert [model.path for model in models[:2]] == ["tools[1].model", "fallbacks[0].model"]
    assert asks_of(MESSAGES, {"tools": [ADVISOR]}).models[0].uses == 5
    # Counting uses none of them, but its upstream must know the names.
    assert asks_of(MESSAGES, fields, "count") == Asks(models=models)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        (RESPONSES, a_tool("web_search") | {"service_tier": "flex"}),
        (GOOGLE, {"tools": [{"googleSearch": {}}], "serviceTier": "flex"}),
    ],
)
def test_a_count_asks_for_nothing(family, fields):
    asks = asks_of(family, fields, "count")
    assert not asks.features and not asks.uses


def test_a_compaction_is_served_and_stored_things_are_read():
    fields = {"service_tier": "flex", "previous_response_id": "r", "background": True}
    asks = asks_of(RESPONSES, fields, "compact").features
    assert asks == (Ask("tier.flex", "service_tier", "flex"), Ask("stored", "previous_response_id"))


@pytest.mark.parametrize(
    ("family", "fields", "param"),
    [
        *((family, {"tools": "all"}, "tools") for family in FAMILIES),
        *((family, {"tools": [{}, 7]}, "tools") for family in FAMILIES),
        (CHAT, a_tool(7), "tools"),
        (MESSAGES, {"tools": [{}] * (MAX_TOOLS + 1)}, "tools"),
        (RESPONSES, {"tools": [{"type": "mcp"}] * (MAX_ASKS + 1)}, f"tools[{MAX_ASKS}]"),
        (GOOGLE, {"tools": [{f"k{n}": {} for n in range(MAX_ASKS + 1)}]},
         f"tools[0].k{MAX_ASKS}"),
        (MESSAGES, {"fallbacks": [{"model": "x"}] * (MAX_ASKS + 1)},
         f"fallbacks[{MAX_ASKS}].model"),
        (MESSAGES, {"fallbacks": {"model": "x"}}, "fallbacks"),
        (MESSAGES, {"fallbacks": [{"model": 7}]}, "fallbacks[0].model"),
        (MESSAGES, {"tools": [ADVISOR | {"model": ["wise"]}]}, "tools[0].model"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(family, fields, param):
    with pytest.raises(Fault) as caught:
        asks_of(family, fields)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, param)


def test_large_tools_are_bounded_before_they_are_decoded():
    for count in (MAX_TOOL_VALUES // 2 - 1, MAX_TOOL_VALUES):
        spans = top_level(json.dumps({"tools": [{}] * count, "fallbacks": None}).encode())
        if count < MAX_TOOL_VALUES:
            assert at_once(bounded_steps(spans)) is None
            continue
        with pytest.raises(Fault) as caught:
            at_once(bounded_steps(spans))
        assert caught.value.param == "tools"
