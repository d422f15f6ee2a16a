"""The log lines of calls."""

import json

import pytest

from commands.process.logs import text_line
from handlers.telemetry import calls as telemetry
from handlers.telemetry.calls import ENDED_MAX, UNRECORDED_MAX, Telemetry, Unrecorded
from store.values.usage import Served
from store.values.usage_record import AttemptRecord, Receipt
from tests.handlers.telemetry.test_metrics import record as metrics_record
from tests.support.call_line import FIELDS

CALL_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def record(**changes):
    fields = {
        "stream": True, "cache_read_tokens": 5, "cost_nanos": 1_500_000_000,
        "attempts": (AttemptRecord("first"), AttemptRecord("main")),
        "client_ip": "198.51.100.7", "key_id": "key-id",
    }  # fmt: skip
    return metrics_record(**{**fields, **changes})


class Written(list):
    """The blocks handed to the log."""

    @property
    def lines(self):
        return b"".join(self).splitlines()


def made(json_lines=True):
    written = Written()
    return Telemetry(written.append, None if json_lines else text_line), written


# ---- lines of calls ------------------------------------------------------------------------------


def test_a_call_is_one_json_line_with_fixed_fields():
    told, written = made()
    told.call_ended(record())
    told.flush()
    [line] = written.lines
    assert json.loads(line) == {
        "at": "1970-01-01T00:00:01.235Z", "level": "info", "event": "call", "request_id": CALL_ID,
        "user": "alice", "key_id": "key-id", "family": "messages", "endpoint": "/v1/messages",
        "model": "m", "group": "gold", "channel": "main", "status": 200, "error_code": None,
        "outcome": "ok", "stream": True, "attempts": 2, "ttft_ms": 30, "duration_ms": 1234,
        "tokens": 35, "input_tokens": 10, "output_tokens": 20, "cost": "1.5",
        "tier": None, "client_ip": "198.51.100.7", "trace_id": None,
    }  # fmt: skip
    assert set(FIELDS) <= set(json.loads(line))
    told.call_ended(record(receipt=Receipt(served=Served("flex"))))
    told.flush()
    assert json.loads(written.lines[1])["tier"] == "flex"


def test_a_call_is_one_text_line():
    told, written = made(json_lines=False)
    told.call_ended(record(model=None, channel=None, ttft_ms=None))
    told.flush()
    assert written == [
        f"1970-01-01T00:00:01.235Z info call: request_id={CALL_ID} user=alice key_id=key-id"
        " family=messages endpoint=/v1/messages group=gold status=200 outcome=ok stream=true"
        " attempts=2 duration_ms=1234 tokens=35 input_tokens=10 output_tokens=20 cost=1.5"
        " client_ip=198.51.100.7\n".encode()
    ]


ODD = ["x\nevent=call id=forged", "a b", "a\tb", "\u2028", "\x1b[31m", '"q"', "\ud800", "ü✓",
       "x" * 128]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("json_lines", [True, False])
def test_a_name_of_the_caller_cannot_make_a_line_or_a_field(name, json_lines):
    told, written = made(json_lines)
    told.call_ended(record(model=name))
    told.flush()
    [block] = written
    assert block.endswith(b"\n") and len(block.splitlines()) == 1
    if json_lines:
        assert json.loads(block)["model"] == name
    else:
        word = block.decode().partition(" model=")[2].rpartition(" group=gold ")[0]
        assert word == name or json.loads(word) == name
        assert word.isprintable() and (word.startswith('"') or " " not in word)


def test_refused_calls_without_a_record_of_their_own_have_no_line(caplog):
    told, written = made()
    told.call_ended(record(outcome="refused"), line=False)
    told.flush()
    assert written == []
    caplog.set_level("INFO")
    told.refused_without_line(7, record(outcome="refused", error_code="model_not_found"))
    assert "7 more calls of key key-id (alice)" in caplog.text and "model_not_found" in caplog.text


def test_lines_are_gathered_until_the_flush():
    told, written = made()
    told.flush()
    assert written == []
    for _ in range(3):
        told.call_ended(record())
    assert written == []
    told.flush()
    assert len(written) == 1 and len(written.lines) == 3
    told.flush()
    assert len(written) == 1


def test_lines_are_made_many_at_a_time_and_keep_their_order(monkeypatch):
    made_of, (told, written) = [], made()
    line_of = telemetry._line_of
    monkeypatch.setattr(telemetry, "_line_of", lambda *of: made_of.append(1) or line_of(*of))
    for number in range(ENDED_MAX + 1):
        assert len(made_of) == (ENDED_MAX if number == ENDED_MAX else 0)
        told.call_ended(record(model=f"model-{number}"))
    told.flush()
    models = [f"model-{number}" for number in range(ENDED_MAX + 1)]
    assert [json.loads(line)["model"] for line in written.lines] == models


def test_calls_need_not_be_logged():
    told = Telemetry(None)
    told.call_ended(record())
    told.flush()
    assert told.dropped == 0


def test_lines_of_one_second_are_bounded(monkeypatch):
    monkeypatch.setattr(telemetry, "LINES_MAX", 10)
    told, written = made()
    for _ in range(15):
        told.call_ended(record())
    told.flush()
    assert (len(written.lines), told.dropped) == (10, 5)
    told.call_ended(record())
    told.flush()
    assert len(written.lines) == 11


UNKNOWN = Unrecorded(CALL_ID, "messages", "/v1/messages", 401, "invalid_api_key", "refused",
                     "198.51.100.7")  # fmt: skip


def test_a_request_without_a_record_has_a_line_of_the_same_form():
    told, written = made()
    told.call_ended(record())
    told.not_recorded(UNKNOWN, 5)
    told.flush()
    call, line = map(json.loads, written.lines)
    assert list(line) == list(call)
    assert {name: value for name, value in line.items() if value} == {
        "at": "1970-01-01T00:00:00.005Z", "level": "info", "event": "call", "request_id": CALL_ID,
        "family": "messages", "endpoint": "/v1/messages", "status": 401, "outcome": "refused",
        "error_code": "invalid_api_key", "cost": "0", "client_ip": "198.51.100.7",
    }  # fmt: skip


@pytest.mark.parametrize("json_lines", [True, False])
def test_such_lines_are_bounded_a_second(json_lines, caplog):
    told, written = made(json_lines)
    with caplog.at_level("INFO"):
        for _ in range(UNRECORDED_MAX + 7):
            told.not_recorded(UNKNOWN, 5)
        told.flush()
        assert len(written.lines) == UNRECORDED_MAX
        assert [one.message for one in caplog.records] == [
            "7 more requests without a known key or endpoint were refused"
        ]
        told.not_recorded(UNKNOWN, 5)
        told.flush()
    assert len(written.lines) == UNRECORDED_MAX + 1 and len(caplog.records) == 1
