"""Journals of the version before, whose lines were flat, are read after an upgrade."""

import msgspec
import pytest

from store.calls.adoption import Orphan
from store.calls.journal_files import SEGMENT_BYTES, lock_path, segment_path
from store.calls.journal_lines import with_check
from store.calls.journal_reader import JournalReader
from store.calls.older_lines import older_close, older_open
from store.values.usage_record import AttemptRecord, CallFacts, Charge, StoredAt

JOURNAL = "01J00000000000000000000JNL"
CLOSED_ID, LOST_ID = "01JD0000000000000000000001", "01JD0000000000000000000002"
FACTS = CallFacts(
    started_ms=1_700_000_000_000,
    user_id="U",
    user="alice",
    key_id="K",
    key_name="laptop",
    group="default",
    endpoint="/v1/messages",
    family="messages",
    model="m",
    stream=True,
    prices="1 2 0 0 0 0 0",
    multiplier_ppm=1_000_000,
    client_request_id="c-1",
    client_ip="10.0.0.1",
    user_agent="curl",
    limit_account="K:never:0",
)
_HEAD = b'1700000000000,"U","alice","K","laptop","default","/v1/messages","messages"'
OPEN = (
    b'["o","' + LOST_ID.encode() + b'",' + _HEAD + b',"m",true,"1 2 0 0 0 0 0",1000000,15,"c-1",'
    b'"10.0.0.1","curl",[["wallet",900]],"K:never:0"]'
)
MARK = b'["m","' + LOST_ID.encode() + b'",1700000001000,40,true,[200,"messages","up","main"]]'
CLOSE = (
    b'["c","' + CLOSED_ID.encode() + b'",' + _HEAD + b',"messages","m","up","main",true,200,'
    b'"ok",null,null,1,2,3,4,5,6,"reported","1 2 0 0 0 0 0",1000000,99,"wallet",'
    b'[["wallet",99]],"{}",7,8,[{"channel":"main","status":200,"ms":5}],"c-1","u-1",'
    b'"10.0.0.1","curl","web-1","K:never:0",["ab","C","f"]]'
)


def test_an_open_line_is_read_field_by_field():
    line = older_open(OPEN)
    assert (line.id, line.call) == (LOST_ID, FACTS)
    assert (line.input_tokens, line.holds) == (15, (Charge("wallet", 900),))


def test_a_record_is_read_field_by_field():
    record = older_close(CLOSE)
    assert (record.id, record.call) == (CLOSED_ID, FACTS)
    assert (record.upstream_family, record.upstream_model) == ("messages", "up")
    assert (record.channel, record.status, record.outcome) == ("main", 200, "ok")
    counts = (record.input_tokens, record.output_tokens, record.cache_read_tokens)
    assert counts == (1, 2, 3)
    counts = (record.cache_write_tokens, record.cache_write_1h_tokens, record.reasoning_tokens)
    assert counts == (4, 5, 6)
    assert (record.usage_source, record.cost_nanos) == ("reported", 99)
    assert (record.charges, record.reported_usage) == ((Charge("wallet", 99),), "{}")
    assert (record.ttft_ms, record.duration_ms) == (7, 8)
    assert record.attempts == (AttemptRecord("main", 200, None, 5),)
    assert (record.upstream_request_id, record.node) == ("u-1", "web-1")
    assert record.stored == StoredAt("ab", "C", "f")


@pytest.mark.parametrize("read", [older_open, older_close])
@pytest.mark.parametrize("body", [b'["o","x"]', b'["c","x"]', b'["c",worse]'])
def test_what_no_version_wrote_is_refused(read, body):
    with pytest.raises(msgspec.DecodeError):
        read(body)


def test_an_older_journal_is_adopted(tmp_path):
    lines = b"".join(map(with_check, (CLOSE, OPEN, MARK)))
    segment_path(tmp_path, JOURNAL, 0).write_bytes(lines.ljust(SEGMENT_BYTES, b"\0"))
    lock_path(tmp_path, JOURNAL).touch()
    orphan = Orphan.take(tmp_path, JOURNAL)
    end = orphan.close_open_calls(0, "web-1")
    orphan.release()
    reader = JournalReader(tmp_path, JOURNAL)
    closed = reader.read_closed(0, end, 10)
    reader.close()
    assert not closed.unreadable and not closed.damaged
    done, lost = closed.records
    assert done == older_close(CLOSE)
    assert (lost.id, lost.call, lost.outcome) == (LOST_ID, FACTS, "gateway_lost")
    assert (lost.channel, lost.upstream_model) == ("main", "up")
    assert (lost.input_tokens, lost.output_tokens, lost.cost_nanos) == (15, 40, 95_000)
    assert lost.charges == (Charge("wallet", 95_000),)
