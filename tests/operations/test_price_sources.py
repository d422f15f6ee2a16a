"""Public price lists converted to the document's form: meters, rates, and omitted parts."""

import json
from datetime import date
from decimal import Decimal

import pytest

from operations.price_sources import SOURCES, maker_of, read_list
from store.values.errors import Refused

TODAY = date(2026, 11, 28)


def models_of(source, content):
    parsed = json.loads(json.dumps(content), parse_float=Decimal)
    return {model.key: model for model in read_list(source, parsed, TODAY)}


def litellm(**fields):
    entry = {"litellm_provider": "openai", "mode": "chat", **fields}
    return models_of("litellm", {"one": entry})["one"]


def genai(prices, **fields):
    provider = {"id": "x-ai", "models": [{"id": "one", "prices": prices, **fields}]}
    return models_of("genai-prices", [provider])["one"]


TEXT = {"input_cost_per_token": 2e-06, "output_cost_per_token": 8e-06}
PLAIN = {"input": "2", "output": "8"}


@pytest.mark.parametrize(
    ("fields", "price"),
    [
        ({"cache_read_input_token_cost": 1.25e-07}, {"cache_read": "0.125"}),
        ({"cache_creation_input_token_cost_above_1hr": 6e-06}, {"cache_write_1h": "6"}),
        ({"cache_creation_input_token_cost_above_12hr": 5e-06}, {"cache_write_1h": "5"}),
        ({"output_cost_per_reasoning_token": 9e-06}, {"reasoning": "9"}),
        ({"input_cost_per_audio_token": 1e-05}, {"input_audio": "10"}),
        ({"cache_read_input_audio_token_cost": 1e-06}, {"cache_read_audio": "1"}),
        ({"output_cost_per_image_token": 4e-05}, {"output_image": "40"}),
        ({"google_maps_grounding_cost_per_query": 0.014}, {"maps": "0.014"}),
        ({"file_search_cost_per_1k_calls": 2.5}, {"file_search": "0.0025"}),
        ({"code_interpreter_cost_per_session": 0.03}, {"code_interpreter": "0.03"}),
        (
            {"search_context_cost_per_query": {"search_context_size_high": 0.05}},
            {"web_search": "0.05"},
        ),
        (
            {
                "search_context_cost_per_query": {
                    "search_context_size_low": 0.03,
                    "search_context_size_medium": 0.035,
                }
            },
            {"web_search": "0.035"},
        ),
        ({"output_cost_per_image": 0.04}, {}),
        ({"output_cost_per_image": 0.04, "mode": "image_generation"}, {"image": "0.04"}),
        (
            {"input_cost_per_second": 0.0001, "mode": "audio_transcription"},
            {"audio_second": "0.0001"},
        ),
        ({"input_cost_per_token_batches": 1e-06, "max_tokens": 10}, {}),
        ({"input_cost_per_audio_token": "dear", "cache_read_input_token_cost": -1}, {}),
    ],
)
def test_the_fields_of_litellm_are_meters(fields, price):
    assert litellm(**{**TEXT, **fields}).price == {**PLAIN, **price}


@pytest.mark.parametrize(
    ("fields", "rates"),
    [
        (
            {"input_cost_per_token_priority": 4e-06, "output_cost_per_token_priority": 1.6e-05},
            [{"when": {"tier": "priority"}, "input": "4", "output": "16"}],
        ),
        (  # text prices that a variant lacks are those of the plain rate
            {"input_cost_per_token_above_272k_tokens": 4e-06},
            [{"when": {"input_over": 272000}, "input": "4", "output": "8"}],
        ),
        (
            {
                "input_cost_per_token_above_200k_tokens_flex": 1e-06,
                "cache_read_input_token_cost_above_200k_tokens_flex": 1e-07,
            },
            [
                {
                    "when": {"tier": "flex", "input_over": 200000},
                    "input": "1",
                    "output": "8",
                    "cache_read": "0.1",
                }
            ],
        ),
        ({"cache_read_input_token_cost_priority": 1e-06}, []),  # no text price
        ({"input_cost_per_token_priority": 2e-06, "output_cost_per_token_priority": 8e-06}, []),
        ({"input_cost_per_token_decisions": 1e-06, "output_cost_per_token_decisions": 0.0}, []),
        (
            {"provider_specific_entry": {"us": 1.1, "fast": 2}},
            [
                {"when": {"geo": "us"}, "factor": "1.1"},
                {"when": {"speed": "fast"}, "factor": "2"},
                {"when": {"geo": "us", "speed": "fast"}, "factor": "2.2"},
            ],
        ),
        (
            {
                "input_cost_per_token_above_100k_tokens": 1e-05,
                "provider_specific_entry": {"us": 1.1},
            },
            [
                {"when": {"input_over": 100000}, "input": "10", "output": "8"},
                {"when": {"geo": "us"}, "factor": "1.1"},
                {"when": {"input_over": 100000, "geo": "us"}, "input": "11", "output": "8.8"},
            ],
        ),
    ],
)
def test_tiers_lengths_and_factors_of_litellm_are_rates(fields, rates):
    assert litellm(**TEXT, **fields).rate == rates


