"""Places of stored responses, on both databases: stored with records, found only for their user."""

import pytest

from store.calls import stored_responses
from store.calls.journal_lines import HandedLine, MarkLine, Sent, lost_record
from store.calls.stored_responses import (
    GONE_MS,
    KEPT_MS,
    LAGGING_MS,
    find_stored,
    forget_expired,
    mark_of,
    note_stored,
)
from store.calls.usage_queries import verify
from store.db.database import transaction
from store.values.ids import new_ulid
from store.values.usage_record import StoredAt
from tests.support.stores import count, insert
from tests.support.usage_records import MONDAY_MS as MADE_MS
from tests.support.usage_records import BookedJournal, open_line, record_at

ANN, BOB = new_ulid(), new_ulid()
ID = "resp_68a1f0"
MARK = mark_of(ID)


def record(stored, user_id=ANN, at_ms=MADE_MS):
    return record_at(at_ms, user_id=user_id, stored=stored)


def note(db, *records, lines=()):
    transaction(db, lambda: note_stored(db, records, lines))


def find(db, user_id=ANN, mark=MARK, at_ms=MADE_MS):
    return find_stored(db, "web-1", user_id, [mark], at_ms).places.get(mark)


def test_a_response_is_found_by_its_user_alone(database):
    assert find(database) is None
    stored = StoredAt(MARK, "C" * 26, "f" * 64)
    note(database, record(None), record(stored))
    assert find(database) == stored
    assert find(database, BOB) == StoredAt(MARK)
    assert find(database, mark=mark_of("resp_2")) is None


def test_vendors_may_give_the_same_id_twice(database):
    note(database, record(StoredAt(MARK, "A", "1")), record(StoredAt(MARK, "B", "2"), BOB))
    note(database, record(StoredAt(MARK, "C", "")))
    assert find(database) == StoredAt(MARK, "C", "")
    assert find(database, BOB) == StoredAt(MARK, "B", "2")
    assert count(database, "stored_responses") == 2


def test_what_was_deleted_is_not_known_any_more(database):
    note(database, record(StoredAt(MARK, "A", "1")), record(StoredAt(MARK, "B", "2"), BOB))
    note(database, record(StoredAt(MARK)), record(StoredAt(MARK)))
    assert find(database) == StoredAt(MARK)  # another user has a response with that id
    note(database, record(StoredAt(MARK), BOB))
    assert find(database) is None and count(database, "stored_responses") == 0
    # The last entry of a batch counts.
    note(database, record(StoredAt(MARK, "A", "1")), record(StoredAt(MARK)))
    assert find(database) is None
    note(database, record(StoredAt(MARK)), record(StoredAt(MARK, "A", "1")))
    assert find(database) == StoredAt(MARK, "A", "1")


def test_its_time_ends_and_its_row_goes_in_portions(database, monkeypatch):
    monkeypatch.setattr(stored_responses, "EXPIRED_ROWS", 3)
    old = [record(StoredAt(mark_of(f"r{number}"), "A", "1")) for number in range(7)]
    note(database, *old, record(StoredAt(MARK, "A", "1"), at_ms=MADE_MS + 1))
    ends_ms = MADE_MS + KEPT_MS
    assert find(database, at_ms=ends_ms) is not None
    assert find(database, at_ms=ends_ms + 1) is None
    assert find(database, BOB, at_ms=ends_ms + 1) is None
    assert (
        forget_expired(database, ends_ms - 1) is False and count(database, "stored_responses") == 8
    )
    assert [forget_expired(database, ends_ms) for _ in range(3)] == [True, True, False]
    assert count(database, "stored_responses") == 1


def test_it_comes_with_the_record_and_only_once(database):
    journal, made = BookedJournal(database), record(StoredAt(MARK, "A", "1"))
    journal.book([made], 0, 10, MADE_MS)
    assert find(database) == made.stored and list(verify(database)) == []

    def broken():
        journal.book([record(StoredAt(MARK))], 10, 20, MADE_MS)
        raise KeyError

    with pytest.raises(KeyError):
        transaction(database, broken)
    assert find(database) == made.stored


def handed(stored, user_id=ANN):
    return HandedLine(new_ulid(), MADE_MS, 0, True, Sent(200, stored=stored), user_id)


def test_what_a_running_call_has_handed_out_is_known_before_its_record(database):
    stored = StoredAt(MARK, "A", "1")
    note(database, lines=[handed(stored)])
    assert (find(database), find(database, BOB)) == (stored, StoredAt(MARK))
    note(database, record(stored))
    assert count(database, "stored_responses") == 1
    further = StoredAt(mark_of("msg_1"), "A", "1", (mark_of("fc_1"), mark_of("rs_1")))
    note(database, lines=[handed(further)])
    for mark in (further.mark, *further.more):
        assert find(database, mark=mark) == StoredAt(mark, "A", "1")
        assert find(database, BOB, mark) == StoredAt(mark)
    note(database, record(StoredAt(MARK)), lines=[handed(stored), handed(None)])
    assert find(database) is None  # deleted in the same batch


@pytest.mark.parametrize(
    ("behind_ms", "open_journal", "message"),
    [
        (0, True, "soon"),
        (-5000, True, "soon"),
        (LAGGING_MS - 1, True, "soon"),
        (LAGGING_MS + 1, True, "overdue"),
        (LAGGING_MS + 1, False, "none"),
        (GONE_MS + 1, True, "none"),
    ],
)
def test_other_nodes_may_have_to_tell_of_it(database, behind_ms, open_journal, message):
    for name, seen_ms in (("web-1", MADE_MS), ("web-2", MADE_MS - behind_ms)):
        insert(database, "nodes", name=name, seen_ms=seen_ms)
    for node, finished_ms in (
        ("web-1", None),
        ("web-2", None if open_journal else 1),
        ("web-2", 1),
    ):
        row = {"node": node, "offset": 0, "opened_ms": 0, "finished_ms": finished_ms}
        insert(database, "journals", id=new_ulid(), **row)
    found = find_stored(database, "web-1", ANN, [MARK], MADE_MS)
    assert (found.places, found.elsewhere) == ({}, message)
    assert find_stored(database, "web-3", ANN, [MARK], MADE_MS).elsewhere == "none"


def test_a_lost_call_leaves_what_its_mark_says():
    line, stored = open_line(user_id=ANN), StoredAt(MARK, "A", "1")
    mark = MarkLine(line.id, 2, 5, True, Sent(200, stored=stored))
    assert lost_record(line, mark, "web-1").stored == stored
    assert lost_record(line, None, "web-1").stored is None


def test_marks_of_ids():
    assert len({mark_of(i) for i in ("a", "b", "\ud800", "x" * 10_000)}) == 4
    assert all(len(bytes.fromhex(mark_of(i))) == 32 for i in ("", "a"))
