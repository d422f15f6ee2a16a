"""The pages of administrators without JavaScript: forms post, faults stand beside their fields."""

import html
import re

import pytest

from handlers.hub import object_forms
from store.admin.export import list_objects, show
from store.catalog.keys_aside import KeyAside, put_aside
from store.db.tables.catalog import ChannelKey
from store.hub import notices
from store.money import codes
from tests.handlers.hub.admin.script import CHANNEL, MODEL, UPSTREAM_KEY
from tests.handlers.hub.browser import Browser

PAGES = ("users", "groups", "models", "channels", "plans", "codes", "audit", "system")
SCRIPT = "<script>alert(7)</script>"
PRICES = [("price.input", "2"), ("price.output", "8")]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_and_form_is_shown_in_each_language(boss, api, language):
    boss.cookies["language"] = language
    api.call("POST", "/api/admin/models", MODEL)
    api.call("POST", "/api/admin/channels", CHANNEL)
    api.call("POST", "/api/admin/plans", {"name": "m", "quota": "20", "window": "month"})
    api.call("POST", "/api/admin/subscriptions", {"user": "alice", "plan": "m"})
    api.call("POST", "/api/admin/notices", {"text": SCRIPT})
    made = api.call("POST", "/api/admin/codes", {"amount": "1"}).json["items"][0]
    places = [f"/admin/{page}" for page in PAGES]
    places += [f"/admin/{page}?new=1" for page in PAGES if page not in ("audit", "system")]
    places += ["/admin/users/alice", "/admin/groups/default", "/admin/models/gpt-4.1"]
    places += ["/admin/channels/main", "/admin/channels/main/edit", "/admin/plans/m"]
    places += ["/admin/channels?new=1&like=main", "/admin/channels/main/models"]
    places += ["/admin/subscriptions?new=1", "/admin/subscriptions/alice%2Fm", "/admin/prices"]
    places += ["/admin/users/alice/credit", "/admin/users/alice/remove", "/admin/system/drain"]
    places += [f"/admin/codes/{made['id']}/remove", "/admin/system?settings=all"]
    for place in places:
        answer = boss.get(place)
        assert answer.status == 200, f"{place}: {answer.status}"
        assert SCRIPT not in answer.text and UPSTREAM_KEY not in answer.text, place
        assert made["code"] not in answer.text


def test_members_get_404_and_strangers_sign_in(alice, hub):
    for page in (*PAGES, "prices", "users/boss", "system/drain", "channels/main/test"):
        assert alice.get(f"/admin/{page}").status == 404
        assert Browser(hub.port).get(f"/admin/{page}").status == 303
    assert alice.send("/admin/groups", [("name", "stolen")]).status == 404


def test_a_group_is_made_changed_disabled_and_removed(boss, db):
    boss.get("/admin/groups?new=1")
    fields = [("name", "a/b c"), ("multiplier", "0.8"), ("models", "*"), ("enabled", "true")]
    fields += [("entries", "messages"), ("translate", "true")]
    answer = boss.send("/admin/groups", fields)
    assert (answer.status, answer.place) == (303, "/admin/groups"), answer.text
    assert "a/b c created." in boss.get("/admin/groups").text
    place = "/admin/groups/a%2Fb%20c"
    form = boss.get(place).text
    assert 'value="0.8"' in form and not re.search(r'name="name"', form)
    fields = [("multiplier", "1.5"), ("models", "*"), ("enabled", "true"), ("rpm", "60")]
    assert boss.send(place, fields).status == 303
    group = show(db, "group", "a/b c")
    assert (group["multiplier"], group["rpm"], group["translate"]) == ("1.5", 60, False)
    assert group["entries"] == []
    assert boss.send(f"{place}/disable", []).status == 303
    assert show(db, "group", "a/b c")["enabled"] is False
    assert f'action="{place}/enable"' in boss.get("/admin/groups").text  # the toast's Undo
    assert boss.send(f"{place}/remove", [("confirm", "a/b")]).status == 400
    assert boss.send(f"{place}/remove", [("confirm", "a/b c")]).status == 303
    assert [one["name"] for one in list_objects(db, "group")] == ["default"]


def test_what_was_typed_stays_and_the_fault_stands_beside_its_field(boss):
    boss.get("/admin/models?new=1")
    fields = [("name", SCRIPT), ("price.input", "cheap"), ("price.output", "8")]
    answer = boss.send("/admin/models", fields)
    assert answer.status == 400
    assert f'value="{html.escape(SCRIPT)}"' in answer.text and 'value="cheap"' in answer.text
    assert 'id="f-name-problem"' in answer.text and SCRIPT not in answer.text
    answer = boss.send("/admin/models", [("name", "fine"), *fields[1:]])
    assert 'id="f-price-problem"' in answer.text and "price.input" in answer.text


