"""Prices from a list for the gateway's models: matching of models, accepted and refused changes."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from operations.edits import editor
from operations.price_pull import ListIndex, matching, pull
from operations.price_sources import ListedModel
from store.admin.document import parse
from store.admin.export import show
from store.admin.objects import Sealing
from store.db.database import discard, open_database
from store.values.cipher import Cipher
from store.values.errors import Refused
from tests.support.stores import sqlite_store

SOURCE = "litellm 2026-11-28"
FLEX, PRIORITY = {"when": {"tier": "flex"}}, {"when": {"tier": "priority"}}
PRICE = {"input": "2", "output": "8", "cache_read": "0.2"}
RATES = [{**FLEX, "factor": "0.5"}, {**PRIORITY, "input": "4", "output": "16"}]


def listed(price=None, rate=(), key="one", vendor="openai", name="one"):
    return ListedModel(key, vendor, name, price or {"input": "2", "output": "8"}, rate)


@pytest.fixture
def db(tmp_path):
    opened = open_database(sqlite_store(tmp_path / "store.db"))
    document = {"model": [{"name": "one", "price": PRICE, "rate": RATES}]}
    made_by(opened).apply(parse(json.dumps(document), {}, Path()))
    yield opened
    discard(opened)


def made_by(db):
    return editor(db, Sealing(Cipher(["a key"]), ["pepper"]), "cli:somebody")


@pytest.fixture
def pulled(db):
    """Return pulled(price, rate, …), which returns the result of the pull, and the model
    afterwards."""

    def run(price=None, rate=(), accepted=0, **options):
        models = [listed(price, rate)]
        done = pull(db, made_by(db), models, SOURCE, accepted=Decimal(accepted), **options)
        return done, show(db, "model", "one")

    return run


def reasons(done):
    return {(row.rate, row.meter): row.refused for row in done.refused}


@pytest.mark.parametrize(
    ("price", "accepted", "changes", "refused"),
    [
        ({"input": "1", "output": "8"}, 0, {"input": "1"}, {}),
        ({"input": "3", "output": "12"}, 0, {"input": "3", "output": "12"}, {}),
        ({"input": "3.01", "output": "9"}, 0, {"output": "9"}, {"input": "rises by 50 %"}),
        ({"input": "3.2", "output": "8"}, 59, {}, {"input": "rises by 60 %"}),
        ({"input": "3.2", "output": "8"}, 60, {"input": "3.2"}, {}),
        (
            {"input": "0", "output": "0"},
            1000,
            {},
            dict.fromkeys(("input", "output"), "never to zero"),
        ),
        ({"input": "2", "output": "8", "web_search": "0.01"}, 0, {"web_search": "0.01"}, {}),
        ({"input": "2", "output": "8", "web_search": "0", "call": "0"}, 0, {}, {}),
        ({"input": "2", "output": "8", "call": "0.002"}, 0, {"call": "0.002"}, {}),
        ({"input": "2.0", "output": "8"}, 0, {}, {}),
        ({"input": "2", "output": "8", "reasoning": "8", "cache_write_1h": "2"}, 0, {}, {}),
        ({"input": "2", "output": "8", "output_image": "8"}, 0, {"output_image": "8"}, {}),
    ],
)
def test_prices_are_taken_but_none_to_zero_none_away_none_far_up(
    pulled, price, accepted, changes, refused
):
    done, model = pulled(price, accepted=accepted)
    assert model["price"] == {"call": "0", **PRICE, **changes}
    assert {row.meter: row.after for row in done.changes} == changes
    for row in done.refused:
        assert refused.pop(row.meter) in row.refused
    assert not refused
    assert model["price_source"] == (SOURCE if changes else None)
    assert model["rate"] == RATES


@pytest.mark.parametrize(
    ("rate", "result", "refused"),
    [
        ([{**FLEX, "factor": "0.4"}], [{**FLEX, "factor": "0.4"}, RATES[1]], {}),
        ([{**FLEX, "factor": "0.8"}], RATES, {("tier=flex", "factor"): "rises by 60 %"}),
        (
            [{**PRIORITY, "input": "3", "output": "32", "cache_read": "0.4"}],
            [RATES[0], {**PRIORITY, "input": "3", "output": "16", "cache_read": "0.4"}],
            {("tier=priority", "output"): "rises by 100 %"},
        ),
        (
            [{"when": {"input_over": 9, "geo": "us"}, "input": "3", "output": "9"}],
            [*RATES, {"when": {"geo": "us", "input_over": 9}, "input": "3", "output": "9"}],
            {},
        ),
        (
            [{"when": {"geo": "us"}, "input": "0", "output": "9"}],
            RATES,
            {("geo=us", "input"): "never to zero"},
        ),
        # prices of its own replace a factor of 0.5
        (
            [{**FLEX, "input": "1.2", "output": "4", "cache_read": "0.1"}],
            [{**FLEX, "input": "1.2", "output": "4", "cache_read": "0.1"}, RATES[1]],
            {},
        ),
        (
            [{**FLEX, "input": "2", "output": "4"}],
            RATES,
            {("tier=flex", "input"): "rises by 100 %"},
        ),
        ([{**PRIORITY, "factor": "1.8"}], [RATES[0], {**PRIORITY, "factor": "1.8"}], {}),
    ],
)
def test_rates_are_compared_by_their_conditions(pulled, rate, result, refused):
    done, model = pulled({"input": "2", "output": "8"}, rate)
    without_call = [{n: v for n, v in row.items() if n != "call"} for row in model["rate"]]
    assert without_call == result
    assert reasons(done).keys() == refused.keys()
    assert all(text in reasons(done)[place] for place, text in refused.items())


def test_a_price_that_is_free_here_stays_so(db, pulled):
    made_by(db).change("model", "one", {"price.input": "0"})
    done, model = pulled({"input": "2", "output": "8"}, accepted=10**6)
    assert reasons(done) == {("", "input"): "is free here"}
    assert model["price"]["input"] == "0"


def test_a_dry_run_changes_nothing(pulled):
    done, model = pulled({"input": "1", "output": "8"}, dry_run=True)
    [row] = done.changes
    assert (row.model, row.meter, row.before, row.after) == ("one", "input", "2", "1")
    assert model["price"] == {"call": "0", **PRICE}


def test_only_models_that_are_named(db, pulled):
    with pytest.raises(Refused, match='there is no model "on"; did you mean "one"'):
        pulled(only=["on"])
    document = {"model": [{"name": "two", "price": PRICE}]}
    made_by(db).apply(parse(json.dumps(document), {}, Path()))
    done, _ = pulled({"input": "1", "output": "8"}, only=["one"])
    assert [row.model for row in done.changes] == ["one"] and done.unmatched == {}
    done, _ = pulled({"input": "1", "output": "8"})
    assert done.unmatched == {"two": "is not in the list"}


CHEAP, DEAR = {"input": "1", "output": "1"}, {"input": "2", "output": "2"}
LIST = [
    listed(CHEAP, key="gpt-9", name="gpt-9"),
    listed(DEAR, key="azure/gpt-9", vendor="azure", name="gpt-9"),
    listed(CHEAP, key="groq/llama", vendor="groq", name="llama"),
    listed(DEAR, key="cerebras/llama", vendor="cerebras", name="llama"),
    replace(listed(DEAR, key="x.gpt-9", vendor="aws", name="x.gpt-9"), aliases=("gpt-9",)),
    listed(CHEAP, key="a/same", vendor="a", name="same"),
    listed(CHEAP, key="b/same", vendor="b", name="same"),
    replace(listed(CHEAP, key="grok", vendor="xai", name="grok"), aliases=("grok-latest",)),
]


@pytest.mark.parametrize(
    ("model", "channels", "key"),
    [
        ("gpt-9", [], "gpt-9"),  # of several, the maker's
        ("mine", [("openai", "gpt-9")], "gpt-9"),
        ("mine", [("azure-openai", "gpt-9")], "azure/gpt-9"),
        ("mine", [("openai-compatible", "grok-latest")], "grok"),
        ("mine", [("openai", "other"), ("groq", "llama")], "groq/llama"),
        ("mine", [("openrouter", "cerebras/llama")], "cerebras/llama"),
        ("a/same", [], "a/same"),
        ("same", [], "a/same"),
        ("llama", [], "several vendors offer it at different prices: cerebras, groq"),
        ("mine", [("gemini", "gpt-9")], "is not in the list"),
        ("GPT-9", [], "gpt-9"),
    ],
)
def test_a_model_is_found_by_its_channels_else_by_its_own_name(model, channels, key):
    rows = [
        {"enabled": True, "vendor": vendor, "models": {model: upstream}}
        for vendor, upstream in channels
    ]
    result = matching(ListIndex(LIST), model, rows)
    assert (result.key if isinstance(result, ListedModel) else result) == key


def test_prices_of_a_new_rate_are_ticked_together(pulled, db):
    long = [{"when": {"input_over": 100}, "input": "3", "output": "9"}]
    done, _ = pulled(rate=long, dry_run=True)
    ticks = {row.key: False for row in done.differences if row.rate == "input_over=100"}
    assert len(ticks) == 2
    with pytest.raises(Refused, match="taken together"):
        pulled(rate=long, ticks=dict(list(ticks.items())[:1]))
    _, model = pulled(rate=long, ticks=ticks)
    assert model["rate"][-1] == long[0] and model["price"]["input"] == PRICE["input"]
