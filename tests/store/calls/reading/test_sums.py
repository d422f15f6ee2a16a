"""Calls summed up: shares, tokens, percentiles of enough streams."""

from store.calls.reading.sums import MIN_STREAMS, CallSums
from store.db.tables.channels import FIRST_BYTE

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
    whole.remove(part)
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
