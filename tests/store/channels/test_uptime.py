"""Uptime by hour and by day: minutes, hours and days add up, probes are counted separately."""

import pytest

from store.channels.serving import load_serving
from store.channels.status_sums import Probed, add_probes, fold
from store.channels.uptime import DAYS, HOURS, Span, empty_uptime, uptime_of
from store.values.ids import DAY_MS, HOUR_MS
from store.values.usage_record import AttemptRecord
from tests.support.usage_records import record_at, store

pytestmark = pytest.mark.databases("sqlite")

NOW_MS = 1_767_613_890_000  # 2026-01-05T11:51:30Z


def called(db, ago_ms, outcome="ok", model="gpt-4.1", group="default"):
    """Book a call that ended this long ago."""
    at_ms = NOW_MS - ago_ms
    code = None if outcome == "ok" else "upstream_error"
    facts = {"group": group, "model": model, "duration_ms": 0, "channel": "openai-main"}
    facts |= {"attempts": (AttemptRecord("openai-main", 200, code, 0),)}
    store(db, [record_at(at_ms, outcome=outcome, error_code=code, **facts)], at_ms)


def settle(db):
    while fold(db, NOW_MS // 1000):
        pass


def uptime(db, model="gpt-4.1", group="default", span=None):
    found = uptime_of(db, NOW_MS, [group], load_serving(db), span)
    return found.get((group, model))


@pytest.mark.parametrize("folded", [False, True])
def test_each_call_is_in_its_hour_and_its_day(applied, database, folded):
    called(database, 0)
    called(database, HOUR_MS, "upstream_error")
    called(database, 23 * HOUR_MS)
    if folded:
        settle(database)
    found = uptime(database)
    hours = [(slot.ok, slot.failed) for slot in found.hours]
    assert len(hours) == HOURS and found.hours[-1].at_s * 1000 <= NOW_MS
    if folded:
        assert (hours[-1], hours[-2], hours[0]) == ((1, 0), (0, 1), (1, 0))
        # 23 hours ago was the day before
        assert [(one.ok, one.failed) for one in found.days[-2:]] == [(1, 0), (1, 1)]
    assert sum(ok + failed for ok, failed in hours) == (3 if folded else 1)


def test_days_are_those_of_thirty_and_no_more(applied, database):
    for days in (1, 2, 29, 30, 31):
        called(database, days * DAY_MS)
    # Still a row of an hour, but of none that is shown.
    called(database, 24 * HOUR_MS + 20 * 60_000)
    settle(database)
    found = uptime(database)
    assert len(found.days) == DAYS and sum(slot.calls for slot in found.days) == 4
    assert (found.days[0].calls, found.days[-2].calls, found.days[-1].calls) == (1, 2, 0)
    assert sum(slot.calls for slot in found.hours) == 0


def test_probes_are_told_where_nobody_called(applied, database):
    called(database, HOUR_MS)
    for ago in (HOUR_MS, 2 * HOUR_MS):
        at_ms = NOW_MS - ago
        add_probes(database, [Probed("openai-main", "gpt-4.1", at_ms, None, 100, 200)])
    settle(database)
    found = uptime(database)
    assert [(slot.calls, slot.probes) for slot in found.hours[-3:]] == [(0, 1), (1, 0), (0, 0)]
    assert found.days[-1].calls == 1 and found.days[-1].probes == 0


def test_others_groups_and_models_are_not_there(applied, database):
    called(database, HOUR_MS)
    called(database, HOUR_MS, group="another")
    settle(database)
    assert uptime(database, group="nobody") is None
    assert uptime(database, span=Span("a", "b")) is None
    assert uptime(database, span=Span("gpt-4.1", "gpt-4.1")).hours[-2].ok == 1
    assert empty_uptime(NOW_MS).hours[-1].calls == 0
