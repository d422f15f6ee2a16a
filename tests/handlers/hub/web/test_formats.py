"""How pages write numbers."""

import pytest

from handlers.hub.web.formats import (
    brief,
    count,
    field_text,
    milliseconds,
    money,
    seconds,
    share,
    text_of_size,
)
from handlers.hub.web.strings import strings

TEXTS = {
    money: {
        **{"0.0832632": "0.0833", "0": "0", "0.00000000": "0", "0.00004": "<0.0001"},
        **{"0.00006": "0.0001", "1234.5": "1,234.5000", "-4.118": "−4.1180", None: "–"},
    },
    brief: {
        **{812: "812", 9999: "9,999", 52100: "52 k", 9210000: "9.21 M", 3 * 10**9: "3.00 G"},
        None: "–",
    },
    share: {1: "100.00", 0.999999: "99.99", 0.9746: "97.46", None: "–"},  # never rounded up to all
    count: {2752: "2,752"},
    seconds: {38_614: "38.61", None: "–"},
    milliseconds: {None: "–", 0.38: "0.4", 12.6: "13", 5000: "5,000"},
    text_of_size: {812: "812 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB"},
}


@pytest.mark.parametrize("write", TEXTS, ids=lambda function: function.__name__)
def test_numbers(write):
    assert {value: write(value) for value in TEXTS[write]} == TEXTS[write]


def test_money_with_all_its_decimals():
    assert money("1234.000000001", None) == "1,234.000000001" and money("-0.5", None) == "−0.5"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("order", "plan_first", "Plan first"),
        ("entries", ["chat_completions", "embeddings"], "chat, embeddings"),
        ("enabled", False, "no"),
        ("group", "member", "member"),
        ("order", None, "–"),
    ],
)
def test_values_of_fields_are_words_unless_they_are_names(name, value, text):
    assert field_text(strings("en"), name, value) == text