def test_modalities_keep_their_price_in_a_rate_that_does_not_name_them():
    """Otherwise they would fall back to the price of text, which is a fraction of theirs."""
    fields = {"input_cost_per_audio_token": 4e-05, "output_cost_per_reasoning_token": 9e-06}
    [rate] = litellm(**TEXT, **fields, input_cost_per_token_flex=1e-06).rate
    assert rate == {"when": {"tier": "flex"}, "input": "1", "output": "8", "input_audio": "40"}


def test_steps_of_litellm_begin_with_the_plain_rate():
    steps = [
        {"range": [0, 256000.0], "input_cost_per_token": 4e-07, "output_cost_per_token": 1.2e-06},
        {"range": [256000.0, 1e6], "input_cost_per_token": 1.2e-06, "output_cost_per_token": 3e-06},
    ]
    model = litellm(tiered_pricing=steps, max_input_tokens=997952.0, deprecation_date="2027-01-14")
    assert model.price == {"input": "0.4", "output": "1.2"}
    assert model.rate == [{"when": {"input_over": 256000}, "input": "1.2", "output": "3"}]
    assert (model.context_tokens, model.max_output_tokens, model.ends) == (
        997952,
        None,
        "2027-01-14",
    )


@pytest.mark.parametrize(
    ("key", "provider", "vendor", "name"),
    [
        ("gpt-4.1", "openai", "openai", "gpt-4.1"),
        ("gemini/gemini-4-argon", "gemini", "google", "gemini-4-argon"),
        ("groq/openai/gpt-oss-20b", "groq", "groq", "openai/gpt-oss-20b"),
        ("vertex_ai/claude-opus-5", "vertex_ai-anthropic_models", "vertex_ai", "claude-opus-5"),
        ("zai/glm-5", "zai", "zhipu", "glm-5"),
    ],
)
def test_keys_of_litellm_are_a_vendor_and_its_name(key, provider, vendor, name):
    content = {
        "sample_spec": TEXT,
        key: {"litellm_provider": provider, **TEXT},
        "free of price": {},
    }
    [model] = models_of("litellm", content).values()
    assert (model.vendor, model.name) == (vendor, name)


def test_prices_of_genai_have_steps_variants_and_days():
    def step(base, above):
        return {"base": base, "tiers": [{"start": 199999, "price": above}]}

    model = genai(
        [
            {"prices": {"input_mtok": 1, "output_mtok": 2}},
            {
                "constraint": {"start_date": "2026-04-30"},
                "prices": {
                    "input_mtok": step(2, 4),
                    "output_mtok": step(8, 16),
                    "input_audio_mtok": 10,
                    "web_searches_kcount": 10,
                },
            },
            {
                "constraint": {"start_date": "2026-12-01"},
                "prices": {"input_mtok": 9, "output_mtok": 9},
            },
        ],
        context_window=500000,
        match={"or": [{"equals": "one"}, {"starts_with": "one-"}, {"equals": "one-latest"}]},
        price_variants=[
            {"when": {"service_tier": "flex"}, "prices": {"input_mtok": 1, "output_mtok": 4}},
            {"when": {"service_tier": "fast"}, "prices": {"input_mtok": 4, "output_mtok": 16}},
            {"when": {"processing": "batch"}, "prices": {"input_mtok": 1, "output_mtok": 4}},
            {"when": {"speed": "fast"}, "prices": {"input_mtok": 6}},
            {
                "when": {"speed": "fast"},
                "constraint": {"start_date": "2027-01-01"},
                "prices": {"input_mtok": 7},
            },
        ],
    )
    assert (model.vendor, model.aliases, model.context_tokens) == (
        "xai",
        ("one", "one-latest"),
        500000,
    )
    assert model.price == {**PLAIN, "input_audio": "10", "web_search": "0.01"}
    assert model.rate == [
        {"when": {"input_over": 199999}, "input": "4", "output": "16", "input_audio": "10"},
        {"when": {"tier": "flex"}, "input": "1", "output": "4", "input_audio": "10"},
        {"when": {"speed": "fast"}, "input": "6", "output": "8", "input_audio": "10"},
    ]


