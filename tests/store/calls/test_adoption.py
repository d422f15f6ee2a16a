"""Journals of dead processes: found by their lock, closed exactly once, removed completely."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from store.calls import journal_files
from store.calls.adoption import JournalTooOld, Orphan, find_orphans
from store.calls.journal import Journal
from store.calls.journal_files import SEGMENT_BYTES, segment_path, segment_starts
from store.calls.journal_lines import Sent, with_check
from store.values.ids import new_ulid
from store.values.usage_record import StoredAt
from tests.support.prices import rate_of
from tests.support.usage_records import open_line, usage_record

PRICES = rate_of(10**9, 10**9, 0, 0, 0, 0, 0)
ODD = random.Random(40).randbytes(40)  # the same in every process that collects tests


def opened(call_id):
    money = {"prices": PRICES.text, "multiplier_ppm": 10**6, "input_tokens": 10}
    return open_line(id=call_id, **money)


def die(journal):
    """End a journal as SIGKILL does: files and offsets stay, the lock is released."""
    journal.finish()
    journal.close()


def lost(folder, count):
    """Return a journal whose process died with this many open calls, and their ids."""
    journal, ids = Journal(folder), [new_ulid() for _ in range(count)]
    for call_id in ids:
        journal.open_call(opened(call_id))
    die(journal)
    return journal, ids


@contextlib.contextmanager
def adopted(directory, applied=0):
    """Yield (the only orphan, the end of its journal after its open calls were closed)."""
    (orphan,) = find_orphans(directory, [])
    try:
        yield orphan, orphan.close_open_calls(applied, "web-1")
    finally:
        orphan.release()


def closes(orphan, end, start=0):
    return orphan.reader.read_closed(start, end, 10**6).records


def test_living_journals_and_known_ones_are_not_taken(tmp_path):
    living, dead, known = Journal(tmp_path), Journal(tmp_path), Journal(tmp_path)
    die(dead)
    die(known)
    (tmp_path / "serve.lock").touch()  # the supervisor's file
    (orphan,) = find_orphans(tmp_path, [known.id])
    assert orphan.id == dead.id
    assert Orphan.take(tmp_path, dead.id) is None
    assert Orphan.take(tmp_path, living.id) is None
    orphan.release()
    again = Orphan.take(tmp_path, dead.id)
    assert again is not None
    again.remove()
    assert Orphan.take(tmp_path, dead.id) is None
    assert not list(tmp_path.glob(f"{dead.id}*"))
    living.close()


def test_open_calls_are_closed_and_closed_ones_are_left_alone(tmp_path):
    journal = Journal(tmp_path)
    done, silent, streaming, regrown = (new_ulid() for _ in range(4))
    for call_id in (done, silent, streaming, regrown):
        journal.open_call(opened(call_id))
    journal.mark(streaming, 5, True, Sent(200, "messages", "up", "main"))
    journal.mark(done, 5, True, Sent(200))
    journal.mark(streaming, 90, True, Sent(200, "messages", "up", "main"))
    journal.close_call(usage_record(id=done))
    die(journal)
    with adopted(tmp_path) as (orphan, end):
        records = closes(orphan, end)
        assert [(record.id, record.outcome) for record in records] == [
            *((done, "ok"), (silent, "gateway_lost")),
            *((streaming, "gateway_lost"), (regrown, "gateway_lost")),
        ]
        assert [record.cost_nanos for record in records[1:3]] == [0, 100_000]
        assert records[2].node == "web-1"
        # Records that were applied already are not read again.
        unread = closes(orphan, end, journal.written_offset)
        assert [record.id for record in unread] == [silent, streaming, regrown]


def test_what_a_lost_call_has_handed_out_is_in_its_record(tmp_path):
    journal, place = Journal(tmp_path), StoredAt("ab" * 32, "C", "f")
    call_id = new_ulid()
    journal.open_call(opened(call_id))
    journal.hand_out(call_id, "U", 3, Sent(200, "responses", "up", "main", stored=place))
    die(journal)
    with adopted(tmp_path) as (orphan, end):
        (record,) = closes(orphan, end)
    assert (record.stored, record.channel, record.usage.output_tokens) == (place, "main", 3)
    assert record.outcome == "gateway_lost"


@pytest.mark.parametrize("seed", [None, *range(5)])
def test_an_adoption_may_be_repeated_also_when_it_was_killed_while_writing(tmp_path, seed):
    journal, ids = lost(tmp_path, 20)
    with adopted(tmp_path) as (_, end):
        pass
    if seed is not None:  # only a part of the first adopter's lines has reached the disk
        cut = random.Random(seed).randrange(journal.written_offset, end)
        overwrite(segment_path(tmp_path, journal.id, 0), cut, bytes(end - cut))
    for _ in range(2):
        with adopted(tmp_path) as (orphan, again):
            assert again == end
            assert [record.id for record in closes(orphan, end)] == ids


def two_calls(folder):
    """Return the journal of two calls whose process died, its path, and the start of its second
    line."""
    journal = Journal(folder)
    first, second = new_ulid(), new_ulid()
    journal.open_call(opened(first))
    begin = journal.written_offset
    journal.open_call(opened(second))
    journal.close_call(usage_record(id=second))
    journal.close_call(usage_record(id=first))
    die(journal)
    return journal, segment_path(folder, journal.id, 0), begin


def overwrite(path, place, data):
    with open(path, "r+b") as segment:
        segment.seek(place)
        segment.write(data)


@pytest.mark.parametrize("hole", [b"\0" * 40, b"?" * 40, ODD])
def test_what_lies_behind_damaged_lines_counts(tmp_path, hole):
    journal, path, begin = two_calls(tmp_path)
    overwrite(path, begin + 20, hole)
    with adopted(tmp_path) as (orphan, end):
        assert end == journal.written_offset
        found = orphan.reader.read_closed(0, end, 10)
        assert [record.outcome for record in found.records] == ["ok", "ok"]
        assert found.damaged and not orphan.damaged


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_end_is_wiped_and_no_damage(tmp_path, cut):
    """The last line may be incomplete, or a page of it may be missing."""
    for number, missing in enumerate((slice(cut, None), slice(0, cut))):
        journal, path, begin = two_calls(tmp_path / str(number))
        last = bytearray(path.read_bytes()[begin : journal.written_offset])
        line = last[: last.find(b"\n") + 1]
        line[missing] = bytes(len(line[missing]))
        overwrite(path, begin, bytes(line.ljust(len(last), b"\0")))
        with adopted(tmp_path / str(number)) as (orphan, end):
            found = orphan.reader.read_closed(0, end, 10)
            assert [record.outcome for record in found.records] == ["gateway_lost"]
            assert not (found.damaged or orphan.damaged)
            assert path.read_bytes()[end:].strip(b"\0") == b""


def test_a_damaged_close_line_at_the_end_leaves_its_call_lost_and_is_shown(tmp_path):
    journal, path, _ = two_calls(tmp_path)
    overwrite(path, journal.written_offset - 30, b"x")
    with adopted(tmp_path) as (orphan, end):
        found = orphan.reader.read_closed(0, end, 10)
    assert [record.outcome for record in found.records] == ["ok", "gateway_lost"]
    [damage] = found.damaged
    assert damage.whole and damage.end == journal.written_offset


def test_damage_that_the_store_has_passed_is_shown_once(tmp_path):
    journal, path, begin = two_calls(tmp_path)
    overwrite(path, begin + 50, b"#")
    for _ in range(2):
        with adopted(tmp_path, journal.written_offset) as (orphan, end):
            [damage] = orphan.damaged
            assert damage.end > begin
            assert not orphan.reader.read_closed(journal.written_offset, end, 10).damaged


def test_the_journal_of_an_older_version_is_refused_and_left_as_it_is(tmp_path):
    journal, path, _ = two_calls(tmp_path)
    lines = path.read_bytes()[: journal.written_offset].splitlines(keepends=True)[:3]
    older = b"".join(line.replace(b'["O"', b'["o"') for line in lines).ljust(SEGMENT_BYTES, b"\0")
    path.write_bytes(older)
    for _ in range(2):
        with pytest.raises(JournalTooOld, match=r"Sluice 0\.1\.0 at schema 23 .* book it"):
            adopted(tmp_path).__enter__()
        assert path.read_bytes() == older


def test_closing_lines_go_on_in_the_next_segment(tmp_path, monkeypatch):
    for module in ("journal_files", "journal_reader", "journal", "adoption"):
        monkeypatch.setattr(sys.modules[f"store.calls.{module}"], "SEGMENT_BYTES", 32 * 1024)
    assert journal_files.SEGMENT_BYTES == 32 * 1024
    journal, ids = lost(tmp_path, 300)
    with adopted(tmp_path) as (orphan, end):
        assert [record.id for record in closes(orphan, end)] == ids
        assert len(segment_starts(tmp_path, journal.id)) > 2
        orphan.remove()
    assert os.listdir(tmp_path) == []


def test_a_journal_that_lost_more_than_the_store_applied_goes_on_behind_it(tmp_path):
    journal, ids = lost(tmp_path, 1)
    applied = journal.written_offset + 10_000
    with adopted(tmp_path, applied) as (orphan, end):
        assert [record.id for record in closes(orphan, end, applied)] == ids


def test_an_open_line_that_cannot_be_read_does_not_keep_the_others(tmp_path, caplog):
    journal = Journal(tmp_path)
    journal.open_call(opened(good := new_ulid()))
    journal._append(with_check(b'["O","%s","x"]' % new_ulid().encode()))
    journal._append(with_check(b'["?","%s","of a later version"]' % new_ulid().encode()))
    die(journal)
    with adopted(tmp_path) as (orphan, end):
        assert [record.id for record in closes(orphan, end)] == [good]
        assert "unreadable" in caplog.text
        orphan.release()


def test_a_journal_without_files_has_nothing_to_say(tmp_path):
    lost(tmp_path, 0)
    for path in tmp_path.glob("*.log"):
        path.unlink()
    with adopted(tmp_path) as (orphan, end):
        assert end == 0
        orphan.remove()


def test_a_process_killed_while_writing_loses_no_acknowledged_line(tmp_path):
    """Every id printed after open_call is in the journal; every one after close_call is closed."""
    script = textwrap.dedent(f"""
        import sys, pathlib
        sys.path.insert(0, {os.getcwd()!r})
        from store.values.ids import new_ulid
        from store.calls.journal import Journal
        from tests.support.usage_records import open_line, usage_record
        journal = Journal(pathlib.Path(sys.argv[1]))
        while True:
            call_id = new_ulid()
            journal.open_call(open_line(id=call_id))
            sys.stdout.write("o" + call_id + chr(10))
            sys.stdout.flush()
            journal.close_call(usage_record(id=call_id))
            sys.stdout.write("c" + call_id + chr(10))
            sys.stdout.flush()
    """)
    rng = random.Random(5)
    for cycle in range(2):
        folder = tmp_path / str(cycle)
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True
        )
        with contextlib.closing(process.stdout):
            assert process.stdout.readline()
            time.sleep(rng.uniform(0.02, 0.2))
            process.send_signal(signal.SIGKILL)
            text = process.stdout.read().split("\n")
        process.wait()
        begun = {item[1:] for item in text if item[:1] == "o" and len(item) == 27}
        ended = {item[1:] for item in text if item[:1] == "c" and len(item) == 27}
        with adopted(folder) as (orphan, end):
            records = closes(orphan, end)
        assert len(begun) > 50
        assert begun <= {record.id for record in records}
        assert ended <= {record.id for record in records if record.outcome == "ok"}
        assert len(records) == len({record.id for record in records})
