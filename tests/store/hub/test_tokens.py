"""Tokens: for whom they act and how far, until they are revoked."""

import pytest

from store.db import audit
from store.db.database import transaction
from store.db.tables.users import User
from store.hub import tokens
from store.values.errors import NotFound, Refused

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture
def made(database, applied):
    """(id, token) of alice, to read."""
    return tokens.create(database, "alice", ["read"], name="ci", actor="tester")


def test_a_token_acts_for_its_user_within_its_scopes(database, made):
    found = tokens.find(database, made[1])
    assert (found.token_id, found.user, found.role) == (made[0], "alice", "member")
    assert found.scopes == {"read"}
    [row] = tokens.listed(database, "alice")
    assert (row.id, row.name, row.scopes, row.last_four) == (made[0], "ci", ("read",), made[1][-4:])
    assert row.used_ms is not None and row.revoked_ms is None
    assert tokens.listed(database, "bob") == []
    with pytest.raises(NotFound):
        tokens.listed(database, "nobody")


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
