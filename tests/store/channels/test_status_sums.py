"""Sums of the channel status: what counts, exactly once, and how they are folded over time."""

import random
import re
from pathlib import Path

import pytest

import store.channels.status_sums as sums
from adapters.faults import CODES, Condition, Fault
from store.calls.booking import OffsetMoved
from store.values.usage_record import AttemptRecord
from tests.support import usage_records
from tests.support.stores import at_once, select
from tests.support.usage_records import BookedJournal, record_at

NOW_S = 1_767_571_200  # 2026-01-05T00:00:00Z
NOW_MS = NOW_S * 1000
ONE_GOOD = (AttemptRecord("main", 200, None, 900),)


def record(at_s=NOW_S, attempts=ONE_GOOD, **fields):
    """Return the record of a call that ends `duration_ms` after `at_s`."""
    facts = {"group": "default", "model": "m1", "channel": "main", "output_tokens": 30}
    facts |= {"duration_ms": 900, "ttft_ms": 150, "stream": True, "attempts": tuple(attempts)}
    return record_at(at_s * 1000, **(facts | fields))


def store(db, *records):
    usage_records.store(db, records, NOW_MS)


def rows(db, **where):
    """Return the rows, only those that match `where`, as dictionaries without their empty sums."""
    names = sums.KEY + sums.COLUMNS
    columns = ", ".join(f'"{name}"' for name in names)
    lines = select(db, f'SELECT {columns} FROM "channel_sums" ORDER BY 1, 2, 3, 4, 5')
    found = [dict(zip(names, line, strict=True)) for line in lines]
    chosen = [row for row in found if where.items() <= row.items()]
    return [{name: value for name, value in row.items() if value not in (0, "")} for row in chosen]


def counts(db, **where):
    return {
        (row["scope"], row["name"], row["model"]): (row.get("ok", 0), row.get("failed", 0))
        for row in rows(db, **where)
    }


def test_a_call_counts_for_its_channel_and_its_group(database):
    store(database, record())
    store(database, record(NOW_S + 1, group="other"))
    channel, first, second = rows(database)
    assert first == {
        **{"span": "minute", "at_s": NOW_S, "scope": "group", "name": "default", "model": "m1"},
        **{"ok": 1, "output_tokens": 30, "generation_ms": 750, "last_ok_ms": NOW_MS + 900},
        **{"first_byte_le_200": 1, "total_le_1200": 1},
    }
    assert second == first | {"name": "other", "last_ok_ms": NOW_MS + 1900}
    assert channel == {
        **{"span": "minute", "at_s": NOW_S, "scope": "channel", "name": "main", "model": "m1"},
        **{"ok": 2, "output_tokens": 60, "generation_ms": 1500, "last_ok_ms": NOW_MS + 1900},
        **{"first_byte_le_200": 2, "total_le_1200": 2},
    }


def test_the_minute_is_that_of_the_end(database):
    store(database, record(NOW_S + 30, duration_ms=45_000), record(NOW_S + 59, duration_ms=999))
    minutes = [(row["at_s"], row["ok"]) for row in rows(database, scope="group")]
    assert minutes == [(NOW_S, 1), (NOW_S + 60, 1)]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("duration_ms", "bucket"),
    [(0, "le_50"), (50, "le_50"), (51, "le_100"), (409_600, "le_409600"), (409_601, "more")],
)
def test_times_fall_into_buckets(database, duration_ms, bucket):
    store(database, record(duration_ms=duration_ms, ttft_ms=None))
    [row] = rows(database, scope="group")
    assert row[f"total_{bucket}"] == 1
    assert sum(value for name, value in row.items() if name.startswith("total_")) == 1
    assert not [name for name in row if name.startswith("first_byte")]


def test_only_streams_tell_a_first_byte_and_only_output_has_a_pace(database):
    store(database, record(stream=False), record(output_tokens=0))
    [row] = rows(database, scope="channel")
    assert row["ok"] == 2 and row["total_le_1200"] == 1
    assert not {"first_byte_le_200", "output_tokens", "generation_ms"} & row.keys()


