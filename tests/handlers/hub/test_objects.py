"""Users, groups, models, channels, plans and subscriptions by /api/admin/KIND and by forms without
JavaScript: created, listed, changed, removed; validated like the document of `apply`."""

import html
import re

import pytest

from handlers.hub.admin import object_forms
from store.admin.export import export, list_objects, show
from store.values.features import FEATURES
from store.values.meters import METERS
from tests.handlers.hub.browser import submitted_by
from tests.handlers.hub.script import CHANNEL, MODEL, UPSTREAM_KEY

PAGES = ("users", "groups", "models", "channels", "plans", "codes", "audit", "system")
PLAN = {"name": "monthly", "quota": "20", "window": "month"}
FULL_CHANNEL = {
    **{**CHANNEL, "models": {"gpt-4.1": "gpt-4.1"}, "weight": 3, "draining": True},
    **{"extra_headers": {"x-org": "secret"}, "proxy": "http://user:pw@127.0.0.1:3128"},
    "options": {"images": True, "max_budget_tokens": 1, "efforts": ["low", "high"]},
    "body": {"remove": ["tools.*.x"], "set": {"a": {"b": [1, "c=d, e"]}}, "default": {"t": 0.5}},
    "remove_headers": ["openai-beta", "x-of-client"],
    "model_times": {"gpt-4.1": {"first_byte_timeout_s": 900, "idle_timeout_s": 60}},
    "first_byte_timeout_s": 30,
    "retry_timeouts": False,
}
EVERY_PRICE = {name: f"{number}.5" for number, name in enumerate(METERS)}
RATES = [
    {"when": {"tier": "flex"}, "factor": "0.5"},
    {
        "when": {"speed": "fast", "geo": "us", "input_over": 272_000},
        **{"input": "5", "output": "0", "reasoning": "0.000000001", "web_search": "0.02"},
    },
]
SUBSCRIPTION = {"user": "alice", "plan": "monthly"}
SCRIPT = "<script>alert(7)</script>"


@pytest.mark.parametrize(
    ("plural", "body", "changes", "path"),
    [
        ("groups", {"name": "coding", "multiplier": "2.5"}, {"multiplier": "3"}, "coding"),
        ("users", {"name": "carol", "balance": "3"}, {"rpm": 60, "limit": "5"}, "carol"),
        ("models", MODEL | {"name": "org/m:1"}, {"price": {"input": 0.1}}, "org%2Fm%3A1"),
        ("channels", CHANNEL, {"priority": 5, "models": {}}, "main"),
        ("plans", PLAN, {"quota": "30"}, "monthly"),
        ("subscriptions", SUBSCRIPTION, {"expires_at": "2030-01-01T00:00:00Z"}, "alice/monthly"),
    ],
)
def test_each_kind_is_created_shown_changed_and_removed(api, db, plural, body, changes, path):
    for before, needed in {"channels": ("models", MODEL), "subscriptions": ("plans", PLAN)}.items():
        if plural == before:
            api.create(*needed)
    created = api.create(plural, body)
    assert created["id"] in [row["id"] for row in api.listed(f"/api/admin/{plural}")]
    place = f"/api/admin/{plural}/{path}"
    assert api.get(place).json == created
    changed = api.call("PATCH", place, changes)
    assert changed.status == 200, changed.text
    expected = changes | (
        {"price": {"input": "0.1", "output": "8", "call": "0"}} if plural == "models" else {}
    )
    assert {field: changed.json[field] for field in changes} == expected
    assert len(export(db).get(plural[:-1], [])) == len(api.listed(f"/api/admin/{plural}"))
    assert api.call("DELETE", place).status == 204
    assert api.get(place).status == 404


def test_a_refusal_names_the_field_and_changes_nothing(api):
    """Tests of the store check which values are refused; these are values from arbitrary bodies."""
    api.create("models", MODEL)
    api.create("channels", CHANNEL)
    for path, body, field in (
        ("groups", {"name": "bad", "colour": "red"}, "colour"),
        ("groups", {}, None),
        ("models", {"name": "bad", "price": {"input": "1"}}, "price"),
        ("channels", CHANNEL | {"name": "bad", "keys": ["env:HOME"]}, "keys"),
        ("channels", CHANNEL | {"name": "bad", "keys": ["file:/etc/passwd"]}, "keys"),
        ("users", {"name": "bad", "password": "too short"}, "password"),
        ("subscriptions", {"user": "alice", "plan": "none"}, "plan"),
    ):
        status, named, message = api.refused("POST", f"/api/admin/{path}", body)
        assert (status, named) == (400, field), body
        assert "\0" not in message and "Traceback" not in message
    for body in ({"name": "other"}, {"balance": "9"}, {"password": "***"}):
        refusal = api.refused("PATCH", "/api/admin/users/alice", body)
        assert refusal[:2] == (400, next(iter(body)))
    assert api.refused("POST", "/api/admin/groups", {"name": "default", "rpm": 9})[0] == 409
    status, _, message = api.refused("DELETE", "/api/admin/models/gpt-4.1")
    assert status == 400 and 'channel "main" refers to it' in message


