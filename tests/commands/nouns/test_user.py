"""`user password` and `user set NAME totp=off`: access for a user who is locked out."""

import pyotp
import pytest

from store.db.audit import entries
from store.db.database import discard, open_database
from store.hub import one_time, openid_links, people, sessions, tokens
from store.values.cipher import Cipher
from tests.commands.conftest import Installation

OLD, NEW = "the old password", "the new password"
CIPHER = Cipher(["cipher key of the tests"])


@pytest.fixture
def db(installation: Installation):
    installation.ok("user", "create", "alice", f"password={OLD}")
    db = open_database(installation.store_url)
    yield db
    discard(db)


def test_a_password_ends_sessions_and_is_audited(installation, db):
    def begin():
        return sessions.begin(db, people.check(db, "alice", OLD).id, "192.0.2.7", "Browser/1")

    cookie, (_, token) = begin(), tokens.create(db, "alice", ["read"], actor="tester")
    text = installation.ok("user", "password", "alice", "--stdin", stdin=f"{NEW}\nmore\n")
    assert "password set" in text and NEW not in text
    assert people.check(db, "alice", NEW) and people.check(db, "alice", OLD) is None
    assert sessions.find(db, cookie) is None and tokens.find(db, token) is None
    acts = {row["action"]: row["after"] for row in entries(db, 9) if row["name"] == "alice"}
    assert acts["set"] == {"password": "***"}
    assert acts["end_session"] == {"sessions": 1, "tokens": 1}
    installation.ok("user", "set", "alice", f"password={OLD}")
    cookie = begin()
    installation.ok("user", "set", "alice", "rpm=10")
    assert sessions.find(db, cookie)
    installation.ok("user", "set", "alice", f"password={NEW}")
    assert sessions.find(db, cookie) is None


def test_a_password_that_cannot_be_one_changes_nothing(installation, db):
    text = installation.refused("user", "password", "alice", "--stdin", stdin="\n")
    assert "12" in text
    for way in (("create", "dora"), ("set", "alice")):
        assert "guessed" in installation.refused("user", *way, "password=qwerty123456")
    assert people.check(db, "alice", OLD)
    installation.refused("user", "password", "nobody", "--stdin", stdin=f"{NEW}\n")


def test_a_spend_limit_is_shown_with_its_use(installation, db):
    installation.ok("user", "set", "alice", "limit=2.50", "limit_window=month")
    user = installation.json("user", "show", "alice")
    assert [user[name] for name in ("limit", "limit_window", "spent")] == ["2.5", "month", "0"]
    assert user["resets_at"].endswith("-01T00:00:00Z")


def test_one_time_codes_are_switched_off(installation, db):
    user_id = people.check(db, "alice", OLD).id
    one_time.begin(db, CIPHER, user_id, pyotp.random_base32())
    one_time.confirm(db, user_id, "alice", 7)
    assert one_time.is_on(db, user_id)
    assert "one-time codes off" in installation.ok("user", "set", "alice", "totp=off")
    assert not one_time.is_on(db, user_id)
    [row] = entries(db, 1)
    assert (row["before"], row["after"]) == ({"totp": "on"}, {"totp": "off"})
    assert "already off" in installation.ok("user", "set", "alice", "totp=off")
    assert "set to off" in installation.refused("user", "set", "alice", "totp=on")
    installation.refused("user", "set", "nobody", "totp=off")
    installation.ok("user", "set", "alice", "totp=off", "rpm=5")
    assert installation.json("user", "show", "alice")["rpm"] == 5


def test_an_account_of_the_provider_is_linked_and_unlinked(installation, db):
    assert "oidc_issuer" in installation.refused("user", "link", "alice", "--subject", "s-1")
    issuer = "https://login.example.com"
    text = installation.config.read_text()
    fields = f'[hub]\noidc_issuer = "{issuer}"\noidc_client_id = "the-hub"\n'
    installation.config.write_text(text.replace("[hub]\n", fields, 1))
    installation.ok("user", "link", "alice", "--subject", "s-1")
    assert openid_links.find(db, issuer, "s-1").name == "alice"
    assert "already" in installation.refused("user", "link", "alice", "--subject", "s-1")
    assert installation.json("user", "unlink", "alice")["ended"] == 1
    assert openid_links.find(db, issuer, "s-1") is None
