"""Passwords, sessions and tokens: their user, their lifetime, and what ends them."""

import pytest

from store.db import audit
from store.db.database import first_row, transaction
from store.db.tables.hub import ApiToken, Session
from store.db.tables.users import User
from store.hub import people, sessions, tokens
from store.hub.membership import user_id_of
from store.values.errors import NotFound, Refused

pytestmark = pytest.mark.databases("sqlite")

OLD, NEW = "correct horse", "battery staple"


@pytest.fixture
def alice(database, applied):
    """Return the id of a user."""
    return user_id_of(database, "alice")


def age(db, **times_ms):
    """Move times of all sessions into the past."""
    changes = {name: getattr(Session, name) - by for name, by in times_ms.items()}
    transaction(db, lambda: Session.update(**changes).execute(db))


@pytest.mark.databases("sqlite", "mariadb")
def test_a_cookie_is_known_and_a_made_up_one_is_not(database, alice):
    cookie = sessions.begin(database, alice, "192.0.2.7", "Browser/1")
    found = sessions.find(database, cookie)
    assert (found.user_id, found.user, found.role, found.admin) == (alice, "alice", "member", False)
    assert sessions.find(database, cookie + "x") is None
    assert sessions.find(database, "\udc80") is None
    [row] = sessions.of_user(database, alice)
    assert (row.id, row.address, row.agent) == (found.session_id, "192.0.2.7", "Browser/1")
    assert cookie.encode() not in b"".join(
        r[0] for r in Session.select(Session.digest).tuples().bind(database)
    )
    transaction(database, lambda: User.update(disabled=True).execute(database))
    assert sessions.find(database, cookie) is None


@pytest.mark.parametrize(
    "times_ms",
    [{"seen_ms": sessions.IDLE_MS + 1000}, {"created_ms": sessions.LIFETIME_MS + 1000}],
    ids=["idle", "old"],
)
def test_a_session_that_was_not_used_or_is_old_has_ended(database, alice, times_ms):
    cookie = sessions.begin(database, alice, "", "")
    age(database, **times_ms)
    assert sessions.find(database, cookie) is None
    assert sessions.of_user(database, alice) == []


@pytest.mark.parametrize("used", [True, False])
def test_only_use_keeps_a_session_alive(database, alice, used):
    cookie = sessions.begin(database, alice, "", "")
    age(database, seen_ms=2 * sessions.SEEN_EVERY_MS)
    before = sessions.of_user(database, alice)[0].seen_ms
    assert sessions.find(database, cookie, used=used) is not None
    assert (sessions.of_user(database, alice)[0].seen_ms > before) is used
    age(database, seen_ms=sessions.IDLE_MS - sessions.SEEN_EVERY_MS)
    assert (sessions.find(database, cookie, used=used) is not None) is used


def test_sessions_are_ended_one_by_one_or_all_others(database, alice):
    cookies = [sessions.begin(database, alice, "", "") for _ in range(3)]
    found = [sessions.find(database, cookie) for cookie in cookies]
    assert not sessions.end(database, "somebody-else", found[0].session_id)
    assert sessions.end(database, alice, found[0].session_id)
    assert sessions.end_all(database, alice, "tester", found[1].session_id).sessions == 1
    left = [sessions.find(database, cookie) is not None for cookie in cookies]
    assert left == [False, True, False]


