"""Times in the forms that users type."""

import time

import click
import pytest

from commands.times import Duration, Moment, duration_s
from store.values.times import moment_ms, word_ms


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("90m", 5400), ("24h", 86_400), ("7d", 604_800)]
)
def test_lengths(text, seconds):
    assert duration_s(text) == seconds == Duration().convert(text, None, None)


@pytest.mark.parametrize("text", ["", "24", "h", "1.5h", "-1h", "1w", "999999999999d", "1 h"])
def test_no_lengths(text):
    assert duration_s(text) is None
    with pytest.raises(click.BadParameter, match="24h"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01t00:00:01.5z", 1500),
        ("1970-01-01 02:00+02:00", 0),
    ],
)
def test_moments(text, at_ms):
    assert Moment().convert(text, None, None) == at_ms


def test_so_long_ago():
    assert abs(Moment().convert("1h", None, None) - (time.time() - 3600) * 1000) < 2000
    assert Moment().convert("36500d", None, None) == 0


@pytest.mark.parametrize(
    "text",
    [
        *("", "tomorrow", "2026-13-01", "2026-11-21T14:00:00", "1969-12-31", "1795000000"),
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_no_moments(text):
    with pytest.raises(click.BadParameter, match="2026-11-21T14"):
        Moment().convert(text, None, None)


@pytest.mark.parametrize(
    ("word", "begin"),
    [
        ("today", "2027-01-01"),
        ("yesterday", "2026-12-31"),
        ("this-month", "2027-01-01"),
        ("last-month", "2026-12-01"),
        ("tomorrow", None),
    ],
)
def test_the_begin_of_a_period_is_that_of_its_first_day(word, begin):
    new_year_ms = moment_ms("2027-01-01T00:00:00Z")
    for now_ms in (new_year_ms, new_year_ms + 86_399_999):
        assert word_ms(word, now_ms) == (None if begin is None else moment_ms(begin))


def test_words_are_taken_where_times_are():
    today_ms = Moment().convert("today", None, None)
    assert today_ms % 86_400_000 == 0
    assert Moment().convert("yesterday", None, None) == today_ms - 86_400_000
    with pytest.raises(click.BadParameter, match="this-month"):
        Moment().convert("next-month", None, None)
