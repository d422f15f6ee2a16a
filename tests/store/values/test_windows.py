"""Windows of quotas: where each starts and ends, in UTC."""

import datetime

import pytest

from store.values.times import window_at


def ms(text):
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "at", "first", "ends"),
    [
        ("day", "2026-11-22T00:00:00+00:00", 20261122, "2026-11-23T00:00:00+00:00"),
        ("day", "2026-12-31T23:59:59.999+00:00", 20261231, "2027-01-01T00:00:00+00:00"),
        ("day", "2026-11-22T23:30:00-01:00", 20261123, "2026-11-24T00:00:00+00:00"),
        ("week", "2026-11-22T12:00:00+00:00", 20261116, "2026-11-23T00:00:00+00:00"),
        ("week", "2026-11-23T00:00:00+00:00", 20261123, "2026-11-30T00:00:00+00:00"),
        ("week", "2027-01-01T00:00:00+00:00", 20261228, "2027-01-04T00:00:00+00:00"),
        ("month", "2026-01-31T12:00:00+00:00", 20260101, "2026-02-01T00:00:00+00:00"),
        ("month", "2028-02-29T23:59:59+00:00", 20280201, "2028-03-01T00:00:00+00:00"),
        ("month", "2026-12-01T00:00:00+00:00", 20261201, "2027-01-01T00:00:00+00:00"),
    ],
)
def test_windows(window, at, first, ends):
    assert window_at(window, ms(at)) == (first, ms(ends))


def test_a_window_that_never_ends():
    assert window_at("never", ms("2026-11-22T00:00:00+00:00")) == (0, None)


def test_an_unknown_window():
    with pytest.raises(ValueError, match="year"):
        window_at("year", 0)
