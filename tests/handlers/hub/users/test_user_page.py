"""One user for administrators: the page, its parts as JSON, stopped keys, removed users; the list
with its filters and orders."""

import re

import pytest

from store.db import audit
from tests.handlers.hub.overview_world import book, call, text_of

ALICE = "/admin/users/alice"
SHORT = "insufficient_quota: 0.0612 USD is left, and it needs at least 0.143 USD."


@pytest.fixture
def called(db, world, alice):
    """Create calls of alice with her key, one of them refused for lack of money."""
    key_id = alice.make("laptop")
    facts = {"key_id": key_id, "key_name": "laptop"}
    book(db, call(db, **facts), call(db, model="gpt-5-mini", ago_ms=10_000, **facts))
    refusal = {"error_code": "insufficient_quota", "error_message": SHORT, "cost_nanos": 0}
    book(db, call(db, outcome="refused", **facts, **refusal, charges=()))
    return key_id


def test_the_page_shows_money_calls_keys_and_what_refuses_them(boss, called):
    answer = boss.get(ALICE)
    assert answer.status == 200, answer.text
    text = text_of(answer)
    for shown in (
        "9.8000 USD left: calls of 1 key have been refused since",
        "laptop. The last one:",
        "1 call refused today",
        "0 failed, 1 refused",
        "66.67 %",
        "coding ×0.8",
        "by tester",
        "Disable all keys",
    ):
        assert shown in text, shown
    assert answer.text.count('data-id="') == 3, "the latest calls"
    for part in ("payer", "model", "key"):
        chart = boss.get(f"{ALICE}?by={part}")
        assert chart.status == 200
        legend = re.search(r'<span class="legend">.*?</div>', chart.text)[0]
        named = {"payer": "Wallet", "model": "gpt-5-mini", "key": "laptop"}[part]
        assert named in legend
    for href in re.findall(r'href="(/admin/usage\?user=alice[^"]*)"', answer.text):
        assert boss.get(href.replace("&amp;", "&")).status == 200, href


def test_money_that_came_in_ends_the_notice(boss, api, called):
    credit = {"amount": "5", "reason": "more"}
    assert api.call("POST", f"/api{ALICE}/credit", credit).status == 200
    text = text_of(boss.get(ALICE))
    assert "have been refused since" not in text and "1 call refused today" in text


def test_a_user_without_anything_has_an_empty_page(boss, api):
    api.create("users", {"name": "x" * 128})
    text = text_of(boss.get(f"/admin/users/{'x' * 128}"))
    for empty in ("No keys yet.", "No call yet", "No movement yet", "No plans."):
        assert empty in text
    assert boss.get("/admin/users/nobody").status == 404


def test_parts_are_json_too(api, called):
    [key] = api.listed(f"/api{ALICE}/keys")
    assert (key["name"], key["state"], key["disabled_by"]) == ("laptop", "active", None)
    assert api.get(f"/api{ALICE}/wallet").json["balance"] == "9.8"
    assert api.get("/api/admin/users/nobody/wallet").status == 404


def test_a_stopped_key_says_who_and_why(boss, api, alice, called):
    place = f"/api/admin/keys/{called}/disable"
    assert api.call("POST", place, {"reason": "lost"}).json["state"] == "disabled"
    [key] = api.listed(f"/api{ALICE}/keys")
    assert (key["disabled_by"], key["disabled_because"]) == ("boss", "lost")
    assert re.search(r"by boss on .*?: lost", text_of(boss.get(ALICE)))
    assert re.search(
        r"boss has stopped this key at .*?: lost", text_of(alice.get(f"/keys/{called}"))
    )
    assert api.refused("POST", place, {"reason": 1})[:2] == (400, "reason")


def test_all_keys_are_disabled_with_a_reason_and_again_enabled(boss, api, db, alice, called):
    alice.make("desk")
    boss.get(f"{ALICE}/keys/disable")
    answer = boss.send(f"{ALICE}/keys/disable", [("reason", "left")])
    assert answer.place == f"{ALICE}#keys"
    page = boss.get(ALICE).text
    assert [key["state"] for key in api.listed(f"/api{ALICE}/keys")] == ["disabled"] * 2
    undo = re.search(r'action="([^"]*/keys/enable)".*?name="keys" value="([^"]*)"', page)
    assert boss.send(undo[1], [("keys", undo[2])]).status == 303
    assert [key["state"] for key in api.listed(f"/api{ALICE}/keys")] == ["active"] * 2
    assert len(api.call("POST", f"/api{ALICE}/keys/disable", {}).json["disabled"]) == 2
    reasons = {(row["after"] or {}).get("reason") for row in audit.entries(db, 9)}
    assert "left" in reasons


def test_forms_of_the_page_lead_back_to_it(boss, called):
    boss.get(ALICE)
    before = {"Referer": f"http://hub.example.com{ALICE}"}
    answer = boss.send(f"/admin/keys/{called}/disable", [], **before)
    assert answer.place == f"{ALICE}#keys"
    revoke = boss.get(f"/admin/keys/{called}/revoke?back=user").text
    assert f"/admin/keys/{called}/revoke?back=user" in revoke and 'name="reason"' in revoke
    fields = [("confirm", "laptop"), ("reason", "leaked")]
    assert boss.send(f"/admin/keys/{called}/revoke?back=user", fields).place == f"{ALICE}#keys"


def test_a_removed_user_says_who_removed_it_and_when(boss, api):
    api.create("users", {"name": "bob"})
    api.call("DELETE", "/api/admin/users/bob")
    answer = boss.get("/admin/users/bob")
    assert answer.status == 404 and "/admin/audit?kind=user&amp;name=bob" in answer.text
    assert re.search(r"Removed on .* by boss\.", text_of(answer))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["alice", "boss", "carol"]),
        ("role=admin", ["boss"]),
        ("state=disabled", ["carol"]),
        ("role=member&state=active", ["alice"]),
        ("sort=spent", ["alice", "boss", "carol"]),
        ("sort=balance", ["alice", "carol", "boss"]),
        ("search=ar", ["carol"]),
    ],
)
def test_the_list_is_filtered_and_sorted(boss, api, called, query, names):
    api.call("PATCH", "/api/admin/users/carol", {"enabled": False})
    assert [user["name"] for user in api.listed(f"/api/admin/users?{query}")] == names
    page = boss.get(f"/admin/users?{query}").text
    assert re.findall(r'class="name cut"><a href="/admin/users/(\w+)"', page) == names


def test_the_list_has_spending_last_call_and_keys_and_pages_of_every_order(api, called):
    alice = api.listed("/api/admin/users?sort=spent")[0]
    assert (alice["spent_30_days"], alice["keys"]) == ("0.2", 1)
    assert alice["last_call_at"].endswith("Z")
    for sort in ("name", "spent", "balance"):
        names, after = [], ""
        for _ in range(3):
            page = api.get(f"/api/admin/users?limit=1&sort={sort}&after={after}").json
            names += [user["name"] for user in page["items"]]
            after = page["next"]
        assert sorted(names) == ["alice", "boss", "carol"] and after is None
    assert api.refused("GET", "/api/admin/users?sort=age")[:2] == (400, "sort")
    assert api.refused("GET", "/api/admin/users?sort=spent&after=x")[0] == 400
