"""`key`: made, listed, rotated, disabled, revoked."""

import time

import pytest

from conf import secrets
from store.catalog.keys import find_key
from store.db.database import transaction
from store.db.tables.money import Quota
from store.values.key_secrets import digests

GIVEN = "sk-brought-along-from-elsewhere"


@pytest.fixture
def entry(filled):
    """What the gateway finds for a secret."""

    def find(secret):
        peppers = secrets.load(filled.folder / "secrets.toml").peppers
        with filled.store() as db:
            return find_key(db, digests(secret, peppers))

    return find


def make(filled, name, *more):
    options = ("--user", "alice", "--group", "default", "--name", name)
    return filled.json("key", "create", *options, *more)


def test_a_made_secret_opens_its_key(filled, entry):
    made = make(filled, "desk")
    assert set(made) == {"id", "secret"}
    found = entry(made["secret"])
    assert (found.id, found.user, found.name) == (made["id"], "alice", "desk")
    assert found.group == "default"


def test_the_text_form_prints_id_and_secret(filled):
    ended = filled.run("key", "create", "--user=alice", "--group=default", "--name=desk")
    assert ended.code == 0 and "shown once" in ended.err
    lines = dict(line.split() for line in ended.out.splitlines())
    assert set(lines) == {"id", "secret"} and lines["secret"].startswith("sk-slc-")


def test_a_given_secret_is_taken(filled, entry, monkeypatch):
    made = make(filled, "old", "--secret", GIVEN)
    assert made["secret"] == GIVEN and entry(GIVEN).id == made["id"]
    monkeypatch.setenv("BROUGHT", GIVEN + "-2")
    assert make(filled, "older", "--secret", "env:BROUGHT")["secret"] == GIVEN + "-2"


def test_what_cannot_be_made_is_refused_without_the_secret(filled):
    base = ("key", "create", "--group", "default")
    make(filled, "desk", "--secret", GIVEN)
    assert "exists" in filled.refused(*base, "--user", "alice", "--name", "desk")
    text = filled.refused(*base, "--user", "alice", "--name", "second", "--secret", GIVEN)
    assert "in use" in text and GIVEN not in text
    text = filled.refused(*base, "--user", "alice", "--name", "third", "--secret", "short")
    assert "16 to 200" in text
    text = filled.refused(*base, "--user", "alyce", "--name", "k")
    assert 'did you mean "alice"' in text
    assert "NOTHERE" in filled.refused(*base, "--user=alice", "--name=k", "--secret=env:NOTHERE")
    assert "--group" in filled.misused("key", "create", "--user", "alice", "--name", "k")


def test_lists_show_a_masked_secret_and_a_status(filled):
    made = make(filled, "desk")
    filled.ok("user", "create", "bob")
    keys = {key["name"]: key for key in filled.json("key", "list")}
    assert set(keys) == {"laptop", "desk"}
    secret = made["secret"]
    assert keys["desk"]["secret"] == f"{secret[:10]}…{secret[-4:]}"
    assert keys["desk"]["status"] == "active" and keys["desk"]["expires_at"] is None
    assert filled.json("key", "list", "--user", "bob") == []
    assert len(filled.json("key", "list", "--user", "alice")) == 2
    assert 'did you mean "bob"' in filled.refused("key", "list", "--user", "bab")
    table = filled.ok("key", "list")
    assert made["id"] in table and secret not in table
    assert filled.json("key", "show", made["id"]) == keys["desk"]
    assert filled.json("key", "show", "alice/desk") == keys["desk"]
    assert secret not in filled.ok("key", "show", made["id"])


def status(filled, key):
    return filled.json("key", "show", key)["status"]


def test_disable_enable_revoke(filled, entry):
    made = make(filled, "desk")
    assert filled.json("key", "disable", made["id"]) == {"id": made["id"], "status": "disabled"}
    assert entry(made["secret"]).disabled
    assert filled.ok("key", "enable", made["id"]).endswith(": active\n")
    filled.ok("user", "disable", "alice")
    assert status(filled, made["id"]) == "user disabled"
    filled.ok("user", "enable", "alice")
    filled.ok("key", "revoke", made["id"])
    filled.ok("key", "revoke", made["id"])  # done already
    assert entry(made["secret"]).revoked and status(filled, made["id"]) == "revoked"
    assert "revoked" in filled.refused("key", "enable", made["id"])
    assert "there is no key" in filled.refused("key", "revoke", "01JUNK")
    expired = {"user": "alice", "name": "old", "expires_at": "2020-01-01T00:00:00Z"}
    filled.apply({"key": [expired]})
    assert status(filled, "alice/old") == "expired"


def test_a_limit_is_shown_with_what_was_spent(filled):
    free = filled.json("key", "show", "alice/laptop")
    assert (free["limit"], free["spent"], free["resets_at"]) == (None, None, None)
    filled.apply({"key": [{"user": "alice", "name": "laptop", "limit": "5"}]})
    with filled.store() as db:
        row = {"account": f"{free['id']}:never:0", "spent": 25 * 10**8}
        transaction(db, lambda: Quota.insert(row).execute(db))
    key = filled.json("key", "show", "alice/laptop")
    assert (key["limit"], key["spent"], key["resets_at"]) == ("5", "2.5", None)
    assert filled.json("key", "list") == [key]
    filled.apply({"key": [{"user": "alice", "name": "laptop", "limit_window": "day"}]})
    key = filled.json("key", "show", "alice/laptop")
    assert key["spent"] == "0" and key["resets_at"].endswith("T00:00:00Z")


def test_rotation_keeps_the_old_secret_for_a_while(filled, entry):
    made = make(filled, "desk")
    rotated = filled.json("key", "rotate", made["id"])
    assert rotated["id"] == made["id"] and rotated["secret"] != made["secret"]
    day_ms = 24 * 3600 * 1000
    left_ms = entry(made["secret"]).valid_until_ms - time.time() * 1000
    assert 0.99 * day_ms < left_ms <= day_ms
    assert entry(rotated["secret"]).valid_until_ms is None
    again = filled.json("key", "rotate", "alice/desk", "--overlap", "0s")
    assert entry(rotated["secret"]).valid_until_ms <= time.time() * 1000
    assert entry(again["secret"]).id == made["id"]
    assert "24h" in filled.misused("key", "rotate", made["id"], "--overlap", "long")


def test_fields_are_set_and_emptied(filled):
    made = filled.json(
        *("key", "create", "--user", "alice", "--group", "default", "--name", "phone"),
        *("limit=2.5", "limit_window=day"),
    )
    shown = filled.json("key", "show", made["id"])
    assert (shown["limit"], shown["limit_window"]) == ("2.5", "day")
    fields = "limit=", "models=gpt-4.1", "expires_at=2030-01-01T00:00:00Z"
    filled.ok("key", "set", "alice/phone", *fields)
    shown = filled.json("key", "show", made["id"])
    assert (shown["limit"], shown["models"]) == (None, ["gpt-4.1"])
    assert shown["expires_at"] == "2030-01-01T00:00:00Z"
    secret = "secret=sk-0123456789abcdef"
    assert "key rotate" in filled.refused("key", "set", "alice/laptop", secret)
    assert "identity" in filled.refused("key", "set", "alice/laptop", "name=other")