def test_a_channel_keeps_its_keys_when_their_field_is_empty(boss, api, db, hub):
    api.call("POST", "/api/admin/models", MODEL)
    boss.get("/admin/channels?new=1")
    fields = [("name", "main"), ("vendor", "openai-compatible"), ("family", "chat_completions")]
    fields += [("base_url", CHANNEL["base_url"]), ("keys", f"{UPSTREAM_KEY}\r\nsk-second-key")]
    fields += [("models", "gpt-4.1 = up-model"), ("groups", "default"), ("enabled", "true")]
    fields += [("extra_headers", "X-Org: secret-org"), ("proxy", "http://u:pw@127.0.0.1:3128")]
    answer = boss.send("/admin/channels", fields)
    assert answer.status == 303, answer.text
    channel = show(db, "channel", "main")
    assert len(channel["keys"]) == 2 and channel["models"] == {"gpt-4.1": "up-model"}
    form = boss.get("/admin/channels/main/edit").text
    assert "2 stored" in form and "secret-org" not in form and "u:pw" not in form
    shown = re.search(r'name="proxy" value="([^"]*)"', form)[1]
    kept = [(name, value) for name, value in fields if name not in ("name", "keys")]
    kept = [one for one in kept if one[0] not in ("extra_headers", "proxy")]
    kept += [("keys", ""), ("extra_headers", ""), ("proxy", shown), ("priority", "5")]
    assert boss.send("/admin/channels/main/edit", kept).status == 303
    channel = show(db, "channel", "main")
    assert (len(channel["keys"]), channel["priority"]) == (2, 5)
    assert channel["extra_headers"] == {"x-org": "***"} and channel["proxy"] == shown
    bad = [*kept, ("keys", "sk-third key with blanks")]
    answer = boss.send("/admin/channels/main/edit", [*bad, ("weight", "none")])
    assert answer.status == 400 and "sk-third" not in answer.text


def test_a_user_signs_in_with_the_password_and_has_the_money(boss, hub):
    boss.get("/admin/users?new=1")
    fields = [("name", "dora"), ("role", "member"), ("balance", "3"), ("enabled", "true")]
    fields += [("password", "a long password"), ("groups", "default"), ("order", "plan_first")]
    assert boss.send("/admin/users", fields).status == 303
    assert Browser(hub.port).sign_in("dora", "a long password").status == 303
    boss.get("/admin/users/dora/credit")
    answer = boss.send("/admin/users/dora/credit", [("amount", "x"), ("reason", "gift")])
    assert answer.status == 400 and 'value="gift"' in answer.text
    money = [("amount", "1.5"), ("reason", "gift"), ("kind", "credit")]
    assert boss.send("/admin/users/dora/credit", money).status == 303
    assert "dora has 4.5 USD" in boss.get("/admin/users").text
    boss.get("/admin/users/dora")
    assert boss.send("/admin/users/dora/sessions", []).status == 303
    assert "Ended for dora: 1 sessions, 0 tokens." in boss.get("/admin/users").text
    assert boss.send("/admin/users/boss/disable", []).status == 400


def test_codes_are_shown_when_they_are_made_and_prices_before_they_are_taken(boss, api, db):
    boss.get("/admin/codes?new=1")
    answer = boss.send("/admin/codes", [("amount", "5"), ("count", "3"), ("expires_at", "")])
    assert len(set(re.findall(r"slc-[0-9A-Z-]{20,}", answer.text))) == 3
    assert boss.send("/admin/codes", [("amount", "0"), ("count", "1")]).status == 400
    api.call("POST", "/api/admin/models", MODEL)
    table = [("table", "model,input\ngpt-4.1,3")]
    assert "Models that would change: 1" in boss.send("/admin/prices", table).text
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "2"
    assert boss.send("/admin/prices", [*table, ("take", "yes")]).status == 303
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "3"


def test_the_audit_page_marks_what_differs_and_says_who_and_from_where(boss, api):
    api.call("POST", "/api/admin/groups", {"name": "coding"})
    api.call("PATCH", "/api/admin/groups/coding", {"multiplier": "3"})
    text = boss.get("/admin/audit?kind=group&name=coding").text
    assert "1 → <ins>3</ins>" in text and "127.0.0.1" in text and "boss" in text
    assert "No line matches." in boss.get("/admin/audit?actor=nobody").text


def test_a_notice_is_made_and_taken_back_on_the_system_page(boss, alice):
    boss.get("/admin/system")
    assert boss.send("/admin/system/notices", [("text", ""), ("level", "info")]).status == 400
    made = [("text", "Back at noon"), ("level", "warning"), ("until", "2040-01-01")]
    assert boss.send("/admin/system/notices", made).status == 303
    assert alice.get("/").text.count("Back at noon") == 1  # home has its own place for notices
    [seen] = alice.get("/api/notices").json["items"]
    assert (seen["text"], seen["until"]) == ("Back at noon", "2040-01-01T00:00:00.000Z")
    boss.get("/admin/system")
    assert boss.send("/admin/system/notices", [("remove", seen["id"])]).status == 303
    assert alice.get("/api/notices").json["items"] == []


