"""Writing of the journal: lines can be read, there is space for every close, floods leave few
lines."""

import contextlib
import fcntl
import os
import time

import pytest

from store.calls import journal as journal_module
from store.calls.journal import Journal
from store.calls.journal_files import SEGMENT_BYTES, JournalFull, segment_starts
from store.calls.journal_lines import (
    CLOSE,
    LINE_MAX_BYTES,
    MARK,
    OPEN,
    Sent,
    line_call_id,
    line_kind,
    with_check,
)
from store.calls.journal_reader import JournalReader
from store.values.ids import new_ulid
from store.values.usage_record import AttemptRecord
from tests.support.client import wait_until
from tests.support.usage_records import open_line, usage_record

USER = "01J00000000000000000000USR"
KEY = "01J00000000000000000000KEY"


FACTS = {
    **{"started_ms": 1_700_000_000_000, "user_id": USER, "user": "alice", "key_id": KEY},
    **{"key_name": "laptop", "group": "default", "endpoint": "/v1/messages", "family": "messages"},
}


def opened(call_id, **fields):
    return open_line(id=call_id, **(FACTS | fields))


def closed(call_id, **fields):
    return usage_record(id=call_id, **(FACTS | fields))


def refused(key_id=KEY, message="no"):
    return closed(new_ulid(), key_id=key_id, outcome="refused", error_message=message)


def all_lines(journal):
    reader = JournalReader(journal.directory, journal.id)
    with contextlib.closing(reader):
        return [line for _, line, damage in reader.pieces(0, journal.written_offset) if not damage]


def records(journal):
    reader = JournalReader(journal.directory, journal.id)
    with contextlib.closing(reader):
        return reader.read_closed(0, journal.written_offset, 10**6).records


def wait_for(condition):
    assert wait_until(condition, 5, 0.005), "it did not happen in time"


def wait_synced(journal):
    wait_for(lambda: journal.synced_offset == journal.written_offset)


def fill_segment(journal):
    """Close enough calls to start a second segment."""
    while journal.written_offset <= SEGMENT_BYTES:
        journal.close_call(closed(new_ulid(), error_message="x" * 1000, user_agent="y" * 250))


@pytest.fixture
def journal(tmp_path, clock):
    made = Journal(tmp_path / "journal", sync_ms=5, refused_per_minute=3, clock_ms=clock)
    yield made
    made.finish()


def test_lines_are_read_back_in_order(journal):
    call_id = new_ulid()
    journal.open_call(opened(call_id, model="m", input_tokens=7))
    journal.mark(call_id, 12, True, Sent(200, "messages", "up", "main", "req_1"))
    journal.close_call(closed(call_id, attempts=(AttemptRecord("main", 200, None, 12),)))
    lines = all_lines(journal)
    assert [line_kind(line) for line in lines] == [OPEN, MARK, CLOSE]
    assert {line_call_id(line) for line in lines} == {call_id.encode()}
    assert records(journal) == [closed(call_id, attempts=(AttemptRecord("main", 200, None, 12),))]
    assert journal.open_calls == 0


def test_what_is_written_is_in_the_file_at_once_and_synced_soon(journal):
    call_id = new_ulid()
    journal.open_call(opened(call_id))
    path = journal.directory / f"{journal.id}-{0:016d}.log"
    [line] = path.read_bytes()[: journal.written_offset].splitlines(keepends=True)
    assert line.startswith(b'["O",') and line == with_check(line[:-10])
    assert path.stat().st_size == SEGMENT_BYTES
    wait_synced(journal)


def test_lines_never_cross_segments_and_all_are_found(journal):
    ids = [new_ulid() for _ in range(3_500)]
    for call_id in ids:
        journal.open_call(opened(call_id))
        journal.close_call(closed(call_id, error_message="x" * 1000))
    assert [record.id for record in records(journal)] == ids
    assert len(segment_starts(journal.directory, journal.id)) >= 2
    wait_synced(journal)


