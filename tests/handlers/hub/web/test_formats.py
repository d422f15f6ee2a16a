"""How pages write numbers."""

import pytest

from handlers.hub.web.formats import (
    actor_text,
    brief,
    count,
    duration_text,
    field_text,
    milliseconds,
    money,
    seconds,
    share,
    source_text,
    stored_actor,
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
    share: {1: "100.00", 0.999999: "99.99", 0.9746: "97.46", None: "–"},  # never rounded up to 100
    count: {2752: "2,752"},
    seconds: {38_614: "38.61", None: "–"},
    milliseconds: {None: "–", 0.38: "0.4", 12.6: "13", 5000: "5,000"},
    duration_text: {500: "500 ms", 1500: "1.5 s", 2000: "2 s", 90_000: "90 s", 1: "1 ms"},
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


@pytest.mark.parametrize(
    ("language", "actor", "text"),
    [
        ("en", "cli:root", "root (command line)"),
        ("zh", "cli:root", "root（命令行）"),
        ("zh", "upkeep:gateway-1", "gateway-1 的例行维护"),
        ("en", "alice", "alice"),
        ("en", "upkeep", "upkeep"),
        ("en", "a:b", "a:b"),
    ],
)
def test_actors_that_are_no_users_have_words_and_are_found_by_them(language, actor, text):
    words = strings(language)
    assert (actor_text(words, actor), stored_actor(words, text)) == (text, actor)


@pytest.mark.parametrize(
    ("language", "text"), [("en", "catalogue 13 Nov 2020"), ("zh", "目录 2020年11月13日")]
)
def test_the_source_of_a_price_is_in_words(language, text):
    assert source_text(strings(language), "catalogue 2020-11-13", language) == text