def test_a_warning_is_shown_on_every_page_and_a_note_on_home(serve, db):
    notices.create(db, {"text": "Moving tonight", "level": "warning"}, "tester")
    notices.create(db, {"text": "New models"}, "tester")
    alice = Browser(serve().port).signed_in("alice")
    text = alice.get("/account").text
    assert text.count("Moving tonight") == 1 and "New models" not in text
    text = alice.get("/").text
    assert text.count("Moving tonight") == text.count("New models") == 1
    assert "Moving tonight" not in Browser(alice.port).get("/sign-in").text


def test_channels_are_narrowed_by_state_vendor_and_group(boss, api):
    api.call("POST", "/api/admin/models", MODEL)
    api.call("POST", "/api/admin/groups", {"name": "coding"})
    api.call("POST", "/api/admin/channels", CHANNEL)
    off = CHANNEL | {"name": "spare", "enabled": False, "groups": ["coding"]}
    api.call("POST", "/api/admin/channels", off)
    api.call("POST", "/api/admin/channels", CHANNEL | {"name": "show", "vendor": "demo"})
    for query, names in (
        ("state=switched_off", ["spare"]),
        ("vendor=demo", ["show"]),
        ("group=default", ["main", "show"]),
        ("group=default&vendor=demo", ["show"]),
        ("state=switched_off&vendor=demo", []),
        ("search=spa", ["spare"]),
    ):
        text = boss.get(f"/admin/channels?{query}").text
        assert re.findall(r'aria-expanded="false">.*?</svg> (\w+)</a>', text) == names, query
    assert "Clear filters" in boss.get("/admin/channels?vendor=demo&group=coding").text


def test_more_users_than_a_list_can_offer_are_typed(boss, api, monkeypatch):
    api.call("POST", "/api/admin/plans", {"name": "m", "quota": "20", "window": "month"})
    assert re.search(r'<select id="f-user"', boss.get("/admin/subscriptions?new=1").text)
    monkeypatch.setattr(object_forms, "MAX_OPTIONS", 1)
    text = boss.get("/admin/subscriptions?new=1").text
    assert re.search(r'<input id="f-user"', text) and re.search(r'<select id="f-plan"', text)
    boss.send("/admin/subscriptions", [("user", "alice"), ("plan", "m"), ("enabled", "true")])
    [made] = api.listed("/api/admin/subscriptions")
    assert (made["user"], made["plan"], made["enabled"]) == ("alice", "m", True)


def test_a_used_code_tells_by_whom_and_stays(boss, api, db):
    made = api.call("POST", "/api/admin/codes", {"amount": "5", "count": 2}).json["items"]
    codes.redeem(db, "alice", made[0]["code"], ["pepper of the tests"], "alice")
    text = boss.get("/admin/codes").text
    assert re.search(r"alice <span[^>]*><time", text) and "Used" in text and "Active" in text
    place = f"/admin/codes/{made[0]['id']}/remove"
    answer = boss.send(place, [("confirm", made[0]["code"][-4:])])
    assert answer.status == 400 and "was used" in answer.text
    place = f"/admin/codes/{made[1]['id']}"
    assert boss.send(f"{place}/disable", []).status == 303
    assert "Disabled" in boss.get("/admin/codes").text
    assert boss.send(f"{place}/remove", [("confirm", made[1]["code"][-4:])]).status == 303
    assert len(api.listed("/api/admin/codes")) == 1


def test_an_upstream_key_that_was_put_aside_is_shown_and_used_again(boss, api, db):
    api.call("POST", "/api/admin/models", MODEL)
    made = api.call("POST", "/api/admin/channels", CHANNEL).json
    [row] = list(ChannelKey.select().bind(db).dicts())
    name = (made["id"], row["fingerprint"])
    put_aside(db, KeyAside(*name, since_ms=1, until_ms=2**40, times=1, reason="401 no such key"))
    text = boss.get("/admin/channels/main").text
    assert "401 no such key" in text and "Refused" in text
    assert boss.send("/admin/channels/main/reinstate", [("key", "1")]).status == 303
    text = boss.get("/admin/channels/main").text
    assert "is used again" in text and "401 no such key" not in text


def test_names_of_groups_with_blanks_and_commas_are_chosen_whole(boss, api, db):
    for name in ("a b", "c, d"):
        assert api.call("POST", "/api/admin/groups", {"name": name}).status == 201
    boss.get("/admin/users/alice")
    fields = [("role", "member"), ("enabled", "true"), ("order", "plan_first")]
    chosen = [("groups", "a b"), ("groups", "c, d")]
    assert boss.send("/admin/users/alice", [*fields, *chosen]).status == 303
    assert show(db, "user", "alice")["groups"] == ["a b", "c, d"]
    typed = [("groups", "c, d\r\n a b \r\n\r\n")]
    assert boss.send("/admin/users/alice", [*fields, *typed]).status == 303
    assert show(db, "user", "alice")["groups"] == ["c, d", "a b"]