def test_applied_segments_are_deleted_unless_a_call_opened_there_still_runs(journal):
    old = new_ulid()
    journal.open_call(opened(old))
    fill_segment(journal)
    wait_synced(journal)
    time.sleep(0.05)
    assert segment_starts(journal.directory, journal.id)[0] == 0, "it is not applied"
    journal.applied_offset = journal.written_offset
    journal.close_call(closed(new_ulid()))
    wait_synced(journal)
    time.sleep(0.05)
    assert segment_starts(journal.directory, journal.id)[0] == 0
    journal.close_call(closed(old))
    journal.applied_offset = journal.written_offset
    wait_for(lambda: segment_starts(journal.directory, journal.id)[0] == SEGMENT_BYTES)


def test_a_long_stream_is_carried_forward_by_its_marks(journal, monkeypatch):
    monkeypatch.setattr(journal_module, "CARRY_BYTES", 100_000)
    long_one = new_ulid()
    journal.open_call(opened(long_one, model="long"))
    fill_segment(journal)
    journal.mark(long_one, 5, True, Sent(200))
    journal.applied_offset = journal.written_offset
    wait_for(lambda: 0 not in segment_starts(journal.directory, journal.id))
    lines = [line for line in all_lines(journal) if line_call_id(line) == long_one.encode()]
    assert [line_kind(line) for line in lines] == [OPEN, MARK]
    assert b'"long"' in lines[0]


def test_marks_of_unknown_calls_are_left_out(journal):
    journal.mark(new_ulid(), 5, True)
    assert journal.written_offset == 0


@pytest.mark.parametrize(
    "text",
    ["x" * 100_000, "\x00" * 100_000, "語" * 100_000, "\ud800 lone", "a\nb\x00c"],
    ids=["long", "nul", "wide", "surrogate", "control"],
)
def test_no_text_makes_a_line_impossible_or_too_long(journal, text):
    call_id = new_ulid()
    journal.open_call(opened(call_id, user_agent=text, model=text, client_request_id=text))
    wild = closed(
        call_id,
        **dict.fromkeys(("model", "upstream_model", "error_message", "user_agent"), text),
        **dict.fromkeys(("client_request_id", "upstream_request_id", "endpoint"), text),
        reported_usage=text,
        cost_nanos=77,
        attempts=(AttemptRecord("main", 500, text, 1),) * 50,
    )
    journal.close_call(wild)
    assert max(map(len, all_lines(journal))) < LINE_MAX_BYTES
    (record,) = records(journal)
    assert (record.id, record.cost_nanos, record.call.user) == (call_id, 77, "alice")
    assert (record.error_message or "").startswith(text[:40].replace("\ud800", "?"))


def fail(code):
    def broken(*arguments):
        raise OSError(code, os.strerror(code))

    return broken


