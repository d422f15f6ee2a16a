"""Sessions: whose a cookie is, until when, and what ends it."""

import pytest

from store.db.database import first_row, transaction
from store.db.tables.hub import Session
from store.db.tables.users import User
from store.hub import sessions


@pytest.fixture
def alice(database, applied):
    """The id of a user."""
    return first_row(database, User.select(User.id).where(User.name == "alice"))[0]


def age(db, **times_ms):
    """Moves times of all sessions into the past."""
    changes = {name: getattr(Session, name) - by for name, by in times_ms.items()}
    transaction(db, lambda: Session.update(**changes).execute(db))


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


def test_use_is_noted(database, alice):
    cookie = sessions.begin(database, alice, "", "")
    age(database, seen_ms=2 * sessions.SEEN_EVERY_MS)
    before = sessions.of_user(database, alice)[0].seen_ms
    assert sessions.find(database, cookie) is not None
    assert sessions.of_user(database, alice)[0].seen_ms > before


def test_to_look_without_use_keeps_no_session_alive(database, alice):
    cookie = sessions.begin(database, alice, "", "")
    age(database, seen_ms=2 * sessions.SEEN_EVERY_MS)
    before = sessions.of_user(database, alice)[0].seen_ms
    assert sessions.find(database, cookie, used=False) is not None
    assert sessions.of_user(database, alice)[0].seen_ms == before
    age(database, seen_ms=sessions.IDLE_MS)
    assert sessions.find(database, cookie, used=False) is None


def test_sessions_are_ended_one_by_one_or_all_others(database, alice):
    cookies = [sessions.begin(database, alice, "", "") for _ in range(3)]
    found = [sessions.find(database, cookie) for cookie in cookies]
    assert not sessions.end(database, "somebody-else", found[0].session_id)
    assert sessions.end(database, alice, found[0].session_id)
    assert sessions.end_others(database, alice, found[1].session_id) == 1
    left = [sessions.find(database, cookie) is not None for cookie in cookies]
    assert left == [False, True, False]


def test_a_disabled_user_is_signed_out(database, alice):
    cookie = sessions.begin(database, alice, "", "")
    transaction(database, lambda: User.update(disabled=True).execute(database))
    assert sessions.find(database, cookie) is None


def test_a_user_has_so_many_sessions_at_most(database, alice, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_OF_USER", 3)
    cookies = []
    for _ in range(5):
        age(database, seen_ms=1)
        cookies.append(sessions.begin(database, alice, "", ""))
    assert [sessions.find(database, cookie) is not None for cookie in cookies] == [
        *(False, False, True, True, True)
    ]
