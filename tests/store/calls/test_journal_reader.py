"""Reading of journals: any cut of the file gives whole lines only."""

import contextlib
import os

import msgspec
import pytest

from store.calls import journal_reader
from store.calls.journal_files import segment_path, segment_starts
from store.calls.journal_lines import HandedLine, MarkLine, OpenLine, Sent, with_check
from store.calls.journal_reader import Closed, Damage, JournalReader
from store.values.ids import new_ulid
from store.values.usage_record import StoredAt
from tests.support.usage_records import usage_record

JOURNAL = "01J00000000000000000000JNL"
SEGMENT = 4096


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(journal_reader, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(journal_reader, "READ_BYTES", 1024)


def write(directory, start, data):
    segment_path(directory, JOURNAL, start).write_bytes(data.ljust(SEGMENT, b"\0"))


@pytest.fixture
def reader(tmp_path):
    with contextlib.closing(JournalReader(tmp_path, JOURNAL)) as made:
        yield made


def bodies(reader, offset, limit):
    """Return the lines there, with their ends."""
    return [(end, body) for end, body, _ in reader.pieces(offset, limit) if body]


def line(number, size=60):
    return b'["C","%026d"' % number + b",1" * size + b"]"


def test_every_cut_of_a_segment_gives_its_whole_lines(tmp_path, reader):
    lines = [line(number, number) for number in range(12)]
    data = b"".join(map(with_check, lines))
    ends = {sum(len(with_check(item)) for item in lines[:n]) for n in range(13)}
    for cut in range(len(data) + 1):
        write(tmp_path, 0, data[:cut])
        reader.close()
        found = list(bodies(reader, 0, SEGMENT))
        assert [item for _, item in found] == lines[: len(found)]
        assert (found[-1][0] if found else 0) == max(end for end in ends if end <= cut)


def test_lines_go_on_in_the_next_segment_and_stop_at_the_limit(tmp_path, reader):
    write(tmp_path, 0, with_check(line(1)))
    write(tmp_path, SEGMENT, with_check(line(2)) + with_check(line(3)))
    size = len(with_check(line(1)))
    for start, limit, ends in (
        (0, 2 * SEGMENT, [size, SEGMENT + size, SEGMENT + 2 * size]),
        (0, SEGMENT + size, [size, SEGMENT + size]),
        (size, SEGMENT, []),
        (SEGMENT + 2 * size, SEGMENT + 2 * size, []),
    ):
        assert [end for end, _ in bodies(reader, start, limit)] == ends


def test_deleted_segments_are_passed_over(tmp_path, reader):
    write(tmp_path, 2 * SEGMENT, with_check(line(1)))
    assert [item for _, item in bodies(reader, 7, 3 * SEGMENT)] == [line(1)]
    assert segment_starts(tmp_path, JOURNAL) == [2 * SEGMENT]


def test_closed_calls_are_read_in_batches_and_bad_lines_are_shown(tmp_path, reader):
    records = [usage_record() for _ in range(5)]
    lines = [b'["O","x"]', *map(msgspec.json.encode, records), b'["C","broken"]', b'["M","x"]']
    data = b"".join(map(with_check, lines))
    write(tmp_path, 0, data + b'["C",worse]\n')
    first = reader.read_closed(0, SEGMENT, 3)
    assert first.records == records[:3]
    second = reader.read_closed(first.offset, SEGMENT, 3)
    end = len(data) + 12
    damage = Damage(b'["C",worse]\n', end, whole=True)
    assert second == Closed(end, records[3:], [b'["C","broken"]'], [damage])
    assert reader.read_closed(end, SEGMENT, 3) == Closed(end)


def test_what_running_calls_have_handed_out_is_read_with_closed_calls(tmp_path, reader):
    line = HandedLine(new_ulid(), 5, 7, True, Sent(200, stored=StoredAt("ab", "C", "f")), "U")
    done, bad = usage_record(), b'["S","broken"]'
    data = b"".join(with_check(msgspec.json.encode(one)) for one in (line, done))
    write(tmp_path, 0, data + with_check(bad))
    found = reader.read_closed(0, SEGMENT, 10)
    assert (found.handed, found.records, found.unreadable) == ([line], [done], [bad])


def test_a_record_written_by_an_older_program_is_read(tmp_path, reader):
    full = msgspec.json.decode(msgspec.json.encode(usage_record(user="alice")))
    write(tmp_path, 0, with_check(msgspec.json.encode(full[:12])))
    (found,) = reader.read_closed(0, SEGMENT, 10).records
    assert (found.call.user, found.cost_nanos, found.node) == ("alice", 0, None)


@pytest.fixture
def written():
    """Return five records and the lines of their calls: open, mark and close of each."""
    records = [usage_record() for _ in range(5)]
    lines = []
    for one in records:
        line = OpenLine(one.id, one.call, 1_000)
        for part in (line, MarkLine(one.id, 3_500, 40, True, Sent()), one):
            lines.append(with_check(msgspec.json.encode(part)))
    return records, lines


def closed_of(directory, data, limit=None):
    """Return the records and damaged lines that a reader finds in a segment of these bytes."""
    write(directory, 0, data)
    records, damaged, offset = [], [], 0
    with contextlib.closing(JournalReader(directory, JOURNAL)) as reader:
        while True:
            found = reader.read_closed(offset, limit or len(data), 2)
            assert not found.unreadable
            records += found.records
            damaged += found.damaged
            if found.offset == offset:
                return records, damaged
            offset = found.offset


@pytest.mark.parametrize("bits", [0x01, 0x02, 0x20, 0xFF, None])
def test_a_damaged_byte_costs_its_own_line_and_no_other(tmp_path, written, bits):
    """At any place; None: it becomes a NUL. A damaged line end counts as damage of the line before
    it."""
    records, lines = written
    for number in (3, 5, 14):
        before = len(b"".join(lines[:number]))
        for place in range(before, before + len(lines[number])):
            data = bytearray(b"".join(lines))
            data[place] = 0 if bits is None else data[place] ^ bits
            found, damaged = closed_of(tmp_path, bytes(data))
            lost = records[number // 3] if number % 3 == 2 else None
            assert found == [one for one in records if one is not lost], (number, place)
            assert damaged, (number, place)
            shown = b"".join(one.data for one in damaged).rstrip(b"\0")
            assert bytes(data[before : before + len(lines[number])]).rstrip(b"\0") == shown


def test_nothing_of_a_long_stretch_of_garbage_is_kept_in_memory(tmp_path, monkeypatch, written):
    monkeypatch.setattr(journal_reader, "DAMAGE_SHOWN_BYTES", 100)
    records, lines = written
    data = lines[2] + b"x" * 2000 + b"\n" + lines[5]
    found, [damage] = closed_of(tmp_path, data)
    assert found == records[:2]
    assert damage == Damage(b"x" * 100, len(lines[2]) + 2001, whole=True)


def test_journals_of_older_versions_are_too_old(tmp_path, written):
    _, lines = written
    flat = b'["%b","01JD0000000000000000000001",1700000000000,"U","alice"]'
    for data, old in (
        (b"".join(lines), False),
        (b"", False),
        *((with_check(flat % tag), True) for tag in (b"o", b"m", b"s", b"c")),
    ):
        write(tmp_path, 0, data)
        with contextlib.closing(JournalReader(tmp_path, JOURNAL)) as reader:
            assert reader.is_too_old() is old


def test_what_ends_without_a_line_end_was_torn(tmp_path, written):
    _, lines = written
    data = b"".join(lines)
    for cut in range(len(data) - len(lines[-1]) + 1, len(data)):
        write(tmp_path, 0, data[:cut])
        with contextlib.closing(JournalReader(tmp_path, JOURNAL)) as reader:
            *good, (_, body, torn) = reader.pieces(0, SEGMENT)
        assert len(good) == len(lines) - 1 and all(damage is None for _, _, damage in good)
        assert body == b"" and torn == Damage(data[len(data) - len(lines[-1]) : cut], cut, False)


def test_the_reader_gives_its_file_back(tmp_path, reader):
    write(tmp_path, 0, with_check(line(1)))
    before = len(os.listdir("/proc/self/fd"))
    assert list(bodies(reader, 0, SEGMENT))
    assert len(os.listdir("/proc/self/fd")) == before + 1
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before
