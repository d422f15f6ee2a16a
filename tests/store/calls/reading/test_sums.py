"""Sums of calls: shares, tokens, percentiles if there are enough streams."""

import pytest

from store.calls.reading.sums import MIN_STREAMS, CallSums, ranked_sums
from store.calls.usage_queries import Filters
from store.db.tables.channels import FIRST_BYTE
from tests.support.usage_records import DAY_MS, MONDAY_MS, record_at, store

ROW = {
    **{"calls": 10, "ok": 6, "refused": 1, "client_gone": 2, "failed": 1, "cost": "0.5"},
    **{"input_tokens": 1, "cache_write_tokens": 2, "cache_write_1h_tokens": 4},
    **{"cache_read_tokens": 8, "output_tokens": 16, "reasoning_tokens": 32},
}


def test_rows_are_added_up():
    sums = CallSums()
    sums.add(ROW)
    sums.add(ROW)
    assert (sums.calls, sums.counted, sums.share) == (20, 16, 12 / 16)
    assert (sums.input, sums.cached, sums.output, sums.tokens) == (14, 16, 96, 126)
    assert (sums.cost_nanos, sums.cost) == (10**9, "1")


def test_what_is_left_of_all_is_the_whole_without_its_parts():
    whole, part = CallSums(), CallSums()
    whole.add(ROW)
    part.add({**ROW, "calls": 4, "ok": 4, "refused": 0, "client_gone": 0, "failed": 0})
    whole.plus(part, -1)
    assert (whole.calls, whole.ok, whole.failed, whole.tokens, whole.cost_nanos) == (6, 2, 1, 0, 0)


def test_no_call_has_no_share():
    assert CallSums().share is None


def test_a_percentile_is_of_enough_streams():
    few = [MIN_STREAMS - 1, *[0] * (len(FIRST_BYTE) - 1)]
    sums = CallSums()
    sums.add({**ROW, "first_bytes": few})
    assert (sums.streams, sums.first_byte(50)) == (MIN_STREAMS - 1, None)
    sums.add({**ROW, "first_bytes": [1, *few[1:]]})
    assert sums.first_byte(50)


def test_the_margin_is_of_the_charges_whose_cost_is_known():
    sums = CallSums()
    assert (sums.margin, sums.known_share) == (None, None)
    sums.add({**ROW, "upstream_cost": "0.3", "cost_known": "0.4"})
    sums.add(ROW)
    assert (sums.margin_nanos, sums.margin, sums.known_share) == (10**8, 0.25, 0.4)


@pytest.mark.parametrize("by", ["model", "user", "key_id", "channel", "group"])
def test_the_dearest_groups_and_the_remaining_ones_together(database, by):
    costs = {"a": 5, "b": 70, "c": 3, "d": 20}
    fields = {"model": "m", "user": "u", "key_id": "k", "channel": "c", "group": "g"}
    made = [
        record_at(
            MONDAY_MS + day * DAY_MS, upstream_nanos=1, **{**fields, by: name, "cost_nanos": cost}
        )
        for name, cost in costs.items()
        for day in (0, 1)
    ]
    store(database, made)
    ranked = ranked_sums(database, by, Filters(), 2)
    assert [(row.name, row.cost_nanos) for row in ranked.rows] == [("b", 140), ("d", 40)]
    remaining = ranked.remaining
    assert (remaining.name, remaining.calls, remaining.cost_nanos) == (None, 4, 16)
    assert (remaining.upstream_nanos, ranked.groups) == (4, 4)
