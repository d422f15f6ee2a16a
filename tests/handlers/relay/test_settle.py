"""What a call costs, and its usage record."""

import json

import msgspec
import pytest

from adapters.family import Operation, Peek
from adapters.family.ir import Usage
from adapters.faults import Condition, Fault
from handlers.relay import settle
from handlers.relay.call import Delivery, Ending
from handlers.relay.settle import (
    ABSURD_INPUT_TOKENS,
    ABSURD_OUTPUT_TOKENS,
    charged_counts,
)
from store.catalog.catalog import Group
from store.values.usage_record import AttemptRecord, Charge, UsageRecord
from tests.handlers.relay.calls import CALL_ID, CHANNEL, PRICES, STARTED_MS, a_call, model

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


NO_BOUND, THREE_ANSWERS = Peek("m", False, None, 1, True), Peek("m", False, 100, 3, True)


def test_a_request_that_the_client_left_to_the_vendor_is_charged_as_estimated():
    counts = counts_of(Delivery(handed_over=True))
    assert (counts.usage, counts.source, counts.reported) == (Usage(40), "estimated", None)
    free = counts_of(Delivery(handed_over=True), operation=Operation("/v1/count", free=True))
    assert free is settle.NOTHING


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("units", "bound", "charged"),
    # Beyond the client's bound our own count may be twice the vendor's.
    [(0, 300, 0), (50, 300, 50), (300, 300, 300), (599, 300, 300), (5000, 300, 2500),
     (10**9, 300, settle.UNKEPT_BOUND_TOKENS), (10**9, 10_000, 10_000)],
)  # fmt: skip
def test_what_was_not_reported_is_estimated(units, bound, charged, whole):
    counts = counts_of(delivered(None, units, whole), output_bound_tokens=bound)
    assert (counts.usage, counts.source) == (Usage(40, charged), "estimated")
    assert counts.reported is None


@pytest.mark.parametrize(
    ("units", "most", "charged"),
    [(8192, None, 8192), (8193, None, 8193), (50_000, None, 50_000), (600, 500, 500),
     (10**9, None, ABSURD_OUTPUT_TOKENS)],
)  # fmt: skip
def test_text_without_a_bound_of_the_client_counts_in_full(units, most, charged):
    call = a_call(peek=NO_BOUND, model=model(None, most), output_bound_tokens=most or 8192)
    assert settle.text_tokens(call, units) == charged


def test_what_is_stored_has_no_text_to_charge():
    assert settle.text_tokens(a_call(model=None, output_bound_tokens=0), 99) == 0


@pytest.mark.parametrize(
    ("usage", "context", "max_output", "charged"),
    [
        (Usage(100, 300), None, None, Usage(100, 300)),
        (Usage(100, 301), None, None, Usage(100, 301)),
        # an eighth and 64 tokens beyond the bound
        (Usage(100, 401), None, None, Usage(100, 401)),
        (Usage(100, 402), None, None, Usage(100, 401)),
        (Usage(100, 999), None, 500, Usage(100, 500)),
        # chat vendors may keep reasoning out of the bound
        (Usage(100, 200, reasoning_tokens=200), None, None, Usage(100, 200, reasoning_tokens=200)),
        (Usage(9, 402, reasoning_tokens=7000), None, None, Usage(9, 401, reasoning_tokens=7000)),
        (Usage(9, 200, reasoning_tokens=400), None, 500, Usage(9, 200, reasoning_tokens=300)),
        (Usage(9, 1, reasoning_tokens=2**31 - 1), None, None,
         Usage(9, 1, reasoning_tokens=ABSURD_OUTPUT_TOKENS - 1)),
        (Usage(5000, 1), 2000, None, Usage(2000, 1)),
        (Usage(1000, 1, 900, 300, 50), 2000, None, Usage(1000, 1, 900, 100, 0)),
        (Usage(60, 1), 50, None, Usage(60, 1)),
        (Usage(ABSURD_INPUT_TOKENS, 1), None, None, Usage(ABSURD_INPUT_TOKENS, 1)),
        (Usage(2**31 - 1, 2**31 - 1), None, None, Usage(ABSURD_INPUT_TOKENS, 401)),
    ],
)  # fmt: skip
def test_counts_beyond_reason_are_cut(usage, context, max_output, charged):
    counts = counts_of(delivered(usage), model=model(context, max_output))
    assert (counts.usage, counts.source) == (charged, "reported")
    assert counts.reported == (None if charged == usage else REPORTED)


@pytest.mark.parametrize("family", ["responses", "messages", "generate_content"])
def test_reasoning_counts_towards_the_bound_of_other_families(family):
    usage = Usage(9, 200, reasoning_tokens=7000)
    counts = charged_counts(a_call(family, delivery=delivered(usage)))
    assert counts.usage == Usage(9, 200, reasoning_tokens=201)


@pytest.mark.parametrize(
    ("reported", "most", "charged"),
    [(8193, None, 8193), (200_000, None, 200_000), (2**31 - 1, None, ABSURD_OUTPUT_TOKENS),
     (9000, 9000, 9000), (9001, 9000, 9000)],
)  # fmt: skip
def test_without_a_bound_of_the_client_reports_count_up_to_absurdity(reported, most, charged):
    counts = counts_of(delivered(Usage(9, reported)), peek=NO_BOUND, model=model(None, most),
                       output_bound_tokens=most or 8192)  # fmt: skip
    assert counts.usage == Usage(9, charged)


def test_each_answer_has_the_bound_and_the_tolerance():
    changes = {"peek": THREE_ANSWERS, "output_bound_tokens": 300}
    most = 300 + 300 // settle.OVERSHOOT_PART + 3 * settle.OVERSHOOT_TOKENS
    for reported, charged in ((most, most), (most + 1, most)):
        assert counts_of(delivered(Usage(9, reported)), **changes).usage == Usage(9, charged)
    unbounded = Peek("m", False, None, 3, True)
    counts = counts_of(delivered(Usage(9, 2**31 - 1)), peek=unbounded)
    assert counts.usage == Usage(9, 3 * ABSURD_OUTPUT_TOKENS)


@pytest.mark.parametrize(("reported", "charged"), [(900, 900), (1001, 1000)])
def test_a_report_beyond_the_bound_is_believed_as_far_as_text_was_delivered(reported, charged):
    """A vendor that does not know the field of the bound gives all it has."""
    counts = counts_of(delivered(Usage(9, reported), units=1000))
    assert (counts.usage, counts.source) == (Usage(9, charged), "reported")


def test_in_a_broken_stream_a_report_of_a_flood_is_believed_no_further_than_our_own_count():
    counts = counts_of(delivered(Usage(9, 10**6), units=10**6, whole=False))
    assert counts.usage == Usage(9, settle.UNKEPT_BOUND_TOKENS)


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
    assert (counts.usage, counts.source) == (Usage(10, 401), "reported")
    assert counts.reported == REPORTED


@pytest.mark.parametrize(("max_output", "charged"), [(None, 1000), (500, 500)])
def test_the_estimate_of_a_broken_stream_is_bounded_too(max_output, charged):
    broken = delivered(Usage(10, 1), units=2000, whole=False)
    counts = counts_of(broken, model=model(None, max_output))
    assert counts.usage == Usage(10, charged)
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


ATTEMPTS = [AttemptRecord("first", 500, "upstream_error", 12), AttemptRecord("main", 200, None, 88)]


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
        prices=PRICES.text,
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
