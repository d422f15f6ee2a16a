"""What a call costs and what its record says: each field from its place, counts within reason."""

import pytest

from adapters.family import Peek
from adapters.faults import Condition, Fault
from adapters.ir import Usage
from adapters.registry import FAMILIES
from handlers.relay import settle
from handlers.relay.call import Arrival, Call, Delivery, Ending
from store.catalog import EMPTY, Channel, Group, Model
from store.keys import KeyEntry
from store.pricing import Prices
from store.usage import WALLET, Attempt, Charge

PRICES = Prices(1, 2, 3, 4, 5, 6, 7)
KEY = KeyEntry("key-id", "key-name", "user-id", "user", "group", False, False, None, None, (),
               "wallet", None)  # fmt: skip


def call_of(usage=None, context=1_000, largest=100, **delivered):
    arrival = Arrival("01K0000000000000000000CALL", 1_000, "192.0.2.1", "agent/1", "client-id")
    call = Call(arrival, FAMILIES["messages"], "/v1/messages", False, KEY, {}, EMPTY)
    call.peek = Peek("public", True, 50, 1, True)
    call.model_name, call.upstream_model, call.stream, call.status = "public", "inner", True, 200
    call.group = Group("group", 2_000_000, None, frozenset(), False)
    call.model = Model("public", context, largest, False, 0, ((0, PRICES),))
    call.prices = PRICES
    call.channel = Channel("channel-id", "channel", "demo", "chat_completions", "http://x", (),
                           frozenset(), {}, 0, 1, True)  # fmt: skip
    call.input_bound_tokens, call.input_estimate_tokens, call.output_bound_tokens = 500, 40, 50
    call.first_byte_ms = 1_030
    call.delivery = Delivery(usage=usage, reported={"said": 1}, upstream_id="upstream-id",
                             **{"relayed": True, "whole": True, **delivered})  # fmt: skip
    call.attempts = [Attempt("other", 500, "E26", 4), Attempt("channel", 200, None, 70)]
    return call


def test_each_field_of_a_record_comes_from_its_place():
    counts = settle.Counts(Usage(11, 12, 13, 14, 15, 16), "reported", {"said": 1})
    bill = settle.Bill(counts, 99, (Charge(WALLET, 99),))
    fault = Fault(Condition.UPSTREAM_FAILED, "It failed.")
    record = settle.record_of(call_of(), Ending("upstream_error", fault), bill, "node", 1_100)
    assert {name: getattr(record, name) for name in record.__struct_fields__} == {
        **{"id": "01K0000000000000000000CALL", "started_ms": 1_000, "user_id": "user-id"},
        **{"user": "user", "key_id": "key-id", "key_name": "key-name", "group": "group"},
        **{"endpoint": "/v1/messages", "family": "messages", "model": "public"},
        **{"upstream_family": "chat_completions", "upstream_model": "inner", "channel": "channel"},
        **{"stream": True, "status": 200, "outcome": "upstream_error"},
        **{"error_code": fault.code, "error_message": "It failed."},
        **{"input_tokens": 11, "output_tokens": 12, "cache_read_tokens": 13},
        **{"cache_write_tokens": 14, "cache_write_1h_tokens": 15, "reasoning_tokens": 16},
        **{"usage_source": "reported", "prices": PRICES.json, "multiplier_ppm": 2_000_000},
        **{"cost_nanos": 99, "billed_to": "wallet", "charges": (Charge(WALLET, 99),)},
        **{"reported_usage": '{"said":1}', "ttft_ms": 30, "duration_ms": 100},
        "attempts": (Attempt("other", 500, "E26", 4), Attempt("channel", 200, None, 70)),
        **{"client_request_id": "client-id", "upstream_request_id": "upstream-id"},
        **{"client_ip": "192.0.2.1", "user_agent": "agent/1", "node": "node"},
    }


