"""Users beyond their fields: money, sessions, tokens, sign-in methods; protection against
lock-out."""

import re

import pytest

from store.db import audit
from store.hub import one_time, tokens
from store.values.cipher import Cipher
from tests.handlers.hub.browser import PASSWORDS, Browser
from tests.handlers.hub.script import Script

ISSUER = "https://login.example.com"
CREDIT = "/api/admin/users/alice/credit"
TOTP, LINKS = "/api/admin/users/alice/totp", "/api/admin/users/alice/links"


@pytest.fixture
def hub(serve):
    return serve(hub={"oidc_issuer": ISSUER, "oidc_client_id": "the-hub"})


# ---- money -----------------------------------------------------------------------------------


def test_credit_and_debit_are_booked_once_for_an_id(api):
    body = {"amount": "3.25", "reason": "welcome", "id": "w-1"}
    first = api.call("POST", CREDIT, body).json
    line = {"user": "alice", "kind": "credit", "amount": "3.25", "balance_after": "13.25"}
    line |= {"reference": "w-1", "reason": "welcome", "again": False}
    assert {name: first[name] for name in line} == line and first["at"].endswith("Z")
    assert api.call("POST", CREDIT, body).json["again"] is True
    for debit, balance in (
        ({"amount": "-0.25", "reason": "too much"}, "13"),
        ({"amount": "1", "kind": "debit", "reason": "more"}, "12"),
    ):
        booked = api.call("POST", CREDIT, debit).json
        assert (booked["kind"], booked["balance_after"]) == ("debit", balance)
    assert api.get("/api/admin/users/alice").json["balance"] == "12"
    for body, field in (
        ({"amount": "much", "reason": "x"}, "amount"),
        ({"amount": "1"}, "reason"),
        ({"amount": "1", "reason": "x", "kind": "gift"}, "kind"),
        ({"amount": "1", "reason": "x", "user": "boss"}, "user"),
        ({"amount": "-1000", "reason": "x"}, None),
    ):
        assert api.refused("POST", CREDIT, body)[:2] == (400, field)
    body = {"amount": "1", "reason": "x"}
    assert api.refused("POST", "/api/admin/users/nobody/credit", body)[0] == 404


def test_a_user_of_the_form_signs_in_and_gets_money(boss, hub):
    boss.get("/admin/users?new=1")
    fields = [("name", "dora"), ("role", "member"), ("balance", "3"), ("enabled", "true")]
    fields += [("password", "a long password"), ("groups", "default"), ("order", "plan_first")]
    assert boss.send("/admin/users", fields).status == 303
    assert Browser(hub.port).sign_in("dora", "a long password").status == 303
    boss.get("/admin/users/dora/credit")
    money = [("amount", "1.5"), ("reason", "gift"), ("kind", "credit")]
    assert boss.send("/admin/users/dora/credit", money).status == 303
    assert "dora has 4.5 USD" in boss.get("/admin/users").text
    assert boss.send("/admin/users/dora/sessions", []).status == 303
    assert "Ended for dora: 1 session, 0 tokens." in boss.get("/admin/users").text


# ---- sessions and tokens ---------------------------------------------------------------------


def test_a_new_password_ends_the_sessions_and_tokens_of_the_user(api, hub, db, alice):
    def script():
        return Browser(hub.port, tokens.create(db, "alice", ["read"], actor="tester")[1])

    before = script()
    assert before.get("/api/me").status == 200
    assert len(api.listed("/api/admin/users/alice/sessions")) == 1
    assert api.call("PATCH", "/api/admin/users/alice", {"password": "a new one 123"}).status == 200
    assert alice.get("/account").status == 303 and before.get("/api/me").status == 401
    assert Browser(hub.port).sign_in("alice", "a new one 123").status == 303
    after = script()
    ended = {"ended": 1, "tokens": 1}
    assert api.call("DELETE", "/api/admin/users/alice/sessions").json == ended
    assert after.get("/api/me").status == 401
    lines = api.listed("/api/admin/audit?kind=user&name=alice")
    ends = [(line["actor"], line["after"]) for line in lines if line["action"] == "end_session"]
    assert ends == [("boss", {"sessions": 1, "tokens": 1})] * 2


def test_tokens_of_everybody_are_listed_and_revoked(api, hub, db):
    pairs = [tokens.create(db, "alice", ["read"], name=name, actor="tester") for name in "ab"]
    listed = [row["id"] for row in api.listed("/api/admin/tokens?user=alice")]
    assert listed == [token_id for token_id, _ in sorted(pairs, reverse=True)]
    first_page = api.get("/api/admin/tokens?limit=1").json
    rest = api.listed(f"/api/admin/tokens?after={first_page['next']}")
    paged = [row["id"] for row in (*first_page["items"], *rest)]
    assert paged == [row.id for row in tokens.listed(db)]
    assert api.refused("GET", "/api/admin/tokens?user=nobody")[0] == 404
    text = api.get("/api/admin/tokens").text
    (token_id, first), (_, second) = pairs
    assert first not in text and second not in text and "slt-…" in text
    for _ in range(2):
        assert api.call("DELETE", f"/api/admin/tokens/{token_id}").status == 204
    assert Browser(hub.port, first).get("/api/me").status == 401
    assert Browser(hub.port, second).get("/api/me").status == 200
    lines = api.listed(f"/api/admin/audit?kind=token&name={token_id}")
    actions = [(line["action"], line["actor"]) for line in lines]
    assert actions == [("revoke", "boss"), ("create", "tester")]


