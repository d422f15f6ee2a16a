"""What a call costs, and its usage record."""

import json

import msgspec
import pytest

from adapters.family import Operation
from adapters.faults import Condition, Fault
from adapters.ir import Usage
from handlers.relay import settle
from handlers.relay.call import Delivery, Ending
from handlers.relay.settle import ABSURD_INPUT_TOKENS, charged_counts
from store.catalog import Group
from store.usage import Attempt, Charge, UsageRecord
from tests.handlers.relay.test_call import CALL_ID, CHANNEL, PRICES, STARTED_MS, a_call, model

MILLION = 10**6
REPORTED = {"prompt_tokens": 10, "whatever": "the vendor says"}


def delivered(usage=None, units=0, whole=True, reported=REPORTED, **more):
    reported = reported if usage is not None else None
    return Delivery(True, whole, usage, reported, units, more.get("upstream_id"))


def counts_of(delivery, **changes):
    return charged_counts(a_call(delivery=delivery, **changes))


# ---- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delivery", "changes"),
    [
        (Delivery(), {}),
        (Delivery(usage=Usage(10, 20), output_units=5), {}),
        (delivered(Usage(10, 20)), {"operation": Operation("/v1/some/count", free=True)}),
    ],
)
def test_what_was_not_delivered_costs_nothing(delivery, changes):
    counts = counts_of(delivery, **changes)
    assert (counts.usage, counts.source, counts.reported) == (Usage(), "none", None)


def test_a_whole_answer_is_charged_as_reported():
    usage = Usage(10, 20, 30, 2, 1, 5)
    counts = counts_of(delivered(usage, units=999))
    assert (counts.usage, counts.source, counts.reported) == (usage, "reported", None)


def test_a_reported_zero_is_a_number():
    counts = counts_of(delivered(Usage(0, 0), units=50))
    assert (counts.usage, counts.source) == (Usage(0, 0), "reported")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("units", "bound", "charged"),
    [(0, 300, 0), (50, 300, 50), (300, 300, 300), (5000, 300, 300), (5, 0, 0)],
)
def test_what_was_not_reported_is_estimated_within_the_bound(units, bound, charged, whole):
    counts = counts_of(delivered(None, units, whole), output_bound_tokens=bound)
    assert (counts.usage, counts.source) == (Usage(40, charged), "estimated")
    assert counts.reported is None


@pytest.mark.parametrize(
    ("usage", "context", "max_output", "charged"),
    [
        (Usage(100, 300), None, None, Usage(100, 300)),
        (Usage(100, 301), None, None, Usage(100, 300)),
        (Usage(100, 999), None, 500, Usage(100, 500)),
        (Usage(100, 200, reasoning_tokens=200), None, None, Usage(100, 200, reasoning_tokens=100)),
        (Usage(5000, 1), 2000, None, Usage(2000, 1)),
        (Usage(1000, 1, 900, 300, 50), 2000, None, Usage(1000, 1, 900, 100, 0)),
        (Usage(60, 1), 50, None, Usage(60, 1)),
        (Usage(ABSURD_INPUT_TOKENS, 1), None, None, Usage(ABSURD_INPUT_TOKENS, 1)),
        (Usage(2**31 - 1, 2**31 - 1), None, None, Usage(ABSURD_INPUT_TOKENS, 300)),
    ],
)
def test_counts_beyond_reason_are_cut(usage, context, max_output, charged):
    counts = counts_of(delivered(usage), model=model(context, max_output))
    assert (counts.usage, counts.source) == (charged, "reported")
    assert counts.reported == (None if charged == usage else REPORTED)


def test_a_broken_stream_is_charged_what_was_delivered_since_the_last_report():
    counts = counts_of(delivered(Usage(10, 1, 5), units=50, whole=False))
    assert (counts.usage, counts.source) == (Usage(10, 50, 5), "estimated")
    assert counts.reported == REPORTED


def test_reasoning_counts_as_delivered():
    counts = counts_of(delivered(Usage(10, 1, reasoning_tokens=29), units=50, whole=False))
    assert counts.usage == Usage(10, 21, reasoning_tokens=29)


@pytest.mark.parametrize("units", [0, 19, 20])
def test_a_broken_stream_is_charged_no_less_than_reported(units):
    counts = counts_of(delivered(Usage(10, 20), units=units, whole=False))
    assert (counts.usage, counts.source, counts.reported) == (Usage(10, 20), "reported", None)


def test_a_broken_stream_with_absurd_counts():
    counts = counts_of(delivered(Usage(10, 5000), units=20, whole=False))
    assert (counts.usage, counts.source) == (Usage(10, 300), "reported")
    assert counts.reported == REPORTED


@pytest.mark.parametrize("max_output", [None, 500])
def test_the_estimate_of_a_broken_stream_is_bounded_too(max_output):
    broken = delivered(Usage(10, 1), units=2000, whole=False)
    counts = counts_of(broken, model=model(None, max_output))
    assert counts.usage == Usage(10, max_output or 300)
    assert counts.source == "estimated"


# ---- cost ----------------------------------------------------------------------------------------


def test_every_kind_of_token_has_its_price():
    for at in range(6):
        usage = Usage(*(10 if at == kind else 0 for kind in range(6)))
        counts = counts_of(delivered(usage))
        prices = (1, 2, 3, 4, 5, 6)
        assert settle.cost_of(a_call(), counts) == (10 * prices[at] + 7) * MILLION


