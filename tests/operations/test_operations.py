"""Operations as the Hub will call them: an open store in, values out, no command line."""

import asyncio
import json
from pathlib import Path

import pytest

from conf.settings import UpstreamSettings
from operations import channel_test
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
    made = document(["model"], [channel("main", CHAT, "http://127.0.0.1:1", {"model": "up"})])
    actor = editor(opened, Sealing(CIPHER, PEPPERS), "hub:somebody")
    actor.apply(parse(json.dumps(made), {}, Path()))
    yield opened
    discard(opened)


def explained(db, secret, model="model"):
    key = find_key(db, digests(secret, PEPPERS))
    return explain(db, load_snapshot(db, CIPHER), key, model, PATHS[CHAT])


def test_explain(db):
    said = explained(db, SECRET)
    assert said.allowed and said.first == ["main"]
    assert [(one.name, one.usable, one.reason) for one in said.channels] == [("main", True, None)]
    said = explained(db, "sk-of-nobody")
    assert (said.allowed, said.reason, said.status) == (False, "invalid_api_key", 401)
    assert list(said.channels) == list(said.first) == []


def test_explain_of_a_name_that_is_not_offered(db):
    said = explained(db, SECRET, "modell")
    assert (said.reason, said.why.code, said.why.nearest) == (
        *("model_not_found", "unknown"),
        ["model"],
    )
    said = explained(db, SECRET, "up")
    assert (said.why.code, said.why.nearest) == ("upstream_name", ["model"])
    assert explained(db, SECRET).why is None


def test_the_test_of_a_channel(db):
    target = channel_test.target_of(db, CIPHER, "main", None, stream=False)
    result = asyncio.run(channel_test.call(target, UpstreamSettings()))
    assert (result.channel, result.model, result.upstream_model) == ("main", "model", "up")
    assert result.status is None and result.error
    with pytest.raises(Refused):
        channel_test.target_of(db, CIPHER, "main", "other", stream=False)
    with pytest.raises(NotFound):
        channel_test.target_of(db, CIPHER, "mein", None, stream=False)
