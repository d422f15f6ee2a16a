"""Health: what suspends a channel and for how long, and how it recovers. Only simulated time."""

import random

import pytest

from adapters.faults import Condition, Fault
from handlers.relay.routing import breaker
from handlers.relay.routing.health import PROBE_S, Health
from handlers.relay.routing.suspended_keys import KeyRefusal, KeyReport
from store.catalog.catalog import Snapshot
from store.catalog.suspended_keys import SuspendedKey
from tests.handlers.relay.routing.channels import MODEL, channel

ONE = channel("one")


@pytest.fixture
def health():
    return Health(random.Random(7).random)


def fault(condition=Condition.UPSTREAM_FAILED, wait=None):
    return Fault(condition, retry_after_s=wait)


def fail(health, at, one=ONE, key=0, error=None, times=1, **more):
    for _ in range(times):
        attempt = health.begin(one, MODEL, key, at)
        if attempt is not None:
            health.failed(attempt, at, error or fault(), **more)


def succeed(health, at, one=ONE, key=0):
    attempt = health.begin(one, MODEL, key, at)
    if attempt is not None:
        health.succeeded(attempt, at)
    return attempt


def why(health, at, one=ONE, model=MODEL, key=0):
    return health.fault_of(one, model, key, at)[0]


def wait(health, at, one=ONE, key=0):
    return health.fault_of(one, MODEL, key, at)[1]


def opened(health, at=0.0, one=ONE, **more):
    fail(health, at, one, times=breaker.CONSECUTIVE_FAULTS, **more)
    assert why(health, at, one) == breaker.FAILING
    return at + wait(health, at, one)


def test_row_faults_in_a_row_open_for_one_model_and_fewer_do_not(health):
    for number in range(10):
        at = number * 100.0
        fail(health, at, times=breaker.CONSECUTIVE_FAULTS - 1)
        assert why(health, at) == ""
        for _ in range(8):
            succeed(health, at)
    opened(health, 1000.0)
    assert why(health, 1000.0, model="other") == ""


def test_many_calls_are_judged_by_the_share_that_failed(health):
    for number in range(breaker.MIN_WINDOW_CALLS):
        assert why(health, 1.0) == "", f"opened after {number}"
        (succeed if number % 2 else fail)(health, 1.0)
    fail(health, 1.0)
    assert why(health, 1.0) == breaker.FAILING


def begin(health, at, count=1):
    """Start calls that health knows to be in flight."""
    made = [health.begin(ONE, MODEL, 0, at) for _ in range(count)]
    running = [*health._running(), *made]
    health._running = lambda: [
        one for one in running if one.succeeded_at_s is None and not one.failed
    ]
    return made


@pytest.mark.parametrize("seed", range(20))
def test_calls_are_counted_by_their_beginning_not_by_what_ends_first(health, seed):
    """Forty calls at once, one in five fails, and failures end first."""
    chance, now = random.Random(seed), 0.0
    for _ in range(8):
        calls = begin(health, now, 40)
        bad = [one for one in calls if chance.random() < 0.2]
        for one in bad:
            health.failed(one, now + 0.01, fault())
            assert why(health, now + 0.01) == ""
        for one in calls:
            if one not in bad:
                health.succeeded(one, now + 1.0)
        now += 1.0


def play(health, events):
    """Play events a second apart and return the channel's reason: F a fault, R a released call, C
    the client's fault, - nothing; a( call a starts, a~ its answer starts, a. it ended well, a! it
    fails."""
    running = {}
    health._running = lambda: [
        one for one in running.values() if one.succeeded_at_s is None and not one.failed
    ]
    for at, event in enumerate(events.split()):
        name, kind = event[:-1], event[-1]
        if kind == "F":
            fail(health, at)
        elif kind == "C":
            fail(health, at, error=fault(Condition.UPSTREAM_REFUSED))
        elif kind == "R":
            health.release(health.begin(ONE, MODEL, 0, at))
        elif kind == "(":
            running[name] = health.begin(ONE, MODEL, 0, at)
        elif kind == "~":
            health.started(running[name], at, 0.2)
        elif kind == ".":
            health.succeeded(running[name], at)
        elif kind == "!":
            health.failed(running[name], at, fault())
    return why(health, at)


