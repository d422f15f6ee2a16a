"""Alerts of the gateway and of members: pages, forms without script, and the JSON API."""

import re

import pytest

from handlers.hub.web.strings import strings
from store.alerts import evaluation, kinds, outbox, rules
from store.alerts.conditions import Scope
from store.alerts.rules import GATEWAY
from store.db.database import database_ms
from store.hub import tokens
from store.money import wallet
from tests.handlers.hub.script import Script
from tests.handlers.hub.usage.calls import call, failed, put
from tests.support.receivers import MailServer, Webhook

RULES, PLACES, SENT = "/api/alerts/rules", "/api/alerts/destinations", "/api/alerts/sent"
OF = "?of=gateway"
HOOK = {"name": "ops", "kind": "webhook", "address": "https://hooks.example.com/sluice"}


def fire(db):
    evaluation.run(db, Scope(database_ms(db)), lambda: None)


def test_a_member_makes_changes_and_removes_a_rule(alice, db):
    assert "Create these two" in alice.get("/alerts").text
    form = alice.get("/alerts/rules/new?kind=spending").text
    assert 'value="gateway"' not in form, "a member has no rules of others"
    fields = [("kind", "spending"), ("above", "0.5"), ("window", "month"), ("of", "key")]
    answer = alice.send("/alerts/rules/new?of=me", [*fields, ("to", "owner"), ("do", "save")])
    assert (answer.status, answer.place) == (303, "/alerts?of=me")
    page = alice.get("/alerts").text
    assert "A key spends more than 0.50 USD a month" in page and "Rule created." in page
    place = re.search(r"/alerts/rules/[0-9A-Z]{26}", page)[0]
    assert 'value="0.5"' in alice.get(place).text
    assert alice.send(f"{place}/disable", []).status == 303
    assert 'aria-checked="false"' in alice.get("/alerts").text
    assert alice.send(f"{place}/enable", []).status == 303
    assert "A key spends more" in alice.get(f"{place}/remove").text
    assert alice.send(f"{place}/remove", []).status == 303
    assert "Create these two" in alice.get("/alerts").text
    assert alice.get(place).status == 404


def test_the_form_keeps_what_was_typed_and_marks_its_field(boss):
    boss.get("/alerts/rules/new?kind=errors")
    fields = [("kind", "errors"), ("percent", "0"), ("minutes", "ten"), ("calls", "7")]
    answer = boss.send("/alerts/rules/new", fields)
    assert answer.status == 400
    marked = re.findall(r'name="(\w+)" value="([^"]*)"[^>]*aria-invalid', answer.text)
    assert marked == [("percent", "0"), ("minutes", "ten")]
    assert boss.send("/alerts/rules/new", [("kind", "weather")]).status == 400


def test_a_preview_changes_nothing(boss, api):
    boss.get("/alerts/rules/new?kind=balance")
    answer = boss.send(
        "/alerts/rules/new", [("kind", "balance"), ("below", "12"), ("do", "preview")]
    )
    assert answer.status == 200 and "Would not have been sent in 30 days." in answer.text
    assert 'name="below" value="12"' in answer.text
    body = {"kind": "balance", "settings": {"below": "12"}}
    assert api.call("POST", f"/api/alerts/preview{OF}", body).json["count"] == 0
    assert api.call("POST", f"/api/alerts/preview{OF}", {"kind": "trouble"}).json == {"count": None}
    assert api.listed(f"{RULES}{OF}") == []


@pytest.mark.parametrize(
    ("settings", "count", "name"),
    [
        ({"of": "user", "above": "0.0001"}, 1, "alice"),
        ({"of": "gateway", "above": "0.0001"}, 1, None),
        ({"of": "user", "above": "0.0001", "window": "month"}, 1, "alice"),
        ({"of": "gateway", "above": "9", "window": "month"}, 0, None),
        ({"of": "user", "above": "0.0001", "names": ["boss"]}, 0, None),
        ({"of": "group", "above": "9"}, 0, None),
    ],
)
def test_a_preview_counts_the_past(boss, api, db, settings, count, name):
    put(db, call(db, 1))
    body = {"kind": "spending", "settings": settings}
    answer = api.call("POST", f"/api/alerts/preview{OF}", body).json
    assert (answer["count"], answer["last_object"]) == (count, name)
    assert sum(answer["days"]) == count and len(answer["days"]) == 30
    boss.get("/alerts/rules/new")
    names = {"names": ",".join(settings.get("names", ()))}
    fields = {"kind": "spending", "do": "preview", **settings, **names}
    text = boss.send("/alerts/rules/new", list(fields.items())).text
    assert ("Would have been sent once in 30 days," in text) == (count == 1)


