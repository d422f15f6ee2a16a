"""Percentiles of histograms. (Windows and rates: test_status.)"""

import itertools

import pytest

from store.channels.figures import percentile
from store.db.tables.channels import BOUNDS_MS


@pytest.mark.parametrize(
    ("buckets", "percent", "expected"),
    [
        ({}, 50, None),
        ({0: 1}, 50, 25),
        ({0: 1, 1: 1}, 50, 50),
        ({0: 50, 3: 50}, 95, 380),
        ({19: 7}, 50, BOUNDS_MS[-1]),
        ({0: 99, 19: 1}, 95, 48),
    ],
)
def test_percentiles(buckets, percent, expected):
    counts = [buckets.get(place, 0) for place in range(len(BOUNDS_MS) + 1)]
    assert percentile(counts, percent) == expected


def test_percentiles_are_right_within_a_bucket():
    for low_ms, high_ms in itertools.pairwise(BOUNDS_MS):
        counts = [0] * (len(BOUNDS_MS) + 1)
        counts[BOUNDS_MS.index(high_ms)] = 10
        assert low_ms < percentile(counts, 50) < high_ms <= 2 * low_ms
