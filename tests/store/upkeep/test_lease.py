"""One process does the upkeep for all; another takes over its lease when it is gone."""

from functools import partial

import pytest

from store.db.database import execute, transaction
from store.db.tables.system import UpkeepRow
from store.upkeep import lease
from store.upkeep.lease import INTERVAL_MS, LEASE_MS, RETRY_MS, Lost
from tests.support.stores import at_once


def alter(db, **values):
    transaction(db, lambda: UpkeepRow.update(values).execute(db))


def test_a_new_store_is_due_at_once(database):
    found = lease.state(database)
    assert (found.running, found.begun_ms, found.ended_ms, found.removed) == (False, None, None, {})
    assert lease.take(database, "A", "web-1")
    assert lease.state(database).running and lease.state(database).node == "web-1"


def test_one_of_many_takes_it(database):
    works = [partial(lease.take, database, str(number), "web-1") for number in range(8)]
    assert sorted(at_once(database, *works)) == [False] * 7 + [True]


def test_after_a_run_the_next_is_due_in_an_hour(database):
    lease.take(database, "A", "web-1")
    lease.finish(database, "A", {"records": 3})
    found = lease.state(database)
    assert not found.running and found.removed == {"records": 3} and found.trouble == ""
    assert found.next_ms == found.ended_ms + INTERVAL_MS
    assert not lease.take(database, "B", "web-2")
    alter(database, next_ms=found.ended_ms)
    assert lease.take(database, "B", "web-2")
    assert lease.state(database).node == "web-2"


def test_a_failed_run_is_repeated_soon(database):
    lease.take(database, "A", "web-1")
    lease.finish(database, "A", {}, "x" * 2000)
    found = lease.state(database)
    assert found.next_ms == found.ended_ms + RETRY_MS
    assert len(found.trouble) == lease.TROUBLE_CHARS


def test_who_is_gone_is_replaced_when_the_lease_has_run_out(database):
    lease.take(database, "A", "web-1")
    assert not lease.take(database, "B", "web-2")
    lease.renew(database, "A")
    alter(database, until_ms=UpkeepRow.until_ms - LEASE_MS - 1)
    assert not lease.state(database).running
    assert lease.take(database, "B", "web-2")
    with pytest.raises(Lost):
        lease.renew(database, "A")
    lease.finish(database, "A", {"records": 9})
    assert lease.state(database).running, "the run of another was ended"


def test_what_was_given_back_is_due_whatever_a_clock_said(database):
    lease.take(database, "A", "web-1")
    lease.give_back(database, "A")
    assert lease.take(database, "B", "web-2")
    lease.finish(database, "B", {})
    alter(database, next_ms=UpkeepRow.next_ms + 10**13)  # a clock that was set back since
    assert lease.take(database, "A", "web-1")


def test_without_its_row_nothing_is_done(database):
    transaction(database, lambda: execute(database, 'DELETE FROM "upkeep"'))
    assert lease.state(database) is None and not lease.take(database, "A", "web-1")


def test_what_interfaces_show(database):
    lease.take(database, "A", "web-1")
    lease.finish(database, "A", {"records": 3})
    shown = lease.to_public(lease.state(database))
    assert shown["node"] == "web-1" and shown["removed"] == {"records": 3}
    assert shown["running"] is False and shown["trouble"] is None
    assert shown["begun_at"] <= shown["ended_at"] < shown["next_at"]
