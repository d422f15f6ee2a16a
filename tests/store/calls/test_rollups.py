"""Roll-ups: exact with every batch, rebuilt while others write, checked against the records."""

import functools
import itertools
import random

import pytest

from store.calls import rollups
from store.calls.booking import OffsetMoved
from store.calls.usage_queries import Filters
from store.calls.usage_stats import stats
from store.db import migrate, partitions
from store.db.database import execute, quoted, snapshot_read
from store.db.partitions import prune
from store.db.tables.usage import UsageByCaller
from store.upkeep import retention
from store.values.errors import StoreUnavailable
from tests.support.stores import at_once, change
from tests.support.usage_records import DAY_MS, MONDAY_MS, BookedJournal, record_at, store

HOUR_MS = 3_600_000


def record(at_ms=MONDAY_MS, **fields):
    facts = {"key_id": "K1", "user": "alice", "model": "m1", "channel": "main"}
    return record_at(at_ms, **(facts | fields))


def many(count, seed=1):
    chance = random.Random(seed)
    choices = {
        **{"key_id": ["K0", "K1", "K2"], "model": ["m1", "m2", None]},
        **{"channel": ["main", "other", None], "outcome": ["ok", "refused"]},
        **{"endpoint": ["/v1/messages", "/" + "e" * 200], "group": ["default", "coding"]},
        **{"error_code": [None, "rate_limit_exceeded"], "stream": [True, False, None]},
        **{"ttft_ms": [None, 0, 50, 51, 700, 10**6], "input_tokens": range(1000)},
        **{"cache_write_1h_tokens": range(9), "cost_nanos": range(10**6)},
        **{"upstream_nanos": [None, 0, 7, 10**5]},
    }
    return [
        record(
            MONDAY_MS + chance.randrange(2 * DAY_MS),
            **{name: chance.choice(values) for name, values in choices.items()},
        )
        for _ in range(count)
    ]


def contents(db):
    """Return the rows of each roll-up: its key, then COLUMNS."""

    def read():
        found = []
        for table in rollups.TABLES:
            names = quoted((*rollups._key(table), *rollups.columns_of(table)))
            query = f'SELECT {names} FROM "{table._meta.table_name}"'
            found.append(sorted(tuple(row) for row in execute(db, query).fetchall()))
        return found

    return snapshot_read(db, read)


def calls_of(rows):
    """Return the number of calls in rows of usage_by_day."""
    return sum(row[6] for row in rows)


def test_a_batch_is_summed_up_by_hour_and_by_day(database):
    last_of_hour = MONDAY_MS + HOUR_MS - 1
    store(
        database,
        [
            record(input_tokens=1, cost_nanos=10),
            record(
                last_of_hour, input_tokens=2, reasoning_tokens=5, cost_nanos=20, upstream_nanos=6
            ),
            record(last_of_hour + 1, input_tokens=4, cost_nanos=40, upstream_nanos=0),
        ],
    )
    nothing = {"channel": None, "model": None, "outcome": "refused", "error_code": "not_found"}
    store(database, [record(input_tokens=8, **nothing)])
    by_key, by_channel, by_day, by_user, by_group, by_caller = contents(database)
    no_streams = (0,) * len(rollups.FIRST_BYTE)
    refused = (1, 8, 0, 0, 0, 0, 0, 0, 0, 0, *no_streams)
    both = (3, 7, 0, 0, 0, 0, 5, 70, 6, 60, *no_streams)
    first = (2, 3, 0, 0, 0, 0, 5, 30, 6, 20, *no_streams)
    second = (1, 4, 0, 0, 0, 0, 0, 40, 0, 40, *no_streams)
    assert by_key == [
        (20260105, 0, "K1", "alice", "", "refused", "x", "not_found", "x", *refused),
        (20260105, 0, "K1", "alice", "m1", "ok", "x", "", "x", *first),
        (20260105, 1, "K1", "alice", "m1", "ok", "x", "", "x", *second),
    ]
    assert by_channel == [
        (20260105, 0, "", "", "refused", "x", "not_found", *refused),
        (20260105, 0, "main", "m1", "ok", "x", "", *first),
        (20260105, 1, "main", "m1", "ok", "x", "", *second),
    ]
    assert by_day == [
        (20260105, "", "", "refused", "x", "not_found", *refused),
        (20260105, "main", "m1", "ok", "x", "", *both),
    ]
    assert by_user == [
        (20260105, "alice", "K1", "x", "ok", *both),
        (20260105, "alice", "K1", "x", "refused", *refused),
    ]
    assert by_group == [
        (20260105, "x", "", "refused", "x", "not_found", *refused),
        (20260105, "x", "m1", "ok", "x", "", *both),
    ]
    all_calls = [a + b for a, b in zip(both[:10], refused[:10], strict=True)]
    assert by_caller == [(20260105, "alice", "K1", "x", *all_calls, 3, 1, 0)]


def test_first_bytes_of_streams_are_counted_by_their_bounds(database):
    times = (0, 50, 51, 409_600, 409_601, None)
    store(database, [record(stream=True, ttft_ms=ms) for ms in times])
    store(database, [record(stream=stream, ttft_ms=60) for stream in (False, None)])
    for table, rows in zip(rollups.TABLES, contents(database), strict=True):
        [row] = rows
        sums = dict(zip(rollups.columns_of(table), row[len(rollups._key(table)) :], strict=True))
        if table is UsageByCaller:
            assert sums["calls"] == sums["ok"] == 8
            continue
        counts = {name: sums[name] for name in rollups.FIRST_BYTE}
        assert {name: count for name, count in counts.items() if count} == {
            "first_byte_le_50": 2,
            "first_byte_le_100": 1,
            "first_byte_le_409600": 1,
            "first_byte_more": 1,
        }
    assert list(rollups.verify(database)) == []