def test_an_attempt_that_another_channel_made_good(database):
    tries = (
        AttemptRecord("broken", 500, "upstream_error", 400),
        AttemptRecord("main", 200, None, 500),
    )
    store(database, record(attempts=tries, duration_ms=902, ttft_ms=602))
    assert counts(database) == {
        ("channel", "broken", "m1"): (0, 1),
        ("channel", "main", "m1"): (1, 0),
        ("group", "default", "m1"): (1, 0),
    }
    [broken] = rows(database, name="broken")
    assert (broken["last_error"], broken["last_failed_ms"]) == ("upstream_error", NOW_MS + 400)
    [main], [group] = rows(database, name="main"), rows(database, scope="group")
    assert main["first_byte_le_200"] == main["total_le_600"] == 1
    assert group["first_byte_le_800"] == group["total_le_1200"] == 1
    assert main["generation_ms"] == group["generation_ms"] == 300


FAILED = (0, 1)
BLAMELESS = ("upstream_invalid_request", "context_length_exceeded", "content_policy_violation")
BLAMELESS += ("not_found",)
BLAMED = ("upstream_error", "upstream_rate_limited", "channel_misconfigured")


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("outcome", "code", "attempt_error", "channel", "group"),
    [
        ("client_gone", "client_gone", None, None, None),
        *(("upstream_error", code, code, None, None) for code in BLAMELESS),
        *(("upstream_error", code, code, FAILED, FAILED) for code in BLAMED),
        ("upstream_error", "upstream_unreachable", "connect", FAILED, FAILED),
        ("upstream_error", "upstream_invalid_response", "too_large", None, FAILED),
        ("timeout", "upstream_timeout", "timeout_first_byte", FAILED, FAILED),
        # After the answer was accepted.
        ("upstream_error", "upstream_overloaded", None, FAILED, FAILED),
        ("upstream_truncated", "upstream_truncated", None, FAILED, FAILED),
        ("timeout", "upstream_timeout", None, FAILED, FAILED),
        *((code, code, None, None, FAILED) for code in ("drained", "gateway_lost")),
        ("internal_error", "internal_error", None, None, FAILED),
    ],
)
def test_what_counts_as_a_failure(database, outcome, code, attempt_error, channel, group):
    tries = (AttemptRecord("main", None, attempt_error, 5),)
    store(database, record(attempts=tries, outcome=outcome, error_code=code))
    expected = {("channel", "main", "m1"): channel, ("group", "default", "m1"): group}
    assert counts(database) == {key: value for key, value in expected.items() if value}
    for row in rows(database):
        error = code if row["scope"] == "group" else attempt_error or code
        assert row["last_error"] == error
        assert not [name for name in row if name.startswith(("total", "first", "gener"))]


OWN = ("no_channel_available", "upstream_rate_limited", "unavailable")
OTHERS = ("rate_limit_exceeded", "insufficient_quota", "model_not_found", "invalid_json")


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("code", OWN + OTHERS)
def test_a_refusal_fails_when_the_gateway_could_not_serve(database, code):
    store(database, record(attempts=(), channel=None, outcome="refused", error_code=code))
    assert counts(database) == ({("group", "default", "m1"): FAILED} if code in OWN else {})


def test_the_words_are_those_of_the_relay():
    """Every code of a fault that is not the client's is counted, and every kind of transport
    error."""
    blamed = {CODES[one] for one in Condition if Fault(one).blame != "client"}
    assert blamed == sums.OUTAGES - sums.FAILURES | {
        code for code in sums.FAILURES if code in CODES.values()
    }
    text = (Path(sums.__file__).parents[2] / "handlers/relay/upstream/errors.py").read_text()
    kinds = set(re.findall(r'^    "([a-z_]+)": \(Condition', text, re.MULTILINE))
    assert kinds - {"too_large"} == sums.FAILURES - set(CODES.values())


def test_calls_without_a_model_are_left_out(database):
    store(database, record(model=None), record(model=None, outcome="drained"))
    assert rows(database) == []


def test_the_latest_error_stays_in_whatever_order_it_comes(database):
    def failed(at_s, code):
        tries = (AttemptRecord("main", 500, code, 1),)
        return record(at_s, tries, outcome="upstream_error", error_code=code, duration_ms=1)

    for at_s, code in (
        (20, "upstream_error"),
        (10, "upstream_overloaded"),
        (30, "upstream_timeout"),
    ):
        store(database, failed(NOW_S + at_s, code))
        [row] = rows(database, scope="channel")
        latest = "upstream_timeout" if at_s == 30 else "upstream_error"
        assert row["last_error"] == latest
    assert row["last_failed_ms"] == NOW_MS + 30_001 and row["failed"] == 3