def test_the_group_multiplies():
    group = Group("gold", 1_500_000, None, frozenset(), False)
    assert settle.cost_of(a_call(group=group), counts_of(delivered(Usage(2, 0)))) == 13_500_000


@pytest.mark.parametrize("changes", [{"prices": None}, {"group": None}])
def test_what_has_no_price_costs_nothing(changes):
    counts = counts_of(delivered(Usage(10, 10)))
    assert settle.cost_of(a_call(**changes), counts) == 0


def test_nothing_costs_nothing_in_spite_of_a_price_for_each_call():
    assert settle.cost_of(a_call(), settle.NOTHING) == 0


# ---- record --------------------------------------------------------------------------------------


def bill(counts=None, nanos=0):
    """A bill that the wallet pays."""
    charges = (Charge("wallet", nanos),) if nanos else ()
    return settle.Bill(counts=counts or settle.NOTHING, cost_nanos=nanos, charges=charges)


def recorded(call, ending, a_bill=None, now_ms=STARTED_MS):
    return settle.record_of(call, ending, a_bill or bill(), "node-1", now_ms)


ATTEMPTS = [Attempt("first", 500, "upstream_error", 12), Attempt("main", 200, None, 88)]


def test_every_field_of_a_record():
    call = a_call(
        channel=CHANNEL,
        upstream_model="alias",
        stream=True,
        status=200,
        first_byte_ms=STARTED_MS + 30,
        delivery=delivered(upstream_id="upstream-id"),
        group=Group("gold", 1_500_000, None, frozenset(), False),
    )
    call.attempts += ATTEMPTS
    counts = settle.Counts(Usage(1, 2, 3, 4, 5, 6), "reported", {"usage": "as told"})
    record = recorded(call, Ending("ok"), bill(counts, 99), STARTED_MS + 1234)
    assert record == UsageRecord(
        id=CALL_ID,
        started_ms=STARTED_MS,
        user_id="user-id",
        user="alice",
        key_id="key-id",
        key_name="laptop",
        group="gold",
        endpoint="/v1/some/endpoint",
        family="chat_completions",
        upstream_family="messages",
        model="m",
        upstream_model="alias",
        channel="main",
        stream=True,
        status=200,
        outcome="ok",
        error_code=None,
        error_message=None,
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        cache_write_1h_tokens=5,
        reasoning_tokens=6,
        usage_source="reported",
        prices=PRICES.json,
        multiplier_ppm=1_500_000,
        cost_nanos=99,
        billed_to="wallet",
        charges=(Charge("wallet", 99),),
        reported_usage='{"usage":"as told"}',
        ttft_ms=30,
        duration_ms=1234,
        attempts=tuple(ATTEMPTS),
        client_request_id="client-id",
        upstream_request_id="upstream-id",
        client_ip="198.51.100.7",
        user_agent="agent/1",
        node="node-1",
    )
    # It is written into the journal as it is.
    assert msgspec.json.decode(msgspec.json.encode(record), type=UsageRecord) == record


def test_the_record_of_a_refused_call_knows_little():
    call = a_call(group=None, model=None, prices=None, model_name=None)
    record = recorded(call, Ending("refused", Fault(Condition.KEY_DISABLED)))
    assert (record.outcome, record.error_code) == ("refused", "api_key_disabled")
    assert record.error_message == "The API key is disabled."
    assert (record.usage_source, record.cost_nanos, record.charges) == ("none", 0, ())
    for name in ("upstream_family", "model", "upstream_model", "channel", "stream", "status",
                 "prices", "multiplier_ppm", "billed_to", "reported_usage", "ttft_ms",
                 "upstream_request_id"):  # fmt: skip
        assert getattr(record, name) is None, name
    assert record.attempts == ()


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
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
    ],
)  # fmt: skip
def test_the_error_of_a_record(ending, code, message):
    record = recorded(a_call(), ending)
    assert (record.outcome, record.error_code) == (ending.outcome, code)
    assert record.error_message == message


def test_a_long_id_of_the_upstream_is_cut():
    call = a_call(delivery=Delivery(upstream_id="x" * 500))
    assert recorded(call, Ending("ok")).upstream_request_id == "x" * settle.UPSTREAM_ID_MAX
    call.delivery.upstream_id = ""
    assert recorded(call, Ending("ok")).upstream_request_id is None


def test_a_clock_that_jumps_back():
    call = a_call(first_byte_ms=STARTED_MS - 3_600_000)
    record = recorded(call, Ending("ok"), now_ms=STARTED_MS - 3_600_000)
    assert (record.ttft_ms, record.duration_ms) == (0, 0)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 10**400, "\ud800"])
def test_usage_that_json_cannot_say(odd):
    """Vendors' numbers are read loosely; a record must come out all the same."""
    counts = settle.Counts(Usage(1, 2), "estimated", {"prompt_tokens": 5, "cost": odd})
    record = recorded(a_call(), Ending("ok"), bill(counts, 9))
    assert (record.input_tokens, record.cost_nanos) == (1, 9)
    if record.reported_usage is not None:
        json.loads(record.reported_usage)
