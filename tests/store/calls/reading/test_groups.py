"""Usage by groups: the same sums from every roll-up, on both stores."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from store.calls.reading.groups import CHARTS, GROUPS, Grouping, load_groups
from store.calls.usage_queries import Filters
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms, ulid
from tests.support.usage_records import store, usage_record

MIDNIGHT = day_begin_ms(20261124)
NOW = MIDNIGHT + 12 * HOUR_MS
BERLIN = ZoneInfo("Europe/Berlin")


def put(db, number, hours_ago, **fields):
    at_ms = NOW - round(hours_ago * HOUR_MS) - number
    facts = {"id": ulid(at_ms, number.to_bytes(10)), "started_ms": at_ms, "cost_nanos": 10}
    facts |= {"status": 200, "stream": True, "ttft_ms": 400, "upstream_nanos": 4}
    store(db, [usage_record(**(facts | fields))], NOW)


@pytest.fixture
def calls(database):
    for number in range(12):
        put(database, number, 6 * number + 0.1, model=f"m{number % 3}", cost_nanos=10 + number)
    put(database, 20, 24 * 5, model="m0", cost_nanos=100)
    return database


@pytest.mark.parametrize(
    ("zone", "unit"), [(UTC, "day"), (BERLIN, "day"), (BERLIN, "hour"), (UTC, "week")]
)
def test_the_bars_add_up_to_the_rows(calls, zone, unit):
    since_ms = MIDNIGHT - 3 * DAY_MS - (HOUR_MS if zone is BERLIN else 0)
    filters = Filters(since_ms=since_ms)
    for by in GROUPS:
        for chart in set(CHARTS) - {"first_byte"}:
            view = load_groups(calls, filters, NOW, Grouping(by, chart, unit, zone))
            assert view.total.calls == 12 == sum(bar.calls for bar in view.bars)
            assert sum(sums.calls for sums in view.groups) == 12
            whole = {
                "calls": 12,
                "cost": view.total.cost_nanos,
                "tokens": view.total.tokens,
                "margin": view.total.known_nanos - view.total.upstream_nanos,
            }[chart]
            assert sum(sum(bar.values) for bar in view.bars) == whole


def test_a_group_of_the_span_before_counts_for_the_change_alone(calls):
    since_ms = MIDNIGHT - 3 * DAY_MS
    before = (MIDNIGHT - 7 * DAY_MS, since_ms)
    for filters in (Filters(since_ms=since_ms), Filters(since_ms=since_ms, status=200)):
        view = load_groups(calls, filters, NOW, Grouping("model", "cost", "day", UTC, before))
        first = next(sums for sums in view.groups if sums.name == "m0")
        assert first.before_nanos == 100 == view.total.before_nanos
        assert first.change == (first.cost_nanos - 100) / 100
        assert [sums.change for sums in view.groups if sums.name != "m0"] == [None, None]
    view = load_groups(calls, filters, NOW, Grouping("day", "cost", "day", UTC, before))
    assert view.total.before_nanos == 100


def test_the_first_byte_is_a_percentile_of_each_group(database):
    for number in range(45):
        put(database, number, 1, model="slow" if number % 2 else "fast", ttft_ms=900 * (number % 2))
    grouping = Grouping("model", "first_byte", "day", UTC)
    view = load_groups(database, Filters(since_ms=MIDNIGHT), NOW, grouping)
    values = dict(zip(view.coloured, view.bars[0].values, strict=True))
    assert values["slow"] > values["fast"]
