"""A leaked key and a disputed charge: search, disabling, refund, and the audit lines of all
this."""

import json

import pytest

from store.db.database import select_rows
from store.db.tables.users import KeySecret
from store.values.pricing import format_money, parse_money
from tests.handlers.hub.usage.calls import call, put

LEAKED = "sk-of-alice-which-leaked-0001"
KEYS, FIND = "/api/admin/keys", "/api/admin/keys/find"


@pytest.fixture(autouse=True)
def keys(apply):
    """Create three keys of alice, one of boss."""
    owners = [("alice", "laptop"), ("alice", "server"), ("alice", "old"), ("boss", "laptop")]
    rows = [{"user": user, "name": name, "group": "default"} for user, name in owners]
    rows[0]["secret"] = LEAKED
    apply({"key": rows})


def test_keys_of_all_users_are_found_by_user_and_text(api):
    def names(query=""):
        return {(key["user"], key["name"]) for key in api.listed(f"{KEYS}{query}")}

    of_alice = {("alice", "old"), ("alice", "server"), ("alice", "laptop")}
    assert names() == {*of_alice, ("boss", "laptop")}
    assert names("?user=alice") == of_alice and names("?user=nobody") == set()
    assert names("?text=LAPTOP") == {("alice", "laptop"), ("boss", "laptop")}
    first = api.get(f"{KEYS}?limit=3").json
    rest = api.get(f"{KEYS}?limit=3&after={first['next']}").json
    assert len(first["items"]) == 3 and len(rest["items"]) == 1 and rest["next"] is None


def test_a_leaked_secret_leads_to_its_key_and_is_stored_nowhere(api, db, caplog):
    caplog.set_level("DEBUG")
    before = select_rows(db, KeySecret.select(KeySecret.digest))
    key = api.call("POST", FIND, {"secret": f" {LEAKED}\n"}).json
    assert (key["user"], key["name"], key["state"]) == ("alice", "laptop", "active")
    place = f"{KEYS}/{key['id']}"
    changes = ("POST", "/disable"), ("POST", "/enable"), ("DELETE", "")
    states = [api.call(method, place + end).json["state"] for method, end in changes]
    assert states == ["disabled", "active", "revoked"]
    assert api.get(place).json["revoked_at"] and api.refused("POST", f"{place}/enable")[0] == 400
    lines = [(x["actor"], x["action"], x["name"]) for x in api.listed("/api/admin/audit?kind=key")]
    actions = ("revoke", "enable", "disable", "find")
    assert lines[:4] == [("boss", action, "alice/laptop") for action in actions]
    assert LEAKED not in caplog.text and LEAKED not in json.dumps(api.listed("/api/admin/audit"))
    assert select_rows(db, KeySecret.select(KeySecret.digest)) == before
    for body, status in (
        ({"secret": "sk-of-nobody-0123456789"}, 404),
        ({"secret": "x" * 201}, 400),
        ({"secret": ["x"]}, 400),
        ({"secret": LEAKED, "user": "alice"}, 400),
    ):
        answer = api.call("POST", FIND, body)
        assert answer.status == status and LEAKED not in answer.text


def test_the_page_finds_a_secret_and_stops_its_key(boss, api):
    boss.get("/admin/keys")
    answer = boss.send("/admin/keys/find", [("secret", "sk-of-nobody-0123456789")])
    assert answer.status == 404 and "No key has this secret" in answer.text
    place = boss.send("/admin/keys/find", [("secret", LEAKED)]).place
    row = boss.get(place)
    assert row.text.count("laptop") == 1 and "alice" in row.text and LEAKED not in row.text
    key_id = place.partition("search=")[2]
    boss.send(f"/admin/keys/{key_id}/disable", [])
    assert api.get(f"{KEYS}/{key_id}").json["state"] == "disabled"
    assert boss.send(f"/admin/keys/{key_id}/revoke", [("confirm", "wrong")]).status == 400
    assert boss.send(f"/admin/keys/{key_id}/revoke", [("confirm", "laptop")]).status == 303
    [line] = [x for x in api.listed("/api/admin/audit?kind=key") if x["action"] == "revoke"]
    assert line["actor"] == "boss" and line["address"]


def test_a_disputed_charge_is_refunded_once_and_shown_at_the_call(api, boss, alice, db):
    call_id, other_id = put(db, call(db, 1), call(db, 2))
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
        [refund] = browser.get(f"/api/usage/{call_id}").json["refunds"]
        assert (refund["amount"], refund["reason"]) == (cost, "wrong model")
        assert "wrong model" in browser.get(f"/usage/{call_id}").text
    form = f"/admin/usage/{other_id}/refund"
    assert form not in alice.get(f"/usage/{other_id}").text
    assert form in boss.get(f"/usage/{other_id}").text
    part = [("amount", "0.000001"), ("reason", "broken"), ("id", "seen-once")]
    for _ in range(2):  # like a double click
        assert boss.send(form, part).status == 303
    left = format_money(parse_money(cost) - 1000)
    assert left in boss.get(f"/usage/{other_id}").text
    assert boss.send(form, [("amount", cost), ("reason", "more")]).status != 303
    place = f"/api/admin/usage/{other_id}/refund"
    assert api.refused("POST", place, {"amount": "much", "reason": "x"})[:2] == (400, "amount")
    assert api.call("POST", place, {"amount": left, "reason": "rest"}).json["amount"] == left
    assert form not in boss.get(f"/usage/{other_id}").text
    booked = api.get(f"/api/usage/{other_id}").json["refunds"]
    assert [line["reason"] for line in booked] == ["broken", "rest"]
    assert api.listed("/api/admin/audit?kind=wallet")[0]["action"] == "refund"
