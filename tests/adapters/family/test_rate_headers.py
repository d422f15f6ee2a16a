"""The families' own headers about limits."""

import datetime

import pytest

from adapters.family.rate_headers import RateLevel
from adapters.registry import FAMILIES

NOW_S = datetime.datetime(2026, 12, 31, 23, 59, 30, 400_000, datetime.UTC).timestamp()
LEVELS = (RateLevel("requests", 60, 59, 1.0), RateLevel("tokens", 9000, 0, 59.5))


@pytest.mark.parametrize("family", ["chat_completions", "responses"])
def test_the_openai_families_tell_durations(family):
    assert dict(FAMILIES[family].client.rate_lines(LEVELS, NOW_S)) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "9000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m0s",
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.0201, "21ms"), (1.2, "2s"), (60, "1m0s"), (360, "6m0s")]
)
def test_a_reset_is_told_in_the_vendors_form(seconds, text):
    [*_, (_, reset)] = FAMILIES["responses"].client.rate_lines(
        [RateLevel("tokens", 1, 0, seconds)], 0
    )
    assert reset == text


def test_messages_tells_times():
    assert dict(FAMILIES["messages"].client.rate_lines(LEVELS, NOW_S)) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
        "anthropic-ratelimit-requests-reset": "2026-12-31T23:59:32Z",
        "anthropic-ratelimit-tokens-limit": "9000",
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2027-01-01T00:00:30Z",
    }


def test_generate_content_has_no_such_headers():
    assert FAMILIES["generate_content"].client.rate_lines(LEVELS, NOW_S) == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_without_limits_nothing_is_told(family):
    assert FAMILIES[family].client.rate_lines((), NOW_S) == ()
