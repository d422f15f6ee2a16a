"""The JSON API of keys: creation, changes, rotation, expiry; only for one's own keys."""

import pytest

from handlers.hub.keys import keys as hub_keys
from store.admin.export import list_objects
from store.catalog import keys, wrong_paths
from store.catalog.wrong_paths import Noticed
from store.db import audit
from store.db.database import database_ms, transaction
from store.db.tables.money import Quota
from store.db.tables.users import ApiKey
from store.money.accounts import quota_at
from store.values.key_secrets import digests
from tests.handlers.hub.overview_world import book, call, edit

pytestmark = pytest.mark.usefixtures("world")

PEPPERS = ["pepper of the tests"]
DOUBLED = "/v1/messages/v1/messages"


def opened(db, secret):
    """Return the key that belongs to a secret."""
    return keys.find_key(db, digests(secret, PEPPERS))


def test_a_key_is_made_and_its_secret_shown_once(alice, db):
    fields = {"group": "coding", "limit": "5.00", "limit_window": "month", "models": ["gpt-5"]}
    answer = alice.api("POST", "/api/keys", {"name": "laptop", **fields})
    assert answer.status == 201 and answer.json.keys() == {"id", "secret"}
    secret, key_id = answer.json["secret"], answer.json["id"]
    assert (opened(db, secret).id, opened(db, secret).user) == (key_id, "alice")
    listed = alice.get("/api/keys")
    [item] = listed.json["items"]
    alone = alice.get(f"/api/keys/{key_id}").json
    assert {**item, "version": alone["version"]} == alone and secret not in listed.text
    expected = fields | {"name": "laptop", "limit": "5", "multiplier": "0.8", "state": "active"}
    expected |= {"spent": "0", "prefix": secret[:10], "last_four": secret[-4:], "wrong_paths": []}
    expected |= {"last_used": None, "expires_at": None}
    assert {name: item[name] for name in expected} == expected
    [act] = [act for act in audit.entries(db, 5) if act["kind"] == "key"]
    assert (act["actor"], act["action"], act["name"]) == ("alice", "create", "alice/laptop")
    assert secret not in str(act)
    body = {"name": "moved", "secret": "sk-from-elsewhere-0123456789"}
    assert alice.api("POST", "/api/keys", body).json["secret"] == body["secret"]
    assert opened(db, body["secret"]).name == "moved"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "name"),
        ({"name": "x", "limit": 5.5}, 400, "limit"),
        ({"name": "x", "secret": "env:HOME"}, 400, "secret"),
        ({"name": "x", "balance": "999"}, 400, "balance"),
        ({"name": "x", "user": "carol"}, 400, "user"),
        ({"name": "x", "group": "hidden"}, 403, "group"),
        ({"name": "x", "group": ["default"]}, 403, "group"),
        ({"name": "taken"}, 409, "name"),
    ],
)
def test_what_is_refused(alice, db, body, status, field):
    alice.make("taken")
    answer = alice.api("POST", "/api/keys", body)
    assert (answer.status, answer.json["error"]["field"]) == (status, field), answer.text
    assert [key["name"] for key in list_objects(db, "key")] == ["taken"]


def test_a_member_has_so_many_keys(alice, boss, monkeypatch):
    monkeypatch.setattr(hub_keys, "MAX_KEYS", 2)
    first = alice.make("one")
    alice.make("two")
    answer = alice.api("POST", "/api/keys", {"name": "three"})
    assert answer.status == 400 and "revoke one" in answer.json["error"]["message"]
    alice.api("DELETE", f"/api/keys/{first}")
    alice.make("three")
    for name in ("one", "two", "three"):
        boss.make(name)


def test_groups_are_those_of_the_user(alice, boss, carol):
    def names(browser):
        return [group["name"] for group in browser.get("/api/groups").json["items"]]

    assert names(carol) == ["default"] and names(boss) == ["coding", "default", "hidden"]
    coding, _ = alice.get("/api/groups").json["items"]
    assert (coding["multiplier"], coding["models"]) == ("0.8", ["gpt-5", "gpt-5-mini"])
    boss.make("any", group="hidden")
    answer = boss.api("POST", "/api/keys", {"name": "x", "group": "hiden"})
    assert answer.status == 400 and 'did you mean "hidden"' in answer.json["error"]["message"]