def test_every_sum_has_its_own_column(database):
    counts = dict(zip(rollups.SUMS[1:], (2, 3, 5, 7, 11, 13, 17, 19, 17), strict=True))
    del counts["upstream_known_nanos"]  # the cost of calls with an upstream_nanos
    store(database, [record(**counts), record(**counts)])
    tables = contents(database)
    assert len(tables) == len(rollups.TABLES) > 0
    for table, rows in zip(rollups.TABLES, tables, strict=True):
        begin = len(rollups._key(table))
        assert [row[begin : begin + 10] for row in rows] == [(2, 4, 6, 10, 14, 22, 26, 34, 38, 34)]


def test_batches_of_any_size_give_the_same_sums_as_a_rebuild(database):
    records = many(300)
    for start, end in itertools.pairwise((0, 1, 2, 50, 299, 300)):
        store(database, records[start:end])
    assert list(rollups.verify(database)) == []
    before = contents(database)
    assert calls_of(before[2]) == 300
    assert list(rollups.rebuild(database)) == [20260105, 20260106]
    assert contents(database) == before


def test_texts_of_clients_fit(database):
    store(database, [record(model="é" * 256), record(model="%s ? \" ' \\")])
    assert list(rollups.verify(database)) == []
    assert {row[2] for row in contents(database)[2]} == {"é" * 256, "%s ? \" ' \\"}


def test_a_batch_that_fails_or_was_applied_before_leaves_no_sums(database):
    book, again = BookedJournal(database).book, record()
    book([again], 0, 400)
    before = contents(database)
    with pytest.raises(OffsetMoved):
        book([again], 0, 400)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        store(database, [record(model="new"), again])
    assert contents(database) == before


@pytest.mark.parametrize("table", [one._meta.table_name for one in rollups.TABLES])
def test_verify_sees_what_differs_and_a_rebuild_cures_it(database, table):
    store(database, many(40))
    right = contents(database)
    name, first, second = (
        ("key_id", "K0", "K1") if table == "usage_by_caller" else ("outcome", "ok", "refused")
    )
    change(database, f'UPDATE "{table}" SET "calls" = "calls" + 1 WHERE "{name}" = ?', first)
    change(database, f'DELETE FROM "{table}" WHERE "{name}" = ?', second)
    extra = f'INSERT INTO "{table}" ("day", "{name}", {{}}) VALUES (20260105, ?, {{}})'
    columns = {
        "usage_by_key": ('"hour", "key_id", "user", "model"', "3, 'K', 'bob', 'm'"),
        "usage_by_channel": ('"hour", "channel", "model"', "3, 'gone', 'm'"),
        "usage_by_day": ('"channel", "model"', "'gone', 'm'"),
        "usage_by_user": ('"user", "key_id"', "'bob', 'K'"),
        "usage_by_group": ('"model"', "'m'"),
        "usage_by_caller": ('"user"', "'bob'"),
    }
    # a row of zeros is not a fault by itself, but these records do not exist
    change(database, extra.format(*columns[table]), "ghost")
    faults = list(rollups.verify(database))
    assert len(faults) >= 3 and all(fault.startswith(table) for fault in faults)
    assert any("ghost" in fault for fault in faults)
    list(rollups.rebuild(database))
    assert list(rollups.verify(database)) == []
    assert contents(database) == right


def test_days_before_the_upgrade_are_made_when_all_nodes_have_it(database):
    store(database, many(40))
    right, sums = contents(database), stats(database, ("user",), Filters())
    change(database, "DELETE FROM usage_by_caller WHERE calls > ?", 0)
    change(database, "DELETE FROM schema_migrations WHERE name = ?", "0011_callers")
    migrate.up(database)
    assert partitions.callers_since(database) > 20260106
    retention.run(database, retention.Keep(), "node", lambda: None)
    assert contents(database)[-1] == [] and list(rollups.verify(database)) == []
    assert stats(database, ("user",), Filters()) == sums
    change(database, "UPDATE versions SET version = 20260107 WHERE name = ?", "callers_since")
    retention.run(database, retention.Keep(), "node", lambda: None)
    assert partitions.callers_since(database) == 0 and contents(database) == right
    assert stats(database, ("user",), Filters()) == sums


def test_a_rebuild_leaves_pruned_days_alone_and_so_does_verify(database):
    store(database, many(60))
    before = contents(database)
    prune(database, 20260106)
    # a late record of a pruned day is added to its sums
    late = record(MONDAY_MS, channel="main", model="m1", outcome="ok")
    store(database, [late])
    assert list(rollups.rebuild(database)) == [20260106]
    assert list(rollups.verify(database)) == []
    assert calls_of(contents(database)[2]) == 61
    assert contents(database)[2][-1] == before[2][-1]


def patiently(work):
    """Retry like the writer: SQLite's lock goes to whoever asks at the right time, so one of three
    may fail to get it."""
    for _ in range(10):
        try:
            return work()
        except StoreUnavailable:
            pass
    return work()


def test_two_nodes_write_at_once_while_the_roll_ups_are_rebuilt(database):
    store(database, many(100, seed=9))
    running, rounds = [1, 2], 15

    def write(seed):
        try:
            for number in range(rounds):
                patiently(lambda: store(database, many(10, seed * 1000 + number)))  # noqa: B023
        finally:
            running.remove(seed)

    def rebuild():
        while running:
            patiently(lambda: list(rollups.rebuild(database)))

    works = [functools.partial(write, seed) for seed in (1, 2)]
    assert at_once(database, *works, rebuild) == [None] * 3
    assert list(rollups.verify(database)) == []
    assert calls_of(contents(database)[2]) == 100 + 2 * rounds * 10
