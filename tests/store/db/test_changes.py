"""The change log: numbers in the order of commits, gaps are noticed."""

import threading
import time
from functools import partial

import pytest

from store.db import changes
from store.db.changes import CATALOG, KEYS, bump, current_version, read_changes
from store.db.database import execute, transaction
from store.values.errors import StoreUnavailable
from tests.support.stores import at_once


def test_changes_are_numbered_and_read_from_a_number_on(database):
    assert read_changes(database, 0) == changes.Changes(0, (), complete=True)
    assert transaction(database, lambda: bump(database, CATALOG, ["m"])) == 1
    assert transaction(database, lambda: bump(database, KEYS, ["k", "u"])) == 3
    assert transaction(database, lambda: bump(database, KEYS, [])) == 3
    read = read_changes(database, 1)
    assert read.version == current_version(database) == 3
    assert read.complete
    assert [(c.version, c.kind, c.ref) for c in read.changes] == [(2, KEYS, "k"), (3, KEYS, "u")]
    assert read_changes(database, 3).changes == ()


def test_a_change_that_is_rolled_back_or_in_no_transaction_takes_no_number(database):
    def fail():
        bump(database, KEYS, ["k"])
        raise KeyError

    with pytest.raises(KeyError):
        transaction(database, fail)
    with pytest.raises(ValueError):
        bump(database, KEYS, ["k"])
    assert read_changes(database, 0) == changes.Changes(0, (), complete=True)


def test_rows_that_are_gone_are_noticed(database, monkeypatch):
    monkeypatch.setattr(changes, "CHANGE_LOG_KEPT", 3)
    for ref in "abcdef":
        transaction(database, lambda ref=ref: bump(database, KEYS, [ref]))
    assert [change.ref for change in read_changes(database, 3).changes] == ["d", "e", "f"]
    assert read_changes(database, 3).complete
    assert not read_changes(database, 2).complete
    assert not read_changes(database, 99).complete


def test_a_reader_never_misses_a_change(database):
    """A change whose transaction takes long to commit must not appear below a number already
    seen."""
    running = list("abc")

    def write(ref):
        def work():
            bump(database, KEYS, [ref])
            time.sleep(0.005)

        try:
            for _ in range(10):
                transaction(database, work)
        finally:
            running.remove(ref)

    def follow():
        since, versions, last_look = 0, [], False
        while not last_look:
            last_look = not running
            read = read_changes(database, since)
            assert read.complete
            versions.extend(change.version for change in read.changes)
            since = read.version
        return versions

    *writers, versions = at_once(database, *(partial(write, ref) for ref in "abc"), follow)
    assert writers == [None] * 3
    assert versions == list(range(1, 31))


def test_the_lock_keeps_other_administrators_out(database):
    order, locked = [], threading.Event()

    def first():
        changes.lock(database)
        locked.set()
        time.sleep(0.2)
        order.append("first")
        bump(database, KEYS, ["a"])

    def second():
        changes.lock(database)
        order.append("second")

    works = (
        lambda: transaction(database, first),
        lambda: locked.wait(5) and transaction(database, second),
    )
    assert at_once(database, *works) == [None, None]
    assert order == ["first", "second"]


def test_a_schema_without_its_counter_is_unavailable(database):
    execute(database, 'DELETE FROM "versions"')
    with pytest.raises(StoreUnavailable, match="migrate up"):
        current_version(database)
