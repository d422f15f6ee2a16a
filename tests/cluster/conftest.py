"""Fixtures of the tests on three database nodes: `make test-cluster`, not part of `make test`.

Every test in this folder is marked `cluster`. `galera` is the one cluster of the session
(tests/support/galera.py: kill, freeze, thaw, stop, start, bootstrap, restore); after each test all
its nodes run again. `cluster_store` is the URL of a fresh database with the schema on it.
"""

from pathlib import Path

import pytest

from store.db.database import discard, open_database
from store.db.migrate import up
from tests.support.galera import Galera


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def galera_session():
    cluster = Galera()
    yield cluster
    cluster.close()


@pytest.fixture
def galera(galera_session):
    """Yield the cluster, with all nodes running at the start of the test."""
    galera_session.restore()
    yield galera_session
    galera_session.restore()


@pytest.fixture
def cluster_store(galera):
    """Return the URL of a fresh database with the schema, on all nodes."""
    url = galera.url()
    db = open_database(galera.url_of(url.rpartition("/")[2], galera.nodes[:1]))
    up(db)
    discard(db)
    return url
