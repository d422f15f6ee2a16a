"""One gateway and one vendor for the whole matrix."""

from collections.abc import Iterator

import pytest

from tests.translation.world import World


@pytest.fixture(scope="session")
def matrix_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("matrix"))
    try:
        yield made
    finally:
        made.close()