# ---- lock-out --------------------------------------------------------------------------------


def test_nobody_locks_oneself_out(api, boss, hub):
    for body in ({"enabled": False}, {"role": "member"}):
        assert api.refused("PATCH", "/api/admin/users/boss", body)[0] == 400
    assert api.refused("DELETE", "/api/admin/users/boss")[0] == 400
    new = "a password of a thief"
    status, field, message = api.refused("PATCH", "/api/admin/users/boss", {"password": new})
    assert (status, field) == (400, "password") and "Account" in message
    boss.get("/admin/users/boss/edit")
    assert boss.send("/admin/users/boss/edit", [("password", new), ("role", "admin")]).status == 400
    assert boss.send("/admin/users/boss/disable", []).status == 400
    assert hub.signed_in("boss")
    assert api.get("/api/admin/users/boss").json["role"] == "admin"


def test_the_last_administrator_is_not_taken_away(api, db):
    """Administrators cannot demote themselves, and the script of a demoted administrator cannot
    demote the other one."""
    boss = {"name": "second", "role": "admin", "password": "a password of hers"}
    api.create("users", boss)
    _, token = tokens.create(db, "second", ["admin"], actor="tester")
    second = Script(api.port, token)
    assert second.call("PATCH", "/api/admin/users/boss", {"role": "member"}).status == 200
    status, _, message = api.refused("PATCH", "/api/admin/users/second", {"role": "member"})
    assert status == 404 and "no such path" in message
    assert second.refused("PATCH", "/api/admin/users/second", {"role": "member"})[1] == "role"


# ---- signing in ------------------------------------------------------------------------------


@pytest.fixture
def with_codes(db, api):
    """Return with_codes(name), which makes the user's sign-in require one-time codes."""

    def begin(name):
        user_id = api.get(f"/api/admin/users/{name}").json["id"]
        one_time.begin(db, Cipher(["cipher key of the tests"]), user_id, "JBSWY3DPEHPK3PXP")
        one_time.confirm(db, user_id, name, 1)

    return begin


def acts(db):
    rows = audit.entries(db, 10, audit.AuditFilter(kind="user", name="alice"))
    return [(row["actor"], row["action"], row["before"], row["after"]) for row in rows]


def test_codes_are_turned_off_but_not_ones_own(api, boss, hub, db, with_codes):
    place = "/admin/users/alice/totp"
    with_codes("alice")
    assert place in boss.get("/admin/users/alice/edit").text
    boss.get(place)
    assert boss.send(place, [("confirm", "alicia")]).status == 400
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).place != "/"
    assert boss.send(place, [("confirm", "alice")]).status == 303
    assert acts(db)[0] == ("boss", "set", {"totp": "on"}, {"totp": "off"})
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).place == "/"
    with_codes("alice")
    with_codes("boss")
    assert api.get(TOTP).json == {"totp": "on"}
    assert api.call("DELETE", TOTP).json == {"totp": "off", "ended": True}
    assert api.call("DELETE", TOTP).json == {"totp": "off", "ended": False}
    assert api.refused("DELETE", "/api/admin/users/boss/totp")[0] == 400
    assert api.get("/api/admin/users/boss/totp").json == {"totp": "on"}


def test_accounts_are_linked_and_unlinked(api, boss, db, serve):
    plain = serve()
    refused = Script(plain.port, api.token).refused("POST", LINKS, {"subject": "s-1"})
    assert refused[0] == 400 and "hub.oidc_issuer" in refused[2]
    assert 'id="subject"' not in plain.signed_in("boss").get("/admin/users/alice/edit").text
    answer = api.call("POST", LINKS, {"subject": "s-1"})
    link = answer.json
    assert (answer.status, link["issuer"], link["subject"]) == (201, ISSUER, "s-1")
    assert api.listed(LINKS) == [link] and link["used_at"] is None
    for user, body, refusal in (
        ("alice", {"subject": "s-1"}, (409, None)),
        ("alice", {"subject": 7}, (400, "subject")),
        ("alice", {"subject": "s", "issuer": "x"}, (400, "issuer")),
        ("nobody", {"subject": "s"}, (404, None)),
    ):
        assert api.refused("POST", f"/api/admin/users/{user}/links", body)[:2] == refusal
    assert api.refused("DELETE", f"/api/admin/users/boss/links/{link['id']}")[0] == 404
    assert api.call("DELETE", f"{LINKS}/{link['id']}").status == 204
    # on the page
    place = "/admin/users/alice/links"
    assert "Account at login.example.com" in boss.get("/admin/users/alice/edit").text
    assert boss.send(place, [("subject", " s-1 ")]).status == 303
    assert acts(db)[0][:2] == ("boss", "link")
    again = boss.send(place, [("subject", "s-1")])
    assert again.status == 409 and 'id="subject-problem"' in again.text
    link_id = re.search(r'name="unlink" value="(\w+)"', boss.get("/admin/users/alice/edit").text)[1]
    assert boss.send("/admin/users/boss/links", [("unlink", link_id)]).status == 404
    assert boss.send(place, [("unlink", link_id)]).status == 303
    assert acts(db)[0][:3] == ("boss", "unlink", {"issuer": ISSUER, "subject": "s-1"})
    for number in range(2):
        api.call("POST", LINKS, {"subject": f"s-{number}"})
    assert api.call("DELETE", LINKS).json == {"ended": 2}
    assert api.listed(LINKS) == []
