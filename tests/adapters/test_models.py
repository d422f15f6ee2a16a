"""The traits of models: the rows of the table, the look-up of a model, and the options of channels
that override it."""

import pytest

from adapters.family.traits import ALL_EFFORTS, Traits
from adapters.models import OPTIONS, TABLE, is_option, traits_of
from adapters.registry import FAMILY_NAMES, VENDORS

CHAT = "chat_completions"


def test_rows_are_of_families_that_the_vendor_speaks():
    assert {family for _, family, _ in TABLE} == set(FAMILY_NAMES)
    for vendor, family, prefix in TABLE:
        assert family in FAMILY_NAMES
        assert not vendor or family in VENDORS[vendor].families, (vendor, family, prefix)
        assert prefix == prefix.lower()


@pytest.mark.parametrize(
    ("vendor", "model", "said"),
    [
        ("openai", "gpt-5.2-2025-12-11", {"efforts": ("off", "low", "medium", "high", "xhigh")}),
        ("openai", "gpt-5-mini", {"efforts": ("minimal", "low", "medium", "high")}),
        ("openai", "gpt-5.2", {"sampling": False, "verbosity": True, "openai_extras": True}),
        ("openai", "gpt-5.6-terra", {"effort_with_tools": False, "custom_tools": True}),
        ("openai", "gpt-5.2", {"effort_with_tools": True}),
        ("openai", "gpt-4.1", {"custom_tools": False, "openai_extras": True}),
        ("openai", "o3-mini", {"sampling": False, "verbosity": False}),
        ("openai", "gpt-4.1-mini", {"sampling": True, "thinking": "none"}),
        ("openai", "gpt-4o-mini", {"images": True, "search": False}),
        ("openai", "gpt-4o-mini-search-preview", {"search": True, "sampling": False}),
        ("openai", "gpt-4-0613", {"images": False, "structured": "tool"}),
        ("openai", "of-next-year", {"efforts": ALL_EFFORTS, "sampling": True}),
        ("azure-openai", "gpt-4o", {"openai_extras": True}),
        ("openrouter", "openai/gpt-5", {"token_bound": "max_tokens", "openai_extras": False}),
        ("deepseek", "deepseek-v4-pro", {"reasoning_echo": True, "structured": "tool"}),
        ("groq", "openai/gpt-oss-120b", {"thinking": "effort", "structured": "schema"}),
        ("groq", "llama-3.3-70b-versatile", {"thinking": "none", "logprobs": False}),
        ("ollama", "qwen3", {"token_bound": "max_tokens", "choices": False}),
        *(
            ("openai-compatible", model, {"reasoning_echo": True})
            for model in (
                *("moonshotai/Kimi-K2-Thinking", "kimi-k2.5", "moonshotai/Kimi-K2.6", "kimi-k3"),
                *("deepseek-ai/DeepSeek-V4-Pro", "XiaomiMiMo/MiMo-V2-Flash"),
            )
        ),
        ("openai-compatible", "kimi-k2-0905", {"reasoning_echo": False}),
        ("openai-compatible", "m", {"reasoning_echo": False, "token_bound": "max_tokens"}),
        ("demo", "demo-large", {"audio": True, "openai_extras": True}),
        ("openai", "gpt-6.1-sol", {"efforts": ("off", "low", "medium", "high", "xhigh", "max")}),
        ("mistral", "mistral-large-3", {"call_ids": "nine", "thinking": "none"}),
        ("mistral", "mistral-small-latest", {"call_ids": "nine", "efforts": ("off", "high")}),
        ("moonshot", "kimi-k2.6", {"reasoning_echo": True, "thinking_switch": True}),
        ("moonshot", "kimi-k3.1-pro", {"sampling": False, "choices": False}),
        ("moonshot", "kimi-latest", {"sampling": True}),
        ("mistral", "magistral-medium-latest", {"thinking_parts": True}),
        ("mistral", "mistral-small-latest", {"thinking_parts": True, "thinking": "effort"}),
        ("mistral", "codestral-latest", {"thinking_parts": False}),
        ("zhipu", "glm-5.3", {"structured": "none", "thinking_switch": True}),
        ("github-models", "openai/gpt-5-mini", {"sampling": False}),
    ],
)
def test_models_of_chat_completions(vendor, model, said):
    traits = traits_of(vendor, CHAT, model)
    assert {name: getattr(traits, name) for name in said} == said


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot"])
def test_vendors_of_messages_that_sign_no_thoughts(vendor):
    assert traits_of(vendor, "messages", "any").reasoning_echo
    assert not traits_of("anthropic", "messages", "claude-opus-4-6").reasoning_echo


def test_what_is_not_in_the_table_can_take_everything_that_is_usual():
    assert traits_of("nobody", CHAT, "m") == Traits()


