"""Any client with any upstream: official SDKs, a real gateway, and the strict vendor."""

import pytest

from tests.translation.cases import CASES
from tests.translation.table import CELLS, IDS, passing
from tests.translation.world import Cell

PASSING = passing()


def _marks(cell):
    if cell in PASSING:
        return ()
    return (pytest.mark.xfail(strict=True, reason="`make matrix` writes what passes now"),)


@pytest.mark.parametrize(
    ("case", "client", "upstream", "mode"),
    [
        pytest.param(*cell, id=name, marks=_marks(cell))
        for cell, name in zip(CELLS, IDS, strict=True)
    ],
)
def test_cell(matrix_world, case, client, upstream, mode):
    CASES[case](Cell(matrix_world, client, upstream, mode == "stream"))


def test_the_table_has_no_other_cells():
    assert PASSING
    assert set(CELLS) >= PASSING