@contextlib.contextmanager
def full_disk(monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", fail(28))
        yield


def fill(journal):
    """Open calls until no more are accepted; return their ids."""
    ids = []
    with pytest.raises(JournalFull):
        while len(ids) < 100_000:
            ids.append(new_ulid())
            journal.open_call(opened(ids[-1]))
    return ids[:-1]


def test_when_the_disk_is_full_new_calls_are_refused_and_open_ones_close(journal, monkeypatch):
    with full_disk(monkeypatch):
        ids = fill(journal)
        assert len(ids) > 100
        assert not journal.accepting
        close_all(journal, ids)
    wait_for(lambda: journal.accepting)
    journal.open_call(opened(new_ulid()))


def close_all(journal, ids):
    longest = "x" * 900
    for call_id in ids:
        journal.mark(call_id, 3, True)
        journal.close_call(closed(call_id, error_message=longest, user_agent="y" * 250))
    assert [record.id for record in records(journal)] == ids
    assert journal.open_calls == 0


def test_a_disk_that_fails_refuses_calls(journal, monkeypatch):
    known = new_ulid()
    journal.open_call(opened(known))
    with monkeypatch.context() as failing:
        failing.setattr(os, "pwrite", fail(5))
        with pytest.raises(JournalFull):
            journal.open_call(opened(new_ulid()))
        with pytest.raises(JournalFull):
            journal.close_call(closed(known))
        assert not journal.accepting
    wait_for(lambda: journal.accepting)
    # The call is still open: it can be closed, or is adopted.
    journal.close_call(closed(known))
    assert [record.id for record in records(journal)] == [known]


def test_a_failing_sync_refuses_calls_but_lets_lines_be_applied(journal, monkeypatch, caplog):
    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", fail(5))
        journal.close_call(closed(new_ulid()))
        wait_for(lambda: not journal.accepting)
        wait_synced(journal)
        with pytest.raises(JournalFull):
            journal.open_call(opened(new_ulid()))
    journal.close_call(closed(new_ulid()))
    wait_for(lambda: journal.accepting)
    assert "sync failed" in caplog.text


def test_a_fault_of_the_thread_is_logged_and_it_goes_on(journal, monkeypatch, caplog):
    with monkeypatch.context() as failing:
        failing.setattr(journal, "_delete_applied", None)
        journal.close_call(closed(new_ulid()))
        wait_for(lambda: "journal thread" in caplog.text)
    journal.close_call(closed(new_ulid()))
    wait_synced(journal)


def test_a_journal_that_cannot_be_begun_leaves_nothing(tmp_path, monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    with full_disk(monkeypatch), pytest.raises(JournalFull, match="cannot start a journal"):
        Journal(tmp_path)
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_line_that_cannot_be_shortened_is_refused(journal):
    call_id = new_ulid()
    with pytest.raises(JournalFull, match="too long"):
        journal.open_call(opened(call_id, prices="x" * LINE_MAX_BYTES))
    journal.open_call(opened(call_id))
    journal.mark(call_id, 1, True, Sent(200, "x" * LINE_MAX_BYTES))
    journal.mark(call_id, 1, True, Sent(200, "\ud800"))
    assert len(all_lines(journal)) == 1


def test_a_write_cut_short_is_completed(journal, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:100], at))
    call_id = new_ulid()
    journal.open_call(opened(call_id))
    journal.close_call(closed(call_id))
    assert [record.id for record in records(journal)] == [call_id]


def test_a_flood_of_refusals_shares_one_record_a_minute(journal, clock):
    own = [journal.refused(refused(message=f"refusal {number}")) for number in range(10)]
    assert own == [True] * 3 + [False] * 7
    assert journal.refused(refused(key_id=USER))
    assert journal.sweep() == []
    assert len(records(journal)) == 4
    clock.now += 60_000
    [(count, last)] = journal.sweep()
    assert (count, last.error_message) == (7, "refusal 9")
    assert journal.sweep() == []
    written = records(journal)
    assert len(written) == 5
    assert "refusal 9" in written[-1].error_message
    assert "7 refused calls" in written[-1].error_message
    journal.refused(refused())
    assert len(records(journal)) == 6
    assert len({record.id for record in written}) == 5


def test_what_was_only_counted_is_written_at_the_end(journal):
    for _ in range(5):
        journal.refused(refused())
    journal.finish()
    assert len(records(journal)) == 4
    assert journal.synced_offset == journal.written_offset


def test_the_flood_table_is_bounded(journal, monkeypatch):
    monkeypatch.setattr(journal_module, "REFUSED_KEYS_MAX", 5)
    for _ in range(4):
        for key in range(20):
            journal.refused(refused(key_id=f"key-{key}"))
    # Five keys are limited to three records each; the others are not counted and so not limited.
    assert len(records(journal)) == 5 * 3 + 15 * 4


def test_each_journal_has_its_lock_for_life(tmp_path):
    one, two = Journal(tmp_path), Journal(tmp_path)
    assert one.id != two.id
    with open(tmp_path / f"{one.id}.lock") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        one.close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    two.close(remove=True)
    assert not list(tmp_path.glob(f"{two.id}*"))
    assert list(tmp_path.glob(f"{one.id}*"))


def test_backlog_is_what_is_not_applied(journal):
    journal.close_call(closed(new_ulid()))
    assert journal.backlog_bytes == journal.written_offset > 0
    journal.applied_offset = journal.written_offset
    assert journal.backlog_bytes == 0
