"""Any client before any upstream: official SDKs, a real gateway, and the strict scripted vendor."""

import os

import pytest

from tests.translation.cases import CASES
from tests.translation.table import CELLS, IDS, passing
from tests.translation.world import Cell

PASSING = passing()
WRITING = os.environ.get("SLUICE_WRITE_MATRIX") == "1"


def _marks(cell):
    if WRITING or cell in PASSING:
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
    assert set(CELLS) >= PASSING
