"""`key`: create, list, rotate, disable, revoke."""

import time

import pytest

from conf import secrets
from store.catalog.keys import find_key
from store.values.key_secrets import digests

GIVEN = "sk-brought-along-from-elsewhere"


@pytest.fixture
def entry(filled):
    """Return entry(secret), which looks the key up as the gateway does."""

    def find(secret):
        peppers = secrets.load(filled.folder / "secrets.toml").peppers
        with filled.store() as db:
            return find_key(db, digests(secret, peppers))

    return find


def make(filled, name, *more):
    options = ("--user", "alice", "--group", "default", "--name", name)
    return filled.json("key", "create", *options, *more)


def test_a_made_secret_opens_its_key(filled, entry, monkeypatch):
    made = make(filled, "desk")
    found = entry(made.pop("secret"))
    assert made == {"id": found.id}
    assert (found.user, found.name, found.group) == ("alice", "desk", "default")
    ended = filled.run("key", "create", "--user=alice", "--group=default", "--name=other")
    assert ended.code == 0 and "shown once" in ended.err
    lines = dict(line.split() for line in ended.out.splitlines())
    assert set(lines) == {"id", "secret"} and lines["secret"].startswith("sk-slc-")
    monkeypatch.setenv("BROUGHT", GIVEN)
    assert make(filled, "older", "--secret", "env:BROUGHT")["secret"] == GIVEN


def test_what_cannot_be_made_is_refused_without_the_secret(filled):
    base = ("key", "create", "--group", "default", "--user", "alice")
    make(filled, "desk", "--secret", GIVEN)
    text = filled.refused(*base, "--name", "second", "--secret", GIVEN)
    assert "in use" in text and GIVEN not in text
    assert "NOTHERE" in filled.refused(*base, "--name=k", "--secret=env:NOTHERE")
    assert "--group" in filled.misused("key", "create", "--user", "alice", "--name", "k")


def test_lists_show_a_masked_secret_and_a_status(filled):
    made = make(filled, "desk")
    filled.ok("user", "create", "bob")
    keys = {key["name"]: key for key in filled.json("key", "list", "--user", "alice")}
    assert set(keys) == {"laptop", "desk"}
    secret = made["secret"]
    assert keys["desk"]["secret"] == f"{secret[:10]}…{secret[-4:]}"
    assert (keys["desk"]["status"], keys["desk"]["spent"]) == ("active", None)
    assert filled.json("key", "list", "--user", "bob") == []
    assert 'did you mean "bob"' in filled.refused("key", "list", "--user", "bab")
    table = filled.ok("key", "list") + filled.ok("key", "show", made["id"])
    assert made["id"] in table and secret not in table
    for name in (made["id"], "alice/desk"):
        assert filled.json("key", "show", name) == keys["desk"]


def test_disable_enable_revoke(filled, entry):
    def status(key):
        return filled.json("key", "show", key)["status"]

    made = make(filled, "desk")
    assert filled.json("key", "disable", made["id"]) == {"id": made["id"], "status": "disabled"}
    assert filled.ok("key", "enable", made["id"]).endswith(": active\n")
    filled.ok("user", "disable", "alice")
    assert status(made["id"]) == "user disabled"
    filled.ok("user", "enable", "alice")
    filled.ok("key", "revoke", made["id"])
    assert entry(made["secret"]).revoked and status(made["id"]) == "revoked"
    assert "revoked" in filled.refused("key", "enable", made["id"])
    expired = {"user": "alice", "name": "old", "expires_at": "2020-01-01T00:00:00Z"}
    limits = {"limit": "5", "limit_window": "day"}
    filled.apply({"key": [expired | limits]})
    assert status("alice/old") == "expired"
    key = filled.json("key", "show", "alice/old")
    assert (key["limit"], key["spent"]) == ("5", "0")
    assert key["resets_at"].endswith("T00:00:00Z")


def test_rotation_keeps_the_old_secret_for_a_while(filled, entry):
    made = make(filled, "desk")
    rotated = filled.json("key", "rotate", made["id"])
    assert rotated["id"] == made["id"] and rotated["secret"] != made["secret"]
    day_ms = 24 * 3600 * 1000
    assert 0.99 * day_ms < entry(made["secret"]).valid_until_ms - time.time() * 1000 <= day_ms
    filled.ok("key", "rotate", "alice/desk", "--overlap", "0s")
    assert entry(rotated["secret"]).valid_until_ms <= time.time() * 1000
    assert "24h" in filled.misused("key", "rotate", made["id"], "--overlap", "long")


def test_fields_are_set_and_emptied(filled):
    made = make(filled, "phone", "limit=2.5", "limit_window=day")
    filled.ok("key", "set", "alice/phone", "limit=", "models=gpt-4.1")
    shown = filled.json("key", "show", made["id"])
    fields = [shown[name] for name in ("limit", "limit_window", "models")]
    assert fields == [None, "day", ["gpt-4.1"]]
    secret = "secret=sk-0123456789abcdef"
    assert "key rotate" in filled.refused("key", "set", "alice/laptop", secret)
