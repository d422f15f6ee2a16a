"""At least one administrator who can sign in stays, even if several remove each other at the same
time. The links of the first run end with the first administrator."""

from functools import partial

import pytest

from store.admin.apply import Editor
from store.admin.plan import Upstreams
from store.db.database import first_row, select_rows
from store.db.tables.hub import FirstRunLink
from store.db.tables.users import User
from store.hub import administrators, first_run, openid_links, people
from store.values.errors import Refused
from store.values.passwords import hash_password
from tests.store.conftest import VENDORS
from tests.support.stores import at_once

ROUNDS = 6
ISSUER = "https://login.example.com"
HASH = hash_password("nobody signs in with this one")


def make(database, name, role="admin", password_hash=HASH):
    row = {"id": name, "name": name, "role": role, "password_hash": password_hash}
    row |= {"spend_order": "plan_first", "created_ms": 0, "groups": []}
    User.insert(row).execute(database)


WAYS = {
    "demoted": lambda editor, name: editor.change("user", name, {"role": "member"}),
    "disabled": lambda editor, name: editor.set_enabled("user", name, False),
    "without a password": lambda editor, name: editor.change("user", name, {"password": ""}),
    "removed": lambda editor, name: editor.remove("user", name),
}


@pytest.mark.parametrize("way", WAYS)
def test_two_who_take_each_other_away_at_once(database, sealing, way):
    """Each has a connection of its own, like two processes."""

    def take(name):
        WAYS[way](Editor(database, sealing, Upstreams(VENDORS), "tester"), name)

    left = ""
    for number in range(ROUNDS):
        pair = f"one-{number}", f"two-{number}"
        for name in pair:
            make(database, name)
        if left:  # the one left by the round before
            take(left)
        raised = at_once(database, *(partial(take, name) for name in pair))
        assert {type(error) for error in raised} == {type(None), Refused}, (number, raised)
        assert administrators.exist(database)
        left = pair[raised[0] is None]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("way", WAYS)
def test_the_last_one_stays_and_a_second_may_go(database, editor, way):
    make(database, "last")
    make(database, "member", role="member")
    make(database, "without a way in", password_hash=None)
    with pytest.raises(Refused, match="last administrator"):
        WAYS[way](editor, "last")
    row = first_row(database, User.select(User.role, User.disabled).where(User.name == "last"))
    assert row == ("admin", False)
    people.set_password(database, "without a way in", "a password of hers", "tester")
    WAYS[way](editor, "last")
    assert administrators.exist(database)


def test_a_document_that_prunes_the_last_one_is_refused_whole(database, editor, read):
    make(database, "last")
    with pytest.raises(Refused, match="last administrator"):
        editor.apply(read('[[group]]\nname = "new"'), prune=True)
    assert select_rows(database, User.select(User.name)) == [("last",)]
    other = '[[user]]\nname = "boss"\nrole = "admin"\npassword = "a password of hers"'
    editor.apply(read(other), prune=True)
    assert select_rows(database, User.select(User.name)) == [("boss",)]


def test_one_who_signs_in_by_openid_counts_until_the_link_ends(database, editor):
    make(database, "linked", password_hash=None)
    assert not administrators.exist(database)
    link_id = openid_links.link(database, "linked", ISSUER, "subject", "tester")
    assert administrators.exist(database)
    for end in (
        lambda: openid_links.unlink(database, "linked", "linked", link_id, "tester"),
        lambda: openid_links.unlink_all(database, "linked", "tester"),
        lambda: editor.set_enabled("user", "linked", False),
    ):
        with pytest.raises(Refused, match="last administrator"):
            end()
    assert openid_links.find(database, ISSUER, "subject") is not None
    make(database, "other")
    assert openid_links.unlink_all(database, "linked", "tester") == 1


def test_an_edit_of_users_without_any_administrator_is_no_loss(database, editor):
    make(database, "without a way in", password_hash=None)
    make(database, "disabled")
    User.update(disabled=True).where(User.name == "disabled").execute(database)
    assert not administrators.exist(database)
    editor.remove("user", "without a way in")


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    "become",
    [
        lambda db, editor: people.set_password(db, "boss", "a password of hers", "tester"),
        lambda db, editor: editor.change("user", "boss", {"password": "a password of hers"}),
        lambda db, editor: openid_links.link(db, "boss", ISSUER, "subject", "tester"),
        lambda db, editor: editor.change("user", "member", {"role": "admin"}),
        lambda db, editor: editor.set_enabled("user", "disabled", True),
    ],
    ids=["password", "set", "link", "promoted", "enabled"],
)
def test_all_links_go_when_anybody_becomes_administrator(database, editor, become):
    make(database, "boss", password_hash=None)
    make(database, "member", role="member")
    make(database, "disabled")
    User.update(disabled=True).where(User.name == "disabled").execute(database)
    for _ in range(3):
        assert first_run.make_link(database) is not None
    become(database, editor)
    assert first_row(database, FirstRunLink.select(FirstRunLink.digest)) is None
    assert first_run.make_link(database) is None