WAYS_OUT = {
    "own password": lambda db, editor: people.change_password(db, "alice", OLD, NEW),
    "password by a command": lambda db, editor: people.set_password(db, "alice", NEW, "tester"),
    "password by an edit": lambda db, editor: editor.change("user", "alice", {"password": NEW}),
    "no password": lambda db, editor: editor.change("user", "alice", {"password": ""}),
    "end sessions": lambda db, editor: sessions.end_all(db, user_id_of(db, "alice"), "tester"),
    "disabled and enabled": lambda db, editor: [
        editor.set_enabled("user", "alice", enabled) for enabled in (False, True)
    ],
    "disabled by an older version": lambda db, editor: [
        transaction(db, lambda: User.update(disabled=True).execute(db)),
        editor.set_enabled("user", "alice", True),
    ],
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_sessions_and_tokens_end_together(database, applied, editor, alice, way):
    cookie = sessions.begin(database, alice, "", "")
    _, token = tokens.create(database, "alice", ["read"], actor="tester")
    other = sessions.begin(database, user_id_of(database, "bob"), "", "")
    _, others = tokens.create(database, "bob", ["read"], actor="tester")
    editor.change("user", "alice", {"rpm": "60"})
    assert sessions.find(database, cookie) and tokens.find(database, token)
    WAYS_OUT[way](database, editor)
    assert sessions.find(database, cookie) is None and tokens.find(database, token) is None
    if way != "disabled by an older version":  # an older version disables everybody
        assert sessions.find(database, other) and tokens.find(database, others)
    [line] = [row for row in audit.entries(database, 20) if row["action"] == "end_session"]
    assert (line["name"], line["after"]) == ("alice", {"sessions": 1, "tokens": 1})


def test_the_one_that_asks_is_kept(database, alice):
    kept_id, kept = tokens.create(database, "alice", ["read"], actor="tester")
    sessions.begin(database, alice, "", "")
    tokens.create(database, "alice", ["read"], actor="tester")
    assert sessions.end_all(database, alice, "tester", kept_id) == sessions.Ended(1, 1)
    assert tokens.find(database, kept) is not None
    assert sessions.end_all(database, alice, "tester", kept_id) == sessions.Ended(0, 0)


def test_a_removed_user_leaves_no_session_and_no_token(database, applied, editor):
    user_id = user_id_of(database, "bob")
    sessions.begin(database, user_id, "", "")
    tokens.create(database, "bob", ["read"], actor="tester")
    editor.remove("key", "bob/desk")
    editor.remove("user", "bob")
    for table in (Session, ApiToken):
        assert first_row(database, table.select().where(table.user_id == user_id)) is None


def test_a_user_has_so_many_sessions_at_most(database, alice, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_OF_USER", 3)
    cookies = []
    for _ in range(5):
        age(database, seen_ms=1)
        cookies.append(sessions.begin(database, alice, "", ""))
    assert [sessions.find(database, cookie) is not None for cookie in cookies] == [
        *(False, False, True, True, True)
    ]


def test_name_and_password_must_both_be_right(database, applied):
    assert people.check(database, "alice", OLD).name == "alice"
    wrong = [("alice", "wrong"), ("alice", ""), ("bob", ""), ("bob", OLD)]
    wrong += [("nobody", OLD), ("nobody", "nobody has this password")]
    assert [people.check(database, *pair) for pair in wrong] == [None] * len(wrong)
    transaction(database, lambda: User.update(disabled=True).execute(database))
    assert people.check(database, "alice", OLD) is None


@pytest.fixture
def made(database, applied):
    """Return (id, token) of a token of alice for reading."""
    return tokens.create(database, "alice", ["read"], name="ci", actor="tester")


@pytest.mark.parametrize("token", ["", "slt-", "sk-slc-something", "slt-\udc80"])
def test_what_is_no_token(database, made, token):
    assert tokens.find(database, token) is None


def test_a_revoked_token_and_one_of_a_disabled_user_open_nothing(database, made):
    other = tokens.create(database, "bob", ["keys"], actor="tester")
    tokens.revoke(database, made[0], actor="tester")
    tokens.revoke(database, made[0], actor="tester")
    assert tokens.find(database, made[1]) is None and tokens.find(database, other[1]) is not None
    transaction(database, lambda: User.update(disabled=True).execute(database))
    assert tokens.find(database, other[1]) is None
    acts = audit.entries(database, 10, audit.AuditFilter(kind="token"))
    names = sorted((act["action"], act["name"]) for act in acts)
    assert names == sorted([("create", made[0]), ("create", other[0]), ("revoke", made[0])])
    assert made[1] not in str(audit.entries(database, 10))


def test_a_token_of_somebody_else_cannot_be_revoked(database, made):
    with pytest.raises(NotFound):
        tokens.revoke(database, made[0], user_id="somebody-else", actor="tester")
    assert tokens.find(database, made[1]) is not None


@pytest.mark.parametrize(
    ("user", "scopes", "name", "error"),
    [
        ("nobody", ["read"], "", NotFound),
        ("alice", [], "", Refused),
        ("alice", ["write"], "", Refused),
        ("alice", ["admin"], "", Refused),
        ("alice", ["read"], "x" * 129, Refused),
    ],
)
def test_what_cannot_be_made(database, applied, user, scopes, name, error):
    with pytest.raises(error):
        tokens.create(database, user, scopes, name=name, actor="tester")
    assert tokens.listed(database) == []
