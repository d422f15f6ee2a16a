"""Digests move to the newest pepper when their key is used."""

import pytest

from store.admin.secret_use import pepper_use
from store.catalog.keys import PepperMoves, find_key
from store.money import codes
from store.values.errors import StoreUnavailable
from store.values.key_secrets import digests

pytestmark = pytest.mark.databases("sqlite")

ALICE = "sk-given-0123456789"
NEW = "a newer pepper"


def test_a_used_key_moves(applied, database, pepper):
    peppers, moves = [NEW, pepper], PepperMoves([NEW, pepper])
    before = pepper_use(database, peppers)
    assert (before.newest, before.older_keys, before.lost) == (0, 2, 0)
    assert before.keys[0].startswith("alice/")
    marks = digests(ALICE, peppers)
    assert find_key(database, marks).user == "alice"
    moves.note(marks)
    moves.write(database)
    after = pepper_use(database, peppers)
    assert (after.newest, after.older_keys, after.keys) == (1, 1, ("bob/desk",))
    assert find_key(database, digests(ALICE, [NEW])).user == "alice"
    assert find_key(database, digests(ALICE, [pepper])) is None
    moves.note(marks)
    moves.write(database)
    assert pepper_use(database, peppers) == after


def test_nothing_moves_with_one_pepper_or_to_an_upcoming_one(applied, database, pepper):
    for moves, marks in (
        (PepperMoves([pepper]), digests(ALICE, [pepper])),
        (PepperMoves([]), digests(ALICE, [NEW, pepper])),
    ):
        moves.note(marks)
        moves.write(database)
        assert find_key(database, digests(ALICE, [pepper])) is not None


def test_what_waits_stays_while_the_store_is_away(applied, database, pepper, monkeypatch):
    moves, marks = PepperMoves([NEW, pepper]), digests(ALICE, [NEW, pepper])
    moves.note(marks)

    def away(*_):
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr("store.catalog.keys.database.transaction", away)
        with pytest.raises(StoreUnavailable):
            moves.write(database)
    moves.write(database)
    assert find_key(database, marks[:1]) is not None


def test_codes_and_lost_keys_are_counted(applied, database, pepper):
    made = codes.create(database, codes.NewCodes(3, 10**9), pepper, "tester")
    codes.redeem(database, "alice", made[0].code, [pepper], "tester")
    use = pepper_use(database, [NEW, pepper])
    assert (use.older_keys, use.older_codes, use.lost) == (2, 2, 0)
    assert pepper_use(database, [NEW]).lost == 4
