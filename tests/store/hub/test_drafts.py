"""Drafts of new channels: one for each session, sealed, kept for a day, without lost changes."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from store.db.database import database_ms, discard, open_database, select_rows, transaction
from store.db.tables.hub import ChannelDraft
from store.hub import drafts
from store.values.cipher import Cipher

CIPHER = Cipher(["cipher key of the tests"])


def add(name):
    return lambda content: {"names": [*(content or {"names": []})["names"], name]}


def test_each_owner_has_one_and_only_its_cipher_opens_it(database):
    assert drafts.load(database, CIPHER, "a") is None
    drafts.change(database, CIPHER, "a", add("sk-secret"))
    assert drafts.change(database, CIPHER, "a", add("x")) == {"names": ["sk-secret", "x"]}
    assert drafts.load(database, CIPHER, "a") == {"names": ["sk-secret", "x"]}
    assert drafts.load(database, CIPHER, "b") is None
    assert drafts.load(database, Cipher(["another"]), "a") is None
    assert "sk-secret" not in str(select_rows(database, ChannelDraft.select(ChannelDraft.sealed)))
    drafts.drop(database, "a")
    assert drafts.load(database, CIPHER, "a") is None


def test_of_many_changes_at_once_none_is_lost(database, database_url):
    def work(number):
        db = open_database(database_url)
        drafts.change(db, CIPHER, "a", add(number))
        discard(db)

    drafts.change(database, CIPHER, "a", add(0))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 9)))
    assert sorted(drafts.load(database, CIPHER, "a")["names"]) == list(range(9))


@pytest.mark.databases("sqlite")
def test_a_draft_that_is_over_is_none_and_goes(database):
    drafts.change(database, CIPHER, "a", add("x"))
    age = ChannelDraft.update(changed_ms=ChannelDraft.changed_ms - drafts.LIFETIME_MS)
    transaction(database, lambda: age.execute(database))
    assert drafts.load(database, CIPHER, "a") is None
    drafts.change(database, CIPHER, "b", add("y"))
    drafts.forget_old(database, database_ms(database))
    owners = select_rows(database, ChannelDraft.select(ChannelDraft.owner_id))
    assert owners == [("b",)]
