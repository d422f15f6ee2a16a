"""The JSON API of keys: made, changed, exchanged, ended; one's own and nobody else's."""

import pytest

from handlers.hub import keys as hub_keys
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
    """The key that a secret opens."""
    return keys.find_key(db, digests(secret, PEPPERS))


def test_a_key_is_made_and_its_secret_shown_once(alice, db):
    fields = {"group": "coding", "limit": "5.00", "limit_window": "month", "models": ["gpt-5"]}
    answer = alice.api("POST", "/api/keys", {"name": "laptop", **fields})
    assert answer.status == 201 and answer.json.keys() == {"id", "secret"}
    secret, key_id = answer.json["secret"], answer.json["id"]
    assert opened(db, secret).id == key_id and opened(db, secret).user == "alice"
    [item] = alice.get("/api/keys").json["items"]
    assert item == alice.get(f"/api/keys/{key_id}").json
    told = ("name", "group", "multiplier", "state", "limit", "limit_window", "spent", "models")
    assert [item[name] for name in told] == [
        *("laptop", "coding", "0.8", "active", "5", "month", "0", ["gpt-5"])
    ]
    assert item["prefix"] == secret[:10] and item["last_four"] == secret[-4:]
    assert item["last_used"] is None and item["expires_at"] is None and item["wrong_paths"] == []
    assert secret not in alice.get("/api/keys").text
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
        ({"name": " x"}, 400, "name"),
        ({"name": "x", "limit": "many"}, 400, "limit"),
        ({"name": "x", "limit": 5.5}, 400, "limit"),
        ({"name": "x", "networks": ["10.0.0.300"]}, 400, "networks"),
        ({"name": "x", "models": ["nothing"]}, 400, "models"),
        ({"name": "x", "expires_at": "tomorrow"}, 400, "expires_at"),
        ({"name": "x", "rpm": -1}, 400, "rpm"),
        ({"name": "x", "secret": "short"}, 400, "secret"),
        ({"name": "x", "secret": "env:HOME"}, 400, "secret"),
        ({"name": "x", "balance": "999"}, 400, "balance"),
        ({"name": "x", "user": "carol"}, 400, "user"),
        ({"name": "x", "group": "hidden"}, 403, "group"),
        ({"name": "x", "group": "no-such-group"}, 403, "group"),
        ({"name": "x", "group": ["default"]}, 403, "group"),
        ({"name": ["x"]}, 400, "name"),
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
    assert (coding["name"], coding["multiplier"]) == ("coding", "0.8")
    assert coding["models"] == ["gpt-5", "gpt-5-mini"] and "messages" in coding["entries"]
    boss.make("any", group="hidden")
    answer = boss.api("POST", "/api/keys", {"name": "x", "group": "hiden"})
    assert (answer.status, answer.json["error"]["field"]) == (400, "group")
    assert 'did you mean "hidden"' in answer.json["error"]["message"]


def test_fields_are_changed(alice, db, tmp_path):
    key_id = alice.make("laptop", limit="5", rpm=60)
    fields = {"limit": None, "networks": ["10.0.0.0/8"], "expires_at": "2031-01-01T00:00:00Z"}
    answer = alice.api("PATCH", f"/api/keys/{key_id}", fields)
    assert answer.status == 200 and answer.json["limit"] is None and answer.json["rpm"] == 60
    assert answer.json["networks"] == ["10.0.0.0/8"]
    assert answer.json["expires_at"] == "2031-01-01T00:00:00.000Z"
    assert alice.api("PATCH", f"/api/keys/{key_id}", {"group": "coding"}).json["group"] == "coding"
    acts = [act for act in audit.entries(db, 5) if act["name"] == "alice/laptop"]
    actions = [(act["actor"], act["action"]) for act in acts]
    assert actions == [("alice", "update"), ("alice", "update"), ("alice", "create")]
    # A group that was closed to its owner stays the key's.
    edit(db, tmp_path, '[[user]]\nname = "alice"\ngroups = ["default"]')
    for body, status in (
        ({"group": "coding", "rpm": 5}, 200),
        ({"group": "default"}, 200),
        ({"group": "coding"}, 403),
    ):
        assert alice.api("PATCH", f"/api/keys/{key_id}", body).status == status


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"group": "hidden"}, 403, "group"),
        ({"name": "other"}, 400, "name"),
        ({"secret": "sk-from-elsewhere-0123456789"}, 400, "secret"),
        ({"user": "carol"}, 400, "user"),
        ({"spent": "0"}, 400, "spent"),
        ({"limit": "-1"}, 400, "limit"),
    ],
)
def test_what_cannot_be_changed(alice, body, status, field):
    key_id = alice.make("laptop", rpm=60)
    before = alice.get(f"/api/keys/{key_id}").json
    answer = alice.api("PATCH", f"/api/keys/{key_id}", {"rpm": 1, **body})
    assert (answer.status, answer.json["error"]["field"]) == (status, field), answer.text
    assert alice.get(f"/api/keys/{key_id}").json == before


