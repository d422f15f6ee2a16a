"""The forms of a record: row, public object, CSV."""

import csv
import io

import msgspec
import pytest

from store.db.database import execute, insert_columns, transaction
from store.db.tables.usage import UsageRow
from store.values.ids import day_of, ulid
from store.values.pricing import conditional_rate, prices_json
from store.values.usage import MORE_TOKENS, SIDES, Served, Usage
from store.values.usage_record import (
    COLUMNS,
    FIELDS,
    NO_RECEIPT,
    SPARSE_COLUMNS,
    TEXT_LIMITS_CHARS,
    AttemptRecord,
    CallFacts,
    Charge,
    OtherCost,
    Receipt,
    UsageRecord,
    charges_from_json,
    charges_json,
    clipped,
    columns_of,
    csv_header,
    csv_line,
    csv_row,
    record_day,
    to_public,
)
from tests.support.prices import rate_of
from tests.support.usage_records import field_of, usage_record

STARTED_MS = 1_767_225_599_001  # 2025-12-31T23:59:59.001Z
CALL_ID = ulid(STARTED_MS, bytes(10))
RECEIPT_COLUMNS = {"receipt": None} | dict.fromkeys(MORE_TOKENS, 0)
PRICES = rate_of(10**9, 2 * 10**9, 0, 0, 0, 0, 1)


FULL = {
    **{"id": CALL_ID, "started_ms": STARTED_MS, "user_id": "U", "user": "alice", "key_id": "K"},
    **{"key_name": "laptop", "group": "default", "endpoint": "/v1/messages", "family": "messages"},
    **{"upstream_family": "messages", "model": "m", "upstream_model": "up", "channel": "main"},
    **{"stream": True, "status": 200, "outcome": "client_gone", "error_code": "client_gone"},
    **{"error_message": "left", "input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 3},
    **{"cache_write_tokens": 4, "cache_write_1h_tokens": 5, "reasoning_tokens": 6},
    **{"usage_source": "reported", "prices": PRICES.text, "multiplier_ppm": 1_500_000},
    **{"cost_nanos": 12_500, "charges": (Charge("wallet", 12_500),), "ttft_ms": 7},
    **{"reported_usage": '{"input_tokens":1}', "duration_ms": 8, "client_request_id": "c-1"},
    **{"upstream_request_id": "u-1", "client_ip": "10.0.0.1", "user_agent": "curl"},
    **{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "node": "web-1", "upstream_nanos": 9},
    "more": (("input_audio", 7), ("cache_read_audio", 8), ("output_image", 9), ("web_search", 10)),
    "receipt": Receipt(
        conditional_rate(PRICES, (("tier", "flex"), ("input_over", 5)), 500_000).text,
        Served("flex"),
        (("output_image", 9), ("web_search", 10)),
        (OtherCost("m2", Usage(3), "0.5"),),
    ),
    "attempts": (
        AttemptRecord("a", None, "refused", 3, "nobody listens"),
        AttemptRecord("main", 200, None, 5),
    ),
}


def full_record(**fields):
    return usage_record(**(FULL | fields))


def as_row(record, recorded_ms=STARTED_MS + 5_000):
    columns = columns_of([record], recorded_ms)
    return SPARSE_COLUMNS | RECEIPT_COLUMNS | {name: values[0] for name, values in columns.items()}


def test_the_row_has_the_prices_as_json_and_the_day_of_its_id():
    plain = {"receipt": NO_RECEIPT, "more": ()}
    records = [full_record(prices=text, **plain) for text in (PRICES.text, None, "broken")]
    columns = columns_of(records, 1)
    prices = prices_json(PRICES, SIDES)
    assert columns["prices"] == [prices, None, "broken"]
    assert columns["day"] == [20251231] * 3


def test_the_public_form_has_every_field_in_order():
    public = to_public(as_row(full_record()))
    assert tuple(public) == FIELDS
    assert len(FIELDS) == 46
    attempt = {"channel": "a", "status": None, "error": "refused", "detail": "nobody listens"}
    same = ("id", "user", "key_id", "group", "endpoint", "model", "channel", "status", "outcome")
    expected = {name: FULL[name] for name in (*same, "node", "stream")} | {
        **{"started_at": "2025-12-31T23:59:59.001Z", "recorded_at": "2026-01-01T00:00:04.001Z"},
        **{"multiplier": "1.5", "cost": "0.0000125", "reported_usage": {"input_tokens": 1}},
        "charges": [{"to": "wallet", "amount": "0.0000125"}],
        "attempts": [
            attempt | {"ms": 3},
            {"channel": "main", "status": 200, "error": None, "detail": None, "ms": 5},
        ],
    }
    assert {name: public[name] for name in expected} == expected
    meters = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4, "cache_write_1h": 5}
    assert public["meters"] == meters | {"reasoning": 6} | dict(FULL["more"])
    assert public["rate"] == {"tier": "flex", "input_over": 5}
    assert public["served"] == {"tier": "flex"} and public["upstream_cost"] == "0.000000009"
    assert public["unpriced"] == [
        {"meter": "output_image", "count": 9},
        {"meter": "web_search", "count": 10},
    ]
    assert public["other_models"] == [{"model": "m2", "tokens": {"input": 3}, "cost": "0.5"}]
    assert public["prices"]["output_image"] == "1"
    assert public["prices"]["output"] == "1" and public["prices"]["call"] == "0.000000001"