@pytest.mark.parametrize(("events", "reason"), [
    # one that started earlier and is in flight may still succeed, and shows the channel was well
    # until then
    ("a( F F F F F F F F F", ""),
    ("a( F F F F F F F F F a. F F F F", ""),
    ("a( F F F F F F F F F a. F F F F F", breaker.FAILING),
    # or it fails too; one that started later hides nothing
    ("a( F F F F - - - - -", ""),
    ("a( F F F F - - - - - a!", breaker.TIMING_OUT),
    ("F F F F a( b( a!", breaker.FAILING),
    # results that say nothing about the channel are not counted
    ("F R C R C R C F F F", ""),
    ("F R C R C R C F F F F", breaker.FAILING),
    # streams that start well and break off count as consecutive faults
    ("a( a~ a! a( a~ a! a( a~ a! a( a~ a!", ""),
    ("a( a~ a! a( a~ a! a( a~ a! a( a~ a! a( a~ a!", breaker.FAILING),
])  # fmt: skip
def test_faults_in_a_row_are_of_calls_in_the_order_of_their_beginning(health, events, reason):
    assert breaker.CONSECUTIVE_FAULTS == 5 and play(health, events) == reason


def test_an_outage_under_many_calls_is_seen_after_a_row_of_many(health):
    for number in range(500):
        (succeed if number % 10 else fail)(health, 1.0)
    for number in range(breaker.MAX_CONSECUTIVE_FAULTS):
        assert why(health, 2.0) == "", f"opened after {number}"
        fail(health, 2.0)
    assert why(health, 2.0) == breaker.FAILING


def test_faults_of_long_ago_do_not_count_for_the_rate(health):
    for number in range(200):
        (fail if number % 2 else succeed)(health, number * 61.0)
    assert why(health, 200 * 61.0) == ""


@pytest.mark.parametrize(("condition", "times"), [
    (Condition.UPSTREAM_FAILED, 1),
    (Condition.UPSTREAM_RATE_LIMITED, 1),
    (Condition.UPSTREAM_REFUSED, 100),
    (Condition.CONTEXT_LENGTH, 100),
    (Condition.CONTENT_POLICY, 100),
    (Condition.ID_NOT_FOUND, 100),
])  # fmt: skip
def test_one_odd_fault_puts_nothing_aside_and_what_the_client_caused_never_counts(
    health, condition, times
):
    fail(health, 0.0, error=fault(condition), times=times)
    assert why(health, 0.0) == "" and bool(health.breakers) is (times == 1)


def test_cool_downs_double_to_a_limit_and_are_shortened_by_chance(health):
    at, last = 0.0, 0.0
    for number in range(8):
        end = opened(health, at) if number == 0 else at + wait(health, at)
        longest = min(breaker.COOLDOWN_S * 2**number, breaker.COOLDOWN_MAX_S)
        assert longest * (1 - breaker.JITTER) <= end - at <= longest
        assert end - at != last
        at, last = end, end - at
        fail(health, at)  # the probe fails


def test_cool_downs_begin_anew_after_a_good_time(health):
    end = opened(health)
    fail(health, end)
    end += wait(health, end)
    succeed(health, end)
    later = end + breaker.FORGET_S + 1
    assert opened(health, later) - later <= breaker.COOLDOWN_S


def test_exactly_one_probe(health):
    end = opened(health)
    assert health.begin(ONE, MODEL, 0, end - 0.01) is None
    probe = health.begin(ONE, MODEL, 0, end)
    assert probe is not None
    assert why(health, end) == breaker.PROBED
    assert all(health.begin(ONE, MODEL, 0, end + n) is None for n in range(int(PROBE_S)))
    health.succeeded(probe, end + PROBE_S)
    assert why(health, end + PROBE_S) == ""


def test_a_probe_that_hangs_leaves_its_place_to_another(health):
    end = opened(health)
    hanging = health.begin(ONE, MODEL, 0, end)
    assert health.begin(ONE, MODEL, 0, end + PROBE_S - 1) is None
    probe = health.begin(ONE, MODEL, 0, end + PROBE_S)
    assert probe is not None and why(health, end + PROBE_S) == breaker.PROBED
    health.failed(hanging, end + PROBE_S + 1, fault())  # no longer counts
    assert why(health, end + PROBE_S + 1) == breaker.PROBED
    assert health.begin(ONE, MODEL, 0, end + PROBE_S + 1) is None
    health.succeeded(probe, end + PROBE_S + 2)
    assert why(health, end + PROBE_S + 2) == ""