def test_a_preview_of_errors_is_about_hours(api, db):
    put(db, *(failed(db, number, attempts=()) for number in range(3)))
    body = {"kind": "errors", "settings": {"calls": 3}}
    answer = api.call("POST", f"/api/alerts/preview{OF}", body).json
    assert (answer["count"], answer["about"], answer["last_object"]) == (1, True, "main")


def test_an_empty_page_makes_four_rules_once(boss, api):
    assert "Create these four" in boss.get("/alerts").text
    for _ in range(2):
        assert boss.send("/alerts/first?of=gateway", []).status == 303
    made = {row["kind"]: row for row in api.listed(f"{RULES}{OF}")}
    assert {*made} == {*kinds.FIRST_FOUR} and made["balance"]["destinations"] == ["owner"]
    assert "Mail is not set up: 1 rule sends less than it says." in boss.get("/alerts").text


def test_the_secret_of_a_webhook_is_shown_once(boss, api):
    boss.get("/alerts/destinations/new")
    fields = list(HOOK.items())
    secret = re.search(
        r'class="value">([\w-]{43})<', boss.send("/alerts/destinations/new", fields).text
    )
    page = boss.get("/alerts").text
    assert secret and secret[1] not in page and HOOK["address"] in page
    created = api.call("POST", f"{PLACES}{OF}", HOOK | {"name": "two"})
    assert created.status == 201 and len(created.json["secret"]) == 43
    assert [row["name"] for row in api.listed(f"{PLACES}{OF}")] == ["ops", "two"]
    assert not any("secret" in row for row in api.listed(f"{PLACES}{OF}"))
    place = f"/alerts/destinations/{created.json['id']}"
    assert "two" in boss.get(f"{place}/remove").text
    assert boss.send(f"{place}/remove?of=gateway", []).status == 303
    assert api.call("DELETE", f"{PLACES}/{created.json['id']}{OF}").status == 404
    assert boss.send("/alerts/destinations/new", [*fields[:2], ("address", "x")]).status == 400


def test_a_test_says_how_it_went_and_members_reach_no_private_address(boss, alice, api, db):
    with Webhook() as webhook:
        body = HOOK | {"address": webhook.url}
        place = api.call("POST", f"{PLACES}{OF}", body).json["id"]
        answer = api.call("POST", f"{PLACES}/{place}/test{OF}").json
        assert answer["ok"] and answer["result"] == "200" and len(webhook.received) == 1
        boss.get("/alerts")
        assert boss.send(f"/alerts/destinations/{place}/test?of=gateway", []).status == 303
        assert re.search(r"Test sent in \d\.\d\d s", boss.get("/alerts").text)
        script = Script(api.port, tokens.create(db, "alice", ["keys"], actor="t")[1])
        message = "127.0.0.1 is not a public address"
        assert script.refused("POST", PLACES, body) == (400, "address", message)
        body = HOOK | {"address": webhook.url.replace("127.0.0.1", "127.1")}  # read as a name
        own = script.call("POST", PLACES, body).json["id"]
        answer = script.call("POST", f"{PLACES}/{own}/test").json
        assert (answer["ok"], answer["result"]) == (False, message)
        assert len(webhook.received) == 2
    alice.cookies["language"] = "zh"
    assert "127.0.0.1 不是公网地址" in alice.get("/alerts").text
    alice.send(f"/alerts/destinations/{own}/test", [])
    assert "127.0.0.1 不是公网地址" in alice.get("/keys").text
    assert api.call("POST", f"{PLACES}/{own}/test{OF}").status == 404, "it is alice's"


def test_what_was_sent_is_listed_and_sent_again(boss, api, db):
    place = api.call("POST", f"{PLACES}{OF}", HOOK).json["id"]
    body = {"kind": "balance", "settings": {"below": "20"}, "destinations": [place, "owner"]}
    rule = api.call("POST", f"{RULES}{OF}", body).json
    fire(db)
    (shown,) = api.listed(f"{RULES}{OF}")
    assert shown["state"] == "firing" and len(shown["firing"]) == 1
    rows = api.listed(f"{SENT}{OF}")
    assert {(row["to"], row["by_mail"]) for row in rows} == {
        *(("ops", False), ("alice", True)),
    }
    message = outbox.claim(db, "A")
    outbox.finish(db, message, "A", outbox.Result(ok=False, text="mail is not set up", again=False))
    text = boss.get("/alerts").text
    assert "1 fires now" in text and "Not sent" in text and "alice: 10.0000 USD left" in text
    assert "Not sent" in boss.get("/alerts/sent").text
    boss.cookies["language"] = "zh"
    texts = [boss.get(path).text for path in ("/alerts", "/alerts/sent")]
    assert all("邮件尚未设置" in text and "mail is not set up" not in text for text in texts)
    boss.send(f"/alerts/sent/{message.id}/again?of=gateway", [])
    assert {row["status"] for row in api.listed(f"{SENT}{OF}")} == {"waiting"}
    part = api.get(f"{SENT}{OF}&limit=1").json
    assert len(api.listed(f"{SENT}{OF}&after={part['next']}")) == len(rows) - 1
    assert api.call("POST", f"{SENT}/{message.id}/again{OF}").json["status"] == "waiting"
    changed = api.call("PATCH", f"{RULES}/{rule['id']}{OF}", {"enabled": False}).json
    assert (changed["state"], changed["changed_by"]) == ("off", "boss")
    assert api.call("DELETE", f"{RULES}/{rule['id']}{OF}").status == 204


