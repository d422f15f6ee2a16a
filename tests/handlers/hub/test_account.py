"""The account: password, sessions, tokens."""

import re

import pytest

from store.hub import tokens
from tests.handlers.hub.browser import PASSWORDS, Browser


def test_a_new_password_ends_all_other_sessions(alice, hub):
    other = Browser(hub.port).signed_in("alice")
    new = [("old", PASSWORDS["alice"]), ("new", "a new password")]
    assert "Password changed" in alice.send("/account/password", new).text
    assert other.get("/account").status == 303 and alice.get("/account").status == 200
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).status == 401
    assert Browser(hub.port).sign_in("alice", "a new password").status == 303


def test_a_wrong_old_password_changes_nothing(alice, hub):
    answer = alice.send("/account/password", [("old", "wrong"), ("new", "a new password")])
    assert answer.status == 400 and "the old password is wrong" in answer.text
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).status == 303


def test_sessions_are_listed_and_ended(alice, hub):
    other = Browser(hub.port)
    other.sign_in("alice", PASSWORDS["alice"], **{"User-Agent": "<script>Other/1</script>"})
    text = alice.get("/account").text
    assert "&lt;script&gt;Other/1&lt;/script&gt;" in text and "This one" in text
    [wanted] = re.findall(r'name="id" value="(?!others)([^"]+)"', text)
    alice.send("/account/sessions", [("id", wanted)])
    assert other.get("/account").status == 303
    third = Browser(hub.port).signed_in("alice")
    alice.send("/account/sessions", [("id", "others")])
    assert third.get("/account").status == 303 and alice.get("/account").status == 200


def test_a_token_is_shown_once_and_acts_for_its_user(alice, hub):
    made = alice.send("/account/tokens", [("name", "ci"), ("scope", "read")])
    [token] = re.findall(r"slt-[\w-]+", made.text)
    assert token not in alice.get("/account").text
    script = Browser(hub.port, token)
    me = {"user": "alice", "role": "member", "balance": "10", "groups": ["default"]}
    assert script.get("/api/me").json == me
    [wanted] = re.findall(r'name="revoke" value="([^"]+)"', alice.get("/account").text)
    assert "Token revoked" in alice.send("/account/tokens", [("revoke", wanted)]).text
    assert script.get("/api/me").status == 401


def test_nobody_makes_a_token_beyond_their_role(alice, db):
    assert alice.send("/account/tokens", [("scope", "admin")]).status == 400
    assert tokens.listed(db) == []


@pytest.mark.parametrize("path", ["/account/password", "/account/sessions", "/account/tokens"])
def test_to_look_changes_nothing(alice, path):
    answer = alice.get(path)
    assert (answer.status, answer.place) == (303, "/account")


@pytest.mark.parametrize("token", [None, "slt-made-up", "sk-slc-key"])
def test_the_api_without_a_session_or_a_token(hub, token):
    answer = Browser(hub.port, token).get("/api/me")
    assert answer.status == 401
    assert answer.json["error"].keys() == {"code", "message", "field"}
