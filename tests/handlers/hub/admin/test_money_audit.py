"""Credit, codes, notices, and the audit log, which tells all of it."""

import csv
import io
import json
import time

from handlers.hub.web import exports
from store.db import audit
from store.money import wallet
from store.values.pricing import parse_money

CREDIT = "/api/admin/users/alice/credit"


def test_credit_and_debit_are_booked_once_for_an_id(api, db):
    body = {"amount": "3.25", "reason": "welcome", "id": "w-1"}
    first = api.call("POST", CREDIT, body).json
    assert (first["kind"], first["amount"], first["balance_after"]) == ("credit", "3.25", "13.25")
    assert (first["user"], first["reference"], first["reason"]) == ("alice", "w-1", "welcome")
    assert first["again"] is False and first["at"].endswith("Z")
    assert api.call("POST", CREDIT, body).json["again"] is True
    taken = api.call("POST", CREDIT, {"amount": "-0.25", "reason": "too much"}).json
    assert (taken["kind"], taken["balance_after"]) == ("debit", "13")
    also = api.call("POST", CREDIT, {"amount": "1", "kind": "debit", "reason": "more"}).json
    assert also["balance_after"] == "12"
    assert wallet.show(db, "alice").balance_nanos == parse_money("12")
    assert api.get("/api/admin/users/alice").json["balance"] == "12"


def test_what_cannot_be_booked_is_refused(api):
    for body, field in (
        ({"amount": "much", "reason": "x"}, "amount"),
        ({"amount": "0", "reason": "x"}, "amount"),
        ({"amount": "1"}, "reason"),
        ({"amount": "1", "reason": "x", "kind": "gift"}, "kind"),
        ({"amount": "1", "reason": "x", "user": "boss"}, "user"),
        ({"amount": "-1000", "reason": "x"}, None),
    ):
        assert api.refused("POST", CREDIT, body)[:2] == (400, field)
    body = {"amount": "1", "reason": "x"}
    assert api.refused("POST", "/api/admin/users/nobody/credit", body)[0] == 404


def test_a_batch_of_codes_is_shown_once_and_tells_who_used_it(api, alice):
    body = {"amount": "2.5", "count": 3, "expires_at": "2040-01-01T00:00:00Z"}
    made = api.call("POST", "/api/admin/codes", body).json["items"]
    assert len({one["code"] for one in made}) == 3
    shown = api.get("/api/admin/codes")
    assert [one["status"] for one in shown.json["items"]] == ["active"] * 3
    assert not any(one["code"] in shown.text for one in made)
    place = f"/api/admin/codes/{made[0]['id']}"
    assert api.call("PATCH", place, {"amount": "4", "enabled": False}).json["status"] == "disabled"
    assert api.call("PATCH", place, {"expires_at": None}).json["expires_at"] is None
    assert api.refused("PATCH", place, {"code": "x"})[:2] == (400, "code")
    assert api.call("DELETE", place).status == 204
    assert api.get(place).status == 404
    part = api.get("/api/admin/codes?limit=1").json
    [rest] = api.listed(f"/api/admin/codes?limit=1&after={part['next']}")
    assert {part["items"][0]["id"], rest["id"]} == {one["id"] for one in made[1:]}


def test_a_notice_is_shown_from_since_to_until(api, alice):
    body = {"text": "Maintenance <tonight>", "level": "warning", "until": "2040-01-01T00:00:00Z"}
    made = api.call("POST", "/api/admin/notices", body).json
    later = {"text": "Later", "since": "2039-01-01T00:00:00Z"}
    assert api.call("POST", "/api/admin/notices", later).status == 201
    [seen] = alice.get("/api/notices").json["items"]
    assert seen == made and seen["text"] == "Maintenance <tonight>"
    assert len(api.listed("/api/admin/notices")) == 2
    assert api.call("DELETE", f"/api/admin/notices/{made['id']}").status == 204
    assert alice.get("/api/notices").json["items"] == []
    assert api.refused("DELETE", f"/api/admin/notices/{made['id']}")[0] == 404


