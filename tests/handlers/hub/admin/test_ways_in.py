"""One-time codes and linked accounts of others: turned off, linked and unlinked, and told."""

import re

import pytest

from store.db import audit
from store.hub import one_time, openid_links
from store.values.cipher import Cipher
from tests.handlers.hub.admin.script import Script
from tests.handlers.hub.browser import PASSWORDS, Browser

ISSUER = "https://login.example.com"
TOTP, LINKS = "/api/admin/users/alice/totp", "/api/admin/users/alice/links"


@pytest.fixture
def hub(serve):
    return serve(hub={"oidc_issuer": ISSUER, "oidc_client_id": "the-hub"})


@pytest.fixture
def with_codes(db, api):
    """Makes the sign-in of a user ask for codes."""

    def begin(name):
        user_id = api.get(f"/api/admin/users/{name}").json["id"]
        one_time.begin(db, Cipher(["cipher key of the tests"]), user_id, "JBSWY3DPEHPK3PXP")
        one_time.confirm(db, user_id, name, 1)

    return begin


def acts(db, name="alice"):
    rows = audit.entries(db, 10, audit.AuditFilter(kind="user", name=name))
    return [(row["actor"], row["action"], row["before"], row["after"]) for row in rows]


def test_codes_are_turned_off_after_the_name_was_typed(boss, hub, db, with_codes):
    with_codes("alice")
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).place != "/"
    assert "/admin/users/alice/totp" in boss.get("/admin/users/alice").text
    boss.get("/admin/users/alice/totp")
    assert boss.send("/admin/users/alice/totp", [("confirm", "alicia")]).status == 400
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).place != "/"
    assert boss.send("/admin/users/alice/totp", [("confirm", "alice")]).status == 303
    assert acts(db)[0] == ("boss", "set", {"totp": "on"}, {"totp": "off"})
    assert "alice signs in without one-time codes." in boss.get("/admin/users").text
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).place == "/"
    assert "/admin/users/alice/totp" not in boss.get("/admin/users/alice").text


def test_scripts_turn_codes_off_too_and_nobody_ones_own(api, db, with_codes):
    with_codes("alice")
    with_codes("boss")
    assert api.get(TOTP).json == {"totp": "on"}
    assert api.call("DELETE", TOTP).json == {"totp": "off", "ended": True}
    assert api.call("DELETE", TOTP).json == {"totp": "off", "ended": False}
    assert api.get(TOTP).json == {"totp": "off"}
    assert api.refused("DELETE", "/api/admin/users/boss/totp")[0] == 400
    assert api.get("/api/admin/users/boss/totp").json == {"totp": "on"}
    assert api.refused("DELETE", "/api/admin/users/nobody/totp")[0] == 404


def test_an_account_is_linked_and_unlinked_on_the_page(boss, db):
    text = boss.get("/admin/users/alice").text
    assert "Account at login.example.com" in text
    place = "/admin/users/alice/links"
    assert boss.send(place, [("subject", " s-1 ")]).status == 303
    assert openid_links.find(db, ISSUER, "s-1").name == "alice"
    assert acts(db)[0][:2] == ("boss", "link")
    answer = boss.send(place, [("subject", "s-1")])
    assert answer.status == 409 and "linked already" in answer.text
    assert 'id="subject-problem"' in answer.text
    assert boss.send(place, [("subject", "")]).status == 400
    link_id = re.search(r'name="unlink" value="(\w+)"', boss.get("/admin/users/alice").text)[1]
    assert boss.send("/admin/users/boss/links", [("unlink", link_id)]).status == 404
    assert boss.send(place, [("unlink", link_id)]).status == 303
    assert openid_links.find(db, ISSUER, "s-1") is None
    assert acts(db)[0][:3] == ("boss", "unlink", {"issuer": ISSUER, "subject": "s-1"})


def test_scripts_link_and_unlink(api, db):
    made = api.call("POST", LINKS, {"subject": "s-1"})
    assert made.status == 201
    assert (made.json["issuer"], made.json["subject"]) == (ISSUER, "s-1")
    assert api.listed(LINKS) == [made.json] and made.json["used_at"] is None
    assert api.refused("POST", "/api/admin/users/boss/links", {"subject": "s-2"})[0] == 400
    assert api.refused("POST", LINKS, {"subject": "s-1"})[0] == 409
    assert api.refused("POST", LINKS, {"subject": 7})[:2] == (400, "subject")
    assert api.refused("POST", LINKS, {"subject": "s", "issuer": "x"})[:2] == (400, "issuer")
    assert api.refused("POST", "/api/admin/users/nobody/links", {"subject": "s"})[0] == 404
    assert api.refused("DELETE", f"/api/admin/users/boss/links/{made.json['id']}")[0] == 404
    assert api.call("DELETE", f"{LINKS}/{made.json['id']}").status == 204
    for number in range(2):
        api.call("POST", LINKS, {"subject": f"s-{number}"})
    assert api.call("DELETE", LINKS).json == {"ended": 2}
    assert api.listed(LINKS) == []


def test_without_a_provider_nothing_is_linked(serve, db, api):
    plain = Script(serve().port, api.token)
    status, _, told = plain.refused("POST", LINKS, {"subject": "s-1"})
    assert status == 400 and "hub.oidc_issuer" in told
    boss = Browser(plain.port).signed_in("boss")
    assert 'id="subject"' not in boss.get("/admin/users/alice").text


def test_members_find_none_of_it(alice):
    for path in ("/admin/users/boss/totp", TOTP, LINKS):
        assert alice.get(path).status == 404
    assert alice.send("/admin/users/boss/links", [("subject", "s")]).status == 404
