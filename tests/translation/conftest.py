"""One gateway and one scripted vendor for the whole matrix, and the table of its results."""

import os
from collections.abc import Iterator

import pytest

from tests.translation import table
from tests.translation.world import World

WRITE = os.environ.get("SLUICE_WRITE_MATRIX") == "1"
_passed: set[str] = set()


@pytest.fixture(scope="session")
def matrix_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("matrix"))
    try:
        yield made
    finally:
        made.close()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if WRITE and report.when == "call" and report.passed and "test_cell[" in report.nodeid:
        _passed.add(report.nodeid.partition("[")[2].removesuffix("]"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if WRITE and not hasattr(session.config, "workerinput"):
        table.write(_passed)
