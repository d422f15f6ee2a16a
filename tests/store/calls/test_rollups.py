"""Roll-ups: exact with every batch, made anew while others write, checked against the records."""

import functools
import random
import threading

import pytest

from store.calls import rollups
from store.calls.booking import Batch, OffsetMoved, apply_batch, apply_records
from store.db.database import discard, execute, is_mysql, open_database, snapshot_read, transaction
from store.db.partitions import prune
from store.values.errors import StoreUnavailable
from store.values.ids import new_ulid, ulid
from tests.support.usage_records import usage_record

MONDAY_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
NAMES = ("key_name", "group", "endpoint", "family", "user_id")
serial = iter(range(10**6))


def record(at_ms=MONDAY_MS, **fields):
    facts = {"id": ulid(at_ms, next(serial).to_bytes(10)), "started_ms": at_ms, "channel": "main"}
    facts |= {"key_id": "K1", "user": "alice", "model": "m1"}
    return usage_record(**(dict.fromkeys(NAMES, "x") | facts | fields))


def many(count, seed=1):
    chance = random.Random(seed)
    return [
        record(
            MONDAY_MS + chance.randrange(2 * DAY_MS),
            key_id=f"K{chance.randrange(3)}",
            model=chance.choice(["m1", "m2", None]),
            channel=chance.choice(["main", "other", None]),
            outcome=chance.choice(["ok", "refused"]),
            endpoint=chance.choice(["/v1/messages", "/" + "e" * 200]),
            error_code=chance.choice([None, "rate_limit_exceeded"]),
            group=chance.choice(["default", "coding"]),
            stream=chance.choice([True, False, None]),
            ttft_ms=chance.choice([None, 0, 50, 51, 700, 10**6]),
            input_tokens=chance.randrange(1000),
            cache_write_1h_tokens=chance.randrange(9),
            cost_nanos=chance.randrange(10**6),
        )
        for _ in range(count)
    ]


def store(db, records):
    transaction(db, lambda: apply_records(db, records, MONDAY_MS))


def contents(db):
    """The rows of each roll-up: its key, then COLUMNS."""

    def read():
        found = []
        for table in rollups.TABLES:
            names = rollups._names((*rollups._key(table), *rollups.COLUMNS))
            query = f'SELECT {names} FROM "{table._meta.table_name}"'
            found.append(sorted(tuple(row) for row in execute(db, query).fetchall()))
        return found

    return snapshot_read(db, read)


def calls_of(rows):
    """The calls in rows of usage_by_day."""
    return sum(row[6] for row in rows)


def change(db, text, *values):
    assert transaction(db, lambda: execute(db, text, values)).rowcount > 0


def url_of(db):
    if is_mysql(db):
        return f"mysql://root@127.0.0.1:{db.connect_params['port']}/{db.database}"
    return f"sqlite:///{db.database}"


def in_threads(*works):
    """Runs each function with a connection of its own, all at once; the first error is raised."""
    errors = []

    def run(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _refused():
    return record(
        input_tokens=8, channel=None, model=None, outcome="refused", error_code="not_found"
    )


def test_a_batch_is_summed_up_by_hour_and_by_day(database):
    last_of_hour = MONDAY_MS + HOUR_MS - 1
    store(
        database,
        [
            record(input_tokens=1, cost_nanos=10),
            record(last_of_hour, input_tokens=2, reasoning_tokens=5, cost_nanos=20),
            record(last_of_hour + 1, input_tokens=4, cost_nanos=40),
        ],
    )
    store(database, [_refused()])
    by_key, by_channel, by_day, by_user, by_group = contents(database)
    no_streams = (0,) * len(rollups.FIRST_BYTE)
    refused = (1, 8, 0, 0, 0, 0, 0, 0, *no_streams)
    first = (2, 3, 0, 0, 0, 0, 5, 30, *no_streams)
    second = (1, 4, 0, 0, 0, 0, 0, 40, *no_streams)
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
        (20260105, "main", "m1", "ok", "x", "", 3, 7, 0, 0, 0, 0, 5, 70, *no_streams),
    ]
    assert by_user == [
        (20260105, "alice", "K1", "x", "ok", 3, 7, 0, 0, 0, 0, 5, 70, *no_streams),
        (20260105, "alice", "K1", "x", "refused", *refused),
    ]
    assert by_group == [
        (20260105, "x", "", "refused", "x", "not_found", *refused),
        (20260105, "x", "m1", "ok", "x", "", 3, 7, 0, 0, 0, 0, 5, 70, *no_streams),
    ]