def test_fields_are_changed(alice, db, tmp_path):
    key_id = alice.make("laptop", limit="5", rpm=60)
    path = f"/api/keys/{key_id}"
    fields = {"limit": None, "networks": ["10.0.0.0/8"], "expires_at": "2031-01-01T00:00:00.000Z"}
    changed = alice.api("PATCH", path, fields).json
    assert {name: changed[name] for name in (*fields, "rpm")} == fields | {"rpm": 60}
    assert alice.api("PATCH", path, {"group": "coding"}).json["group"] == "coding"
    acts = [act for act in audit.entries(db, 5) if act["name"] == "alice/laptop"]
    actions = [(act["actor"], act["action"]) for act in acts]
    assert actions == [("alice", "update"), ("alice", "update"), ("alice", "create")]
    # The key stays in a group that was closed to its owner.
    edit(db, tmp_path, '[[user]]\nname = "alice"\ngroups = ["default"]')
    bodies = {"group": "coding", "rpm": 5}, {"group": "default"}, {"group": "coding"}
    assert [alice.api("PATCH", path, body).status for body in bodies] == [200, 200, 403]


def test_what_cannot_be_changed(alice):
    path = f"/api/keys/{alice.make('laptop', rpm=60)}"
    before = alice.get(path).json
    for body, status in (
        ({"group": "hidden"}, 403),
        ({"name": "other"}, 400),
        ({"secret": "sk-from-elsewhere-0123456789"}, 400),
        ({"user": "carol"}, 400),
    ):
        answer = alice.api("PATCH", path, {"rpm": 1, **body})
        assert (answer.status, answer.json["error"]["field"]) == (status, next(iter(body)))
    assert alice.get(path).json == before


def test_an_exchanged_secret_works_on_for_a_day(alice, db):
    old = alice.api("POST", "/api/keys", {"name": "laptop"}).json["secret"]
    path = f"/api/keys/{opened(db, old).id}"
    new = alice.api("POST", f"{path}/rotate").json["secret"]
    until_ms = opened(db, old).valid_until_ms - database_ms(db)
    assert abs(until_ms - keys.OVERLAP_S * 1000) < 60_000
    shown = alice.get(path).json
    assert (shown["state"], shown["last_four"]) == ("replaced", new[-4:])
    assert shown["replaced_until"] is not None
    alice.api("POST", f"{path}/rotate", {"overlap_s": 0})
    assert opened(db, new).valid_until_ms <= database_ms(db)
    for wrong in (-1, "1", 10**9, True):
        assert alice.api("POST", f"{path}/rotate", {"overlap_s": wrong}).status == 400


def test_disabled_enabled_and_revoked_for_good(alice, db):
    secret = alice.api("POST", "/api/keys", {"name": "laptop"}).json["secret"]
    path = f"/api/keys/{opened(db, secret).id}"
    for action, state in (("disable", "disabled"), ("enable", "active")):
        assert alice.get(f"{path}/{action}").status == 405
        assert alice.api("POST", f"{path}/{action}", xsrf=False).status == 403
        assert alice.api("POST", f"{path}/{action}").json["state"] == state
        assert opened(db, secret).disabled == (state == "disabled")
    assert alice.api("DELETE", path).json["state"] == "revoked"
    assert opened(db, secret).revoked and alice.api("DELETE", path).status == 200
    changes = (("PATCH", "", {"rpm": 1}), ("POST", "/enable", None), ("POST", "/rotate", None))
    for method, more, body in changes:
        assert alice.api(method, path + more, body).status == 400
    assert alice.get("/api/keys").json["items"] == []
    assert [key["name"] for key in alice.get("/api/keys?state=revoked").json["items"]] == ["laptop"]


