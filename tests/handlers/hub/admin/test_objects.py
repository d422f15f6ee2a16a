"""/api/admin/KIND: made, listed, changed, removed; judged as the document of `apply` is."""

import pytest

from store.admin.export import export
from store.hub import tokens
from tests.handlers.hub.admin.script import CHANNEL, MODEL, UPSTREAM_KEY, Script
from tests.handlers.hub.browser import Browser

PLAN = {"name": "monthly", "quota": "20", "window": "month"}
KINDS = {
    "groups": ({"name": "coding", "multiplier": "2.5"}, {"multiplier": "3"}, "coding"),
    "users": ({"name": "carol", "balance": "3"}, {"rpm": 60}, "carol"),
    "models": (MODEL | {"name": "org/model:1"}, {"price": {"input": "7"}}, "org%2Fmodel%3A1"),
    "channels": (CHANNEL, {"priority": 5, "models": {}}, "main"),
    "plans": (PLAN, {"quota": "30"}, "monthly"),
    "subscriptions": (
        {"user": "alice", "plan": "monthly"},
        {"expires_at": "2030-01-01T00:00:00Z"},
        "alice/monthly",
    ),
}


@pytest.mark.parametrize("plural", KINDS)
def test_each_kind_is_made_shown_changed_and_removed(api, db, plural):
    body, changes, path = KINDS[plural]
    if plural == "channels":
        assert api.call("POST", "/api/admin/models", MODEL).status == 201
    if plural == "subscriptions":
        assert api.call("POST", "/api/admin/plans", PLAN).status == 201
    made = api.call("POST", f"/api/admin/{plural}", body)
    assert made.status == 201, made.text
    assert made.json["id"] in [one["id"] for one in api.listed(f"/api/admin/{plural}")]
    place = f"/api/admin/{plural}/{path}"
    assert api.get(place).json == made.json
    changed = api.call("PATCH", place, changes)
    assert changed.status == 200, changed.text
    for field, value in changes.items():
        shown = changed.json[field]
        assert (shown["input"] if field == "price" else shown) == (
            value["input"] if field == "price" else value
        )
    assert len(export(db).get(plural[:-1], [])) == len(api.listed(f"/api/admin/{plural}"))
    assert api.call("DELETE", place).status == 204
    assert api.get(place).status == 404


def test_a_name_that_exists_is_409_and_changes_nothing(api):
    assert api.refused("POST", "/api/admin/groups", {"name": "default", "rpm": 9})[0] == 409
    assert api.get("/api/admin/groups/default").json["rpm"] == 0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("groups", {"name": "bad", "colour": "red"}, "colour"),
        ("groups", {"name": "bad", "multiplier": "much"}, "multiplier"),
        ("groups", {"name": "bad", "models": ["nothing"]}, "models"),
        ("groups", {}, None),
        ("models", {"name": "bad", "price": {"input": "1"}}, "price"),
        ("models", {"name": "bad name", "price": {"input": "1", "output": "1"}}, "name"),
        ("channels", CHANNEL | {"vendor": "nobody"}, "vendor"),
        ("channels", CHANNEL | {"keys": ["env:HOME"]}, "keys"),
        ("channels", CHANNEL | {"keys": ["file:/etc/passwd"]}, "keys"),
        ("channels", CHANNEL | {"keys": ["***"]}, "keys"),
        ("users", {"name": "bad", "role": "king"}, "role"),
        ("plans", PLAN | {"quota": "0"}, "quota"),
        ("subscriptions", {"user": "alice", "plan": "none"}, "plan"),
    ],
)
def test_what_cannot_be_is_400_and_names_the_field(api, path, body, field):
    api.call("POST", "/api/admin/models", MODEL)
    status, named, told = api.refused("POST", f"/api/admin/{path}", body)
    assert (status, named) == (400, field)
    assert "\0" not in told and "Traceback" not in told


@pytest.mark.parametrize(
    ("body", "field"),
    [({"name": "other"}, "name"), ({"balance": "9"}, "balance"), ({"password": "***"}, "password")],
)
def test_a_change_cannot_rename_credit_or_take_a_mask_for_a_secret(api, body, field):
    assert api.refused("PATCH", "/api/admin/users/alice", body)[:2] == (400, field)