def test_a_record_of_a_refused_call_says_nothing_of_an_upstream():
    call = call_of()
    call.channel = call.prices = call.first_byte_ms = call.upstream_model = None
    call.attempts, call.delivery = [], Delivery()
    ending = Ending("refused", Fault(Condition.MODEL_NOT_FOUND, model="public"))
    record = settle.record_of(call, ending, settle.Bill(settle.NOTHING), "node", 900)
    assert (record.channel, record.upstream_family, record.prices) == (None, None, None)
    assert (record.multiplier_ppm, record.billed_to, record.charges) == (None, None, ())
    assert (record.ttft_ms, record.duration_ms, record.attempts) == (None, 0, ())
    assert (record.reported_usage, record.upstream_request_id) == (None, None)
    assert (record.usage_source, record.cost_nanos) == ("none", 0)


@pytest.mark.parametrize(
    ("reported", "charged"),
    [
        (Usage(900, 60, 50, 40, 10, 40), Usage(900, 60, 50, 40, 10, 40)),  # up to both bounds
        (Usage(900, 60, 50, 40, 11, 40), Usage(900, 60, 50, 40, 10, 40)),
        (Usage(2_000, 1, 1, 1, 1, 1), Usage(1_000, 1, 0, 0, 0, 1)),
        (Usage(1, 101, 0, 0, 0, 5), Usage(1, 100, 0, 0, 0, 0)),
        (Usage(1, 90, 0, 0, 0, 11), Usage(1, 90, 0, 0, 0, 10)),
    ],
)
def test_counts_beyond_reason_are_cut_from_the_right(reported, charged):
    counts = settle.charged_counts(call_of(reported))
    assert (counts.usage, counts.source) == (charged, "reported")
    assert counts.reported == (None if reported == charged else {"said": 1})


def test_an_unknown_window_of_the_model_allows_what_any_model_takes():
    huge = Usage(settle.ABSURD_INPUT_TOKENS, 1)
    assert settle.charged_counts(call_of(huge, context=None)).usage == huge


def test_without_a_report_the_estimate_counts_within_the_bound():
    counts = settle.charged_counts(call_of(None, output_units=20))
    assert (counts.usage, counts.source) == (Usage(40, 20), "estimated")
    assert settle.charged_counts(call_of(None, output_units=80)).usage == Usage(40, 50)


def test_a_broken_stream_is_charged_for_what_was_delivered_since_its_last_report():
    early = Usage(10, 3, 0, 0, 0, 2)
    counts = settle.charged_counts(call_of(early, whole=False, output_units=20))
    assert counts == settle.Counts(Usage(10, 18, 0, 0, 0, 2), "estimated", {"said": 1})
    counts = settle.charged_counts(call_of(early, whole=False, output_units=5))
    assert counts == settle.Counts(early, "reported", None)


def test_nothing_is_charged_when_nothing_was_relayed_or_tokens_were_only_counted():
    assert settle.charged_counts(call_of(Usage(1, 1), relayed=False)) is settle.NOTHING
    counting = call_of(Usage(1, 1))
    counting.counting = True
    assert settle.charged_counts(counting) is settle.NOTHING
    assert settle.cost_of(counting, settle.NOTHING) == 0


@pytest.mark.parametrize(
    ("outcome", "fault", "code"),
    [
        ("ok", None, None),
        ("client_gone", None, "client_gone"),
        ("upstream_truncated", Fault(Condition.UPSTREAM_FAILED), "upstream_truncated"),
        ("timeout", Fault(Condition.UPSTREAM_TIMEOUT), "upstream_timeout"),
        ("refused", None, "refused"),
    ],
)
def test_the_error_of_a_record(outcome, fault, code):
    bill = settle.Bill(settle.NOTHING)
    record = settle.record_of(call_of(), Ending(outcome, fault), bill, "node", 1_000)
    assert record.error_code == code
    assert record.error_message == (fault.message if fault else None)
