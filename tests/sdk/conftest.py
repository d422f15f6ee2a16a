"""One gateway and one scripted vendor for all tests with official SDKs."""

from collections.abc import Iterator

import pytest

from tests.sdk.world import World
from tests.sdk.world import world as make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from make_world(tmp_path_factory.mktemp("gateway"))


@pytest.fixture(scope="session")
def hasty(world: World) -> Iterator[World]:
    with world.hasty() as made:
        yield made
