"""The usage record of a call."""

import json

import msgspec
import pytest

from adapters.faults import Condition, Fault
from handlers.relay.call import Attempt, Delivery, Ending, Requested
from handlers.relay.records import UPSTREAM_ID_MAX, record_of
from handlers.relay.routing.plan import Candidate
from handlers.relay.settle import NOTHING, Bill, Counts
from store.catalog.catalog import Group
from store.values.usage import Usage
from store.values.usage_record import AttemptRecord, Charge, UsageRecord
from tests.handlers.relay.calls import CALL_ID, CHANNEL, NATIVE, PRICES, STARTED_MS, a_call
from tests.support.usage_records import field_of, usage_record


def bill(counts=None, nanos=0):
    """Return a bill that the wallet pays."""
    charges = (Charge("wallet", nanos),) if nanos else ()
    return Bill(counts=counts or NOTHING, cost_nanos=nanos, charges=charges)


def recorded(call, ending, a_bill=None, duration_ms=0):
    return record_of(call, ending, a_bill or bill(), "node-1", duration_ms)


ATTEMPTS = [AttemptRecord("first", 500, "upstream_error", 12), AttemptRecord("main", 200, None, 88)]


def test_every_field_of_a_record():
    call = a_call(
        attempt=Attempt(Candidate(CHANNEL, 0), NATIVE, upstream_model="alias"),
        requested=Requested("m", True), status=200, ttft_ms=30,
        delivery=Delivery(relayed=True, whole=True, upstream_id="upstream-id"),
        group=Group("gold", 1_500_000, None, frozenset(), False),
    )  # fmt: skip
    call.outcome.attempts += ATTEMPTS
    counts = Counts(Usage(1, 2, 3, 4, 5, 6), "reported", {"usage": "as told"})
    record = recorded(call, Ending("ok"), bill(counts, 99), 1234)
    assert record == usage_record(
        id=CALL_ID, started_ms=STARTED_MS, user_id="user-id", user="alice", key_id="key-id",
        key_name="laptop", group="gold", endpoint="/v1/some/endpoint", family="chat_completions",
        upstream_family="messages", model="m", upstream_model="alias", channel="main",
        stream=True, status=200, outcome="ok", error_code=None, error_message=None,
        input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4,
        cache_write_1h_tokens=5, reasoning_tokens=6, usage_source="reported",
        prices=PRICES.plain.text,
        multiplier_ppm=1_500_000, cost_nanos=99, charges=(Charge("wallet", 99),),
        reported_usage='{"usage":"as told"}', ttft_ms=30, duration_ms=1234,
        attempts=tuple(ATTEMPTS), client_request_id="client-id",
        upstream_request_id="upstream-id", client_ip="198.51.100.7", user_agent="agent/1",
        node="node-1",
    )  # fmt: skip
    # The journal has the record in this form.
    assert msgspec.json.decode(msgspec.json.encode(record), type=UsageRecord) == record


def test_the_record_of_a_refused_call_knows_little():
    call = a_call(group=None, model=None, requested=Requested())
    record = recorded(call, Ending("refused", Fault(Condition.KEY_DISABLED)))
    assert (record.outcome, record.error_code) == ("refused", "api_key_disabled")
    assert record.error_message == "The API key is disabled."
    assert (record.usage_source, record.cost_nanos, record.charges) == ("none", 0, ())
    for name in ("upstream_family", "model", "upstream_model", "channel", "stream", "status",
                 "prices", "multiplier_ppm", "reported_usage", "ttft_ms",
                 "upstream_request_id"):  # fmt: skip
        assert field_of(record, name) is None, name
    assert record.attempts == ()


@pytest.mark.parametrize(("ending", "code", "message"), [
    (Ending("ok"), None, None),
    (Ending("client_gone"), "client_gone", None),
    (Ending("drained", Fault(Condition.UNAVAILABLE, "why")), "drained", "why"),
    (Ending("upstream_truncated", Fault(Condition.UPSTREAM_FAILED, "cut")),
     "upstream_truncated", "cut"),
    (Ending("upstream_error", Fault(Condition.UPSTREAM_OVERLOADED, "m")),
     "upstream_overloaded", "m"),
    (Ending("timeout", Fault(Condition.UPSTREAM_TIMEOUT, "late")), "upstream_timeout", "late"),
    (Ending("internal_error", Fault(Condition.INTERNAL, "bug")), "internal_error", "bug"),
    (Ending("upstream_error"), "upstream_error", None),
])  # fmt: skip
def test_the_error_of_a_record(ending, code, message):
    record = recorded(a_call(), ending)
    assert (record.outcome, record.error_code) == (ending.outcome, code)
    assert record.error_message == message


def test_a_long_id_of_the_upstream_is_cut():
    call = a_call(delivery=Delivery(upstream_id="x" * 500))
    assert recorded(call, Ending("ok")).upstream_request_id == "x" * UPSTREAM_ID_MAX
    call.outcome.delivery = Delivery(upstream_id="")
    assert recorded(call, Ending("ok")).upstream_request_id is None


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 10**400, "\ud800"])
def test_usage_that_json_cannot_say(odd):
    """Vendors' numbers are read loosely; a record must be written nevertheless."""
    counts = Counts(Usage(1, 2), "estimated", {"prompt_tokens": 5, "cost": odd})
    record = recorded(a_call(), Ending("ok"), bill(counts, 9))
    assert (record.usage.input_tokens, record.cost_nanos) == (1, 9)
    if record.reported_usage is not None:
        json.loads(record.reported_usage)
