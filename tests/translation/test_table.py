"""The table of the matrix changes only by `make matrix`, and loses no cell by it."""

import pytest

from tests.translation import table


@pytest.fixture
def copy(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    path.write_text(table.PATH.read_text())
    monkeypatch.setattr(table, "PATH", path)
    return path


def cells():
    return {" ".join(cell) for cell in table.passing()}


def test_what_is_written_is_what_is_read(copy):
    before = copy.read_text()
    table.write(cells())
    assert copy.read_text() == before


def test_cells_that_pass_now_are_added(copy, capsys):
    passed = cells()
    gone = min(passed)
    table.write(passed - {gone})
    assert table.update(passed) == 0
    assert (cells(), capsys.readouterr().out) == (passed, f"+ {gone}\n")


def test_a_cell_that_does_not_pass_leaves_the_table(copy, capsys):
    before = copy.read_text()
    failed = min(cells())
    assert table.update(cells() - {failed}) == 1
    assert (copy.read_text(), capsys.readouterr().out) == (before, f"- {failed}\n")
