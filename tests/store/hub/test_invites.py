"""Links that work once, used by several at the same time."""

from functools import partial

import pytest

from store.db.database import execute, transaction
from store.hub import invites
from store.hub.invites import USED, WITHDRAWN, InviteTerms
from store.values.errors import StoreError
from tests.support.stores import at_once
from tests.support.users import add_user


@pytest.fixture
def new_link(database):
    add_user(database, "nadia")
    transaction(database, lambda: execute(database, """UPDATE "users" SET "role" = 'admin'"""))
    return invites.invite(database, InviteTerms(), "nadia")


def use(db, token, user):
    transaction(db, partial(invites.use_up, db, token, user))
    return user


def test_of_several_holders_one_gets_further(database, new_link):
    names = [f"holder-{number}" for number in range(6)]
    results = at_once(database, *(partial(use, database, new_link.token, name) for name in names))
    (first,) = [result for result in results if not isinstance(result, StoreError)]
    (link,) = invites.listed(database)
    assert (link.state, link.used_by) == (USED, first)


def test_a_link_is_used_or_withdrawn(database, new_link):
    results = at_once(
        database,
        partial(use, database, new_link.token, "dora"),
        partial(invites.withdraw, database, new_link.link.id, "nadia"),
    )
    (failed,) = [index for index, result in enumerate(results) if isinstance(result, StoreError)]
    (link,) = invites.listed(database)
    assert (link.state, link.used_by) == [(WITHDRAWN, None), (USED, "dora")][failed]
