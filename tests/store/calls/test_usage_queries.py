"""Reading records on both databases: filters, pages, following, recomputed costs."""

import itertools
import tracemalloc

import pytest

from store.calls import usage_queries
from store.calls.usage_queries import (
    OVERLAP_MS,
    Filters,
    export_rows,
    fault_of,
    follow,
    history,
    next_day,
    page,
    tail,
    verify,
)
from store.db.database import execute
from store.db.partitions import prune
from store.values.errors import StoreUnavailable
from store.values.ids import new_ulid, ulid
from store.values.pricing import cost_nanos
from store.values.usage_record import Charge
from tests.support.prices import rate_of
from tests.support.stores import change
from tests.support.usage_records import MONDAY_MS, store, usage_record

DAY_MS = 86_400_000
PRICES = rate_of(10**9, 2 * 10**9, 0, 0, 0, 0, 1)


def record(number, at_ms=MONDAY_MS, **fields):
    return usage_record(id=ulid(at_ms, number.to_bytes(10)), started_ms=at_ms, **fields)


def paid(number, **fields):
    money = {"prices": PRICES.text, "multiplier_ppm": 1_500_000, "usage_source": "reported"}
    made = record(number, input_tokens=number, output_tokens=3, **(money | fields))
    made.cost_nanos = cost_nanos(made.usage, PRICES, made.call.multiplier_ppm)
    made.charges = (Charge("wallet", made.cost_nanos),)
    return made


def ids(rows):
    return [row["id"] for row in rows]


@pytest.fixture
def db(database):
    return database


def exported(db, **filters):
    return ids(export_rows(db, Filters(**filters)))


def newest(db, limit, before=None, **filters):
    return ids(history(db, Filters(**filters), limit, before))


def last(db, limit, **filters):
    return ids(tail(db, Filters(**filters), limit))


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(usage_queries, "PAGE_ROWS", 7)