def test_a_plain_answer_is_late_by_what_plain_answers_usually_take(health):
    for at in range(3):
        health.succeeded(health.begin(ONE, MODEL, 0, at, breaker.PLAIN), at + 3.0)
        health.started(health.begin(ONE, MODEL, 0, at), at + 0.2, 0.2)
        # Of another kind, so not compared.
        health.succeeded(health.begin(ONE, MODEL, 0, at, ""), at + 0.01)
    late = [
        health.begin(ONE, MODEL, 0, 10.0, breaker.PLAIN) for _ in range(breaker.CONSECUTIVE_FAULTS)
    ]
    uncompared = [health.begin(ONE, MODEL, 0, 10.0, "") for _ in range(breaker.CONSECUTIVE_FAULTS)]
    for attempt in late + uncompared:
        health.late(attempt, 10.0 + 4 * 3.0)
    assert why(health, 22.0) == ""
    for attempt in uncompared:
        health.late(attempt, 99.0)
    assert why(health, 23.0) == ""
    for attempt in late:
        health.late(attempt, 10.0 + 4 * 3.0 + 0.1)
    assert why(health, 23.0) == breaker.SLOW


def test_streams_that_were_well_once_do_not_hide_that_new_calls_fail(health):
    fail(health, 0.0)
    running = [health.begin(ONE, MODEL, 0, 1.0) for _ in range(20)]
    for one in running:
        health.started(one, 2.0, 1.0)
    for at, one in enumerate(running[: breaker.CONSECUTIVE_FAULTS - 1], 10):
        fail(health, at)
        health.succeeded(one, at)  # started long ago
    assert why(health, 20.0) == ""
    fail(health, 20.0)
    assert why(health, 20.0) == breaker.FAILING


def test_a_probe_without_a_verdict_leaves_its_place_to_the_next(health):
    end = opened(health)
    probe = health.begin(ONE, MODEL, 0, end)
    health.failed(probe, end, fault(Condition.UPSTREAM_REFUSED))  # the client's own mistake
    probe = health.begin(ONE, MODEL, 0, end)
    health.release(probe)  # the client disconnected
    health.release(probe)
    assert succeed(health, end) is not None
    assert why(health, end) == ""


def test_a_probe_that_streams_closes_at_its_first_bytes_and_may_still_fail(health):
    end = opened(health)
    probe = health.begin(ONE, MODEL, 0, end)
    health.started(probe, end + 1, 1.0)
    assert why(health, end + 1) == ""
    health.failed(probe, end + 9, fault())
    assert why(health, end + 9) == breaker.FAILING


def test_calls_of_an_earlier_state_say_nothing(health):
    old = [health.begin(ONE, MODEL, 0, 0.0) for _ in range(50)]
    end = opened(health)
    before = wait(health, 0.0)
    for attempt in old[:20]:
        health.failed(attempt, 1.0, fault())
    health.succeeded(old[20], 1.0)
    assert wait(health, 0.0) == before
    succeed(health, end)
    for attempt in old[21:]:
        health.failed(attempt, end, fault())
    assert why(health, end) == ""


def test_retry_after_is_obeyed_at_once_and_bounded_and_a_later_one_prolongs_it(health):
    fail(health, 0.0, error=fault(Condition.UPSTREAM_RATE_LIMITED, 20))
    assert (why(health, 19.9), why(health, 20.0)) == (breaker.RATE_LIMITED, "")
    succeed(health, 20.0)
    running = health.begin(ONE, MODEL, 0, 20.5)
    fail(health, 21.0, error=fault(Condition.UPSTREAM_OVERLOADED, 9999))
    assert (why(health, 80.9), why(health, 81.0)) == (breaker.RETRY_AFTER, "")
    health.failed(running, 55.0, fault(Condition.UPSTREAM_RATE_LIMITED, 30))
    assert wait(health, 55.0) == 30.0


OWN = KeyRefusal("", "key", "upstream status 401")


def refuse(health, at, one=ONE, key=0):
    refused = fault(Condition.CHANNEL_MISCONFIGURED)
    fail(health, at, one, key, error=refused, refusal=OWN)


@pytest.fixture
def told(health):
    news = []
    health.keys.on_report = news.append
    return news


