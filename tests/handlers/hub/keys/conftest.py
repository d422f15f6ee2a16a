"""The Hub with two members and an administrator, groups and models."""

import pytest

from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import edit


@pytest.fixture
def db(db, tmp_path):
    edit(db, tmp_path)
    return db


@pytest.fixture
def carol(hub):
    return Browser(hub.port).signed_in("carol")
