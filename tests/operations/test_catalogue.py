"""conf/catalogue.toml: enough current models of each vendor, each valid in the document."""

import re
from collections import Counter
from datetime import date
from decimal import Decimal

import pytest

from operations import catalogue
from operations.catalogue import entries, find, of_channel
from store.admin.document import Report, parse_entry
from store.values.errors import NotFound, Refused

VENDORS = (
    *("openai", "anthropic", "google", "deepseek", "mistral", "xai", "moonshot", "zhipu"),
    *("alibaba", "minimax", "groq", "cerebras"),
)
DATED = re.compile(r"(-20\d\d-\d\d-\d\d|-20\d{6}|-\d{4})$")
DEAREST = Decimal(1000)  # for a million tokens


def test_the_catalogue_has_enough_models_of_each_vendor():
    names = {(entry.vendor, DATED.sub("", entry.name)) for entry in entries()}
    counts = Counter(vendor for vendor, _ in names)
    assert len(names) >= 120 and set(counts) == set(VENDORS)
    assert min(counts.values()) >= 4
    assert len({entry.key.lower() for entry in entries()}) == len(entries())


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.key)
def test_every_entry_is_a_model_of_the_document_with_source_and_date(entry):
    faults = []
    fields = {"name": entry.name, **entry.fields()}
    assert parse_entry("model", fields, Report(faults, "?"), lambda value: value) is not None
    assert faults == []
    assert re.fullmatch(r"litellm \d[\d.]+(, genai-prices \d[\d.]+)?", entry.source)
    assert date.fromisoformat(entry.date) <= date.today()
    assert entry.context_tokens >= 8192 and entry.max_output_tokens >= 1024
    tables = [entry.price, *entry.rate]
    prices = [p for table in tables for name, p in table.items() if name not in ("when", "factor")]
    assert all(0 < Decimal(price) < DEAREST for price in prices)


def entry_of(vendor, name):
    price = {"input": "1", "output": "2"}
    return catalogue.CatalogueEntry(name, vendor, 10000, 1000, price, "x 1", "2026-01-01")


@pytest.fixture
def few(monkeypatch):
    rows = [
        *(entry_of("deepseek", "deepseek-v4"), entry_of("alibaba", "deepseek-v4")),
        *(entry_of("groq", "openai/gpt-oss"), entry_of("cerebras", "gpt-oss")),
        entry_of("groq", "qwen/qwen3"),
    ]
    monkeypatch.setattr(catalogue, "entries", lambda: tuple(rows))


@pytest.mark.parametrize(
    ("name", "key", "result"),
    [
        ("deepseek-v4", "", "deepseek/deepseek-v4"),
        ("DeepSeek-V4", "", "deepseek/deepseek-v4"),
        ("mine", "alibaba/deepseek-v4", "alibaba/deepseek-v4"),
        ("openai/gpt-oss", "", "groq/openai/gpt-oss"),
        ("qwen3", "", "groq/qwen/qwen3"),
        ("mine", "groq/openai/gpt-oss", "groq/openai/gpt-oss"),
    ],
)
def test_a_name_means_the_entry_of_the_maker(few, name, key, result):
    assert find(name, key).key == result


def test_a_name_that_is_not_certain_is_refused_with_all_that_it_can_mean(few):
    with pytest.raises(Refused) as refused:
        find("gpt-oss")
    assert all(key in str(refused.value) for key in ("groq/openai/gpt-oss", "cerebras/gpt-oss"))
    with pytest.raises(NotFound, match='no model "deepsek-v4"; did you mean "deepseek-v4"'):
        find("deepsek-v4")
    with pytest.raises(NotFound, match='has no "groq/gpt-oss"'):
        find("mine", "groq/gpt-oss")


@pytest.mark.parametrize(
    ("vendor", "upstream", "key"),
    [
        ("groq", "openai/gpt-oss", "groq/openai/gpt-oss"),
        ("openai-compatible", "deepseek-v4", "deepseek/deepseek-v4"),
        ("openai-compatible", "gpt-oss", None),
        ("groq", "deepseek-v4", None),  # sold at another price than the maker's
    ],
)
def test_a_model_of_a_channel_is_its_vendors(few, vendor, upstream, key):
    entry = of_channel(vendor, upstream)
    assert (entry and entry.key) == key