def test_the_list_page_by_page_and_by_filter(alice):
    ids = [
        alice.make(f"key-{number}", group=("default", "coding")[number % 2]) for number in range(5)
    ]
    listed, after = [], ""
    while after is not None:
        page = alice.get(f"/api/keys?limit=2&after={after}").json
        listed, after = listed + [key["id"] for key in page["items"]], page["next"]
    assert listed == ids[::-1]
    alice.api("POST", f"/api/keys/{ids[2]}/disable")
    for query, names in (
        ("group=coding", ["key-3", "key-1"]),
        ("search=KEY-4", ["key-4"]),
        ("state=disabled", ["key-2"]),
        ("state=disabled&group=coding", []),
    ):
        assert [key["name"] for key in alice.get(f"/api/keys?{query}").json["items"]] == names
    for query in ("limit=0", "limit=x", "limit=0000000000201", "state=gone"):
        assert alice.get(f"/api/keys?{query}").status == 400


def test_states_that_use_brings(alice, boss, db):
    def spend(nanos):
        account, ends_ms = quota_at(key_id, "month", database_ms(db))
        row = {"account": account, "spent": nanos, "ends_ms": ends_ms}
        transaction(db, lambda: Quota.replace(row).execute(db))
        return alice.get(f"/api/keys/{key_id}").json

    key_id = alice.make("laptop", limit="5", limit_window="month")
    states = [spend(nanos)["state"] for nanos in (3_999_999_999, 5 * 10**9, 4 * 10**9)]
    assert states == ["active", "used_up", "near_limit"]
    for page in (alice.get("/keys"), boss.get("/admin/keys"), boss.get("/admin/users/alice")):
        assert ">Near its limit<" in page.text
    book(db, call(db, key_id=key_id, client_ip="192.0.2.2", user_agent="claude-cli/2.1"))
    past = ApiKey.update(expires_ms=1).where(ApiKey.id == key_id)
    transaction(db, lambda: past.execute(db))
    shown = alice.get(f"/api/keys/{key_id}").json
    assert (shown["state"], shown["spent"], shown["spent_window"]) == ("expired", "4", "month")
    last = shown["last_used"]
    assert (last["address"], last["user_agent"]) == ("192.0.2.2", "claude-cli/2.1")


def test_wrong_paths_are_shown_to_the_owner_alone(alice, carol, db):
    key_id, other = alice.make("laptop"), alice.make("other")
    at_ms, base = database_ms(db), "http://127.0.0.1:8000"
    seen = Noticed(key_id, "POST", DOUBLED, 14, at_ms - 9000, at_ms, "192.0.2.14", "x/1")
    odd = Noticed(other, "POST", "/v1/files", 1, at_ms, at_ms, "", "")
    wrong_paths.add(db, [seen, odd])
    shown = alice.get(f"/api/keys/{key_id}").json
    [wrong] = shown["wrong_paths"]
    expected = {"path": DOUBLED, "calls": 14, "address": "192.0.2.14", "base_url": base}
    expected |= {"given": f"{base}/v1/messages"}
    assert {name: wrong[name] for name in expected} == expected
    assert DOUBLED not in carol.get("/api/keys").text
    states = [shown["state"], alice.get(f"/api/keys/{other}").json["state"]]
    assert states == ["wrong_base_url", "active"]


def test_keys_of_others_are_not_there(alice, carol):
    key_id = alice.make("laptop")
    secret = carol.api("POST", "/api/keys", {"name": "mine"}).json["secret"]
    before = alice.get(f"/api/keys/{key_id}").json
    actions = [("POST", f"/{action}", None) for action in ("rotate", "disable", "enable")]
    for method, path, body in (
        *[("GET", "", None), ("PATCH", "", {"rpm": 5}), ("DELETE", "", None)],
        *actions,
    ):
        for unknown in (key_id, "no-such-key", "x" * 300):
            answer = carol.api(method, f"/api/keys/{unknown}{path}", body)
            assert answer.status == 404 and answer.json["error"]["code"] == "not_found"
    assert alice.get(f"/api/keys/{key_id}").json == before
    assert [key["name"] for key in carol.get("/api/keys").json["items"]] == ["mine"]
    taken = alice.api("POST", "/api/keys", {"name": "x", "secret": secret})
    assert taken.status == 400 and "carol" not in taken.text
