"""Two administrators with the form of one object: the second is refused and shown both changes,
and may keep both."""

import re

import pytest

from store.admin.export import show
from tests.handlers.hub.browser import submitted_by
from tests.handlers.hub.script import MODEL

BOB = "/admin/users/bob/edit"


def with_values(fields, **values):
    return [(name, values.get(name, value)) for name, value in fields]


def test_changes_of_different_fields_are_both_kept(boss, api, db):
    api.create("users", {"name": "bob", "rpm": 120})
    fields = submitted_by(boss.get(BOB).text)
    api.call("PATCH", "/api/admin/users/bob", {"rpm": 200})
    answer = boss.send(BOB, with_values(fields, tpm="240"))
    assert answer.status == 409 and show(db, "user", "bob")["tpm"] == 0
    assert "boss changed bob at" in answer.text and ">Keep both<" in answer.text
    for change in ("Calls a minute: 120 → 200.", "Your change: Tokens a minute 0 → 240."):
        assert change in answer.text
    assert boss.send(BOB, submitted_by(answer.text)).status == 303
    bob = show(db, "user", "bob")
    assert (bob["rpm"], bob["tpm"]) == (200, 240)


def test_changes_of_one_field_are_shown_and_the_last_word_is_a_choice(boss, api, db):
    api.create("models", MODEL)
    place = "/admin/models/gpt-4.1"
    fields = submitted_by(boss.get(place).text)
    api.call("PATCH", f"/api{place}", {"price": {"input": "3"}, "context_tokens": 5})
    answer = boss.send(place, with_values(fields, **{"price.input": "4", "price.output": "9"}))
    assert answer.status == 409 and ">Keep both<" not in answer.text
    assert "Where both changed the same" in answer.text
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "3", "prices go back silently"
    assert boss.send(place, submitted_by(answer.text)).status == 303
    model = show(db, "model", "gpt-4.1")
    assert (model["price"]["input"], model["price"]["output"]) == ("4", "9")
    assert model["context_tokens"] == 5


def test_a_typed_secret_is_asked_for_again(boss, api, db):
    api.create("users", {"name": "bob"})
    fields = submitted_by(boss.get(BOB).text)
    api.call("PATCH", "/api/admin/users/bob", {"rpm": 200})
    answer = boss.send(BOB, with_values(fields, password="a long password"))
    assert answer.status == 409 and "a long password" not in answer.text
    assert re.search(r'id="f-password-problem"[^>]*>Type it again', answer.text)
    assert ">Keep both<" not in answer.text


def test_scripts_send_the_version_that_they_changed(api):
    created = api.create("users", {"name": "bob"})
    place, version = "/api/admin/users/bob", created["version"]
    changed = api.call("PATCH", place, {"rpm": 5, "version": version}).json
    status, _, message = api.refused("PATCH", place, {"tpm": 6, "version": version})
    assert status == 409 and "changed by boss since" in message and changed["version"] in message
    assert api.call("PATCH", place, {"tpm": 6, "version": changed["version"]}).status == 200
    assert api.refused("PATCH", place, {"tpm": 6, "version": 1})[:2] == (400, "version")


def test_the_form_of_a_key_keeps_the_changes_of_another_tab(alice):
    place = f"/keys/{alice.make('laptop', expires_at='2031-05-06T07:08:09Z')}/edit"
    fields = submitted_by(alice.get(place).text)
    assert alice.send(place, with_values(fields, rpm="30")).status == 303
    answer = alice.send(place, with_values(fields, limit="5"))
    assert answer.status == 409 and ">Keep both<" in answer.text
    assert "alice changed laptop at" in answer.text
    for change in ("Calls a minute: 0 → 30.", "Your change: Spend limit – → 5."):
        assert change in answer.text
    assert alice.send(place, submitted_by(answer.text)).status == 303
    key = alice.api("GET", f"/api{place.removesuffix('/edit')}").json
    assert (key["rpm"], key["limit"], key["expires_at"]) == (30, "5", "2031-05-06T07:08:09.000Z")


def test_the_form_of_a_rule_keeps_the_changes_of_another_administrator(boss, api):
    rule = {"kind": "balance", "settings": {"below": "5"}, "destinations": ["owner"]}
    place = f"/alerts/rules/{api.call('POST', '/api/alerts/rules?of=gateway', rule).json['id']}"
    fields = submitted_by(boss.get(place).text)
    assert boss.send(f"{place}/disable", []).status == 303
    answer = boss.send(place, with_values(fields, below="7"))
    assert answer.status == 409 and "Enabled: yes → no." in answer.text
    assert boss.send(place, submitted_by(answer.text)).status == 303
    stored = boss.api("GET", f"/api{place}?of=gateway").json
    assert (stored["settings"]["below"], stored["enabled"]) == ("7", False)


@pytest.mark.parametrize("plural", ("keys", "alerts/rules"))
def test_members_scripts_send_the_version_that_they_changed(alice, plural):
    alice.get("/account")
    made = {"keys": {"name": "laptop"}, "alerts/rules": {"kind": "balance"}}[plural]
    made |= {"settings": {"below": "5"}, "destinations": ["owner"]} if "/" in plural else {}
    place = f"/api/{plural}/{alice.api('POST', f'/api/{plural}', made).json['id']}"
    version = alice.api("GET", place).json["version"]
    field, other = ("rpm", "tpm") if plural == "keys" else ("again_minutes", "enabled")
    assert alice.api("PATCH", place, {field: 60, "version": version}).status == 200
    answer = alice.api("PATCH", place, {other: plural == "keys" and 5, "version": version})
    assert answer.status == 409 and "changed by alice since" in answer.json["error"]["message"]


def test_a_list_of_prices_is_shown_again_when_others_changed_some(boss, api, db):
    api.create("models", MODEL)
    table = [("table", "model,input\ngpt-4.1,7")]

    def seen_on(page):
        return re.search(r'name="seen" value="(\w+)"', page.text)[1]

    boss.get("/admin/prices")
    seen = seen_on(boss.send("/admin/prices", table))
    api.call("PATCH", "/api/admin/models/gpt-4.1", {"price": {"input": "3", "output": "9"}})
    answer = boss.send("/admin/prices", [*table, ("take", "yes"), ("seen", seen)])
    assert answer.status == 409 and "not the changes that were shown" in answer.text
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "3"
    again = [*table, ("take", "yes"), ("seen", seen_on(answer))]
    assert boss.send("/admin/prices", again).status == 303
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "7"
