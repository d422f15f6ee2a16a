"""The choice of models for conf/catalogue.toml, and the combination of two lists."""

from datetime import date

from operations.price_sources import ListedModel
from tools.catalogue import choose, joined, without_twins

DATE = date(2026, 11, 28)
PRICE = {"input": "2", "output": "8"}


def listed(name, price=None, ends="", context=100_000, rate=()):
    return ListedModel(name, "openai", name, price or PRICE, rate, context, 1000, ends)


def test_only_current_models_with_prices_and_bounds_are_chosen():
    models = [
        *(
            listed("gpt-9"),
            listed("ft:gpt-9"),
            listed("gpt-9-audio"),
            listed("free", {"input": "0"}),
        ),
        *(listed("soon", ends="2026-12-20"), listed("later", ends="2027-01-01")),
        *(listed("gpt-9"), listed("guard", context=512)),
    ]
    assert [model.name for model in choose(models, DATE)] == ["gpt-9", "later"]


def test_names_that_add_a_date_or_latest_are_one_model():
    names = ("a-latest", "a-2026-01-02", "a", "b-2512", "b-latest", "c-20260102", "d-0309-x", "d-x")
    kept = [model.name for model in without_twins([listed(name) for name in names])]
    assert kept == ["a", "b-latest", "c-20260102", "d-x"]


def test_an_entry_has_the_uses_of_both_lists_and_no_price_that_follows_anyway():
    rates = [{"when": {"tier": "flex"}, "input": "1", "output": "4", "cache_write": "1"}]
    first = listed("m", {**PRICE, "reasoning": "8", "cache_write": "0", "maps": "1"}, rate=rates)
    second = listed("m", {**PRICE, "web_search": "0.01", "output_image": "8"}, context=200_000)
    both = joined(first, second)
    assert both.price == {**PRICE, "output_image": "8", "web_search": "0.01", "maps": "1"}
    assert both.rate == [{"when": {"tier": "flex"}, "input": "1", "output": "4"}]
    assert both.context_tokens == 200_000
    assert joined(first, None).context_tokens == 100_000