def test_a_notice_that_says_nothing_or_is_over_is_refused(api):
    for body, field in (
        ({"text": " "}, "text"),
        ({"text": "x", "level": "loud"}, "level"),
        ({"text": "x", "until": "2020-01-01T00:00:00Z"}, "until"),
        ({"text": "x", "since": "soon"}, "since"),
        ({"text": "x", "colour": "red"}, "colour"),
    ):
        assert api.refused("POST", "/api/admin/notices", body)[:2] == (400, field)


def test_the_audit_log_tells_who_what_from_where_and_both_states(api, db):
    api.call("POST", "/api/admin/groups", {"name": "coding"})
    api.call("PATCH", "/api/admin/groups/coding", {"multiplier": "3"})
    api.call("POST", CREDIT, {"amount": "1", "reason": "x"})
    [update, create] = api.listed("/api/admin/audit?kind=group&name=coding")
    assert (update["actor"], update["address"], update["action"]) == ("boss", "127.0.0.1", "update")
    assert (update["before"], update["after"]) == ({"multiplier": "1"}, {"multiplier": "3"})
    assert create["before"] is None and create["after"]["models"] == ["*"]
    assert {one["kind"] for one in api.listed("/api/admin/audit?actor=boss")} >= {"group", "wallet"}
    assert all(one["address"] is None for one in api.listed("/api/admin/audit?actor=tester"))
    assert api.listed("/api/admin/audit?since=2040-01-01T00:00:00Z") == []
    assert api.refused("GET", "/api/admin/audit?since=soon")[:2] == (400, "since")


def test_the_audit_log_comes_page_by_page_and_cannot_be_changed(api, db):
    for number in range(3):
        api.call("POST", "/api/admin/groups", {"name": f"g{number}"})
        time.sleep(0.002)
    everything = [one["id"] for one in api.listed("/api/admin/audit")]
    seen, after = [], ""
    while after is not None:
        part = api.get(f"/api/admin/audit?limit=2&after={after}").json
        seen += [one["id"] for one in part["items"]]
        after = part["next"]
    assert seen == everything and len(seen) == len(audit.entries(db, 1000))
    for method in ("POST", "PATCH", "DELETE"):
        assert api.call(method, "/api/admin/audit", {}).status == 405


def test_the_audit_log_is_exported_whole_as_its_filter_says(api, boss, monkeypatch):
    monkeypatch.setattr(audit, "PAGE_ROWS", 2)
    monkeypatch.setattr(exports, "PIECE_ROWS", 3)
    for number in range(7):
        body = {"name": f"g{number}", "models": []}
        assert api.call("POST", "/api/admin/groups", body).status == 201
    api.call("PATCH", "/api/admin/groups/g0", {"multiplier": "3"})
    api.call("POST", CREDIT, {"amount": "1", "reason": "x"})
    place = "/api/admin/audit/export"
    listed = api.listed("/api/admin/audit?kind=group&actor=boss")
    assert len(listed) == 8
    answer = api.get(f"{place}?kind=group&actor=boss")
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in answer.text.splitlines()] == listed
    answer = api.get(f"{place}?kind=group&actor=boss&format=csv")
    assert 'filename="audit.csv"' in answer.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["id"] for row in rows] == [one["id"] for one in listed]
    assert json.loads(rows[0]["after"]) == {"multiplier": "3"} and rows[1]["before"] == ""
    everything = api.get(place).text
    assert len(everything.splitlines()) == len(api.listed("/api/admin/audit?limit=500"))
    assert api.get(f"{place}?actor=nobody").text == ""
    assert api.refused("GET", f"{place}?format=xml")[:2] == (400, "format")
    assert api.refused("GET", f"{place}?since=soon")[:2] == (400, "since")
    assert (
        f"{place}?kind=group&amp;name=g0&amp;format=csv"
        in boss.get("/admin/audit?kind=group&name=g0").text
    )


def test_members_export_no_audit_log(alice):
    assert alice.get("/api/admin/audit/export").status == 404
