"""Redeem codes: a batch is shown once; unused codes can be changed and removed."""

import re

from store.money import codes

CODES = "/api/admin/codes"


def test_a_batch_is_shown_once_and_its_codes_are_changed_and_removed(api):
    body = {"amount": "2.5", "count": 3, "expires_at": "2040-01-01T00:00:00Z"}
    created = api.create("codes", body)["items"]
    assert len({code["code"] for code in created}) == 3
    answer = api.get(CODES)
    assert [code["status"] for code in answer.json["items"]] == ["active"] * 3
    for code in created:
        assert code["code"] not in answer.text
    place = f"{CODES}/{created[0]['id']}"
    assert api.call("PATCH", place, {"amount": "4", "enabled": False}).json["status"] == "disabled"
    assert api.call("PATCH", place, {"expires_at": None}).json["expires_at"] is None
    assert api.refused("PATCH", place, {"code": "x"})[:2] == (400, "code")
    assert api.call("DELETE", place).status == 204
    assert api.get(place).status == 404
    part = api.get(f"{CODES}?limit=1").json
    [rest] = api.listed(f"{CODES}?limit=1&after={part['next']}")
    assert {part["items"][0]["id"], rest["id"]} == {code["id"] for code in created[1:]}


def test_the_form_shows_its_codes_once_and_a_used_one_stays(boss, api, db):
    boss.get("/admin/codes?new=1")
    assert boss.send("/admin/codes", [("amount", "0"), ("count", "1")]).status == 400
    answer = boss.send("/admin/codes", [("amount", "5"), ("count", "2"), ("expires_at", "")])
    secrets = sorted({*re.findall(r"slc-[0-9A-Z-]{20,}", answer.text)})
    assert len(secrets) == 2
    codes.redeem(db, "alice", secrets[0], ["pepper of the tests"], "alice")
    text = boss.get("/admin/codes").text
    assert re.search(r"alice <span[^>]*><time", text) and "Used" in text and "Active" in text
    assert not any(secret in text for secret in secrets)
    ids = {code["status"]: code["id"] for code in api.listed(CODES)}
    used, unused = f"/admin/codes/{ids['used']}", f"/admin/codes/{ids['active']}"
    answer = boss.send(f"{used}/remove", [("confirm", secrets[0][-4:])])
    assert answer.status == 400 and "was used" in answer.text
    assert boss.send(f"{unused}/disable", []).status == 303
    assert "Disabled" in boss.get("/admin/codes").text
    assert boss.send(f"{unused}/remove", [("confirm", secrets[1][-4:])]).status == 303
    assert len(api.listed(CODES)) == 1
