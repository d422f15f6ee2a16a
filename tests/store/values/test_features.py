"""Features of a group: the words of its list."""

import pytest

from store.values.features import (
    DEFAULT_FEATURES,
    FEATURES,
    allowed_features,
    feature_word,
    words_of,
)
from store.values.meters import METERS

ALL = frozenset(FEATURES)


@pytest.mark.parametrize(("words", "removed"), [
    (["*"], set()),
    ([], ALL),
    (DEFAULT_FEATURES, {"fallbacks.default"}),
    (["*", "-web_search", "-tier.flex"], {"web_search", "tier.flex"}),
    (["-web_search", "*"], {"web_search"}),
    (["-web_search"], ALL),
    (["web_search", "geo"], ALL - {"web_search", "geo"}),
    (["geo", "-geo"], ALL),
])  # fmt: skip
def test_a_list_allows_what_it_names_and_takes_away(words, removed):
    assert allowed_features(words) == ALL - removed


@pytest.mark.parametrize(("names", "words"), [
    (["*", *FEATURES], ["*"]),
    (["*", *(ALL - {"geo", "mcp"})], ["*", "-geo", "-mcp"]),
    (FEATURES, list(FEATURES)),
    (["web_search", "geo"], ["geo", "web_search"]),
    ([], []),
])  # fmt: skip
def test_the_list_of_what_is_allowed(names, words):
    assert words_of(names) == words
    assert allowed_features(words) == set(names) - {"*"}


@pytest.mark.parametrize("word", ["*", *FEATURES, *(f"-{name}" for name in FEATURES)])
def test_words(word):
    assert feature_word(word) == word


@pytest.mark.parametrize(("word", "says"), [
    ("web_serach", 'no feature "web_serach"; did you mean "web_search"?'),
    ("-web_serach", 'no feature "web_serach"; did you mean "web_search"?'),
    ("tier", 'no feature "tier"'),
    ("-*", 'no feature "*"'),
    ("--geo", 'no feature "-geo"'),
    ("", 'no feature ""'),
])  # fmt: skip
def test_another_word_is_refused_by_its_name(word, says):
    with pytest.raises(ValueError) as caught:
        feature_word(word)
    assert says in str(caught.value)


def test_features_are_counted_by_meters():
    assert {feature.meter for feature in FEATURES.values()} - {None} <= METERS.keys()
