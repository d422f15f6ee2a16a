"""Periods of charts: days in zones whose clocks change, and periods cut where roll-ups are
cheapest."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from store.calls.reading.buckets import BUCKETS_MAX, buckets, pieces, tells_days
from store.calls.usage_queries import Filters
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms

BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
NOON = day_begin_ms(20261124) + 12 * HOUR_MS


def local(*parts, zone=BERLIN):
    return round(datetime(*parts, tzinfo=zone).timestamp() * 1000)


def test_days_are_of_the_zone_also_when_its_clocks_change():
    spans = buckets(local(2026, 10, 24), local(2026, 10, 27), "day", BERLIN)
    hours = [
        (end - begin) // HOUR_MS for begin, end in zip(spans.begins, spans.ends(), strict=True)
    ]
    assert hours == [24, 25, 24] and spans.by_hour
    assert spans.index(local(2026, 10, 25, 23)) == 1
    assert spans.index(local(2026, 10, 27)) is None
    assert spans.index_of_row((20261023, 22)) == 0  # midnight of the 24th there


def test_weeks_begin_on_monday_and_hours_are_whole():
    weeks = buckets(NOON, NOON + 8 * DAY_MS, "week", UTC)
    assert [datetime.fromtimestamp(ms / 1000, UTC).weekday() for ms in weeks.begins] == [0, 0]
    assert not weeks.by_hour and weeks.index_of_row((20261124,)) == 0
    hours = buckets(NOON + 1, NOON + 2 * HOUR_MS, "hour", BERLIN)
    assert list(hours.begins) == [NOON, NOON + HOUR_MS]
    assert len(buckets(0, NOON, "day", UTC).begins) == BUCKETS_MAX


@pytest.mark.parametrize(
    ("since_h", "until_h", "expected"),
    [
        (-1, 49, [(-1, 0), (0, 48), (48, 49)]),
        (0, 48, [(0, 48)]),
        (1, 5, [(1, 5)]),
        (-1, 1, [(-1, 0), (0, 1)]),
        (-1, None, [(-1, 0), (0, None)]),
        (None, 1, [(None, 0), (0, 1)]),
        (None, None, [(None, None)]),
    ],
)
def test_a_span_is_cut_at_midnights(since_h, until_h, expected):
    midnight = day_begin_ms(20261124)
    at = [None if hours is None else midnight + hours * HOUR_MS for hours in (since_h, until_h)]
    cut = pieces(Filters(model="m", since_ms=at[0], until_ms=at[1]))
    hours = [
        tuple(
            None if ms is None else (ms - midnight) // HOUR_MS
            for ms in (one.since_ms, one.until_ms)
        )
        for one in cut
    ]
    assert hours == expected and all(one.model == "m" for one in cut)


def test_spans_within_an_hour_are_not_cut():
    filters = Filters(since_ms=NOON + 1)
    assert pieces(filters) == [filters]


def test_days_of_a_zone_need_whole_hours_and_a_short_span(database):
    week = Filters(since_ms=local(2026, 11, 20))
    assert tells_days(database, (), week, NOON, BERLIN)
    assert not tells_days(database, (), Filters(since_ms=local(2026, 9, 20)), NOON, BERLIN)
    assert not tells_days(database, (), week, NOON, KOLKATA)
    assert tells_days(database, (), Filters(), NOON, UTC)
    assert not tells_days(database, ("status",), week, NOON, BERLIN)
