"""Finding keys, and the life of a key."""

import json

import pytest

from store.catalog import keys
from store.catalog.keys import Rotation, find_key, revoke, rotate, set_key_enabled
from store.db import audit
from store.db.changes import read_changes
from store.db.database import database_ms, transaction
from store.values.errors import Conflict, NotFound, Refused
from store.values.key_secrets import digests

pytestmark = pytest.mark.databases("sqlite")

ALICE = "sk-given-0123456789"


@pytest.fixture
def key(applied):
    """Return (id, secret) of bob's key, whose secret was generated."""
    made = next(made for made in applied.keys if made.user == "bob")
    return made.id, made.secret


@pytest.fixture
def look(database, pepper):
    return lambda secret, *peppers: find_key(database, digests(secret, peppers or (pepper,)))


@pytest.mark.databases("sqlite", "mariadb")
def test_a_key_is_found_by_its_secret_alone(applied, look, key, pepper):
    entry = look(key[1])
    expected = {
        **{"id": key[0], "name": "desk", "user": "bob", "group": "plain", "networks": ()},
        **{"disabled": False, "revoked": False, "models": None, "expires_ms": None},
        **{"spend_order": "plan_first", "valid_until_ms": None, "subscriptions": ()},
    }
    assert {name: getattr(entry, name) for name in expected} == expected
    assert look(ALICE).user == "alice"
    assert look(ALICE.upper()) is None
    assert look(ALICE + " ") is None
    assert look(ALICE, "another pepper") is None
    assert look(ALICE, "newer pepper", pepper).user == "alice"


def test_narrowing_of_a_key(editor, read, applied, look):
    own = {"user": "alice", "name": "laptop", "models": ["claude"]}
    own |= {"networks": ["10.0.0.0/8", "::1"], "expires_at": "2027-01-01T00:00:00Z"}
    editor.apply(read(json.dumps({"key": [own]})))
    entry = look(ALICE)
    assert entry.models == {"claude"}
    assert [str(network) for network in entry.networks] == ["10.0.0.0/8", "::1/128"]
    assert entry.expires_ms == 1_798_761_600_000


def test_rotation_keeps_the_old_secret_for_a_while(database, look, key, pepper):
    before = database_ms(database)
    fresh = rotate(database, key[0], Rotation([pepper], overlap_s=60), "tester")
    assert look(fresh).valid_until_ms is None
    until = look(key[1]).valid_until_ms
    assert before + 60_000 <= until <= database_ms(database) + 60_000
    later = rotate(database, key[0], Rotation([pepper], overlap_s=3600), "tester")
    assert look(key[1]).valid_until_ms == until
    assert look(later).id == look(fresh).id == key[0]


def test_rotation_without_overlap_ends_the_old_secret(database, look, key, pepper):
    given = "given-for-rotation-1"
    assert rotate(database, key[0], Rotation([pepper], secret=given), "tester") == given
    assert look(key[1]).valid_until_ms <= database_ms(database)
    rotate(database, key[0], Rotation([pepper]), "tester")
    assert look(key[1]) is None
    row = next(row for row in audit.entries(database, 5) if row["action"] == "rotate")
    assert (row["name"], row["after"]["secret"]) == ("bob/desk", "***")


def test_a_rotation_that_is_refused_changes_nothing(database, look, key, pepper):
    for secret in ("short", ALICE):
        with pytest.raises(Refused) as caught:
            rotate(database, key[0], Rotation([pepper], secret=secret), "tester")
        assert secret not in str(caught.value)
    assert look(key[1]).valid_until_ms is None
    with pytest.raises(NotFound):
        rotate(database, "nobody", Rotation([pepper]), "tester")


def test_disable_enable_revoke(database, look, key, pepper):
    key_id, secret = key
    version = read_changes(database, 0).version
    set_key_enabled(database, key_id, False, "tester")
    set_key_enabled(database, key_id, False, "tester")
    assert look(secret).disabled
    set_key_enabled(database, key_id, True, "tester")
    assert not look(secret).disabled
    revoke(database, key_id, "tester")
    revoke(database, key_id, "tester")
    assert look(secret).revoked
    assert [c.ref for c in read_changes(database, version).changes] == [key_id] * 3
    for attempt in (
        lambda: set_key_enabled(database, key_id, True, "tester"),
        lambda: rotate(database, key_id, Rotation([pepper]), "tester"),
    ):
        with pytest.raises(Refused):
            attempt()
    with pytest.raises(NotFound):
        revoke(database, "x", "tester")


