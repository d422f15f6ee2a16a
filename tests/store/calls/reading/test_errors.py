"""Errors by kind: counts, times and a sample, on both databases."""

import pytest

from store.calls.reading.errors import errors
from store.calls.usage_queries import Filters
from store.db.partitions import prune
from store.values.usage_record import rfc3339
from tests.support.usage_records import DAY_MS, MONDAY_MS, record, store

HOUR_MS = 3_600_000


def failed(number, at_ms, code="upstream_timeout", **fields):
    return record(number, at_ms, outcome="timeout", error_code=code, **fields)


def test_kinds_have_their_times_and_the_last_call(database):
    made = [
        failed(1, MONDAY_MS + 5),
        failed(2, MONDAY_MS + HOUR_MS),
        failed(3, MONDAY_MS + DAY_MS + 7),
        failed(4, MONDAY_MS + 9, code="invalid_json"),
        failed(5, MONDAY_MS + 9, code="invalid_json"),
        record(6, MONDAY_MS + 11),
    ]
    made[3].call.model = None
    store(database, made)
    first, *others = errors(database, Filters())
    assert first == {
        "error_code": "upstream_timeout",
        "endpoint": "/a",
        "model": "m",
        "calls": 3,
        "first_at": rfc3339(MONDAY_MS + 5),
        "last_at": rfc3339(MONDAY_MS + DAY_MS + 7),
        "id": made[2].id,
    }
    assert {(one["model"], one["calls"], one["id"]) for one in others} == {
        (None, 1, made[3].id),
        ("m", 1, made[4].id),
    }
    [one] = errors(database, Filters(since_ms=MONDAY_MS + 6, until_ms=MONDAY_MS + DAY_MS), 1)
    assert one["calls"] == 1 and one["first_at"] == one["last_at"]
    assert len(errors(database, Filters(), limit=2)) == 2
    assert errors(database, Filters(user="nobody")) == []


def test_kinds_of_pruned_days_have_their_hours(database):
    store(database, [failed(1, MONDAY_MS + 5 * HOUR_MS)])
    prune(database, 20260106)
    [one] = errors(database, Filters())
    assert (one["calls"], one["id"]) == (1, None)
    assert one["first_at"] == rfc3339(MONDAY_MS + 5 * HOUR_MS)
    assert one["last_at"] == rfc3339(MONDAY_MS + 5 * HOUR_MS)


@pytest.mark.parametrize("users", [3, 60])
def test_kinds_in_the_same_hours_do_not_mix(database, users):
    codes = ("upstream_timeout", "upstream_error")
    made = [
        failed(
            *(number, MONDAY_MS + number * 60_000, codes[number % 2]),
            **{"user": f"u{number % users}", "key_id": f"k{number % users}"},
        )
        for number in range(240)
    ]
    store(database, made)
    for filters in (Filters(), Filters(user="u1"), Filters(user="u1", status=200)):
        expected = {}
        for one in made:
            if filters.user in (None, one.call.user):
                expected.setdefault(one.error_code, []).append(one)
        for kind in errors(database, filters):
            own = expected.pop(kind["error_code"])
            assert (kind["calls"], kind["id"]) == (len(own), own[-1].id)
            assert kind["first_at"] == rfc3339(own[0].call.started_ms)
        assert not expected or filters.status is not None