def test_numbers_of_json_are_money_to_the_last_digit(api):
    body = {"name": "exact", "price": {"input": 0.1, "output": 2}}
    assert api.call("POST", "/api/admin/models", body).json["price"]["input"] == "0.1"


def test_lists_come_page_by_page_and_are_searched(api):
    for number in range(5):
        api.call("POST", "/api/admin/groups", {"name": f"team-{number}"})
    first = api.get("/api/admin/groups?limit=4&search=TEAM").json
    assert [one["name"] for one in first["items"]] == ["team-0", "team-1", "team-2", "team-3"]
    rest = api.get(f"/api/admin/groups?limit=4&search=TEAM&after={first['next']}").json
    assert [one["name"] for one in rest["items"]] == ["team-4"] and rest["next"] is None
    assert api.listed("/api/admin/groups?search=%25") == []
    assert api.refused("GET", "/api/admin/groups?limit=0")[:2] == (400, "limit")


def test_what_others_refer_to_is_not_removed(api):
    api.call("POST", "/api/admin/models", MODEL)
    api.call("POST", "/api/admin/channels", CHANNEL)
    status, _, told = api.refused("DELETE", "/api/admin/models/gpt-4.1")
    assert status == 400 and 'channel "main" refers to it' in told


def test_upstream_keys_and_passwords_are_in_no_answer(api):
    api.call("POST", "/api/admin/models", MODEL)
    body = CHANNEL | {"extra_headers": {"x-org": "secret-org"}, "proxy": "http://u:pw@127.0.0.1:1"}
    answers = [
        api.call("POST", "/api/admin/channels", body),
        api.get("/api/admin/channels"),
        api.call("PATCH", "/api/admin/channels/main", {"keys": [UPSTREAM_KEY, "sk-second-one"]}),
        api.call("POST", "/api/admin/users", {"name": "dora", "password": "a long password"}),
        api.call("PATCH", "/api/admin/users/dora", {"password": "another password"}),
        api.get("/api/admin/users"),
        api.get("/api/admin/audit"),
    ]
    for answer in answers:
        assert answer.status in (200, 201), answer.text
        for secret in (UPSTREAM_KEY, "sk-second-one", "secret-org", "u:pw", 'password",', "argon2"):
            assert secret not in answer.text
    assert api.get("/api/admin/channels/main").json["keys"] == ["***", "***"]


def test_a_new_password_ends_the_sessions_and_tokens_of_the_user(api, hub, db, alice):
    script = Browser(hub.port, tokens.create(db, "alice", ["read"], actor="tester")[1])
    assert script.get("/api/me").status == 200
    assert alice.get("/account").status == 200
    assert len(api.listed("/api/admin/users/alice/sessions")) == 1
    assert api.call("PATCH", "/api/admin/users/alice", {"password": "a new one 123"}).status == 200
    assert alice.get("/account").status == 303 and script.get("/api/me").status == 401
    assert Browser(hub.port).sign_in("alice", "a new one 123").status == 303
    script = Browser(hub.port, tokens.create(db, "alice", ["read"], actor="tester")[1])
    ended = {"ended": 1, "tokens": 1}
    assert api.call("DELETE", "/api/admin/users/alice/sessions").json == ended
    assert script.get("/api/me").status == 401
    lines = api.listed("/api/admin/audit?kind=user&name=alice")
    shown = [(line["actor"], line["after"]) for line in lines if line["action"] == "end_session"]
    assert sorted(shown, key=str) == [("boss", {"sessions": 1, "tokens": 1})] * 2