def test_a_batch_that_was_applied_is_not_added_again(database):
    book, records = BookedJournal(database).book, [record() for _ in range(20)]
    book(records, 0, 400)
    with pytest.raises(OffsetMoved):
        book(records, 0, 400)
    assert counts(database)["channel", "main", "m1"] == (20, 0)


def test_long_names_fit(database):
    store(database, record(model="é" * 300, group="g" * 128))
    assert {row["model"] for row in rows(database)} == {"é" * 256}


def test_probes_are_apart_from_traffic(database):
    good = sums.Probed("main", "m1", NOW_MS, None, 70, 500)
    sums.add_probes(database, [good, sums.Probed("main", "m1", NOW_MS + 1, "upstream_error")])
    [row] = rows(database)
    assert row == {
        **{"span": "minute", "at_s": NOW_S, "scope": "probe", "name": "main", "model": "m1"},
        **{"ok": 1, "failed": 1, "first_byte_le_100": 1, "total_le_600": 1},
        **{"last_error": "upstream_error", "last_ok_ms": NOW_MS, "last_failed_ms": NOW_MS + 1},
    }


# ---- folding over time ---------------------------------------------------------------------------


def fold_all(db, now_s):
    while sums.fold(db, now_s):
        pass


def test_a_call_goes_through_all_spans_and_away(database):
    store(database, record())
    steps = [
        (NOW_S + 360, {"minute": NOW_S}),
        (NOW_S + 361, {"hour": NOW_S, "last_24h": 0}),
        (NOW_S + 90_000, {"hour": NOW_S, "last_24h": 0}),
        (NOW_S + 90_001, {"day": NOW_S, "last_24h": None, "last_30d": 0}),
        (NOW_S + 31 * 86_400 + 1, {"last_24h": None, "last_30d": None}),
    ]
    whole = rows(database, scope="group")[0]
    for now_s, expected in steps:
        fold_all(database, now_s)
        found = {row["span"]: row for row in rows(database, scope="group")}
        assert found.keys() == expected.keys()
        for span, at_s in expected.items():
            if at_s is None:  # only the time of the last success is left
                assert set(found[span]) == {"span", "scope", "name", "model", "last_ok_ms"}
            else:
                assert found[span] == {**whole, "span": span, "at_s": at_s} or not at_s
                assert found[span]["total_le_1200"] == found[span]["ok"] == 1
    sums.forget_empty(database)
    assert rows(database) == []


def test_windows_are_the_sums_of_what_lies_in_them(database, monkeypatch):
    """Whether records come early or late, and however far each fold gets."""
    monkeypatch.setattr(sums, "FOLD_ROWS", 7)
    chance = random.Random(3)
    ended = []
    now_s = NOW_S
    for _ in range(20):
        now_s += chance.choice([30, 600, 20_000, 200_000])
        batch = []
        for _ in range(chance.randrange(1, 6)):
            late_s = chance.choice([0, 0, 0, 400, 100_000])
            batch.append(record(now_s - late_s, model=chance.choice(["m1", "m2"]), duration_ms=0))
            ended.append((now_s - late_s, batch[-1].call.model))
        store(database, *batch)
        fold_all(database, now_s)
        for span, finest_s, age_s in (
            ("last_24h", sums.HOUR_S, sums.DAY_S + sums.HOUR_S),
            ("last_30d", sums.DAY_S, sums.MONTH_S + sums.DAY_S),
        ):
            for model in ("m1", "m2"):
                spans = ("minute", "last_24h", *({"last_30d"} & {span}))
                own = rows(database, scope="group", model=model)
                found = sum(row.get("ok", 0) for row in own if row["span"] in spans)
                ends = [at_s - at_s % finest_s for at_s, called in ended if called == model]
                inside = [at_s for at_s in ends if at_s >= now_s - age_s]
                assert found == len(inside), (span, model)


def test_processes_fold_at_once_without_losing_a_call(database, monkeypatch):
    store(database, *[record(model=f"m{n}") for n in range(40)])
    monkeypatch.setattr(sums, "FOLD_ROWS", 5)
    assert at_once(database, *[lambda: fold_all(database, NOW_S + 4000)] * 3) == [None] * 3
    assert {row["span"] for row in rows(database)} == {"hour", "last_24h"}
    for span in ("hour", "last_24h"):
        assert sum(row["ok"] for row in rows(database, span=span, scope="channel")) == 40
