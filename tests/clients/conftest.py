"""One gateway with a scripted vendor, and a folder of files for each session of a client."""

import pytest

from tests.clients.session import Workshop
from tests.clients.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    with World(tmp_path_factory.mktemp("gateway")) as made:
        yield made


@pytest.fixture
def workshop(tmp_path):
    return Workshop(tmp_path)