def test_options_go_before_the_table():
    assert traits_of("openai", CHAT, "gpt-5", {"sampling": True}).sampling
    assert not traits_of("openai", CHAT, "gpt-5", {"images": False}).images


@pytest.mark.parametrize(
    ("model", "thinking", "schemas", "least"),
    [
        ("gemini-3-pro-preview", "effort", "json_schema", "low"),
        ("gemini-3.5-flash", "effort", "json_schema", "minimal"),
        ("gemini-3.8-flash", "effort", "json_schema", "minimal"),
        ("gemini-4-argon", "effort", "json_schema", "minimal"),
        ("models/gemini-3-flash", "effort", "json_schema", "minimal"),
        ("gemini-2.5-pro", "budget", "json_schema", "minimal"),
        ("gemini-2.5-flash-lite", "budget", "json_schema", "off"),
        ("gemini-2.0-flash", "none", "subset", "off"),
        ("something-new", "effort", "json_schema", "off"),
    ],
)
def test_generations_of_gemini(model, thinking, schemas, least):
    for vendor in ("gemini", "demo"):
        traits = traits_of(vendor, "generate_content", model)
        assert (traits.thinking, traits.schemas, traits.audio) == (thinking, schemas, True)
        assert traits.efforts[0] == least


@pytest.mark.parametrize(
    ("model", "newer"),
    [
        *((f"gemini-{version}", True) for version in ("3.6-flash", "3.8-flash", "4-hydrogen")),
        *(("gemini-flash-latest", True), ("gemini-pro-latest", True)),
        ("gemini-flash-lite-latest", False),
        *((f"gemini-{version}", False) for version in ("3-flash", "3.1-pro", "3.5-flash")),
    ],
)  # fmt: skip
def test_gemini_since_3_6_takes_no_sampling_and_thinks_deeper(model, newer):
    traits = traits_of("gemini", "generate_content", model)
    assert (not traits.sampling, "xhigh" in traits.efforts) == (newer, newer)


def test_generations_of_claude():
    for vendor in ("anthropic", "openrouter"):
        newest = traits_of(vendor, "messages", "anthropic/claude-next-9")
        assert (newest.thinking, newest.sampling, newest.prefill) == ("adaptive", False, False)
        for name in ("claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5"):
            traits = traits_of(vendor, "messages", name)
            assert (traits.thinking, traits.structured) == ("budget", "schema")
        old = traits_of(vendor, "messages", "claude-3-haiku-20240307")
        assert (old.thinking, old.structured, old.documents) == ("none", "tool", False)
    for name, forced in (("claude-fable-5", False), ("claude-fable-5-1", False)):
        assert traits_of("anthropic", "messages", name).forced_tools is forced
    for name in ("claude-opus-5", "claude-sonnet-5-5", "claude-mythos-5-1", "claude-opus-4-8"):
        traits = traits_of("anthropic", "messages", name)
        assert traits.forced_tools and not traits.sampling and "xhigh" in traits.efforts
    assert traits_of("anthropic", "messages", "claude-opus-4-6").search
    assert not traits_of("openrouter", "messages", "claude-opus-4.6").search
    assert traits_of("deepseek", "messages", "deepseek-chat").structured == "tool"


def test_each_trait_is_an_option_and_says_what_it_must_be():
    traits = Traits.__struct_fields__
    assert tuple(OPTIONS)[: len(traits)] == traits
    assert OPTIONS["images"] == "true or false"
    assert OPTIONS["token_bound"] == "one of max_completion_tokens, max_tokens"
    assert OPTIONS["max_budget_tokens"] == "a whole number above 0"
    assert OPTIONS["efforts"].startswith("a list of at least one, each one of off, min")


def test_what_an_option_may_be_overrides_the_table():
    options = {"token_bound": "max_tokens", "max_budget_tokens": 1, "efforts": ["low", "high"]}
    for name, value in [("images", False), ("images", True), *options.items()]:
        assert is_option(name, value)
        found = getattr(traits_of("nobody", "messages", "m", {name: value}), name)
        assert found == (tuple(value) if isinstance(value, list) else value)


def test_how_an_account_is_billed_is_an_option_and_no_trait():
    assert is_option("default_tier", "priority") and OPTIONS["default_tier"] == "a word"
    options = {"default_tier": "priority", "grounding": "call"}
    assert all(is_option(*option) for option in options.items())
    assert traits_of("nobody", "messages", "m", options) == Traits(thinking="budget")


def test_what_it_may_not_be():
    bad = {
        "default_tier": ["", 7, ["flex"]],
        "grounding": ["calls", ""],
        "imags": [True],
        "images": ["yes", 1, 0],
        "token_bound": ["tokens"],
        "max_budget_tokens": [0, -5, True],
        "efforts": ["low", [], ["lowest"]],
    }
    for name, values in bad.items():
        for value in values:
            assert not is_option(name, value), (name, value)
