"""Operations as commands and the Hub call them: with an open store, returning values."""

import asyncio
import json
from pathlib import Path

import pytest

from conf.settings import ServerSettings, UpstreamSettings
from operations import channel_test, client_settings
from operations.edits import editor
from operations.explain import explain
from store.admin.document import parse
from store.admin.objects import Sealing
from store.catalog.catalog import load_snapshot
from store.catalog.keys import find_key
from store.db.database import discard, open_database
from store.values.cipher import Cipher
from store.values.errors import NotFound, Refused
from store.values.key_secrets import digests
from tests.support.dialects import CHAT, PATHS, SECRET
from tests.support.documents import channel, document
from tests.support.stores import sqlite_store

PEPPERS = ["pepper"]
CIPHER = Cipher(["a key"])


@pytest.fixture
def db(tmp_path):
    opened = open_database(sqlite_store(tmp_path / "store.db"))
    entries = document(["model"], [channel("main", CHAT, "http://127.0.0.1:1", {"model": "up"})])
    actor = editor(opened, Sealing(CIPHER, PEPPERS), "hub:somebody")
    actor.apply(parse(json.dumps(entries), {}, Path()))
    yield opened
    discard(opened)


def test_explain(db):
    def explained(secret=SECRET, model="model"):
        key = find_key(db, digests(secret, PEPPERS))
        return explain(db, load_snapshot(db, CIPHER), key, model, PATHS[CHAT])

    allowed = explained()
    assert allowed.allowed and allowed.first == ["main"] and allowed.why is None
    [state] = allowed.channels
    assert (state.name, state.usable, state.reason) == ("main", True, None)
    refused = explained("sk-of-nobody")
    assert (refused.allowed, refused.reason, refused.status) == (False, "invalid_api_key", 401)
    assert list(refused.channels) == list(refused.first) == []
    for name, code in (("modell", "unknown"), ("up", "upstream_name")):
        not_offered = explained(model=name)
        assert (not_offered.reason, not_offered.why.code) == ("model_not_found", code)
        assert not_offered.why.nearest == ["model"]


def test_the_test_of_a_channel(db):
    target = channel_test.target_of(db, CIPHER, "main", None, stream=False)
    result = asyncio.run(channel_test.call(target, UpstreamSettings()))
    assert (result.channel, result.model, result.upstream_model) == ("main", "model", "up")
    assert result.status is None and result.error
    with pytest.raises(Refused):
        channel_test.target_of(db, CIPHER, "main", "other", stream=False)
    with pytest.raises(NotFound):
        channel_test.target_of(db, CIPHER, "mein", None, stream=False)


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
    ],
)
def test_the_base_url_of_a_host(host, base):
    assert client_settings.base_url(ServerSettings(host=host)) == base