def test_an_exchanged_secret_works_on_for_a_day(alice, db):
    old = alice.api("POST", "/api/keys", {"name": "laptop"}).json["secret"]
    path = f"/api/keys/{opened(db, old).id}"
    new = alice.api("POST", f"{path}/rotate").json["secret"]
    until_ms = opened(db, old).valid_until_ms - database_ms(db)
    assert abs(until_ms - keys.OVERLAP_S * 1000) < 60_000
    assert opened(db, new).valid_until_ms is None
    shown = alice.get(path).json
    assert shown["state"] == "replaced" and shown["replaced_until"] is not None
    assert shown["last_four"] == new[-4:]
    last = alice.api("POST", f"{path}/rotate", {"overlap_s": 0}).json["secret"]
    assert opened(db, new).valid_until_ms <= database_ms(db) and opened(db, last) is not None
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
    for method, more, body in (
        ("PATCH", "", {"rpm": 1}), ("POST", "/enable", None), ("POST", "/rotate", None),
    ):  # fmt: skip
        assert alice.api(method, path + more, body).status == 400
    assert alice.get("/api/keys").json["items"] == []
    assert [key["name"] for key in alice.get("/api/keys?state=revoked").json["items"]] == ["laptop"]
    assert alice.api("POST", "/api/keys", {"name": "laptop"}).status == 409


def test_the_list_page_by_page_and_by_filter(alice):
    groups = ("default", "coding")
    ids = [alice.make(f"key-{number}", group=groups[number % 2]) for number in range(5)]
    listed, after = [], ""
    while after is not None:
        page = alice.get(f"/api/keys?limit=2&after={after}").json
        listed, after = listed + [key["id"] for key in page["items"]], page["next"]
    assert listed == ids[::-1]

    def names(query):
        return [key["name"] for key in alice.get(f"/api/keys?{query}").json["items"]]

    assert names("group=coding") == ["key-3", "key-1"] and names("search=KEY-4") == ["key-4"]
    alice.api("POST", f"/api/keys/{ids[2]}/disable")
    assert names("state=disabled") == ["key-2"] and names("state=disabled&group=coding") == []
    for query in ("limit=0", "limit=x", "limit=201", "limit=0000000000201", "state=gone"):
        assert alice.get(f"/api/keys?{query}").status == 400


def test_states_that_use_brings(alice, db):
    def spend(nanos):
        account, ends_ms = quota_at(key_id, "month", database_ms(db))
        row = {"account": account, "spent": nanos, "ends_ms": ends_ms}
        transaction(db, lambda: Quota.replace(row).execute(db))
        return alice.get(f"/api/keys/{key_id}").json

    key_id = alice.make("laptop", limit="5", limit_window="month")
    states = [spend(nanos)["state"] for nanos in (3_999_999_999, 4 * 10**9, 5 * 10**9)]
    assert states == ["active", "near_limit", "used_up"]
    shown = spend(4_612_000_000)
    assert (shown["spent"], shown["spent_window"]) == ("4.612", "month")
    assert shown["resets_at"].endswith("-01T00:00:00.000Z")
    book(db, call(db, key_id=key_id, client_ip="192.0.2.2", user_agent="claude-cli/2.1"))
    last = alice.get(f"/api/keys/{key_id}").json["last_used"]
    assert (last["address"], last["user_agent"]) == ("192.0.2.2", "claude-cli/2.1")
    past = ApiKey.update(expires_ms=1).where(ApiKey.id == key_id)
    transaction(db, lambda: past.execute(db))
    assert alice.get(f"/api/keys/{key_id}").json["state"] == "expired"


def test_wrong_paths_are_shown_to_the_owner_alone(alice, carol, db):
    key_id = alice.make("laptop")
    at_ms = database_ms(db)
    seen = Noticed(key_id, "POST", DOUBLED, 14, at_ms - 9000, at_ms, "192.0.2.14", "x/1")
    wrong_paths.add(db, [seen])
    shown = alice.get(f"/api/keys/{key_id}").json
    assert shown["state"] == "wrong_base_url"
    [wrong] = shown["wrong_paths"]
    base = "http://127.0.0.1:8000"
    assert (wrong["path"], wrong["calls"], wrong["address"]) == (DOUBLED, 14, "192.0.2.14")
    assert (wrong["given"], wrong["base_url"]) == (f"{base}/v1/messages", base)
    assert DOUBLED not in carol.get("/api/keys").text
    other = alice.make("other")
    wrong_paths.add(db, [Noticed(other, "POST", "/v1/embeddings", 1, at_ms, at_ms, "", "")])
    assert alice.get(f"/api/keys/{other}").json["state"] == "active"


def test_keys_of_others_are_not_there(alice, carol, db):
    key_id = alice.make("laptop")
    secret = carol.api("POST", "/api/keys", {"name": "mine"}).json["secret"]
    before = alice.get(f"/api/keys/{key_id}").json
    for method, path, body in (
        ("GET", "", None), ("PATCH", "", {"rpm": 5}), ("DELETE", "", None),
        ("POST", "/rotate", None), ("POST", "/disable", None), ("POST", "/enable", None),
    ):  # fmt: skip
        for unknown in (key_id, "no-such-key", "x" * 300):
            answer = carol.api(method, f"/api/keys/{unknown}{path}", body)
            assert answer.status == 404 and answer.json["error"]["code"] == "not_found"
    assert alice.get(f"/api/keys/{key_id}").json == before
    assert [key["name"] for key in carol.get("/api/keys").json["items"]] == ["mine"]
    taken = alice.api("POST", "/api/keys", {"name": "x", "secret": secret})
    assert taken.status == 400 and "carol" not in taken.text
