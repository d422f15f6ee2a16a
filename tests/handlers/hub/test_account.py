"""The account: password, sessions, tokens."""

import re

import pytest

from handlers.hub.access.account import browser_of
from handlers.hub.web import throttle
from store.hub import people, tokens
from tests.handlers.hub.browser import PASSWORDS, Browser


def test_a_new_password_ends_all_other_sessions(alice, hub):
    other = hub.signed_in("alice")
    new = [("old", PASSWORDS["alice"]), ("new", "a new password")]
    stolen = dict(alice.cookies)
    assert alice.send("/account/password", new).place == "/account"
    assert "Password changed" in alice.get("/account").text
    thief = Browser(hub.port)
    thief.cookies = stolen
    assert thief.get("/account").status == 303
    assert other.get("/account").status == 303 and alice.get("/account").status == 200
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).status == 401
    assert Browser(hub.port).sign_in("alice", "a new password").status == 303


@pytest.mark.parametrize(
    ("language", "told"), [("en", "must not be one character repeated"), ("zh", "同一个字符重复")]
)
def test_a_password_that_must_not_be_is_refused_in_the_words_of_the_page(alice, language, told):
    alice.cookies["language"] = language
    answer = alice.send("/account/password", [("old", PASSWORDS["alice"]), ("new", "x" * 12)])
    assert answer.status == 400 and told in answer.text
    assert alice.get("/account").status == 200


def test_all_others_end_with_all_tokens(alice, hub, db):
    other = hub.signed_in("alice")
    script = Browser(hub.port, tokens.create(db, "alice", ["read"], actor="tester")[1])
    assert script.get("/api/me").status == 200
    alice.send("/account/sessions", [("id", "others")])
    assert "Ended 1 other session and revoked 1 token." in alice.get("/account").text
    assert other.get("/account").status == 303 and script.get("/api/me").status == 401


def test_passwords_are_not_tried_at_the_account_either(alice, hub, monkeypatch):
    monkeypatch.setattr(throttle, "NAME_TRIES", 3)
    fields = [("old", "wrong"), ("new", "a new password")]
    answers = [alice.send("/account/password", fields) for _ in range(4)]
    assert [answer.status for answer in answers] == [400, 400, 400, 429]
    assert "The password is wrong." in answers[0].text
    assert people.check(hub.site.db, "alice", PASSWORDS["alice"])


def test_sessions_are_listed_and_ended(alice, boss, hub):
    other = Browser(hub.port)
    other.sign_in("alice", PASSWORDS["alice"], **{"User-Agent": "<script>Other/1</script>"})
    text = alice.get("/account").text
    assert "&lt;script&gt;Other/1&lt;/script&gt;" in text and "This session" in text
    [session_id] = re.findall(r'name="id" value="(?!others)([^"]+)"', text)
    assert boss.send("/account/sessions", [("id", session_id)]).status == 404
    alice.send("/account/sessions", [("id", session_id)])
    assert other.get("/account").status == 303 and alice.get("/account").status == 200


def test_a_token_is_shown_once_and_acts_for_its_user(alice, hub):
    answer = alice.send("/account/tokens", [("name", "ci"), ("scope", "read")])
    [token] = set(re.findall(r"slt-[\w-]+", answer.text))
    text = alice.get("/account").text
    assert token not in text
    me = {"user": "alice", "role": "member", "balance": "10", "groups": ["default"]}
    assert Browser(hub.port, token).get("/api/me").json == me
    [token_id] = re.findall(r'name="revoke" value="([^"]+)"', text)
    alice.send("/account/tokens", [("revoke", token_id)])
    # More than the role allows.
    assert alice.send("/account/tokens", [("scope", "admin")]).status == 400
    answer = alice.send("/account/tokens", [("name", "ci")])
    assert "choose one or more of read, keys" in answer.text
    for text in (None, "slt-made-up", "sk-slc-key", token):
        answer = Browser(hub.port, text).get("/api/me")
        assert answer.status == 401
        assert answer.json["error"].keys() == {"code", "message", "field"}


def test_sessions_and_tokens_as_json(alice, boss, hub):
    other = Browser(hub.port)
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0"
    other.sign_in("alice", PASSWORDS["alice"], **{"User-Agent": agent})
    own, foreign = sorted(
        alice.get("/api/sessions").json["items"], key=lambda one: not one["current"]
    )
    assert (own["current"], foreign["current"]) == (True, False)
    assert foreign["browser"] == "Firefox 141, Linux"
    path = f"/api/sessions/{foreign['id']}"
    assert [alice.api("DELETE", path).status for _ in range(2)] == [200, 404]
    assert other.get("/api/me").status == 401

    made = alice.api("POST", "/api/tokens", {"scopes": ["keys", "read"], "name": "ci"})
    assert made.status == 201
    script = Browser(hub.port, made.json["token"])
    [listed] = script.get("/api/tokens").json["items"]
    assert (listed["name"], listed["scopes"]) == ("ci", ["read", "keys"])
    assert made.json["token"] not in str(listed)
    for scopes in (None, "read", [1], [], ["all"]):
        assert alice.api("POST", "/api/tokens", {"scopes": scopes}).status == 400
    path = f"/api/tokens/{made.json['id']}"
    assert [who.api("DELETE", path).status for who in (boss, alice)] == [404, 200]
    assert script.get("/api/me").status == 401


def test_a_token_makes_none_that_may_do_more(hub, boss):
    made = boss.api("POST", "/api/tokens", {"scopes": ["keys"]}).json
    script = Browser(hub.port, made["token"])
    for scopes, status in ((["admin"], 403), (["keys", "read"], 403), (["keys"], 201)):
        assert script.api("POST", "/api/tokens", {"scopes": scopes}).status == status
    reader = boss.api("POST", "/api/tokens", {"scopes": ["read"]}).json["token"]
    answer = Browser(hub.port, reader).api("POST", "/api/tokens", {"scopes": ["read"]})
    assert answer.status == 403


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("Windows NT 10.0) Chrome/139.0.0.0 Safari/537.36 Edg/139.0.0.0", "Edge 139, Windows"),
        ("iPhone; CPU iPhone OS 18_6) Version/18.6 Safari/604.1", "Safari 18, iPhone"),
        ("Linux; Android 15) Chrome/139.0.0.0 Mobile Safari/537.36", "Chrome 139, Android"),
        ("curl/8.5.0", "curl 8"),
        ("", "–"),
        ("x" * 300, "x" * 40),
    ],
)
def test_browsers_in_words(agent, words):
    agent = f"Mozilla/5.0 ({agent}" if ")" in agent else agent
    assert browser_of(agent) == words
