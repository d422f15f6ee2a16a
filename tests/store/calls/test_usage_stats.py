"""Sums of usage: the same from each source, for every filter, on both databases."""

import itertools
import random
from collections import Counter

import pytest

from store.calls import rollups, usage_stats
from store.calls.usage_queries import Filters
from store.calls.usage_stats import CLASSES, Order, stats
from store.db.database import execute
from store.db.partitions import prune
from store.values.errors import Refused
from store.values.pricing import format_money
from store.values.usage import Usage
from tests.support.usage_records import DAY_MS, MONDAY_MS, field_of, record_at, store

HOUR_MS = 3_600_000
COUNTS = [name for name in rollups.SUMS if name.endswith("_tokens")]


def records(count=200):
    chance = random.Random(7)
    made = []
    for _ in range(count):
        at_ms = MONDAY_MS + chance.randrange(2 * DAY_MS)
        key = chance.randrange(4)
        facts = {"key_id": f"K{key}", "user": f"user-{key // 2}"}
        facts |= {"group": f"g{key % 2}", "endpoint": chance.choice(["/a", "/b"])}
        made.append(
            record_at(
                at_ms,
                **facts,
                model=chance.choice(["m1", "m2", None]),
                channel=chance.choice(["main", "other", None]),
                status=chance.choice([200, 429, None]),
                error_code=chance.choice([None, None, "upstream_timeout", "rate_limit_exceeded"]),
                stream=chance.choice([True, False]),
                ttft_ms=chance.choice([None, 49, 700, 10**6]),
                outcome=chance.choice(["ok", "ok", "refused", "client_gone", "timeout", "drained"]),
                cost_nanos=chance.randrange(10**10),
                upstream_nanos=chance.choice([None, 0, 10**9]),
                **{name: chance.randrange(1000) for name in COUNTS},
            )
        )
    return made


def expected(chosen, by):
    """Return the expected stats, by plain counting."""
    found = {}
    for record in chosen:
        day, hour = rollups._hour_of_block(record.id[:9])
        date = f"{day // 10000}-{day // 100 % 100:02d}-{day % 100:02d}"
        times = {"day": date, "hour": f"{date}T{hour:02d}:00:00.000Z"}
        key = tuple(times[name] if name in times else field_of(record, name) for name in by)
        sums = found.setdefault(key, Counter())
        sums["calls"] += 1
        sums[record.outcome if record.outcome in CLASSES else "failed"] += 1
        for name in (*COUNTS, "cost_nanos"):
            sums[name] += field_of(record, name)
    rows = []
    for key, sums in found.items():
        plain = {name: sums[name] for name in ("calls", *CLASSES, *COUNTS)}
        row = dict(zip(by, key, strict=True)) | plain
        rows.append(row | {"cost": format_money(sums["cost_nanos"])})
    return rows


def ordered(rows, by):
    return sorted(rows, key=lambda row: [str(row[name] or "") for name in by])


@pytest.fixture
def filled(database):
    made = records()
    store(database, made)
    return database, made


BY = [
    *(["day", "model"], ["day"], ["hour"], ["hour", "channel", "outcome"], ["user"]),
    *(["day", "key_id"], ["model", "day"], ["hour", "user", "model"], ["endpoint"], ["status"]),
    *(["group", "day"], ["user", "channel"], ["hour", "endpoint"], ["error_code", "endpoint"]),
    *(["group", "channel"], ["hour", "error_code", "model"]),
]
CHOICES = [
    {},
    {"model": "m1"},
    {"user": "user-1", "outcome": "ok"},
    {"channel": "other"},
    {"key_id": "K2", "channel": "main"},
    {"status": 429},
    {"endpoint": "/a", "model": "m2"},
    {"group": "g1", "error_code": "upstream_timeout"},
    {"user": ("user-0", "user-1"), "outcome": ("refused", "drained")},
    {"model": ("m1", "m2"), "channel": ("main", "nowhere")},
    {"status": 200, "key_id": ("K1", "K2")},
]


def names(rows_expected):
    return rows_expected if isinstance(rows_expected, tuple) else (rows_expected,)


@pytest.mark.parametrize("by", BY, ids=",".join)
def test_sums_are_those_of_the_records(filled, by):
    db, made = filled
    for choice in CHOICES:
        chosen = [
            r for r in made if all(field_of(r, name) in names(v) for name, v in choice.items())
        ]
        rows = stats(db, by, Filters(**choice))
        assert ordered(rows, by) == ordered(expected(chosen, by), by), choice


@pytest.mark.parametrize(
    ("since", "until"),
    [
        *((DAY_MS, None), (None, DAY_MS), (3 * HOUR_MS, DAY_MS + 5 * HOUR_MS), (0, 2 * DAY_MS)),
        *((3 * HOUR_MS + 1, None), (None, DAY_MS + 12345), (DAY_MS, DAY_MS)),
    ],
)
def test_times_bound_the_sums(filled, since, until):
    db, made = filled
    since_ms = None if since is None else MONDAY_MS + since
    until_ms = None if until is None else MONDAY_MS + until
    chosen = [
        record
        for record in made
        if (since_ms or 0) <= record.call.started_ms < (until_ms or 10**15)
    ]
    filters = Filters(since_ms=since_ms, until_ms=until_ms)
    for by in (["day", "model"], ["user"], ["hour"], ["endpoint"]):
        rows = stats(db, by, filters)
        assert ordered(rows, by) == ordered(expected(chosen, by), by)