def test_export_is_complete_and_in_order_of_id(db, small_pages):
    records = [record(number, MONDAY_MS + number * DAY_MS // 10) for number in range(50)]
    store(db, records[25:], MONDAY_MS)
    store(db, records[:25], MONDAY_MS + 1)
    assert exported(db) == [made.id for made in records]
    assert len({row["day"] for row in export_rows(db, Filters())}) == 5


def test_an_empty_table_has_nothing(db):
    assert list(export_rows(db, Filters())) == []
    assert tail(db, Filters(), 10) == []
    assert list(verify(db)) == []
    assert next_day(db, 0) is None


def test_since_and_until_are_of_the_start_and_half_open(db, small_pages):
    records = [record(number, MONDAY_MS + number * DAY_MS // 4) for number in range(20)]
    store(db, records)
    since, until = records[5].call.started_ms, records[15].call.started_ms
    times = {"since_ms": since, "until_ms": until}
    expected = [made.id for made in records]
    assert exported(db, **times) == last(db, 100, **times) == expected[5:15]
    assert exported(db, since_ms=since + 1) == expected[6:]
    assert exported(db, until_ms=MONDAY_MS) == []


@pytest.mark.parametrize(
    "fields",
    [
        *({"user": "alice"}, {"key_id": "K1"}, {"model": "m1"}, {"endpoint": "/v1/messages"}),
        *({"channel": "main"}, {"outcome": "refused"}, {"status": 429}),
        *({"client_request_id": "c-1"}, {"user": "alice", "status": 429}),
    ],
    ids=str,
)
def test_each_filter_is_exact(db, fields):
    def other(suffix, number):
        return {n: v + suffix if isinstance(v, str) else v + number for n, v in fields.items()}

    upper = {n: v.upper() if isinstance(v, str) else v for n, v in other("x", 2).items()}
    expected = record(1, **fields)
    store(db, [record(0), expected, record(2, **other(" ", 1)), record(3, **upper)])
    assert exported(db, **fields) == last(db, 10, **fields) == [expected.id]


def test_request_id_finds_one_record_and_nonsense_none(db):
    records = [record(number) for number in range(5)]
    store(db, records)
    assert last(db, 10, request_id=records[3].id) == [records[3].id]
    assert exported(db, request_id=records[3].id) == [records[3].id]
    for nonsense in ("", "x", "' OR 1=1 --", new_ulid()):
        assert list(export_rows(db, Filters(request_id=nonsense))) == []


def test_tail_is_the_newest_written_oldest_first(db):
    early, late, newer = record(5), record(1), record(3)
    for later_ms, made in enumerate((early, late, newer), 1):
        store(db, [made], MONDAY_MS + later_ms)
    assert last(db, 2) == [late.id, newer.id]
    assert last(db, 9) == [early.id, late.id, newer.id]


FAVOURITES = [
    *({}, {"user": "alice"}, {"user": "alice", "model": "m1", "outcome": "ok"}),
    *({"key_id": "K1", "outcome": "refused"}, {"model": "m2"}, {"user": "nobody"}),
    *({"channel": "main", "outcome": "refused"}, {"endpoint": "/b"}),
    {"user": "bob", "endpoint": "/b", "since_ms": MONDAY_MS + DAY_MS // 2},
    {"outcome": "ok", "until_ms": MONDAY_MS + DAY_MS + 5},
]


@pytest.mark.parametrize("filters", FAVOURITES, ids=str)
def test_history_goes_back_page_by_page(db, filters):
    made = [
        record(
            *(number, MONDAY_MS + number * DAY_MS // 30),
            **{"user": "alice" if number % 2 else "bob", "key_id": f"K{number % 3}"},
            **{"model": f"m{number % 4}" if number % 4 else None},
            **{"channel": "main" if number % 5 else None},
            **{"outcome": "ok" if number % 3 else "refused"},
            **{"endpoint": "/b" if number % 7 else "/a"},
        )
        for number in range(90)
    ]
    store(db, made)
    everything = exported(db, **filters)[::-1]
    assert newest(db, 1000, **filters) == everything
    pages, before = [], None
    while part := newest(db, 4, before, **filters):
        assert len(part) <= 4
        pages += part
        before = part[-1]
    assert pages == everything
    # within the hour of a call
    if everything:
        assert newest(db, 3, everything[0], **filters) == everything[1:4]


@pytest.mark.parametrize("outcome", ["ok", "refused"])
def test_history_of_an_hour_with_many_or_few_calls(db, small_pages, outcome):
    made = [
        record(n, MONDAY_MS + n, user="alice", outcome="ok" if n % 10 else "refused")
        for n in range(60)
    ]
    store(db, made)
    expected = [one.id for one in made if one.outcome == outcome][::-1]
    filters = {"user": "alice", "outcome": outcome}
    assert newest(db, 4, **filters) == expected[:4]
    assert newest(db, 4, expected[1], **filters) == expected[2:6]
    assert newest(db, 50, **filters) == expected[:50]
    # a filter that the roll-ups do not cover still applies
    assert newest(db, 4, **filters, status=500) == []


def test_history_of_a_key_whose_user_was_renamed(db):
    made = [
        record(n, MONDAY_MS + n * DAY_MS // 4, key_id="K1", user="old" if n < 5 else "new")
        for n in range(8)
    ]
    twice = [record(20 + n, made[5].call.started_ms + 1, key_id="K1", user="old") for n in range(2)]
    store(db, [*made, *twice, record(40, MONDAY_MS + DAY_MS, key_id="K2", user="new")])
    expected = sorted((one.id for one in [*made, *twice]), reverse=True)
    assert newest(db, 50, key_id="K1") == expected
    new = [one.id for one in made[5:]][::-1]
    assert newest(db, 50, key_id="K1", user="new") == new


def test_export_of_a_key_is_complete_whoever_its_user_was(db, small_pages):
    def made(numbers, key_id, user):
        return [record(n, MONDAY_MS + n, key_id=key_id, user=user) for n in numbers]

    one = made(range(20), "K1", "alice")
    two = [*made(range(30, 40), "K2", "old"), *made(range(50, 60), "K2", "new")]
    store(db, [*one, *two, *made(range(70, 80), "K3", "alice")])
    assert usage_queries.with_user(db, Filters(key_id="K1")) == Filters(key_id="K1", user="alice")
    for unknown in (Filters(key_id="K2"), Filters(key_id="K9"), Filters(user="alice"), Filters()):
        assert usage_queries.with_user(db, unknown) == unknown
    assert exported(db, key_id="K1") == [row.id for row in one]
    assert exported(db, key_id="K2") == [row.id for row in two]
    # empty roll-ups do not hide a record
    execute(db, 'DELETE FROM "usage_by_key"')
    assert exported(db, key_id="K1") == [row.id for row in one]


def test_history_goes_back_over_days_without_calls(db):
    days = [0, 1, 2, 40, 41, 170, 700]
    made = [record(n, MONDAY_MS + day * DAY_MS, user="alice") for n, day in enumerate(days)]
    store(db, [*made, record(99, MONDAY_MS + 900 * DAY_MS, user="bob")])
    assert newest(db, 50, user="alice") == [one.id for one in made][::-1]
    before = newest(db, 3, user="alice")[-1]
    assert newest(db, 2, before, user="alice") == [made[3].id, made[2].id]


def test_history_finds_nothing_of_pruned_days_without_reading_them(db):
    store(db, [record(1, user="alice"), record(2, MONDAY_MS + DAY_MS, user="alice")])
    prune(db, 20260106)
    assert newest(db, 5, user="alice") == [record(2, MONDAY_MS + DAY_MS).id]
    prune(db, 20260107)
    assert history(db, Filters(user="alice"), 5) == []
    assert history(db, Filters(), 5) == []


class Feed:
    """A script of `follow`: it stores something at each pause, and ends when there is nothing
    left."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, seconds):
        if not self.steps:
            raise StopFollowing
        self.steps.pop(0)()


class StopFollowing(Exception):
    pass


def followed(db, filters, start_ms, feed):
    found = []
    with pytest.raises(StopFollowing):
        for row in follow(db, filters, start_ms, pause=feed):
            found.append(row["id"])
    return found


def test_follow_shows_each_record_once_in_the_order_of_writing(db, small_pages):
    old, shown, later, late_commit, newer = (record(number) for number in (9, 8, 2, 1, 3))
    batch = [record(number) for number in range(20, 50)]
    store(db, [old], MONDAY_MS)
    store(db, [shown], MONDAY_MS + 10_000)
    feed = Feed(
        lambda: store(db, [later], MONDAY_MS + 12_000),
        # Recorded before `later`, but visible only now: its transaction took longer.
        lambda: store(db, [late_commit], MONDAY_MS + 12_000 - OVERLAP_MS + 500),
        lambda: None,
        lambda: store(db, batch, MONDAY_MS + 13_000),
        lambda: store(db, [newer], MONDAY_MS + 100_000),
        lambda: None,
    )
    found = followed(db, Filters(), MONDAY_MS + 1_000, feed)
    assert found == [made.id for made in (shown, later, late_commit, *batch, newer)]


def test_follow_filters(db):
    feed = Feed(
        lambda: store(db, [record(1, user="alice"), record(2, user="bob")], MONDAY_MS),
        lambda: store(db, [record(3, user="alice")], MONDAY_MS + 1),
    )
    found = followed(db, Filters(user="alice"), MONDAY_MS, feed)
    assert found == [record(1).id, record(3).id]


def test_follow_waits_while_the_store_is_away(db, monkeypatch):
    real = usage_queries.raw_rows
    away = itertools.chain([False, True, True], itertools.repeat(False))

    def read(database, query):
        if next(away):
            raise StoreUnavailable("away")
        return real(database, query)

    monkeypatch.setattr(usage_queries, "raw_rows", read)
    made = record(1)
    feed = Feed(lambda: store(db, [made]), lambda: None, lambda: None, lambda: None)
    assert followed(db, Filters(), MONDAY_MS, feed) == [made.id]


def test_memory_of_an_export_is_flat(db, monkeypatch):
    monkeypatch.setattr(usage_queries, "PAGE_ROWS", 100)
    for part in range(6):
        store(db, (record(part * 500 + number) for number in range(500)))

    def peak(limit):
        tracemalloc.start()
        count = sum(1 for _ in itertools.islice(export_rows(db, Filters()), limit))
        _, high = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == limit
        return high

    peak(100)
    assert peak(3_000) < 2 * peak(300)


def test_every_cost_can_be_recomputed(db, small_pages):
    free = record(100, prices=PRICES.text, multiplier_ppm=10**6, usage_source="none")
    unknown = record(101)
    store(db, [*(paid(number) for number in range(30)), free, unknown])
    assert list(verify(db)) == []


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("cost_nanos", 1, "recomputed"),
        ("output_tokens", 4, "recomputed"),
        ("multiplier_ppm", 1_600_000, "recomputed"),
        ("prices", "{}", "cannot be recomputed"),
        ("prices", None, "recomputed 0"),
        ("charges", "[]", "sum up to 0"),
        ("charges", "broken", "cannot be recomputed"),
        ("usage_source", "none", "recomputed 0"),
    ],
)
def test_a_wrong_cost_is_found(db, column, value, says):
    records = [paid(number) for number in range(1, 10)]
    store(db, records)
    wrong = records[4].id
    change(db, f'UPDATE "usage_records" SET "{column}" = ? WHERE "id" = ?', value, wrong)
    ((found, fault),) = verify(db)
    assert found == wrong and says in fault


def test_a_cost_beyond_all_bounds_is_a_fault(db):
    store(db, [paid(1)])
    (row,) = tail(db, Filters(), 1)
    assert fault_of(row) is None
    assert "cannot be recomputed" in fault_of(row | {"output_tokens": 10**30})


def test_what_no_roll_up_tells_is_looked_for_too(database):
    made = [
        record(1, MONDAY_MS, stream=True, duration_ms=10, outcome="timeout", error_code="x",
               error_message="100 % Sure_it failed"),
        record(2, MONDAY_MS + 1, stream=False, duration_ms=2_000, upstream_request_id="req_2"),
        record(3, MONDAY_MS + 2, stream=None, duration_ms=None, outcome="refused", error_code="y",
               error_message="100 times surely"),
    ]  # fmt: skip
    store(database, made)
    for choice, *expected in (
        *(({"stream": True}, 1), ({"stream": False}, 2)),
        *(({"min_duration_ms": 10}, 2, 1), ({"min_duration_ms": 11}, 2)),
        *(({"text": "SURE"}, 3, 1), ({"text": "sure_IT"}, 1), ({"text": "0 %"}, 1)),
        *(({"text": "sure", "user": "x"}, 3, 1), ({"upstream_request_id": "req_2"}, 2)),
        ({"outcome": ("timeout", "ok")}, 2, 1),
        ({"user": ("x", "bob"), "error_code": ("x", "y")}, 3, 1),
    ):
        found = [made[number - 1].id for number in expected]
        assert newest(database, 10, **choice) == found, choice
        assert exported(database, **choice) == sorted(found), choice


@pytest.mark.parametrize("choice", [{}, {"user": "x"}, {"status": 200}, {"channel": "c"}])
def test_a_search_that_takes_long_goes_on_with_the_next_page(database, choice):
    made = [record(n, MONDAY_MS + n * 5 * 3_600_000, channel="c", status=200) for n in range(9)]
    store(database, made)
    found, before, pages = [], None, 0
    while pages == 0 or before is not None:
        one = page(database, Filters(**choice), 4, before, budget_s=-1)
        found += [row["id"] for row in one.rows]
        before, pages = one.next, pages + 1
    assert found == [one.id for one in reversed(made)]
    assert pages > 2
    assert page(database, Filters(**choice), 100).next is None