def test_a_refused_key_is_put_aside_at_once_for_all_models(health, told):
    two = channel("two", keys=("sk-first-secret", "sk-second-secret"))
    refuse(health, 0.0, two)
    assert wait(health, 0.0, two) >= breaker.KEY_COOLDOWN_S * (1 - breaker.JITTER)
    assert why(health, 0.0, two, "other") == breaker.KEY_SUSPENDED
    assert why(health, 0.0, two, key=1) == ""
    refuse(health, 1.0, two)
    [news] = told
    assert (news.channel, news.key, news.times) == (two, 0, 1)
    assert (news.wait_s, news.reason) == (wait(health, 0.0, two), "upstream status 401")
    assert why(health, 0.0, channel("two", keys=("new",))) == ""  # a replaced key has no faults


def test_only_the_probe_of_a_key_brings_it_back_and_is_told(health, told):
    running = health.begin(ONE, MODEL, 0, 0.0)
    refuse(health, 1.0)
    health.succeeded(running, 2.0)  # it was admitted before
    assert why(health, 2.0) == breaker.KEY_SUSPENDED and len(told) == 1
    again = 1.0 + wait(health, 1.0)
    refuse(health, again)
    assert (told[1].times, len(told)) == (2, 2)
    assert told[1].wait_s >= 2 * breaker.KEY_COOLDOWN_S * (1 - breaker.JITTER)
    succeed(health, again + told[1].wait_s)
    assert (told[2].key, told[2].wait_s, len(told)) == (0, None, 3)


def stored(*rows, channels=(ONE,)):
    """Return a snapshot with these (channel, fingerprint, until_ms, times)."""
    aside = [SuspendedKey(c.id, f, 0, until_ms, times, "") for c, f, until_ms, times in rows]
    return Snapshot(1, {}, {}, channels, suspended_keys={row.name: row for row in aside})


TWO = channel("two", keys=("x", "y"), fingerprints=("fx", "fy"))
NOW_MS = 1_800_000_000_000


def test_what_other_workers_have_put_aside_is_aside_here(health, told):
    row = (TWO, "fy", NOW_MS + 60_000, 2)
    health.keys.take(stored(row, channels=(ONE, TWO)), 100.0, NOW_MS)
    assert health.fault_of(TWO, MODEL, 1, 100.0)[:2] == (breaker.KEY_SUSPENDED, 60.0)
    assert why(health, 100.0, TWO, key=0) == why(health, 100.0) == "" and told == []
    refuse(health, 160.0, TWO, key=1)  # the probe: doubling continues from the others' count
    assert (
        told[0].times == 3
        and told[0].wait_s >= breaker.KEY_COOLDOWN_MAX_S * (1 - breaker.JITTER) / 2
    )
    health.keys.take(stored(channels=(ONE, TWO)), 170.0, NOW_MS)
    assert why(health, 170.0, TWO, key=1) == ""


def test_an_old_row_lets_a_probe_through_and_no_more(health, told):
    bare = channel("bare", keys=())  # without keys, the channel is suspended as one key
    rows = (TWO, "fx", NOW_MS - 5, 1), (bare, "", NOW_MS + 9_000, 1)
    health.keys.take(stored(*rows, channels=(TWO, bare)), 0.0, NOW_MS)
    assert why(health, 0.0, bare) == breaker.KEY_SUSPENDED
    attempt = health.begin(TWO, MODEL, 0, 0.0)
    assert health.begin(TWO, MODEL, 0, 0.0) is None
    health.succeeded(attempt, 1.0)
    assert told == [KeyReport(TWO, 0)]


def test_what_is_not_in_the_store_yet_stays_aside(health):
    """A snapshot may be older than what this worker has seen since."""
    refuse(health, 0.0)
    for snapshot in (stored(), stored((TWO, "fx", NOW_MS + 5, 1), channels=(ONE, TWO))):
        health.keys.take(snapshot, 1.0, NOW_MS)
        assert why(health, 1.0) == breaker.KEY_SUSPENDED


@pytest.mark.parametrize("back_ms", [0, 3_600_000, 10**12])
def test_no_clock_keeps_a_key_aside_for_ever(health, back_ms):
    """The wall clock is set back, and snapshots come repeatedly."""
    snapshot = stored((TWO, "fx", NOW_MS + 600_000, 1), channels=(TWO,))
    for at in range(0, 3_600, 60):
        again = stored((TWO, "fx", NOW_MS + 600_000, 1), channels=(TWO,))
        health.keys.take(snapshot if at % 120 else again, float(at), NOW_MS - back_ms)
    assert wait(health, 0.0, TWO) == min(600.0 + back_ms / 1000, breaker.KEY_COOLDOWN_MAX_S)
    assert health.begin(TWO, MODEL, 0, breaker.KEY_COOLDOWN_MAX_S) is not None


