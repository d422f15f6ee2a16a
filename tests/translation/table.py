"""The checked-in table of the cells of the matrix that pass: table.json, for tests and docs.

`{case: {client: {upstream: [modes that pass]}}}`. The tests compare with it and never write it:
`python -m tests.translation.table` runs them and adds the cells that pass now. It removes none;
remove a cell by hand.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.translation.cases import CASES, not_asked
from tests.translation.world import FAMILIES

PATH = Path(__file__).with_name("table.json")
MODES = ("plain", "stream")
# case, client, upstream, mode
CELLS = [
    (case, client, upstream, mode)
    for case in CASES
    for client in FAMILIES
    for upstream in FAMILIES
    for mode in MODES
    if not not_asked(case, client, mode == "stream")
]
IDS = [" ".join(cell) for cell in CELLS]


def passing() -> set[tuple[str, str, str, str]]:
    """Return the cells of the table."""
    return {
        (case, client, upstream, mode)
        for case, of_case in json.loads(PATH.read_text()).items()
        for client, of_client in of_case.items()
        for upstream, modes in of_client.items()
        for mode in modes
    }


def write(cells: set[str]) -> None:
    """Write the table of these cells, given by their ids."""
    table = {
        case: {
            client: {
                upstream: [mode for mode in MODES if f"{case} {client} {upstream} {mode}" in cells]
                for upstream in FAMILIES
            }
            for client in FAMILIES
        }
        for case in CASES
    }
    lines = [
        f'"{case}": {{\n '
        + ",\n ".join(f"{json.dumps(client)}: {json.dumps(row)}" for client, row in rows.items())
        + "\n}"
        for case, rows in table.items()
    ]
    PATH.write_text("{" + ",\n".join(lines) + "}\n")


class Collector:
    """A pytest plugin that records which cells pass."""

    def __init__(self) -> None:
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and "test_cell[" in report.nodeid:
            self.passed.add(report.nodeid.partition("[")[2].removesuffix("]"))


def update(passed: set[str]) -> int:
    """Add cells to the table. If one of its cells does not pass now, leave it unchanged and return
    1."""
    expected = {" ".join(cell) for cell in passing()}
    for mark, cells in (("+", passed - expected), ("-", expected - passed)):
        sys.stdout.writelines(f"{mark} {cell}\n" for cell in sorted(cells))
    if expected - passed:
        return 1
    write(passed)
    return 0


if __name__ == "__main__":
    collector = Collector()
    pytest.main(["-q", "--runxfail", str(PATH.with_name("test_matrix.py"))], [collector])
    sys.exit(update(collector.passed))
