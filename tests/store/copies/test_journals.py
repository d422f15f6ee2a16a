"""Copies of journals that are written and removed meanwhile: nothing is torn or missing."""

import os
import threading

import pytest

from store.calls.journal import Journal
from store.calls.journal_files import SEGMENT_BYTES, segment_path
from store.calls.journal_reader import JournalReader
from store.copies.journals import HeldJournals
from store.values.ids import new_ulid
from tests.support.usage_records import open_line, usage_record


def call(journal, **facts):
    call_id = new_ulid()
    journal.open_call(open_line(id=call_id, **facts))
    journal.close_call(usage_record(id=call_id, **facts))
    return call_id


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal")
    yield journal
    journal.finish()
    journal.close(remove=True)


def written(files, folder):
    """Write the copied files to a folder; return the ids of their closed calls."""
    folder.mkdir()
    for name, data in files:
        (folder / name).write_bytes(data)
    ids, damaged = [], []
    for lock in folder.glob("*.lock"):
        reader = JournalReader(folder, lock.stem)
        found = reader.read_closed(0, 100 * SEGMENT_BYTES, 10**6)
        ids += [record.id for record in found.records]
        damaged += found.damaged
        reader.close()
    assert damaged == []
    return ids


def test_what_is_written_is_read(journal, tmp_path):
    ids = [call(journal) for _ in range(50)]
    with HeldJournals([journal.directory]) as held:
        files = list(held.read())
        assert held.ids == {journal.id}
    assert written(files, tmp_path / "copy") == ids
    assert sum(len(data) for _, data in files) < 100_000, "NUL bytes are left out"


def test_what_is_written_meanwhile_is_a_beginning_of_it_all(journal, tmp_path):
    ids, over = [], threading.Event()

    def work():
        while not over.is_set():
            ids.append(call(journal))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(5):
            with HeldJournals([journal.directory]) as held:
                before = len(ids)
                files = list(held.read())
            found = written(files, tmp_path / str(number))
            assert found == ids[: len(found)] and len(found) >= before
    finally:
        over.set()
        thread.join()


def test_files_that_go_meanwhile_are_read(tmp_path):
    journal = Journal(tmp_path / "journal")
    ids = [call(journal) for _ in range(10)]
    with HeldJournals([journal.directory]) as held:
        journal.finish()
        journal.close(remove=True)
        assert not list(journal.directory.iterdir())
        files = list(held.read())
    assert written(files, tmp_path / "copy") == ids


def test_journals_that_come_meanwhile_are_read(tmp_path):
    folder = tmp_path / "journal"
    folder.mkdir()
    with HeldJournals([folder]) as held:
        journal = Journal(folder)
        ids = [call(journal) for _ in range(3)]
        files = list(held.read())
    assert written(files, tmp_path / "copy") == ids
    journal.finish()
    journal.close(remove=True)


def test_segments_follow_each_other(journal, tmp_path):
    ids, text = [], "m" * 2000
    while journal.written_offset < SEGMENT_BYTES + 200_000:
        ids.append(call(journal, model=text))
        journal.sweep()
    assert segment_path(journal.directory, journal.id, SEGMENT_BYTES).exists()
    with HeldJournals([journal.directory]) as held:
        files = list(held.read())
    assert written(files, tmp_path / "copy") == ids


def test_descriptors_are_given_back(journal):
    before = len(os.listdir("/proc/self/fd"))
    with HeldJournals([journal.directory]) as held:
        list(held.read())
    assert len(os.listdir("/proc/self/fd")) == before