def test_a_disabled_user_disables_the_keys(editor, look, key):
    for enabled in (False, True):
        editor.set_enabled("user", "bob", enabled)
        assert (look(key[1]).disabled, look(ALICE).disabled) == (not enabled, False)


def test_a_secret_opens_one_key_only(database, key, pepper):
    for peppers in ([pepper], ["newer", pepper]):
        with pytest.raises(Conflict):
            transaction(database, lambda p=peppers: keys.add_secret(database, key[0], ALICE, p))


@pytest.mark.parametrize(
    ("kind", "names", "field"),
    [
        ("key", ("alice/laptop", "bob/desk"), "limit_window"),
        ("user", ("alice", "bob"), "user_limit_window"),
    ],
)
def test_a_limit_has_a_window(editor, look, key, kind, names, field):
    for edits, window in (({}, None), ({"limit_window": "month"}, None), ({"limit": "5"}, "month")):
        editor.change(kind, names[0], edits)
        assert getattr(look(ALICE), field) == window
    editor.change(kind, names[1], {"limit": "0"})
    assert getattr(look(key[1]), field) == "never"


@pytest.mark.databases("sqlite", "mariadb")
def test_a_key_has_the_subscriptions_of_its_user(database, editor, look, key):
    for name, window in (("a", "day"), ("b", "week"), ("c", "month"), ("d", "day")):
        editor.create("plan", name, {"quota": "1", "window": window})
    for name, ends in (("a", "2090"), ("b", "2080"), ("c", "2090")):
        words = {"user": "bob", "expires_at": f"{ends}-01-01T00:00:00Z"}
        editor.create("subscription", name, words)
    times = {"starts_at": "2070-01-01T00:00:00Z", "expires_at": "2075-01-01T00:00:00Z"}
    editor.create("subscription", "bob/d", times)
    assert look(ALICE).subscriptions == ()
    found = look(key[1]).subscriptions
    assert [(one.plan, one.window) for one in found[:2]] == [("d", "day"), ("b", "week")]
    together = [(one.id, one.plan) for one in found[2:]]
    assert together == sorted(together) and {plan for _, plan in together} == {"a", "c"}
    assert found[0].starts_ms == 3_155_760_000_000 and found[0].expires_ms == 3_313_526_400_000
    assert found[1].starts_ms <= database_ms(database) and len(found[1].id) == 26


def test_subscriptions_that_give_nothing_are_left_out(editor, look, key):
    def plans():
        return sorted(one.plan for one in look(key[1]).subscriptions)

    for name in ("a", "b"):
        editor.create("plan", name, {"quota": "1", "window": "day"})
        editor.create("subscription", f"bob/{name}", {})
    past = {"starts_at": "2020-01-01T00:00:00Z", "expires_at": "2020-02-01T00:00:00Z"}
    for act, expected in (
        (lambda: None, ["a", "b"]),
        (lambda: editor.set_enabled("plan", "a", False), ["b"]),
        (lambda: editor.set_enabled("subscription", "bob/b", False), []),
        (lambda: editor.set_enabled("plan", "a", True), ["a"]),
        (lambda: editor.change("subscription", "bob/a", past), []),
    ):
        act()
        assert plans() == expected


@pytest.mark.parametrize(
    ("kind", "name", "prefix"), [("key", "alice/laptop", ""), ("user", "alice", "user_")]
)
def test_a_key_knows_its_limits_and_those_of_its_user(editor, look, key, kind, name, prefix):
    def limits():
        found = look(ALICE)
        return [getattr(found, f"{prefix}{field}") for field in ("rpm", "tpm", "concurrency")]

    assert limits() == [0, 0, 0]
    editor.change(kind, name, {"rpm": "5", "tpm": "60", "concurrency": "7"})
    assert limits() == [5, 60, 7]