def test_a_channel_that_leads_elsewhere_has_nothing_against_it_but_its_keys(health):
    other = channel("other")
    opened(health)
    opened(health, one=other)
    refuse(health, 0.0, TWO)
    for one in (ONE, TWO):
        health.forget(one)
    assert (why(health, 0.0), why(health, 0.0, TWO)) == ("", breaker.KEY_SUSPENDED)
    assert why(health, 0.0, other) == breaker.FAILING


def test_one_in_flight_with_another_key_hides_nothing(health):
    other = health.begin(TWO, MODEL, 1, 0.0)
    health._running = lambda: [other]
    opened(health, 1.0, TWO)


def test_a_host_that_is_not_reached_counts_for_all_keys(health):
    opened(health, one=TWO, error=fault(Condition.UPSTREAM_UNREACHABLE))
    assert [why(health, 0.0, TWO, key=key) for key in (0, 1)] == [breaker.FAILING, breaker.FAILING]


# ---- slowness ------------------------------------------------------------------------------------


def start(health, at, seconds):
    attempt = health.begin(ONE, MODEL, 0, at)
    if attempt is not None:
        health.started(attempt, at + seconds, seconds)
        health.succeeded(attempt, at + seconds)
    return attempt


def test_a_channel_that_becomes_slow_is_asked_last_and_comes_back(health):
    for number in range(20):
        start(health, number, 0.2)
    for number in range(breaker.CONSECUTIVE_FAULTS):
        assert why(health, 30.0) == ""
        start(health, 20.0 + number, 10.0)
    assert why(health, 34.0) == breaker.SLOW
    end = 34.0 + wait(health, 34.0)
    start(health, end, 10.0)
    assert why(health, end + 10.0) == breaker.SLOW
    end += 10 + wait(health, end + 10.0)
    start(health, end, 0.2)
    assert why(health, end + 1) == ""


def test_a_model_that_always_thinks_is_not_slow(health):
    at = 0.0
    for _ in range(40):
        start(health, at, 12.0)
        at += 70.0
    assert why(health, at) == ""
    for _ in range(100):
        start(health, at, 14.0)
        at += 14.0
        assert why(health, at) == ""


def test_lateness_counts_before_the_answer_comes_and_once(health):
    for _ in range(100):  # without measurements nothing is slow
        health.late(health.begin(ONE, MODEL, 0, 0.0), 1000.0)
    assert not health.breakers
    start(health, 0.0, 0.2)
    attempts = [health.begin(ONE, MODEL, 0, 0.0) for _ in range(breaker.CONSECUTIVE_FAULTS - 1)]
    for second in range(1, 9):
        for attempt in attempts:
            health.late(attempt, float(second))
    assert why(health, 9.0) == ""
    last = health.begin(ONE, MODEL, 0, 3.0)
    health.late(last, 8.5)
    assert why(health, 9.0) == breaker.SLOW
    for attempt in attempts:
        health.started(attempt, 10.0, 10.0)
        health.succeeded(attempt, 10.0)
    assert why(health, 9.0) == breaker.SLOW


# ---- bounds --------------------------------------------------------------------------------------


def test_breakers_are_forgotten_when_all_is_well_again(health):
    end = opened(health)
    succeed(health, end)
    for number in range(breaker.MIN_WINDOW_CALLS + 1):
        succeed(health, end + breaker.FORGET_S + number)
    assert not health.breakers


def test_what_is_usual_is_bounded(health, monkeypatch):
    monkeypatch.setattr("handlers.relay.routing.health.MAX_USUAL", 50)
    for number in range(500):
        attempt = health.begin(channel(str(number)), MODEL, 0, 0.0)
        health.started(attempt, 0.1, 0.1)
    assert len(health._start_times._usual_s) <= 50


def test_breakers_are_bounded(health, monkeypatch):
    monkeypatch.setattr(breaker, "MAX_BREAKERS", 50)
    for number in range(500):
        times = breaker.CONSECUTIVE_FAULTS if number % 2 else 1
        fail(health, float(number), channel(str(number)), times=times)
    assert len(health.breakers) <= 50
