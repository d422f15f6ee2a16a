"""Export: a document without secrets that changes nothing where it was made."""

import json
import tomllib

import pytest

from store.admin.apply import Editor
from store.admin.export import export, list_objects, show, to_toml
from store.catalog import keys
from store.db.database import discard, open_database
from store.values.errors import NotFound
from tests.support.stores import sqlite_store

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture
def second(tmp_path, sealing, editor):
    db = open_database(sqlite_store(tmp_path / "second.db"))
    yield Editor(db, sealing, editor._upstreams, "tester"), db
    discard(db)


def test_it_changes_nothing_and_makes_the_same_elsewhere(editor, read, applied, database, second):
    editor.set_enabled("user", "bob", False)
    editor.change("key", "alice/laptop", {"expires_at": "2030-01-01T00:00:00Z", "limit": "5"})
    document = export(database)
    text = to_toml(document)
    assert tomllib.loads(text) == document
    for written in (text, json.dumps(document)):
        assert editor.apply(read(written), prune=True).changes == []
        for word in ("sk-", "argon2", "***", "password", "secret", "balance", "keys ="):
            assert word not in written, word
    other, other_db = second
    assert len(other.apply(read(text)).keys) == 2
    assert export(other_db) == document


def test_strange_names_survive(editor, read, database):
    name = 'Zoë "the\\boss" 日本'
    editor.apply(read(json.dumps({"user": [{"name": name}]})))
    text = to_toml(export(database))
    assert tomllib.loads(text)["user"][0]["name"] == name
    assert to_toml({"x": [{"a": "\x7f", "b": {}, "c": [True, 1]}]}) == (
        '[[x]]\na = "\\u007F"\nb = {}\nc = [true, 1]\n'
    )


def test_revoked_keys_are_left_out(applied, database):
    keys.revoke(database, show(database, "key", "bob/desk")["id"], "tester")
    assert [key["name"] for key in export(database)["key"]] == ["laptop"]


def test_an_empty_store(database):
    assert export(database) == {}
    assert to_toml({}) == ""


def test_lists_have_id_and_all_fields_in_order_of_name(applied, database):
    channels = list_objects(database, "channel")
    assert [channel["name"] for channel in channels] == ["anthropic-main", "openai-main"]
    assert channels[1]["keys"] == ["***", "***"] and len(channels[1]["id"]) == 26
    user = show(database, "user", "alice")
    assert user == {
        **{"id": user["id"], "name": "alice", "role": "member", "password": "***"},
        **{"groups": ["default"], "order": "plan_first", "enabled": True},
        **{"limit": None, "limit_window": "never", "mail": None},
        **dict.fromkeys(("rpm", "tpm", "concurrency"), 0),
    }
    assert show(database, "user", "bob")["password"] is None
    key = list_objects(database, "key")[1]
    assert key["prefix"].startswith("sk-slc-") and "secret" not in key
    assert key["created_at"].endswith("Z") and key["revoked_at"] is None
    assert show(database, "key", key["id"]) == show(database, "key", "bob/desk") == key
    with pytest.raises(NotFound):
        show(database, "model", "gpt")
