"""Probes: which channels are quiet, and that only one of many processes makes each probe."""

from store.channels import probes
from store.channels.status_sums import Probed, add_probes, add_records
from store.values.usage_record import AttemptRecord
from tests.support.stores import count
from tests.support.usage_records import NOW_MS, usage_record

PAIRS = [("main", "m1"), ("main", "m2"), ("spare", "m1")]


def quiet(db, interval_s=600, at_ms=NOW_MS):
    return probes.quiet(db, PAIRS, interval_s, at_ms)


def traffic(db, ago_s, error=None):
    fields = {"started_ms": NOW_MS - ago_s * 1000, "duration_ms": 0, "model": "m1"}
    fields |= {"outcome": "upstream_error", "error_code": error} if error else {}
    attempt = AttemptRecord("main", 200, error, 0)
    add_records(db, [usage_record(**fields, attempts=(attempt,))])


def test_what_nobody_calls_is_quiet(database):
    assert quiet(database) == PAIRS
    traffic(database, 599)
    assert quiet(database) == PAIRS[1:]
    assert quiet(database, 500) == PAIRS
    assert quiet(database, at_ms=NOW_MS + 2000) == PAIRS


def test_a_failure_is_not_quiet_and_a_clients_mistake_is(database):
    traffic(database, 10, "upstream_invalid_request")
    assert quiet(database) == PAIRS
    traffic(database, 10, "upstream_error")
    assert quiet(database) == PAIRS[1:]


def test_a_probe_breaks_the_silence_too(database):
    add_probes(database, [Probed("spare", "m1", NOW_MS - 1000, "connect")])
    assert quiet(database) == PAIRS[:2]


def test_a_claim_is_for_one_interval(database):
    assert probes.claim(database, PAIRS[0], 600, NOW_MS)
    assert not probes.claim(database, PAIRS[0], 600, NOW_MS + 599_999)
    assert quiet(database, at_ms=NOW_MS + 599_999) == PAIRS[1:]
    assert probes.claim(database, PAIRS[0], 600, NOW_MS + 600_000)
    assert not probes.claim(database, PAIRS[0], 600, NOW_MS + 600_000)
    assert probes.claim(database, PAIRS[1], 600, NOW_MS)


def test_claims_of_what_is_gone_are_forgotten(database):
    probes.claim(database, PAIRS[0], 1, NOW_MS)
    for late_ms, left in ((1000, 1), (1001, 0)):
        probes.forget_old(database, NOW_MS + late_ms + probes.KEPT_MS)
        assert count(database, "channel_probes") == left
