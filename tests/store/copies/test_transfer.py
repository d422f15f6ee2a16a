"""Copies of a store to another database: all of it or nothing, and equal afterwards."""

import pytest

from store.copies import transfer
from store.copies.transfer import MARK, copy
from store.db.changes import current_version
from store.db.database import database_ms, discard, is_mysql, open_database, transaction
from store.db.migrate import up
from store.db.nodes import note_seen
from store.db.partitions import _limits, prune
from store.db.schema import all_tables
from store.db.tables.usage import JournalRow
from store.values.errors import Refused, StoreError, StoreUnavailable
from store.values.ids import day_at
from tests.support.prices import rate_of
from tests.support.stores import select
from tests.support.usage_records import DAY_MS, BookedJournal, charged
from tests.support.users import add_user

CALLS = 30


@pytest.fixture
def target(database, request, tmp_path):
    """Yield an empty database of the other kind."""
    if is_mysql(database):
        url = f"sqlite:///{tmp_path}/target.db"
    else:
        url = request.getfixturevalue("mariadb").fresh_url()
    db = open_database(url)
    yield db
    discard(db)


@pytest.fixture
def source(database, applied):
    """Return a store with objects of all kinds, and calls of some days."""
    user_id = add_user(database, "carol")
    journal, at_ms = BookedJournal(database), database_ms(database)
    price = {"prices": rate_of(0, 0, 0, 0, 0, 0, 7).text, "multiplier_ppm": 10**6}
    for number in range(CALLS):
        when_ms = at_ms - number % 5 * DAY_MS
        call = charged(user_id, 7, when_ms, usage_source="reported", **price)
        journal.book([call], number, number + 1)
    end = JournalRow.update(finished_ms=at_ms)
    transaction(database, lambda: end.execute(database))
    return database


def contents(db):
    """Return all rows of all tables, in no particular order."""
    return {
        table._meta.table_name: sorted(
            select(db, f'SELECT {_listed(table)} FROM "{table._meta.table_name}"'), key=repr
        )
        for table in all_tables()
    }


def _listed(table):
    return ", ".join(f'"{field.column_name}"' for field in table._meta.sorted_fields)


def ignore(text):
    """Discard a progress report."""


def test_there_and_back_all_is_the_same(source, target, request, tmp_path, cipher):
    report = []
    counts = copy(source, target, report.append)
    assert counts["usage_records"] == CALLS and counts["users"] == 3
    assert contents(target) == contents(source)
    assert f"usage_records: {CALLS} of {CALLS} rows" in report and "verifying" in report
    if is_mysql(source):
        url = request.getfixturevalue("mariadb").fresh_url()
    else:
        url = f"sqlite:///{tmp_path}/back.db"
    back = open_database(url)
    try:
        copy(target, back, report.append)
        assert contents(back) == contents(source)
    finally:
        discard(back)


def test_days_have_partitions_in_the_copy(source, target):
    copy(source, target, ignore)
    if is_mysql(target):
        today = day_at(database_ms(target))
        assert f"p{today}" in _limits(target) and len(_limits(target)) == 6


def test_what_was_pruned_is_not_missed(source, target):
    prune(source, day_at(database_ms(source) - 2 * DAY_MS))
    copy(source, target, ignore)
    assert contents(target) == contents(source)


def test_a_target_in_use_is_refused(source, target):
    up(target)
    add_user(target, "somebody")
    with pytest.raises(Refused, match=r"is not empty: users"):
        copy(source, target, ignore)
    assert contents(target)["usage_records"] == []


def test_a_source_in_use_is_refused(source, target):
    BookedJournal(source)
    note_seen(source, "web-1")
    with pytest.raises(Refused, match=r"less than a minute ago, by: web-1"):
        copy(source, target, ignore)


def test_a_journal_of_a_dead_process_goes_with_it(source, target):
    BookedJournal(source)
    copy(source, target, ignore)
    assert contents(target)["journals"] == contents(source)["journals"]


class Interrupted(Exception):
    """The interruption by Ctrl-C or a crash of the machine."""


def test_an_interrupted_copy_is_of_no_use_and_is_repeated(source, target):
    def interrupt(text):
        if text.startswith("usage_records"):
            raise Interrupted

    with pytest.raises(Interrupted):
        copy(source, target, interrupt)
    assert MARK in {name for name, *_ in contents(target)["versions"]}
    with pytest.raises(StoreUnavailable, match="not complete"):
        current_version(target)  # what each gateway asks first
    copy(source, target, ignore)
    assert contents(target) == contents(source)


def test_rows_that_come_meanwhile_are_noticed(source, target):
    def somebody_writes(text):
        if text == "verifying":
            add_user(source, "late")

    with pytest.raises(StoreError, match=r"users: 4 rows in .*, 3 in .*: was one of them used"):
        copy(source, target, somebody_writes)
    copy(source, target, ignore)
    assert contents(target) == contents(source)


def test_a_copy_that_is_not_right_is_refused(source, target, monkeypatch):
    monkeypatch.setattr(transfer.restored, "faults", lambda db: ["a cent is missing"])
    with pytest.raises(StoreError, match="a cent is missing"):
        copy(source, target, ignore)
