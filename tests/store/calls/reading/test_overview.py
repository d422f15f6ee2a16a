"""The sums of the overview: periods and the periods before them, channels, refusals for lack of
money."""

import pytest

from store.calls.reading.overview import channel_lines, overview_sums
from store.calls.reading.refusals import money_refusals, of_today, refused_users
from store.calls.reading.sums import sums_of_names
from store.calls.usage_queries import Filters
from store.channels import status_sums
from store.db.database import transaction
from store.db.tables.catalog import Channel
from store.values.usage_record import AttemptRecord
from tests.support.usage_records import DAY_MS, MONDAY_MS, record_at, store

HOUR_MS = 3_600_000
NOW_MS = MONDAY_MS + 14 * HOUR_MS + 1_800_000  # 14:30


def spent(database, *moments):
    """Store a call with cost and first byte for each (days ago, hour, cost)."""
    store(
        database,
        [
            record_at(
                MONDAY_MS - days * DAY_MS + int(hour * HOUR_MS),
                **{"cost_nanos": cost, "upstream_nanos": cost // 2 if cost % 2 == 0 else None},
            )
            for days, hour, cost in moments
        ],
    )


@pytest.mark.parametrize(
    ("moments", "span", "cost", "change"),
    [
        ([(0, 1, 30), (7, 1, 20)], "today", 30, 0.5),
        ([(0, 1, 30), (0, 14.2, 8), (7, 1, 20), (7, 14, 99)], "today", 38, 0.5),  # whole hours
        ([(0, 1, 30), (1, 23, 70), (7, 1, 10), (8, 23, 40), (7, 20, 99)], "7d", 100, 1.0),
        ([(0, 1, 30), (29, 0, 70), (30, 13, 40), (59, 0, 10), (60, 0, 5)], "30d", 100, 1.0),
        ([(0, 1, 30), (30, 15, 40)], "30d", 30, None),
        ([], "7d", 0, None),
    ],
)
def test_a_span_is_compared_with_the_one_before_up_to_the_hour(
    database, moments, span, cost, change
):
    spent(database, *moments)
    sums = overview_sums(database, NOW_MS).spans[span]
    assert (sums.sums.cost_nanos, sums.change) == (cost, change)


def test_before_the_first_hour_of_a_day_nothing_is_compared(database):
    spent(database, (0, 0, 3), (7, 0, 3))
    assert overview_sums(database, MONDAY_MS + 60_000).spans["today"].change is None


def test_days_and_hours_have_the_costs_that_are_known(database):
    spent(database, (0, 3, 10), (0, 3.5, 7), (2, 5, 20))
    sums = overview_sums(database, NOW_MS)
    assert len(sums.days) == 30 and len(sums.hours) == 24
    today, before = sums.bars("7d")[-1], sums.bars("7d")[-3]
    assert (today.cost_nanos, today.known_nanos, today.margin) == (17, 10, 0.5)
    assert (before.cost_nanos, sums.bars("today")[3].cost_nanos) == (20, 17)
    assert sums.spans["30d"].sums.known_share == 30 / 37


def test_channels_that_are_not_up_come_first_then_the_dearest(database):
    names = ("small", "large", "off", "down")
    rows = [
        {
            **{"id": name, "name": name, "vendor": "openai", "family": "chat_completions"},
            **{"base_url": "https://x.example", "models": {"m": "m"}, "groups": ["default"]},
            **{"enabled": name != "off"},
        }
        for name in names
    ]
    transaction(database, lambda: Channel.insert_many(rows).execute(database))
    made = [
        record_at(NOW_MS, channel=name, cost_nanos=cost)
        for name, cost in (("small", 1), ("large", 5))
    ]
    failed = AttemptRecord("down", 502, "upstream_error", 1)
    made += [
        record_at(NOW_MS, channel="down", model="m", outcome="upstream_error", attempts=(failed,))
        for _ in range(4)
    ]
    store(database, made)
    transaction(database, lambda: status_sums.add_records(database, made))
    channels = channel_lines(database, NOW_MS, sums_of_names(database, "channel", Filters()), 3)
    assert [line.name for line in channels.lines] == ["down", "large", "small"]
    assert channels.unlisted == {"disabled": 1}
    assert (channels.lines[0].failed_today, channels.lines[0].failed_share) == (1.0, 1.0)


def test_refusals_for_money_are_those_of_today(database):
    refused = {"outcome": "refused", "channel": None, "cost_nanos": 0}
    code = {"error_code": "insufficient_quota"}
    store(
        database,
        [
            record_at(MONDAY_MS - HOUR_MS, user="bob", **refused, **code),
            record_at(MONDAY_MS + HOUR_MS, user="bob", **refused, **code, error_message="first"),
            record_at(MONDAY_MS + 2 * HOUR_MS, user="bob", **refused, **code, error_message="last"),
            record_at(MONDAY_MS + HOUR_MS, user="eve", **refused, error_code="rate_limit_exceeded"),
            record_at(
                MONDAY_MS + HOUR_MS, user="ann", **refused, error_code="subscription_quota_exceeded"
            ),
        ],
    )
    refused, users = refused_users(database, NOW_MS, 1)
    assert users == 2
    [(user, bob)] = refused.items()
    assert (user, bob.calls, bob.last["error_message"]) == ("bob", 2, "last")
    assert (bob.first_ms, bob.last_ms) == (MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS)
    assert money_refusals(database, of_today(NOW_MS, "eve")) is None
    ann = money_refusals(database, of_today(NOW_MS, "ann"))
    assert ann.last["error_code"] == "subscription_quota_exceeded"
