"""Token counts as vendors report them."""

import pytest

from store.values.usage import MAX_TOKENS, token_count


@pytest.mark.parametrize("value", [0, 1, MAX_TOKENS])
def test_counts(value):
    assert token_count(value) == value


@pytest.mark.parametrize("value", [None, True, False, -1, 1.0, "3", MAX_TOKENS + 1, 10**30, [], {}])
def test_what_cannot_be_a_count_was_not_reported(value):
    assert token_count(value) is None