def test_upstream_keys_and_passwords_are_in_no_answer(api):
    api.create("models", MODEL)
    body = CHANNEL | {"extra_headers": {"x-org": "secret-org"}, "proxy": "http://u:pw@127.0.0.1:1"}
    keys = {"keys": [UPSTREAM_KEY, "sk-second-one"]}
    user = {"name": "dora", "password": "a long password"}
    answers = [
        api.call("POST", "/api/admin/channels", body),
        api.call("PATCH", "/api/admin/channels/main", keys),
        api.call("POST", "/api/admin/users", user),
        api.call("PATCH", "/api/admin/users/dora", {"password": "another password"}),
        *(api.get(f"/api/admin/{place}") for place in ("channels", "users", "audit")),
    ]
    for answer in answers:
        assert answer.status in (200, 201), answer.text
        for secret in (UPSTREAM_KEY, "sk-second-one", "secret-org", "u:pw", 'password",', "argon2"):
            assert secret not in answer.text
    assert api.get("/api/admin/channels/main").json["keys"] == ["***", "***"]


@pytest.mark.parametrize("depth", ["[" * 100_000, '{"a":' * 50_000])
def test_a_deeply_nested_body_is_refused(api, depth):
    assert api.ask("POST", "/api/admin/groups", depth).status == 400


# ---- pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_and_form_is_shown_in_each_language(boss, api, language):
    boss.cookies["language"] = language
    api.create("models", MODEL)
    api.create("channels", CHANNEL)
    api.create("plans", PLAN)
    api.create("subscriptions", SUBSCRIPTION)
    api.create("notices", {"text": SCRIPT})
    code = api.create("codes", {"amount": "1"})["items"][0]
    no_form = ("audit", "system", "channels")
    places = [*PAGES, *(f"{page}?new=1" for page in PAGES if page not in no_form)]
    places += ["users/alice", "groups/default", "models/gpt-4.1", "channels/main"]
    places += ["channels/main/edit", "plans/monthly", "channels?new=1&like=main", "keys"]
    places += [
        "channels/new",
        "channels/main/models",
        "subscriptions?new=1",
        "subscriptions/alice%2Fmonthly",
    ]
    places += ["prices", "users/alice/credit", "users/alice/remove", "system/drain"]
    places += [f"codes/{code['id']}/remove", "system?settings=all"]
    for place in places:
        answer = boss.get(f"/admin/{place}")
        assert answer.status == 200, f"{place}: {answer.status}"
        for text in (SCRIPT, UPSTREAM_KEY, code["code"]):
            assert text not in answer.text, place


def test_a_group_is_created_changed_disabled_and_removed(boss, db):
    boss.get("/admin/groups?new=1")
    fields = [("name", "a/b c"), ("multiplier", "0.8"), ("models", "*"), ("enabled", "true")]
    answer = boss.send("/admin/groups", [*fields, ("entries", "messages"), ("translate", "true")])
    assert (answer.status, answer.place) == (303, "/admin/groups"), answer.text
    assert "a/b c created." in boss.get("/admin/groups").text
    place = "/admin/groups/a%2Fb%20c"
    form = boss.get(place).text
    assert 'value="0.8"' in form and not re.search(r'name="name"', form)
    assert boss.send(place, [*fields[1:], ("rpm", "60")]).status == 303
    group = show(db, "group", "a/b c")
    changed = [group[name] for name in ("rpm", "translate", "entries")]
    assert changed == [60, False, []]
    before = {"Referer": "http://hub.example.com/admin/groups?search=a"}
    assert boss.send(f"{place}/disable", [], **before).place == "/admin/groups?search=a"
    assert show(db, "group", "a/b c")["enabled"] is False
    assert f'action="{place}/enable"' in boss.get("/admin/groups").text  # the toast's Undo
    assert boss.send(f"{place}/remove", [("confirm", "a/b")]).status == 400
    assert boss.send(f"{place}/remove", [("confirm", "a/b c")]).status == 303
    assert [row["name"] for row in list_objects(db, "group")] == ["default"]


def test_features_of_a_group_are_checkboxes(boss, db):
    def checked(page):
        return re.findall(r'name="features" value="([^"]+)" checked', boss.get(page).text)

    names = [name for name in FEATURES if name != "fallbacks.default"]
    assert checked("/admin/groups?new=1") == [*names, "*"]
    place = "/admin/groups/default"
    for boxes, words in (
        ([*names, "*"], ["*", "-fallbacks.default"]),
        (["*", *FEATURES], ["*"]),
        (["geo", "maps"], ["geo", "maps"]),
        ([], []),
    ):
        fields = [("multiplier", "1"), ("enabled", "true"), *(("features", one) for one in boxes)]
        assert boss.send(place, fields).status == 303
        assert show(db, "group", "default")["features"] == words
        assert set(checked(place)) == set(boxes)
    boss.send(place, [("multiplier", "1"), *(("features", one) for one in ("*", *names[1:]))])
    assert "All but tier.flex, fallbacks.default" in boss.get("/admin/groups").text