def test_of_prices_by_the_hour_the_dearest_is_read():
    off_peak, peak = ({"input_mtok": price, "output_mtok": 2 * price} for price in (1, 2))
    hours = {"start_time": "01:00:00Z", "end_time": "04:00:00Z"}
    model = genai([{"prices": off_peak}, {"constraint": hours, "prices": peak}])
    assert model.price == {"input": "2", "output": "4"}


def test_prices_of_models_dev():
    cost = {
        **{"input": 2.5, "output": 10, "reasoning": 12},
        "context_over_200k": {"input": 5, "output": 15},
        "tiers": [{"tier": {"type": "context", "size": 500000}, "input": 6, "output": 20}],
    }
    models = {
        "m": {"cost": cost, "limit": {"context": 400000, "output": 128000}, "status": "deprecated"},
        "without": {},
    }
    [model] = models_of("models.dev", {"moonshotai": {"models": models}}).values()
    assert (model.key, model.vendor, model.name) == ("moonshotai/m", "moonshot", "m")
    assert model.price == {"input": "2.5", "output": "10", "reasoning": "12"}
    assert model.rate == [
        {"when": {"input_over": 200000}, "input": "5", "output": "15"},
        {"when": {"input_over": 500000}, "input": "6", "output": "20"},
    ]
    assert (model.context_tokens, model.max_output_tokens) == (400000, 128000)


def test_prices_of_openrouter():
    pricing = {
        **{"prompt": "0.0000025", "completion": "0.00001", "input_cache_read": "0.00000025"},
        **{"request": "0", "web_search": "0.01", "internal_reasoning": "0", "image": "0.001"},
        "overrides": [
            {"min_prompt_tokens": 200001, "prompt": "0.000005"},
            {"utc_start": "01:00", "utc_end": "04:00", "min_prompt_tokens": 1, "prompt": "1"},
        ],
    }
    model = {"id": "qwen/one", "context_length": 1000, "pricing": pricing}
    free = {"id": "qwen/one:free", "pricing": {"prompt": "0", "completion": "0"}}
    models = models_of("openrouter", {"data": [model, free]})
    assert models["qwen/one:free"].price == {"input": "0", "output": "0"}
    paid = models["qwen/one"]
    assert (paid.vendor, paid.name, paid.context_tokens) == ("alibaba", "one", 1000)
    text = {"input": "2.5", "output": "10", "cache_read": "0.25"}
    assert paid.price == {**text, "web_search": "0.01"}
    assert paid.rate == [{"when": {"input_over": 200000}, **text, "input": "5"}]


@pytest.mark.parametrize("source", SOURCES)
def test_another_form_is_refused(source):
    for content in ("text", 3, [1], {"data": 3}, {"a": {"litellm_provider": 3}}):
        with pytest.raises(Refused, match=f"not a list of {source}"):
            read_list(source, content, TODAY)


def test_the_beginning_of_a_name_says_who_made_the_model():
    makers = {
        name: maker_of(name) for name in ("openai/gpt-oss-20b", "o4-mini", "glm-5", "MiniMax-M3")
    }
    assert list(makers.values()) == ["openai", "openai", "zhipu", "minimax"]
    assert maker_of("demo-chat") == ""
