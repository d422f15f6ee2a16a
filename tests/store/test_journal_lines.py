"""Reading journals: any cut of the file gives whole lines only; what a lost call becomes."""

import contextlib
import os
import random

import pytest

from store import journal_lines
from store.ids import new_ulid
from store.journal_lines import (
    CLOSE,
    LOST_OUTCOME,
    JournalReader,
    MarkLine,
    OpenLine,
    Sent,
    line_kind,
    lost_record,
    segment_path,
    segment_starts,
)
from store.pricing import MAX_BIGINT, Prices
from store.usage import Charge, UsageRecord

JOURNAL = "01J00000000000000000000JNL"
SEGMENT = 4096
PRICES = Prices(10**9, 2 * 10**9, 0, 0, 0, 0, 5)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(journal_lines, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(journal_lines, "READ_BYTES", 1024)


def write(directory, start, data):
    segment_path(directory, JOURNAL, start).write_bytes(data.ljust(SEGMENT, b"\0"))


@pytest.fixture
def reader(tmp_path):
    with contextlib.closing(JournalReader(tmp_path, JOURNAL)) as made:
        yield made


def line(number, size=60):
    return b'["c","%026d"' % number + b",1" * size + b"]"


def test_every_cut_of_a_segment_gives_its_whole_lines(tmp_path, reader):
    lines = [line(number, number) for number in range(12)]
    data = b"".join(item + b"\n" for item in lines)
    ends = {sum(len(item) + 1 for item in lines[:n]) for n in range(13)}
    for cut in range(len(data) + 1):
        write(tmp_path, 0, data[:cut])
        reader.close()
        found = list(reader.lines(0, SEGMENT))
        assert [item for _, item in found] == lines[: len(found)]
        assert (found[-1][0] if found else 0) == max(end for end in ends if end <= cut)


def test_lines_go_on_in_the_next_segment_and_stop_at_the_limit(tmp_path, reader):
    write(tmp_path, 0, line(1) + b"\n")
    write(tmp_path, SEGMENT, line(2) + b"\n" + line(3) + b"\n")
    size = len(line(1)) + 1
    assert [end for end, _ in reader.lines(0, 2 * SEGMENT)] == [
        size,
        SEGMENT + size,
        SEGMENT + 2 * size,
    ]
    assert [end for end, _ in reader.lines(0, SEGMENT + size)] == [size, SEGMENT + size]
    assert [end for end, _ in reader.lines(size, SEGMENT)] == []
    assert list(reader.lines(SEGMENT + 2 * size, SEGMENT + 2 * size)) == []


def test_deleted_segments_are_passed_over(tmp_path, reader):
    write(tmp_path, 2 * SEGMENT, line(1) + b"\n")
    assert [item for _, item in reader.lines(7, 3 * SEGMENT)] == [line(1)]
    assert segment_starts(tmp_path, JOURNAL) == [2 * SEGMENT]


def test_what_lies_behind_a_hole_is_not_read(tmp_path, reader):
    write(tmp_path, 0, line(1) + b"\n" + bytes(100) + line(2) + b"\n")
    assert [item for _, item in reader.lines(0, SEGMENT)] == [line(1)]


def test_random_journals_are_read_from_any_line_on(tmp_path, reader):
    rng = random.Random(3)
    expected, start, data = [], 0, b""
    for number in range(300):
        item = line(number, rng.randrange(400)) + b"\n"
        if len(data) + len(item) > SEGMENT:
            write(tmp_path, start, data)
            start, data = start + SEGMENT, b""
        data += item
        expected.append((start + len(data), item[:-1]))
    write(tmp_path, start, data)
    limit = start + len(data)
    assert list(reader.lines(0, limit)) == expected
    for number in rng.sample(range(300), 20):
        assert list(reader.lines(expected[number][0], limit)) == expected[number + 1 :]


def record(**fields):
    names = ("user_id", "user", "key_id", "key_name", "group", "endpoint", "family")
    facts = {"id": new_ulid(), "started_ms": 1, **dict.fromkeys(names, "x")} | fields
    return UsageRecord(**facts)


def test_closed_calls_are_read_in_batches_and_bad_lines_are_shown(tmp_path, reader):
    import msgspec

    records = [record() for _ in range(5)]
    data = b"".join(msgspec.json.encode(item) + b"\n" for item in records)
    write(tmp_path, 0, b'["o","x"]\n' + data + b'["c",broken]\n["m","x"]\n')
    first = reader.read_closed(0, SEGMENT, 3)
    assert first.records == records[:3]
    second = reader.read_closed(first.offset, SEGMENT, 3)
    assert second.records == records[3:]
    assert second.unreadable == [b'["c",broken]']
    third = reader.read_closed(second.offset, SEGMENT, 3)
    assert third.records == [] and third.offset == len(data) + 10 + 13 + 10


def test_a_record_written_by_an_older_program_is_read(tmp_path, reader):
    import msgspec

    full = msgspec.json.decode(msgspec.json.encode(record(user="alice")))
    older = msgspec.json.encode(full[:12])
    assert line_kind(older) == CLOSE
    write(tmp_path, 0, older + b"\n")
    (found,) = reader.read_closed(0, SEGMENT, 10).records
    assert (found.user, found.cost_nanos, found.node) == ("alice", 0, None)


def opened(**fields):
    names = ("user_id", "user", "key_id", "key_name", "group", "endpoint", "family")
    facts = {"id": new_ulid(), "started_ms": 1_000, **dict.fromkeys(names, "x")}
    money = {"prices": PRICES.json, "multiplier_ppm": 2_000_000, "input_tokens": 1_000}
    return OpenLine(**(facts | money | fields))


def test_a_lost_call_that_relayed_something_is_charged_for_it():
    line = opened(model="m", stream=True, client_ip="10.0.0.1")
    sent = Sent(200, "messages", "up", "main", "req_9")
    lost = lost_record(line, MarkLine(line.id, 3_500, 40, True, sent), "web-1")
    assert lost.cost_nanos == 2 * (1_000 * 1_000 + 40 * 2_000 + 5)
    assert lost.charges == (Charge("wallet", lost.cost_nanos),)
    assert (lost.billed_to, lost.usage_source) == ("wallet", "estimated")
    assert (lost.input_tokens, lost.output_tokens) == (1_000, 40)
    assert (lost.outcome, lost.error_code) == (LOST_OUTCOME, LOST_OUTCOME)
    assert (lost.status, lost.upstream_family, lost.channel) == (200, "messages", "main")
    assert (lost.upstream_model, lost.upstream_request_id) == ("up", "req_9")
    assert (lost.duration_ms, lost.node, lost.model, lost.stream) == (2_500, "web-1", "m", True)
    assert (lost.client_ip, lost.prices) == ("10.0.0.1", PRICES.json)


@pytest.mark.parametrize("marked", [False, True])
def test_a_lost_call_that_relayed_nothing_costs_nothing(marked):
    line = opened()
    mark = MarkLine(line.id, 1_500, 0, False, Sent()) if marked else None
    lost = lost_record(line, mark, "web-1")
    assert (lost.cost_nanos, lost.charges, lost.billed_to) == (0, (), None)
    assert (lost.usage_source, lost.status, lost.input_tokens) == ("none", None, 0)
    assert lost.duration_ms == (500 if marked else None)


def test_a_lost_call_of_a_free_model_or_without_prices_costs_nothing():
    relayed = MarkLine("x", 1_500, 9, True, Sent(200))
    for fields in ({"prices": Prices(0, 0, 0, 0, 0, 0, 0).json}, {"prices": None}):
        lost = lost_record(opened(**fields), relayed, "web-1")
        assert (lost.cost_nanos, lost.charges, lost.billed_to) == (0, (), None)
        assert lost.output_tokens == 9


def test_a_cost_that_cannot_be_computed_is_not_charged():
    relayed = MarkLine("x", 1_500, 10**9, True, Sent(200))
    for prices in ("{}", Prices(0, MAX_BIGINT, 0, 0, 0, 0, 0).json):
        lost = lost_record(opened(prices=prices), relayed, "web-1")
        assert (lost.cost_nanos, lost.charges, lost.usage_source) == (0, (), "none")
        assert "Not charged" in lost.error_message


def test_the_reader_gives_its_file_back(tmp_path, reader):
    write(tmp_path, 0, line(1) + b"\n")
    before = len(os.listdir("/proc/self/fd"))
    assert list(reader.lines(0, SEGMENT))
    assert len(os.listdir("/proc/self/fd")) == before + 1
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before