def test_a_rules_test_goes_through_the_outbox(boss, api):
    place = api.call("POST", f"{PLACES}{OF}", HOOK).json["id"]
    boss.get("/alerts/rules/new")
    fields = [("kind", "trouble"), ("to", place), ("do", "test")]
    assert boss.send("/alerts/rules/new", fields).status == 303
    (row,) = api.listed(f"{SENT}{OF}")
    assert (row["state"], row["to"]) == ("test", "ops") and api.listed(f"{RULES}{OF}") == []


@pytest.mark.parametrize("path", [RULES, PLACES, SENT, "/alerts", "/alerts/rules/new"])
def test_members_and_narrow_tokens_see_nothing_of_the_gateways(alice, hub, db, path):
    assert alice.get(f"{path}{OF}").status == 404
    if path.startswith("/api"):
        token = tokens.create(db, "boss", ["read", "keys"], actor="t")[1]
        assert Script(hub.port, token).get(f"{path}{OF}").status == 404
        assert Script(hub.port, token).get(path).status == 200
        assert alice.get(f"{path}?of=all").status == 400


def test_rules_of_one_member_are_nothing_for_another(alice, boss, db):
    user_id = wallet.find_owner(db, "boss").id
    rule_id = rules.create(db, user_id, {"kind": "key"}, "boss")
    assert alice.get(f"{RULES}/{rule_id}").status == 404
    assert boss.get(f"{RULES}/{rule_id}").json["kind"] == "key"
    assert boss.get(f"{RULES}/{rule_id}{OF}").status == 404


def test_system_sends_a_test_mail(serve, db):
    with MailServer() as server:
        boss = serve(mail={"url": server.url, "sender": "sluice@example.com"}).signed_in("boss")
        page = boss.get("/admin/system").text
        assert f"smtp://***@127.0.0.1:{server.port}" in page and "pass%2Fword" not in page
        assert boss.send("/admin/system/mail", [("to", "noc@example.com")]).status == 303
        assert server.recipients == [("noc@example.com",)]
        server.refusal = "550 no such user"
        answer = boss.send("/admin/system/mail", [("to", "noc@example.com")])
        assert answer.status == 400 and "no such user" in answer.text
        assert boss.send("/admin/system/mail", [("to", "no address")]).status == 400


def test_without_a_server_no_mail_is_sent(boss, api):
    assert "Not set up" in boss.get("/admin/system").text
    answer = api.call("POST", "/api/admin/system/mail-test", {"to": "noc@example.com"}).json
    assert answer == {"ok": False, "result": "mail is not set up", "took_ms": None}
    assert api.refused("POST", "/api/admin/system/mail-test", {"to": 7})[:2] == (400, "to")


def test_the_account_shows_the_mail_address(alice, api):
    assert api.call("PATCH", "/api/admin/users/alice", {"mail": "nobody"}).status == 400
    api.call("PATCH", "/api/admin/users/alice", {"mail": "alice@example.com"})
    assert "alice@example.com" in alice.get("/account").text
    assert "alice@example.com" in alice.get("/alerts").text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_rule_has_its_words(language):
    words = strings(language)
    for name, kind in kinds.KINDS.items():
        assert f"alerts.pick_{name}" in words and f"alerts.pick_{name}_rest" in words
        spans = ("day", "month")
        variants = {
            kinds.CHANNEL_DOWN: ["_down", "_degraded"],
            kinds.SPENDING: [
                f"_{of}_{span}" for of in ("gateway", "user", "key", "group") for span in spans
            ],
        }.get(name, [""])
        assert all(f"alerts.when_{name}{variant}" in words for variant in variants)
        scopes = [""] if name != kinds.SPENDING else ["_gateway", "_user", "_key", "_group"]
        assert all(f"alerts.scope_{name}{scope}" in words for scope in scopes)
        assert not kind.own or name == kinds.SPENDING or f"alerts.scope_{name}_mine" in words


def test_the_gateway_and_mine_are_two_pages(boss, db):
    rules.create(db, GATEWAY, {"kind": "trouble"}, "boss")
    assert "is in trouble" in boss.get("/alerts").text
    assert "is in trouble" not in boss.get("/alerts?of=me").text