def test_a_refused_form_keeps_its_fields_with_the_problem_beside_one(boss):
    boss.get("/admin/models?new=1")
    fields = [("name", SCRIPT), ("price.input", "cheap"), ("price.output", "8")]
    answer = boss.send("/admin/models", fields)
    assert answer.status == 400
    assert f'value="{html.escape(SCRIPT)}"' in answer.text and 'value="cheap"' in answer.text
    assert 'id="f-name-problem"' in answer.text and SCRIPT not in answer.text
    answer = boss.send("/admin/models", [("name", "fine"), *fields[1:]])
    assert 'id="f-price-problem"' in answer.text and "price.input" in answer.text


def test_a_channel_keeps_its_keys_when_their_field_is_empty(boss, api, db):
    api.create("models", MODEL)
    boss.get("/admin/channels?new=1")
    fields = [("vendor", "openai-compatible"), ("family", "chat_completions")]
    fields += [("base_url", CHANNEL["base_url"]), ("models", "gpt-4.1 = up-model")]
    secrets = [("keys", f"{UPSTREAM_KEY}\r\nsk-second-key"), ("extra_headers", "X-Org: secret-org")]
    secrets += [("proxy", "http://u:pw@127.0.0.1:3128")]
    answer = boss.send("/admin/channels", [("name", "main"), *fields, *secrets])
    assert answer.status == 303, answer.text
    form = boss.get("/admin/channels/main/edit").text
    assert '<option value="zhipu">Z.AI</option>' in form
    assert "2 stored" in form and "secret-org" not in form and "u:pw" not in form
    masked = re.search(r'name="proxy" value="([^"]*)"', form)[1]
    fields += [("keys", ""), ("extra_headers", ""), ("proxy", masked), ("priority", "5")]
    assert boss.send("/admin/channels/main/edit", fields).status == 303
    channel = show(db, "channel", "main")
    assert (len(channel["keys"]), channel["priority"]) == (2, 5)
    assert channel["models"] == {"gpt-4.1": "up-model"}
    assert channel["extra_headers"] == {"x-org": "***"} and channel["proxy"] == masked
    bad = [*fields, ("keys", "sk-third key with blanks"), ("weight", "none")]
    answer = boss.send("/admin/channels/main/edit", bad)
    assert answer.status == 400 and "sk-third" not in answer.text


def test_names_stay_whole_and_more_than_a_list_offers_are_typed(boss, api, db, monkeypatch):
    api.create("groups", {"name": "a b"}, {"name": "c, d"})
    fields = [("role", "member"), ("enabled", "true"), ("order", "plan_first")]
    assert 'type="checkbox"' in boss.get("/admin/users/alice/edit").text
    api.create("users", {"name": "day"})
    assert '<option value="day">day<' in boss.get("/admin/subscriptions?new=1").text
    assert "> Chat completions</label>" in boss.get("/admin/groups?new=1").text
    checked = [("groups", "a b"), ("groups", "c, d")]
    assert boss.send("/admin/users/alice/edit", [*fields, *checked]).status == 303
    assert show(db, "user", "alice")["groups"] == ["a b", "c, d"]
    monkeypatch.setattr(object_forms, "MAX_OPTIONS", 1)
    assert re.search(r'<input id="f-user"', boss.get("/admin/subscriptions?new=1").text)
    lines = [("groups", "c, d\r\n a b \r\n\r\n")]
    assert boss.send("/admin/users/alice/edit", [*fields, *lines]).status == 303
    assert show(db, "user", "alice")["groups"] == ["c, d", "a b"]


@pytest.mark.parametrize(
    ("plural", "body"),
    [
        ("users", {"name": "carol", "password": "a long password", "rpm": 5, "groups": []}),
        ("users", {"name": "dora", "limit": "2.5", "limit_window": "week"}),
        ("groups", {"name": "one, two", "models": ["gpt-4.1"], "entries": ["messages"]}),
        ("models", {**MODEL, "name": "a/b", "context_tokens": 1000}),
        ("models", {"name": "all", "price": EVERY_PRICE, "rate": RATES}),
        ("plans", {"name": "m", "quota": "20.5", "window": "week", "enabled": False}),
        ("channels", FULL_CHANNEL),
    ],
)
def test_saving_an_untouched_form_changes_nothing(boss, api, db, plural, body):
    api.create("models", MODEL)
    api.create(plural, body)
    kind, name = plural[:-1], body["name"]
    before = show(db, kind, name)
    escaped = name.replace("/", "%2F").replace(",", "%2C").replace(" ", "%20")
    place = f"/admin/{plural}/{escaped}" + ("/edit" if kind in ("channel", "user") else "")
    fields = submitted_by(boss.get(place).text)
    assert len(fields) >= 3
    assert boss.send(place, fields).status == 303
    assert show(db, kind, name) == before
    lines = api.listed(f"/api/admin/audit?kind={kind}")
    assert [line["action"] for line in lines if line["name"] == name] == ["create"]


def test_names_stand_apart_from_chinese_words(boss, api):
    api.create("groups", {"name": "coding"})
    boss.cookies["language"] = "zh"
    assert "<h2>编辑 coding</h2>" in boss.get("/admin/groups/coding").text
