"""The Hub with an administrator, as a browser and as a script."""

import pytest

from store.hub import tokens
from tests.handlers.hub.admin.script import Script
from tests.handlers.hub.browser import Browser


@pytest.fixture
def boss(hub):
    """The browser of an administrator who has signed in."""
    return Browser(hub.port).signed_in("boss")


@pytest.fixture
def api(hub, db):
    """A script of the administrator boss."""
    _, token = tokens.create(db, "boss", ["admin"], actor="tester")
    return Script(hub.port, token)
