"""Rows that the upkeep removes and keeps; the books are correct before, between and after."""

import pytest

from store.calls import rollups, stored_responses
from store.calls.stored_responses import mark_of, note_stored
from store.calls.usage_queries import verify as verify_usage
from store.db import audit, partitions
from store.db.database import database_ms, is_mysql, select_rows, transaction
from store.db.tables.hub import Invite
from store.db.tables.usage import UsageByDay
from store.hub import invites
from store.hub.sessions import IDLE_MS
from store.money.books import verify as verify_books
from store.upkeep import retention
from store.upkeep.retention import DAY_MS, Keep, run
from store.values.ids import new_ulid
from store.values.usage_record import StoredAt
from tests.support.prices import rate_of
from tests.support.stores import count, insert, pairs
from tests.support.usage_records import BookedJournal, charged, store
from tests.support.users import add_user

DAYS_AGO = (0, 1, 5, 20, 40)


def nothing():
    """Pause without doing anything."""


@pytest.fixture
def filled(database):
    """Book two calls on each of some days up to today."""
    user_id = add_user(database, "alice")
    at_ms = database_ms(database)
    journal = BookedJournal(database)
    for number, days in enumerate(DAYS_AGO):
        day_ms = at_ms - days * DAY_MS
        journal.book([paid(user_id, 1000 + days, day_ms) for _ in range(2)], number, number + 1)
    return database


def paid(user_id, cost, at_ms):
    """Return a call whose price is its cost, so that the cost can be recomputed."""
    price = rate_of(0, 0, 0, 0, 0, 0, cost)
    facts = {"prices": price.text, "multiplier_ppm": 10**6, "usage_source": "reported"}
    return charged(user_id, cost, at_ms, **facts)


def records(db):
    return count(db, "usage_records")


def assert_all_right(db):
    assert verify_books(db) == []
    assert list(verify_usage(db)) == [] and list(rollups.verify(db)) == []


def test_by_default_all_is_kept(filled):
    assert run(filled, Keep(), "web-1", nothing) == {}
    assert records(filled) == 2 * len(DAYS_AGO)
    assert_all_right(filled)
    if is_mysql(filled):
        assert len(partitions._limits(filled)) == partitions.AHEAD_DAYS + 2


def test_old_records_go_and_books_sums_and_ledger_stay(filled):
    lines, sums = count(filled, "ledger"), count(filled, "usage_by_key")
    removed = run(filled, Keep(record_days=10), "web-1", nothing)
    assert removed == {"records": 4}
    assert records(filled) == 6
    assert (count(filled, "ledger"), count(filled, "usage_by_key")) == (lines, sums)
    assert_all_right(filled)
    newest = audit.entries(filled, 1)[0]
    assert (newest["actor"], newest["action"], newest["kind"]) == ("upkeep:web-1", "prune", "usage")
    assert run(filled, Keep(record_days=10), "web-1", nothing) == {}
    assert len(audit.entries(filled, 10)) == 1, "nothing was removed, and the audit log says so"


def test_sums_go_later_than_their_records(filled):
    keep = Keep(record_days=3, sum_days=30)
    removed = run(filled, keep, "web-1", nothing)
    assert removed["records"] == 6 and removed["sums"] > 0
    assert {row[0] for row in select_rows(filled, UsageByDay.select(UsageByDay.calls))} == {2}
    assert count(filled, "usage_by_day") == 4
    assert_all_right(filled)


def test_sums_of_days_with_records_stay_in_any_case(filled):
    assert "sums" not in run(filled, Keep(sum_days=3), "web-1", nothing)
    assert_all_right(filled)


def test_journals_that_ended_long_ago_are_forgotten(database):
    at_ms = database_ms(database)
    ends = {"OLD": at_ms - 11 * DAY_MS, "NEW": at_ms - 9 * DAY_MS, "RUNS": None}
    for name, finished_ms in ends.items():
        row = {"node": "web-1", "offset": 7, "opened_ms": 0, "finished_ms": finished_ms}
        insert(database, "journals", id=name, **row)
    assert run(database, Keep(), "web-1", nothing) == {}
    assert run(database, Keep(journal_days=10), "web-1", nothing) == {"journals": 1}
    assert pairs(database, "journals", "id", "node").keys() == {"NEW", "RUNS"}


def test_sessions_that_are_over_go_in_portions(database, monkeypatch):
    monkeypatch.setattr(retention, "PORTION_ROWS", 2)
    at_ms, pauses = database_ms(database), []
    for number in range(7):
        row = {"digest": bytes([number]) * 32, "user_id": "U", "address": "", "agent": ""}
        row |= {"seen_ms": at_ms - (IDLE_MS + 1000 if number < 5 else 0), "created_ms": at_ms}
        insert(database, "hub_sessions", id=new_ulid(), **row)
    assert run(database, Keep(), "web-1", lambda: pauses.append(1)) == {"sessions": 5}
    assert count(database, "hub_sessions") == 2 and len(pauses) >= 3


def test_invites_go_a_month_after_their_last_day_and_stay_in_the_audit_log(database):
    at_ms = database_ms(database)
    for days in (29, 31):
        link_id = invites.invite(database, invites.InviteTerms(), "boss").link.id
        ended = {"until_ms": at_ms - days * DAY_MS, "used_ms": 1}
        change = Invite.update(ended).where(Invite.id == link_id)
        transaction(database, lambda change=change: change.execute(database))
    run(database, Keep(), "web-1", nothing)
    assert [link.until_ms for link in invites.listed(database)] == [at_ms - 29 * DAY_MS]
    assert [row["kind"] for row in audit.entries(database, 9)] == ["invite"] * 2


def test_stored_responses_whose_time_is_over_go(database, monkeypatch):
    monkeypatch.setattr(stored_responses, "EXPIRED_ROWS", 2)
    old = [charged("U", 0, 1, stored=StoredAt(mark_of(f"r{n}"), "C")) for n in range(5)]
    transaction(database, lambda: note_stored(database, old))
    run(database, Keep(), "web-1", nothing)
    assert count(database, "stored_responses") == 0


class Ended(Exception):
    """The end of the process during a pause."""


def test_a_run_that_ends_early_is_repeated(filled, monkeypatch):
    monkeypatch.setattr(partitions, "DELETE_ROWS", 1)
    pauses = iter(range(3))

    def pause():
        if next(pauses, None) is None:
            raise Ended

    with pytest.raises(Ended):
        run(filled, Keep(record_days=3, sum_days=30), "web-1", pause)
    assert 4 < records(filled) < 10
    assert_all_right(filled)
    run(filled, Keep(record_days=3, sum_days=30), "web-1", nothing)
    assert records(filled) == 4
    assert_all_right(filled)


@pytest.mark.databases("mariadb")  # SQLite has no partitions
def test_whole_days_are_dropped_on_mysql(database):
    at_ms = database_ms(database)
    partitions.make_days(database, retention._day_before(at_ms, 5), 5)
    store(database, [charged("U", 0, at_ms - days * DAY_MS) for days in (5, 4, 0)], at_ms)
    removed = run(database, Keep(record_days=2), "web-1", nothing)
    assert removed == {"partitions": 3}
    assert count(database, "usage_records") == 1
