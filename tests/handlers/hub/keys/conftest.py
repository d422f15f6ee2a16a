"""The Hub with two members and an administrator, groups and models."""

import json

import pytest

from store.hub import tokens
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import edit


class Asker(Browser):
    """A browser that also asks the JSON API."""

    def api(self, method, path, body=None, *, xsrf=True):
        headers = {"Content-Type": "application/json"}
        if xsrf and not self.token:
            headers["X-XSRFToken"] = self.xsrf
        return self.ask(method, path, None if body is None else json.dumps(body), **headers)

    def make(self, name, **fields):
        """The id of a new key."""
        answer = self.api("POST", "/api/keys", {"name": name, **fields})
        assert answer.status == 201, answer.text
        return answer.json["id"]


@pytest.fixture
def db(db, tmp_path):
    edit(db, tmp_path)
    return db


@pytest.fixture
def alice(hub):
    return Asker(hub.port).signed_in("alice")


@pytest.fixture
def carol(hub):
    return Asker(hub.port).signed_in("carol")


@pytest.fixture
def boss(hub):
    return Asker(hub.port).signed_in("boss")


@pytest.fixture
def script(hub, db):
    """script(scope): alice's script with a token of this scope."""

    def make(scope):
        return Asker(hub.port, tokens.create(db, "alice", [scope], actor="tester")[1])

    return make
