"""A leaked key and a disputed charge: found, switched off, given back, all of it audited."""

import json

import pytest

from store.db.database import select_rows
from store.db.tables.users import KeySecret
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.usage.calls import call, put

LEAKED = "sk-of-alice-which-leaked-0001"


@pytest.fixture
def keys(apply):
    """Three keys of alice, one of boss; ids by name."""
    apply(
        {
            "key": [
                {"user": "alice", "name": "laptop", "group": "default", "secret": LEAKED},
                {"user": "alice", "name": "server", "group": "default"},
                {"user": "alice", "name": "old", "group": "default"},
                {"user": "boss", "name": "laptop", "group": "default"},
            ]
        }
    )


def listed(api, query=""):
    return [(key["user"], key["name"]) for key in api.listed(f"/api/admin/keys{query}")]


def test_keys_of_all_users_are_found_by_user_and_text(api, keys):
    mine = [("alice", "old"), ("alice", "server"), ("alice", "laptop")]
    assert set(listed(api)) == {*mine, ("boss", "laptop")}
    assert set(listed(api, "?user=alice")) == set(mine)
    assert set(listed(api, "?text=LAPTOP")) == {("alice", "laptop"), ("boss", "laptop")}
    assert listed(api, f"?text={LEAKED[-4:]}") == [("alice", "laptop")]
    assert listed(api, "?user=nobody") == []
    first = api.get("/api/admin/keys?limit=3").json
    rest = api.get(f"/api/admin/keys?limit=3&after={first['next']}").json
    assert len(first["items"]) == 3 and len(rest["items"]) == 1 and rest["next"] is None


def test_a_leaked_secret_leads_to_its_key_and_is_kept_nowhere(api, keys, db, caplog):
    caplog.set_level("DEBUG")
    before = select_rows(db, KeySecret.select(KeySecret.digest))
    key = api.call("POST", "/api/admin/keys/find", {"secret": f" {LEAKED}\n"}).json
    assert (key["user"], key["name"], key["state"]) == ("alice", "laptop", "active")
    place = f"/api/admin/keys/{key['id']}"
    assert api.call("POST", f"{place}/disable").json["state"] == "disabled"
    assert api.call("POST", f"{place}/enable").json["state"] == "active"
    assert api.call("DELETE", place).json["state"] == "revoked"
    assert api.get(place).json["revoked_at"]
    assert api.refused("POST", f"{place}/enable")[0] == 400
    lines = [(x["actor"], x["action"], x["name"]) for x in api.listed("/api/admin/audit?kind=key")]
    actions = ("revoke", "enable", "disable", "find")
    assert lines[:4] == [("boss", action, "alice/laptop") for action in actions]
    assert LEAKED not in caplog.text and LEAKED not in json.dumps(api.listed("/api/admin/audit"))
    assert select_rows(db, KeySecret.select(KeySecret.digest)) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"secret": "sk-of-nobody-0123456789"}, 404),
        ({"secret": ""}, 400),
        ({"secret": "x" * 201}, 400),
        ({"secret": ["x"]}, 400),
        ({}, 400),
        ({"secret": LEAKED, "user": "alice"}, 400),
    ],
)
def test_a_secret_that_opens_nothing(api, keys, body, status):
    answer = api.call("POST", "/api/admin/keys/find", body)
    assert answer.status == status and LEAKED not in answer.text


def test_members_find_no_keys_of_others(alice, keys):
    for path in ("/api/admin/keys", "/admin/keys", "/api/admin/users/boss/ledger"):
        assert alice.get(path).status == 404


def test_the_page_finds_a_secret_and_stops_its_key(boss, api, hub, keys):
    boss.get("/admin/keys")
    answer = boss.send("/admin/keys/find", [("secret", "sk-of-nobody-0123456789")])
    assert answer.status == 404 and "no key has this secret" in answer.text
    place = boss.send("/admin/keys/find", [("secret", LEAKED)]).place
    row = boss.get(place)
    assert row.text.count("laptop") == 1 and "alice" in row.text and LEAKED not in row.text
    key_id = place.partition("search=")[2]
    boss.send(f"/admin/keys/{key_id}/disable", [])
    own = Browser(hub.port).signed_in("alice")
    assert "disabled" in own.get("/keys?state=disabled").text.lower()
    assert boss.send(f"/admin/keys/{key_id}/revoke", [("confirm", "wrong")]).status == 400
    assert boss.send(f"/admin/keys/{key_id}/revoke", [("confirm", "laptop")]).status == 303
    [line] = [x for x in api.listed("/api/admin/audit?kind=key") if x["action"] == "revoke"]
    assert line["actor"] == "boss" and line["address"]


def test_a_disputed_charge_is_given_back_once_and_shown_at_the_call(api, boss, alice, db):
    [call_id] = put(db, call(db, 1))
    place = f"/api/admin/usage/{call_id}/refund"
    assert api.refused("POST", place, {})[:2] == (400, "reason")
    assert api.refused("POST", "/api/admin/usage/nothing/refund", {"reason": "x"})[0] == 404
    line = api.call("POST", place, {"reason": "wrong model"}).json
    cost = api.get(f"/api/usage/{call_id}").json["cost"]
    assert (line["user"], line["kind"], line["amount"]) == ("alice", "refund", cost)
    assert api.call("POST", place, {"reason": "again"}).json["again"] is True
    [booked] = [x for x in api.listed("/api/admin/users/alice/ledger") if x["kind"] == "refund"]
    assert (booked["reference"], booked["reason"]) == (call_id, "wrong model")
    for browser in (boss, alice):
        refund = browser.get(f"/api/usage/{call_id}").json["refund"]
        assert (refund["amount"], refund["reason"]) == (cost, "wrong model")
        assert "wrong model" in browser.get(f"/usage/{call_id}").text
    assert "/refund" not in alice.get(f"/usage/{call_id}").text


def test_the_page_of_a_call_refunds_it(api, boss, db):
    [call_id] = put(db, call(db, 2))
    assert f"/admin/usage/{call_id}/refund" in boss.get(f"/usage/{call_id}").text
    assert boss.send(f"/admin/usage/{call_id}/refund", [("reason", "broken")]).status == 303
    assert api.get(f"/api/usage/{call_id}").json["refund"]["reason"] == "broken"
    assert api.listed("/api/admin/audit?kind=wallet")[0]["action"] == "refund"


def test_the_spending_of_a_user_by_day(api, db):
    put(db, call(db, 1), call(db, 2, minutes_ago=3), call(db, 3, user="boss"))
    rows = api.listed("/api/usage/stats?by=user,day&user=alice&since=2d")
    assert {row["user"] for row in rows} == {"alice"} and sum(row["calls"] for row in rows) == 2
