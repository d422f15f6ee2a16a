"""`secrets` without a running gateway: which secrets are added, used, still needed, removed."""

import stat

import pytest

from conf import secrets
from store.catalog.catalog import load_snapshot
from store.catalog.keys import find_key
from store.db import nodes
from store.values.cipher import Cipher
from store.values.key_secrets import digests
from tests.commands.conftest import UPSTREAM_KEY, document

SECRET = "sk-of-alice-0123456789"


def lists(installation):
    return secrets.read(installation.folder / "secrets.toml")


def status(installation):
    return {row["kind"]: row for row in installation.json("secrets", "status")}


def upstream_key(installation):
    known = secrets.load(installation.folder / "secrets.toml")
    with installation.store() as db:
        return load_snapshot(db, Cipher(known.cipher_keys)).channels[0].keys[0]


def filled_with(installation):
    made = document()
    made["key"][0]["secret"] = SECRET
    installation.apply(made)


def test_the_cipher_key_is_replaced(installation):
    filled_with(installation)
    old = lists(installation).cipher_keys
    done = installation.json("secrets", "rotate", "cipher")
    assert (done["resealed"], done["by_newest"], done["by_older"]) == (1, 1, 0)
    assert lists(installation).cipher_keys[1:] == old
    assert installation.json("secrets", "remove-old", "cipher") == {"removed": {"cipher": 1}}
    (newest,) = lists(installation).cipher_keys
    assert newest not in old and upstream_key(installation) == UPSTREAM_KEY
    assert installation.json("secrets", "remove-old") == {"removed": {}}


def test_an_old_pepper_stays_while_a_key_needs_it(installation):
    filled_with(installation)
    done = installation.json("secrets", "rotate", "pepper")
    assert (done["older_keys"], done["keys"]) == (1, ["alice/laptop"])
    text = installation.refused("secrets", "remove-old")
    assert "alice/laptop" in text and "moves when it is used" in text
    with installation.store() as db:
        known = secrets.load(installation.folder / "secrets.toml")
        assert find_key(db, digests(SECRET, known.peppers)).user == "alice"
    shown = installation.run("secrets", "status")
    assert "alice/laptop" in shown.err and "pepper" in shown.out
    key_id = installation.json("key", "list")[0]["id"]
    installation.ok("key", "revoke", key_id)
    assert installation.json("secrets", "remove-old", "pepper") == {"removed": {"pepper": 1}}


@pytest.mark.parametrize("kind", ["cookie", "translation"])
def test_other_kinds_keep_the_old_one_until_it_is_removed(installation, kind):
    path, before = installation.folder / "secrets.toml", lists(installation)
    old = getattr(before, secrets.KINDS[kind])
    installation.ok("secrets", "rotate", kind)
    after = lists(installation)
    assert getattr(after, secrets.KINDS[kind])[1:] == old
    # the file stays private, and its other contents stay
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (after.peppers, after.cipher_keys) == (before.peppers, before.cipher_keys)
    assert list(installation.folder.glob(".secrets*")) == []
    installation.ok("secrets", "remove-old", kind)
    assert getattr(lists(installation), secrets.KINDS[kind]) != old
    assert "'pepper', 'cipher', 'cookie'" in installation.misused("secrets", "rotate", "salt")


def test_other_nodes_have_to_know_the_new_one_first(installation):
    filled_with(installation)
    with installation.store() as db:
        nodes.note_seen(db, "far-away")
    old = lists(installation)
    text = installation.refused("secrets", "rotate", "cipher")
    assert "far-away" in text and "--nodes-reloaded" in text
    # accepted everywhere, used nowhere
    assert lists(installation).cipher_keys == old.cipher_keys
    assert status(installation)["cipher"]["upcoming"]
    assert upstream_key(installation) == UPSTREAM_KEY
    assert "not finished" in installation.refused("secrets", "remove-old", "--nodes-reloaded")
    done = installation.json("secrets", "rotate", "cipher", "--nodes-reloaded")
    assert (done["upcoming"], done["by_older"]) == (False, 0)
    assert "far-away" in installation.refused("secrets", "remove-old")
    installation.ok("secrets", "remove-old", "--nodes-reloaded")
    assert len(lists(installation).cipher_keys) == 1


def test_a_node_whose_process_is_not_seen_from_here_is_another_one(installation):
    """As from another container, which sees a node's journal folder and no process."""
    with installation.store() as db:
        nodes.note_seen(db, "web-1")
    folder = installation.folder / "journal"
    folder.mkdir()
    (folder / "node").write_text("web-1\n")
    (folder / "serve.lock").write_text("1")
    assert "web-1" in installation.refused("secrets", "rotate", "cipher")
    assert status(installation)["cipher"]["upcoming"]


def test_no_secret_is_shown(installation):
    filled_with(installation)
    verbs = (["rotate", "cipher"], ["rotate", "pepper"], ["status"], ["status", "--json"])
    shown = str([installation.run("secrets", *args) for args in verbs])
    values = [
        value for name in secrets.KINDS.values() for value in getattr(lists(installation), name)
    ]
    assert values and not any(value in shown for value in values)
