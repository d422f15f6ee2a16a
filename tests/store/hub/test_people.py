"""Passwords: checked, and changed by who knows the old one."""

import pytest

from store.db import audit
from store.db.database import transaction
from store.db.tables.users import User
from store.hub import people
from store.values.errors import Refused

pytestmark = pytest.mark.databases("sqlite")

PASSWORD = "correct horse"  # of alice, in the base document


def test_name_and_password_must_both_be_right(database, applied):
    assert people.check(database, "alice", PASSWORD).name == "alice"
    wrong = [("alice", "wrong"), ("alice", ""), ("bob", ""), ("bob", PASSWORD)]
    wrong += [("nobody", PASSWORD), ("nobody", "nobody has this password")]
    assert [people.check(database, *pair) for pair in wrong] == [None] * len(wrong)
    transaction(database, lambda: User.update(disabled=True).execute(database))
    assert people.check(database, "alice", PASSWORD) is None


def test_a_password_is_changed_by_who_knows_the_old_one(database, applied):
    people.change_password(database, "alice", PASSWORD, "battery staple")
    assert people.check(database, "alice", PASSWORD) is None
    assert people.check(database, "alice", "battery staple") is not None
    row = audit.entries(database, 1)[0]
    assert (row["actor"], row["action"], row["after"]) == ("alice", "set", {"password": "***"})


@pytest.mark.parametrize(
    ("old", "new"), [("wrong", "battery staple"), (PASSWORD, ""), (PASSWORD, "x" * 1025)]
)
def test_what_is_no_change_of_a_password(database, applied, old, new):
    with pytest.raises(Refused, match="password"):
        people.change_password(database, "alice", old, new)
    assert people.check(database, "alice", PASSWORD) is not None