def test_the_smallest_table_that_can_tell_is_read():
    def table(by, **filters):
        return usage_stats._source_of(by, Filters(**filters)).table._meta.table_name

    assert table(["day", "model"]) == "usage_by_day"
    assert table(["model"], outcome="ok", channel="x", since_ms=DAY_MS) == "usage_by_day"
    assert table(["model"], since_ms=HOUR_MS) == "usage_by_channel"
    assert table(["hour", "channel"]) == "usage_by_channel"
    assert table(["day", "user"]) == table(["key_id"], group="g") == "usage_by_caller"
    assert table(["user"], key_id="k", user="u") == "usage_by_caller"
    assert table(["user", "outcome"]) == "usage_by_user"
    assert table(["group"], user="u", key_id="k", outcome="ok") == "usage_by_user"
    assert table(["hour", "user"]) == table(["user"], until_ms=HOUR_MS) == "usage_by_key"
    assert table(["model"], key_id="k") == table(["day"], key_id="k") == "usage_by_key"
    assert table(["day", "model"], until_ms=HOUR_MS + 1) == "usage_records"
    assert table(["error_code", "endpoint"], channel="x") == "usage_by_day"
    assert table(["hour", "endpoint"], error_code="x") == "usage_by_channel"
    assert table(["group"]) == table(["error_code", "model"], group="g") == "usage_by_group"
    assert table(["endpoint"], group="g", key_id="k") == "usage_by_key"
    assert table(["user", "channel"]) == table(["day"], status=200) == "usage_records"
    assert table(["group", "channel"]) == table(["day"], text="x") == "usage_records"
    assert table(["day"], stream=True) == table(["day"], min_duration_ms=5) == "usage_records"


@pytest.mark.parametrize("choice", [{}, {"user": "user-1"}, {"status": 200}])
def test_first_bytes_are_those_of_streams(filled, choice):
    db, made = filled
    times = [
        record.ttft_ms
        for record in made
        if record.call.stream and record.ttft_ms is not None
        and all(field_of(record, name) == value for name, value in choice.items())
    ]  # fmt: skip
    [row] = stats(db, [], Filters(**choice), Order(first_bytes=True))
    buckets = dict(zip(rollups.FIRST_BYTE, row["first_bytes"], strict=True))
    assert {name: count for name, count in buckets.items() if count} == {
        "first_byte_le_50": times.count(49),
        "first_byte_le_800": times.count(700),
        "first_byte_more": times.count(10**6),
    }


def test_rows_come_in_order_and_nothing_is_no_row(filled):
    db, _ = filled
    days = [row["day"] for row in stats(db, ["day"], Filters())]
    assert days == ["2026-01-05", "2026-01-06"]
    assert stats(db, ["day"], Filters(model="none")) == []
    assert stats(db, ["model"], Filters(endpoint="/none")) == []


def test_sums_outlive_the_records(filled):
    db, _ = filled
    before = stats(db, ["day", "model"], Filters())
    prune(db, 20260107)
    assert stats(db, ["day", "model"], Filters()) == before
    assert len(stats(db, ["endpoint", "group"], Filters())) == 4
    assert stats(db, ["status"], Filters()) == []


def test_too_many_rows_are_refused(filled, monkeypatch):
    monkeypatch.setattr(usage_stats, "ROWS_MAX", 5)
    db, _ = filled
    assert len(stats(db, ["day"], Filters())) == 2
    with pytest.raises(Refused, match="more than 5"):
        stats(db, ["hour"], Filters())


def test_sums_beyond_32_bits_are_exact(database):
    made = records(3)
    for record, cost in zip(made, itertools.repeat(2**60), strict=False):
        record.cost_nanos, record.usage, record.call.model = cost, Usage(2**40), "m"
        record.channel, record.outcome = "c", "ok"
    store(database, made)
    (row,) = stats(database, ["model"], Filters())
    assert (row["input_tokens"], row["cost"]) == (3 * 2**40, format_money(3 * 2**60))
    assert execute(database, 'SELECT COUNT(*) FROM "usage_by_key"').fetchone()[0] >= 1


@pytest.mark.parametrize("by", [["channel"], ["user"], ["hour", "user"], ["status"]], ids=",".join)
def test_margins_are_of_calls_whose_cost_is_known(filled, by):
    db, made = filled
    for row in stats(db, by, Filters(), Order(margin=True)):
        known = [
            record
            for record in made
            if all(field_of(record, name) == row[name] for name in by if name != "hour")
            and ("hour" not in by or row["hour"] == expected([record], ["hour"])[0]["hour"])
            and record.upstream_nanos is not None
        ]
        charged = sum(record.cost_nanos for record in known)
        upstream = sum(record.upstream_nanos for record in known)
        assert row["upstream_cost"] == format_money(upstream)
        assert row["cost_known"] == format_money(charged)
        assert row["margin"] == (f"{(charged - upstream) / charged:.4f}" if known else None)


@pytest.mark.parametrize(
    ("calls", "margin"),
    [
        ([], None),
        ([(10, None)], None),
        ([(0, 5)], None),
        ([(10, 7), (99, None)], "0.3000"),
        ([(10, 0)], "1.0000"),
        ([(3, 4)], "-0.3333"),
    ],
)
def test_a_margin(database, calls, margin):
    made = [record_at(MONDAY_MS, cost_nanos=cost, upstream_nanos=own) for cost, own in calls]
    store(database, [record_at(MONDAY_MS), *made])
    [row] = stats(database, (), Filters(), Order(margin=True))
    assert row["margin"] == margin
    assert not {"margin", "upstream_cost", "cost_known"} & stats(database, (), Filters())[0].keys()