def test_first_bytes_of_streams_are_counted_by_their_bounds(database):
    times = (0, 50, 51, 409_600, 409_601, None)
    store(database, [record(stream=True, ttft_ms=ms) for ms in times])
    store(database, [record(stream=stream, ttft_ms=60) for stream in (False, None)])
    for rows in contents(database):
        [row] = rows
        counts = dict(zip(rollups.FIRST_BYTE, row[-len(rollups.FIRST_BYTE) :], strict=True))
        assert {name: count for name, count in counts.items() if count} == {
            "first_byte_le_50": 2,
            "first_byte_le_100": 1,
            "first_byte_le_409600": 1,
            "first_byte_more": 1,
        }
    assert list(rollups.verify(database)) == []


def test_every_sum_has_its_own_column(database):
    counts = dict(zip(rollups.SUMS[1:], (2, 3, 5, 7, 11, 13, 17), strict=True))
    store(database, [record(**counts), record(**counts)])
    for rows in contents(database):
        assert [row[-28:-20] for row in rows] == [(2, 4, 6, 10, 14, 22, 26, 34)]


def test_batches_of_any_size_give_the_same_sums_as_a_rebuild(database):
    records = many(300)
    for start in (0, 1, 2, 50, 299):
        end = {0: 1, 1: 2, 2: 50, 50: 299, 299: 300}[start]
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


def test_a_batch_that_was_applied_is_not_added_again(database):
    journal = new_ulid()
    insert = 'INSERT INTO "journals" ("id", "node", "offset", "opened_ms") VALUES (?, ?, 0, 0)'
    transaction(database, lambda: execute(database, insert, (journal, "web-1")))
    batch = Batch(journal, 0, 400, many(20))
    transaction(database, lambda: apply_batch(database, batch, MONDAY_MS))
    before = contents(database)
    with pytest.raises(OffsetMoved):
        transaction(database, lambda: apply_batch(database, batch, MONDAY_MS))
    assert contents(database) == before
    assert calls_of(before[2]) == 20


def test_a_batch_that_fails_leaves_no_sums(database):
    again = record()
    store(database, [again])
    before = contents(database)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        store(database, [record(model="new"), again])
    assert contents(database) == before


@pytest.mark.parametrize("table", [one._meta.table_name for one in rollups.TABLES])
def test_verify_sees_what_differs_and_a_rebuild_cures_it(database, table):
    store(database, many(40))
    right = contents(database)
    change(database, f'UPDATE "{table}" SET "calls" = "calls" + 1 WHERE "outcome" = ?', "ok")
    change(database, f'DELETE FROM "{table}" WHERE "outcome" = ?', "refused")
    extra = f'INSERT INTO "{table}" ("day", "outcome", {{}}) VALUES (20260105, ?, {{}})'
    columns = {
        "usage_by_key": ('"hour", "key_id", "user", "model"', "3, 'K', 'bob', 'm'"),
        "usage_by_channel": ('"hour", "channel", "model"', "3, 'gone', 'm'"),
        "usage_by_day": ('"channel", "model"', "'gone', 'm'"),
        "usage_by_user": ('"user", "key_id"', "'bob', 'K'"),
        "usage_by_group": ('"model"', "'m'"),
    }
    # a row of nothing is no fault in itself, but these records do not exist
    change(database, extra.format(*columns[table]), "ghost")
    faults = list(rollups.verify(database))
    assert len(faults) >= 3 and all(fault.startswith(table) for fault in faults)
    assert any("ghost" in fault for fault in faults)
    list(rollups.rebuild(database))
    assert list(rollups.verify(database)) == []
    assert contents(database) == right


def test_a_rebuild_leaves_pruned_days_alone_and_so_does_verify(database):
    store(database, many(60))
    before = contents(database)
    prune(database, 20260106)
    # what comes late for a pruned day is added to its sums
    late = record(MONDAY_MS, channel="main", model="m1", outcome="ok")
    store(database, [late])
    assert list(rollups.rebuild(database)) == [20260106]
    assert list(rollups.verify(database)) == []
    assert calls_of(contents(database)[2]) == 61
    assert contents(database)[2][-1] == before[2][-1]


def patiently(work):
    """As the writer does: SQLite gives a lock to whoever asks at the right moment, so that one of
    three may go away empty."""
    for _ in range(10):
        try:
            return work()
        except StoreUnavailable:
            pass
    return work()


def test_two_nodes_write_at_once_while_the_roll_ups_are_rebuilt(database):
    store(database, many(100, seed=9))
    url, rounds = url_of(database), 25
    done = threading.Event()

    def writer(seed):
        def work():
            db = open_database(url)
            try:
                for number in range(rounds):
                    patiently(functools.partial(store, db, many(10, seed * 1000 + number)))
            finally:
                discard(db)

        return work

    def rebuilder():
        db = open_database(url)
        try:
            while not done.is_set():
                patiently(lambda: list(rollups.rebuild(db)))
        finally:
            discard(db)

    def writers():
        try:
            in_threads(writer(1), writer(2))
        finally:
            done.set()

    in_threads(writers, rebuilder)
    assert list(rollups.verify(database)) == []
    assert calls_of(contents(database)[2]) == 100 + 2 * rounds * 10