def test_tokens_of_everybody_are_listed_and_revoked(api, hub, db):
    made = [tokens.create(db, "alice", ["read"], name=name, actor="tester") for name in "ab"]
    assert [one["id"] for one in api.listed("/api/admin/tokens?user=alice")] == [
        token_id for token_id, _ in sorted(made, reverse=True)
    ]
    paged, after = [], ""
    for _ in range(3):
        answer = api.get(f"/api/admin/tokens?limit=1&after={after}").json
        paged += [one["id"] for one in answer["items"]]
        after = answer["next"]
    assert paged == [row.id for row in tokens.listed(db)] and after is None
    assert api.refused("GET", "/api/admin/tokens?user=nobody")[0] == 404
    shown = api.get("/api/admin/tokens").text
    assert all(token not in shown for _, token in made) and "slt-…" in shown
    script = Browser(hub.port, made[0][1])
    for _ in range(2):
        assert api.call("DELETE", f"/api/admin/tokens/{made[0][0]}").status == 204
    assert script.get("/api/me").status == 401
    assert Browser(hub.port, made[1][1]).get("/api/me").status == 200
    assert api.refused("DELETE", "/api/admin/tokens/none")[0] == 404
    lines = api.listed(f"/api/admin/audit?kind=token&name={made[0][0]}")
    assert sorted((line["action"], line["actor"]) for line in lines) == [
        ("create", "tester"),
        ("revoke", "boss"),
    ]


def test_the_last_administrator_is_not_taken_away(api, db):
    """Nobody takes oneself away, and the script of one who is no administrator any more does not
    take the other."""
    boss = {"name": "second", "role": "admin", "password": "a password of hers"}
    assert api.call("POST", "/api/admin/users", boss).status == 201
    _, token = tokens.create(db, "second", ["admin"], actor="tester")
    second = Script(api.port, token)
    assert second.call("PATCH", "/api/admin/users/boss", {"role": "member"}).status == 200
    status, _, message = api.refused("PATCH", "/api/admin/users/second", {"role": "member"})
    assert status == 404 and "no such path" in message
    assert second.refused("PATCH", "/api/admin/users/second", {"role": "member"})[1] == "role"


@pytest.mark.parametrize(
    ("password", "hint"),
    [
        ("too short", "at least 12 characters"),
        ("a name so long", "user's name"),
        ("a" * 12, "one character repeated"),
        ("Qwerty123456", "first that are guessed"),
    ],
)
def test_a_password_that_must_not_be_is_refused_with_its_field(api, password, hint):
    user = {"name": "A name so long", "password": password}
    status, field, message = api.refused("POST", "/api/admin/users", user)
    assert (status, field) == (400, "password") and hint in message


def test_a_disabled_user_is_out_at_once(api, alice):
    assert api.call("PATCH", "/api/admin/users/alice", {"enabled": False}).status == 200
    assert alice.get("/account").status == 303


def test_the_own_password_is_not_changed_without_the_old_one(api, boss, hub):
    new = "a password of a thief"
    status, field, told = api.refused("PATCH", "/api/admin/users/boss", {"password": new})
    assert (status, field) == (400, "password") and "Account" in told
    boss.get("/admin/users/boss")
    assert boss.send("/admin/users/boss", [("password", new), ("role", "admin")]).status == 400
    assert Browser(hub.port).signed_in("boss")


@pytest.mark.parametrize("body", [{"enabled": False}, {"role": "member"}])
def test_nobody_locks_oneself_out(api, body):
    assert api.refused("PATCH", "/api/admin/users/boss", body)[0] == 400
    assert api.refused("DELETE", "/api/admin/users/boss")[0] == 400
    assert api.get("/api/admin/users/boss").json["role"] == "admin"


def test_members_and_their_tokens_get_404_and_strangers_401(alice, hub, db, api):
    for path in ("/api/admin/users", "/api/admin/channels/main", "/api/admin/audit"):
        assert alice.get(path).status == 404
        assert Browser(hub.port).get(path).status == 401
    assert alice.ask("POST", "/api/admin/groups", "{}", **{"X-XSRFToken": alice.xsrf}).status == 404


def test_a_change_by_a_session_needs_the_xsrf_token(boss):
    body = '{"name": "stolen"}'
    assert boss.ask("POST", "/api/admin/groups", body).status == 403
    assert boss.ask("POST", "/api/admin/groups", body, **{"X-XSRFToken": boss.xsrf}).status == 201