def test_fields_that_were_not_carried_are_shown_where_there_are_any():
    attempts = (AttemptRecord("a"), AttemptRecord("b", 200, dropped=("metadata", "tools[2]")))
    record = full_record(attempts=attempts)
    first, second = to_public(as_row(record))["attempts"]
    assert "dropped" not in first and second["dropped"] == ["metadata", "tools[2]"]
    many = AttemptRecord("a", dropped=tuple(f"{n}\ud800" + "x" * 200 for n in range(100)))
    [clip] = clipped(full_record(attempts=(many,))).attempts
    assert len(clip.dropped) == 32 and all(len(one) <= 96 for one in clip.dropped)
    assert clip.dropped[0].startswith("0?x")


def test_attempts_of_older_records_and_journals_are_read():
    text = '[{"channel":"a","status":null,"error":"connect","ms":3},{"channel":"b","status":200}]'
    public = to_public(as_row(full_record()) | {"attempts": text})
    assert public["attempts"] == [
        {"channel": "a", "status": None, "error": "connect", "detail": None, "ms": 3},
        {"channel": "b", "status": 200, "error": None, "detail": None, "ms": 0},
    ]
    line = msgspec.json.encode(full_record())
    old = line.replace(b',"detail":"nobody listens"', b"")
    assert old != line
    [before, after] = (msgspec.json.decode(one, type=UsageRecord) for one in (old, line))
    assert before.attempts[0].detail is None and after == full_record()


def test_the_day_changes_exactly_at_midnight():
    for midnight_ms in range(1_767_225_600_000, 1_767_225_600_000 + 400 * 86_400_000, 86_400_000):
        for at_ms in (midnight_ms - 1, midnight_ms, midnight_ms + 1):
            call_id = ulid(at_ms, b"\xff" * 10)
            assert record_day(call_id) == day_of(call_id)
    with pytest.raises(ValueError):
        record_day("not a ulid")


def test_a_column_that_is_seldom_filled_is_left_out_when_no_record_fills_it():
    bare = usage_record(id=CALL_ID, started_ms=STARTED_MS)
    columns = columns_of([bare, bare], 7)
    names = {name for name in COLUMNS if getattr(bare.call, name, None) == "x"}
    assert len(names) == 7 and {*names, "outcome", "cost_nanos", "charges"} <= columns.keys()
    assert not {"error_code", "client_request_id", "cache_write_tokens"} & columns.keys()
    both = columns_of([bare, full_record()], 7)
    assert set(both) == set(COLUMNS)
    for number, one in enumerate((bare, full_record())):
        row = {name: values[number] for name, values in both.items()}
        assert row == as_row(one, 7)


