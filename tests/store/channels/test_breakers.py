"""Open breakers in the store: only changes are written, they are bounded, and removed with their
process."""

import pytest

from store.channels import breakers
from store.db.database import snapshot_read, transaction
from store.values.ids import new_ulid
from tests.support.usage_records import BookedJournal

pytestmark = pytest.mark.databases("sqlite")

FAILING = ("failing", 1000, 6000)


@pytest.fixture
def journal(database):
    return BookedJournal(database).id


def shown(db):
    found = snapshot_read(db, lambda: breakers.all_open(db))
    return {(one.channel_id, one.model, one.fingerprint): one for one in found}


def test_what_opens_changes_and_closes(database, journal):
    known = {}
    one, two = ("C1", "m1", "f1"), ("C1", "", "")
    breakers.show(database, journal, known, {one: FAILING, two: ("key_suspended", 1, 2)})
    assert shown(database).keys() == {one, two}
    assert shown(database)[one] == breakers.Breaker("web-1", journal, *one, *FAILING)
    breakers.show(database, journal, known, {one: ("failing", 1000, 9000)})
    assert shown(database).keys() == {one}
    assert shown(database)[one].until_ms == 9000
    breakers.show(database, journal, known, {})
    assert shown(database) == {} == known


def test_nothing_is_written_while_nothing_changes(database, journal, monkeypatch):
    known = {}
    breakers.show(database, journal, known, {("C1", "m1", ""): FAILING})
    monkeypatch.setattr(breakers, "transaction", None)
    breakers.show(database, journal, known, {("C1", "m1", ""): FAILING})


def test_rows_of_one_second_are_bounded(database, journal, monkeypatch):
    monkeypatch.setattr(breakers, "ROWS_MAX", 3)
    known, many = {}, {("C1", f"m{n}", ""): FAILING for n in range(7)}
    for count in (3, 6, 7, 7):
        breakers.show(database, journal, known, many)
        assert len(shown(database)) == len(known) == count
    for count in (4, 1, 0):
        breakers.show(database, journal, known, {})
        assert len(shown(database)) == count


def test_processes_do_not_touch_each_others_rows(database, journal):
    other, one = new_ulid(), ("C1", "m1", "")
    breakers.show(database, journal, {}, {one: FAILING})
    breakers.show(database, other, {}, {one: FAILING})
    transaction(database, lambda: breakers.forget(database, journal))
    [left] = shown(database).values()
    assert (left.journal_id, left.node) == (other, "")


def test_what_is_long_over_is_forgotten(database, journal):
    breakers.show(database, journal, {}, {("C1", "m1", ""): FAILING})
    breakers.forget_old(database, 6000 + breakers.KEPT_MS)
    assert len(shown(database)) == 1
    breakers.forget_old(database, 6001 + breakers.KEPT_MS)
    assert shown(database) == {}
