"""Percentiles of histograms. (Windows and rates: test_status.)"""

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
