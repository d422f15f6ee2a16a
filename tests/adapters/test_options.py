"""The options of a channel: which there are, what each must be, and what it may not be."""

import pytest

from adapters.family.traits import Traits
from adapters.models import traits_of
from adapters.options import OPTIONS, is_option


def test_each_trait_is_an_option_and_says_what_it_must_be():
    assert tuple(OPTIONS) == Traits.__struct_fields__
    assert OPTIONS["images"] == "true or false"
    assert OPTIONS["token_bound"] == "one of max_completion_tokens, max_tokens"
    assert OPTIONS["max_budget_tokens"] == "a whole number above 0"
    assert OPTIONS["efforts"].startswith("a list of at least one, each one of off, min")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("images", False),
        ("images", True),
        ("token_bound", "max_tokens"),
        ("max_budget_tokens", 1),
        ("efforts", ["low", "high"]),
    ],
)
def test_what_an_option_may_be_overrides_the_table(name, value):
    assert is_option(name, value)
    found = getattr(traits_of("nobody", "messages", "m", {name: value}), name)
    assert found == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("imags", True),
        ("images", "yes"),
        ("images", 1),
        ("images", 0),
        ("token_bound", "tokens"),
        ("max_budget_tokens", 0),
        ("max_budget_tokens", -5),
        ("max_budget_tokens", True),
        ("efforts", "low"),
        ("efforts", []),
        ("efforts", ["lowest"]),
    ],
)
def test_what_it_may_not_be(name, value):
    assert not is_option(name, value)