def test_a_column_that_is_left_out_has_the_same_default_in_the_table(database):
    bare = usage_record(id=CALL_ID, started_ms=STARTED_MS)
    columns = columns_of([bare], 7)
    transaction(database, lambda: insert_columns(database, "usage_records", columns))
    listed = ", ".join(f'"{name}"' for name in COLUMNS)
    row = execute(database, f'SELECT {listed} FROM "usage_records"').fetchone()
    assert dict(zip(COLUMNS, row, strict=True)) == as_row(bare, 7)


def test_unknown_is_null():
    bare = usage_record(id=CALL_ID, started_ms=STARTED_MS)
    public = to_public(as_row(bare))
    nulls = {name for name in FIELDS if public[name] is None}
    assert {"model", "stream", "status", "prices", "multiplier", "billed_to", "ttft_ms"} <= nulls
    assert (public["cost"], public["charges"], public["attempts"]) == ("0", [], [])


def test_charges_survive_their_json():
    charges = (Charge("subscription:a", 1), Charge("wallet", 10**18))
    assert charges_from_json(charges_json(charges)) == charges
    assert charges_from_json(charges_json(())) == ()
    wallet, other = charges_json(charges[1:]), charges_json((Charge("subscription:a", 10**18),))
    assert wallet == other.replace("subscription:a", "wallet")
    for broken in ("", "{}", '[{"to":"wallet"}]', '[{"to":"wallet","amount":"-1"}]'):
        with pytest.raises(ValueError):
            charges_from_json(broken)


def test_clipped_texts_fit_their_columns():
    assert TEXT_LIMITS_CHARS
    for name, limit in TEXT_LIMITS_CHARS.items():
        width = getattr(getattr(UsageRow, name), "max_length", 16_000)
        assert limit <= width, name
    names = (*CallFacts.__struct_fields__, *UsageRecord.__struct_fields__)
    texts = {name for name in names if isinstance(field_of(full_record(), name), str)}
    own = {"id", "user_id", "key_id", "prices", "reported_usage", "trace_id"}
    assert texts - own == set(TEXT_LIMITS_CHARS)


def test_clipping_keeps_numbers_and_money_and_makes_texts_sound():
    assert clipped(full_record()) == full_record()
    record = full_record(
        **{"error_message": "x" * 5_000 + "\ud800", "model": "\udfff"},
        reported_usage='"' + "y" * 5_000 + '"',
        attempts=(AttemptRecord("main", 500, "z" * 5_000, 1, "y" * 5_000),) * 100,
    )
    short = clipped(record)
    assert short.error_message == "x" * 1000
    assert short.call.model == "?"
    assert short.reported_usage is None
    assert len(short.attempts) == 16 and len(short.attempts[0].error) == 1000
    assert (short.cost_nanos, short.charges) == (record.cost_nanos, record.charges)


def read_csv(record):
    text = csv_header() + csv_line(to_public(as_row(record)))
    header, line = csv.reader(io.StringIO(text, newline=""))
    return dict(zip(header, line, strict=True))


def test_csv_has_the_public_fields():
    cells = read_csv(full_record())
    assert tuple(cells) == FIELDS
    assert cells["charges"] == '[{"to":"wallet","amount":"0.0000125"}]'
    assert (cells["stream"], cells["cost"], cells["input_tokens"]) == ("true", "0.0000125", "1")
    cells = read_csv(full_record(stream=False, ttft_ms=None, channel=None))
    assert (cells["stream"], cells["ttft_ms"], cells["channel"]) == ("false", "", "")


@pytest.mark.parametrize("first", [*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_no_cell_is_a_formula(first):
    agent = f'{first}cmd("a,b")\n'
    cells = read_csv(full_record(user_agent=agent, model=first))
    assert (cells["user_agent"], cells["model"]) == (f"'{agent}", f"'{first}")


def test_amounts_stay_numbers():
    assert csv_row(["-12.5", "0.2", "-2+3"]) == "-12.5,0.2,'-2+3\r\n"
