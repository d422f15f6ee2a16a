"""The cost of a call."""

import dataclasses

import pytest
from msgspec.structs import replace

from adapters.family import Operation, Peek
from handlers.relay import settle
from handlers.relay.call import Attempt, Delivery
from handlers.relay.routing.plan import Candidate
from handlers.relay.settle import ABSURD_INPUT_TOKENS, ABSURD_OUTPUT_TOKENS, charged_counts
from store.catalog.catalog import Group
from store.values.pricing import PPM_PER_ONE, Prices, conditional_rate
from store.values.usage import NOT_REPORTED, Extras, OtherUsage, Served, Usage
from store.values.usage_record import NO_RECEIPT, Receipt
from tests.handlers.relay.calls import CHANNEL, NATIVE, PRICES, a_call, model

MILLION = 10**6
REPORTED = {"prompt_tokens": 10, "whatever": "the vendor says"}


def delivered(usage=None, units=0, whole=True, reported=REPORTED, **more):
    reported = reported if usage is not None else None
    return Delivery(True, whole, usage, reported, units, more.get("upstream_id"))


def counts_of(delivery, **changes):
    return charged_counts(a_call(**changes), delivery)


FREE = {"operation": Operation("/v1/some/count", free=True)}


@pytest.mark.parametrize(("delivery", "changes", "usage", "source"), [
    # what was not delivered is not charged
    (Delivery(), {}, Usage(), "none"),
    (Delivery(usage=Usage(10, 20), output_units=5), {}, Usage(), "none"),
    (delivered(Usage(10, 20)), FREE, Usage(), "none"),
    (Delivery(handed_over=True), FREE, Usage(), "none"),
    # if the vendor had the request when the client disconnected, the input is estimated
    (Delivery(handed_over=True), {}, Usage(40), "estimated"),
    # a whole answer is charged as reported; a zero counts as a number
    (delivered(Usage(10, 20, 30, 2, 1, 5), units=999), {}, Usage(10, 20, 30, 2, 1, 5), "reported"),
    (delivered(Usage(0, 0), units=50), {}, Usage(0, 0), "reported"),
    # a broken stream is charged at least what was reported
    *((delivered(Usage(10, 20), units, whole=False), {}, Usage(10, 20), "reported")
      for units in (0, 19, 20)),
])  # fmt: skip
def test_what_is_charged_of_a_delivery(delivery, changes, usage, source):
    counts = counts_of(delivery, **changes)
    assert (counts.usage, counts.source, counts.reported) == (usage, source, None)


@pytest.mark.parametrize(("delivery", "usage", "source"), [
    # a broken stream: what was delivered since the last report; reasoning counts as delivered
    (delivered(Usage(10, 1, 5), 50, whole=False), Usage(10, 50, 5), "estimated"),
    (delivered(Usage(10, 1, reasoning_tokens=29), 50, whole=False),
     Usage(10, 21, reasoning_tokens=29), "estimated"),
    (delivered(Usage(10, 5000), 20, whole=False), Usage(10, 401), "reported"),
    # a flood's report counts no further than the gateway's own count
    (delivered(Usage(9, 10**6), 10**6, whole=False),
     Usage(9, settle.IGNORED_BOUND_TOKENS), "reported"),
    # beyond the bound, as far as text was delivered: a vendor may not know the bound's field
    (delivered(Usage(9, 1001), 1000), Usage(9, 1000), "reported"),
])  # fmt: skip
def test_what_is_charged_otherwise_than_reported(delivery, usage, source):
    counts = counts_of(delivery)
    assert (counts.usage, counts.source, counts.reported) == (usage, source, REPORTED)


def test_a_report_beyond_the_bound_within_the_delivered_text_is_believed():
    assert counts_of(delivered(Usage(9, 900), units=1000)).usage == Usage(9, 900)


NO_BOUND, THREE_ANSWERS = Peek("m", False, None, 1, True), Peek("m", False, 100, 3, True)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("units", "bound", "charged"),
    # Beyond the client's bound the gateway's count may be twice the vendor's.
    [(0, 300, 0), (50, 300, 50), (300, 300, 300), (599, 300, 300), (5000, 300, 2500),
     (10**9, 300, settle.IGNORED_BOUND_TOKENS), (10**9, 10_000, 10_000)],
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
    assert settle.text_tokens(call.admitted, units) == charged


def test_what_is_stored_has_no_text_to_charge():
    assert settle.text_tokens(a_call(model=None, output_bound_tokens=0).admitted, 99) == 0


@pytest.mark.parametrize(("usage", "context", "max_output", "charged"), [
    (Usage(100, 300), None, None, Usage(100, 300)),
    (Usage(100, 301), None, None, Usage(100, 301)),
    # an eighth and 64 tokens are allowed beyond the bound
    (Usage(100, 401), None, None, Usage(100, 401)),
    (Usage(100, 402), None, None, Usage(100, 401)),
    (Usage(100, 8000), None, 500, Usage(100, 8000)),
    (Usage(100, 8001), None, 500, Usage(100, 8000)),
    # chat vendors may not count reasoning in the bound
    (Usage(100, 200, reasoning_tokens=200), None, None, Usage(100, 200, reasoning_tokens=200)),
    (Usage(9, 402, reasoning_tokens=7000), None, None, Usage(9, 401, reasoning_tokens=7000)),
    (Usage(9, 200, reasoning_tokens=9000), None, 500, Usage(9, 200, reasoning_tokens=7800)),
    (Usage(9, 1, reasoning_tokens=2**31 - 1), None, None,
     Usage(9, 1, reasoning_tokens=ABSURD_OUTPUT_TOKENS - 1)),
    (Usage(5000, 1), 2000, None, Usage(2125, 1)),
    (Usage(1000, 1, 900, 300, 50), 2000, None, Usage(1000, 1, 900, 225, 0)),
    (Usage(60, 1), 50, None, Usage(60, 1)),
    (Usage(ABSURD_INPUT_TOKENS, 1), None, None, Usage(ABSURD_INPUT_TOKENS, 1)),
    (Usage(2**31 - 1, 2**31 - 1), None, None, Usage(ABSURD_INPUT_TOKENS, 401)),
])  # fmt: skip
def test_counts_beyond_reason_are_cut(usage, context, max_output, charged):
    counts = counts_of(delivered(usage), model=model(context, max_output))
    assert (counts.usage, counts.source) == (charged, "reported")
    assert counts.reported == (None if charged == usage else REPORTED)


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        (Usage(10_400, 1), Usage(10_400, 1)),
        (Usage(10_401, 1), Usage(10_400, 1)),
        (Usage(10**6, 1, 5), Usage(10_400, 1, 5)),
        (Usage(20_000, 1, 9_970_000), Usage(10_400, 1, 9_970_000)),
        (Usage(3318, 12, 50_688), Usage(3318, 12, 50_688)),
        (Usage(9900, 1, 900, 400, 300, 0, (("input_audio", 90), ("web_search", 3))),
         Usage(9900, 1, 900, 400, 100, 0, (("web_search", 3),))),
    ],
)  # fmt: skip
def test_a_claim_beyond_the_text_of_a_request_is_cut(usage, charged):
    # The body is checked when a stream's answer starts, for other calls when they have ended.
    for changes in ({"text_alone": True}, {"body": b'{"model":"m"}'}):
        counts = counts_of(delivered(usage), **changes)
        assert (counts.usage, counts.reported) == (charged, None if usage == charged else REPORTED)
    assert counts_of(delivered(usage), text_alone=False, body=b"{}").usage == usage


def test_tokens_of_other_modalities_are_cut_with_the_rest():
    more = (("input_audio", 300), ("output_audio", 250), ("output_image", 90))
    counts = counts_of(delivered(Usage(900, 100, 0, 0, 0, 70, more)), model=model(960, 25))
    cut = (("input_audio", 120), ("output_audio", 250), ("output_image", 50))
    assert counts.usage == Usage(900, 100, 0, 0, 0, 0, cut) and counts.reported == REPORTED


def test_uses_and_other_models_beyond_reason_are_cut():
    advice = OtherUsage("wise", Usage(2**31 - 1, 2**31 - 1), "advisor")
    more = (("web_search", 2**31 - 1), ("audio_second", 90_000))
    usage = Usage(9, 9, more=more, extras=Extras(0, (advice,), 5))
    counts = counts_of(delivered(usage))
    assert counts.usage.more == (("web_search", 1000), ("audio_second", 90_000))
    most = Usage(ABSURD_INPUT_TOKENS, ABSURD_OUTPUT_TOKENS)
    assert counts.usage.extras == Extras(0, (replace(advice, usage=most),), 5)
    assert counts.reported == REPORTED
    extras = counts_of(delivered(usage), text_alone=True).usage.extras
    assert extras.other_models[0].usage == Usage(10_400, ABSURD_OUTPUT_TOKENS)


@pytest.mark.parametrize(("options", "searches"), [({}, 3), ({"grounding": "call"}, 1)])
def test_searches_of_a_grounded_call_that_is_billed_as_one(options, searches):
    channel = dataclasses.replace(CHANNEL, options=options)
    call = a_call(attempt=Attempt(Candidate(channel, 0), NATIVE))
    for more in ((("web_search", 3), ("maps", 1)), (("maps", 1),)):
        counts = charged_counts(call, delivered(Usage(9, 9, more=more)))
        expected = {**dict(more), **({"web_search": searches} if len(more) > 1 else {})}
        assert dict(counts.usage.more) == expected and counts.reported is None


@pytest.mark.parametrize("family", ["responses", "messages", "generate_content"])
def test_reasoning_counts_towards_the_bound_of_other_families(family):
    usage = Usage(9, 200, reasoning_tokens=7000)
    counts = charged_counts(a_call(family), delivered(usage))
    assert counts.usage == Usage(9, 200, reasoning_tokens=201)


@pytest.mark.parametrize(
    ("reported", "most", "charged"),
    [(8193, None, 8193), (200_000, None, 200_000), (2**31 - 1, None, ABSURD_OUTPUT_TOKENS),
     (16 * 9000, 9000, 16 * 9000), (16 * 9000 + 1, 9000, 16 * 9000)],
)  # fmt: skip
def test_without_a_bound_of_the_client_reports_count_up_to_absurdity(reported, most, charged):
    counts = counts_of(delivered(Usage(9, reported)), peek=NO_BOUND, model=model(None, most),
                       output_bound_tokens=most or 8192)  # fmt: skip
    assert counts.usage == Usage(9, charged)


def test_each_answer_has_the_bound_and_the_tolerance():
    changes = {"peek": THREE_ANSWERS, "output_bound_tokens": 300}
    most = 300 + 300 // settle.OVERSHOOT_DIVISOR + 3 * settle.OVERSHOOT_TOKENS
    for reported, charged in ((most, most), (most + 1, most)):
        assert counts_of(delivered(Usage(9, reported)), **changes).usage == Usage(9, charged)
    unbounded = Peek("m", False, None, 3, True)
    counts = counts_of(delivered(Usage(9, 2**31 - 1)), peek=unbounded)
    assert counts.usage == Usage(9, 3 * ABSURD_OUTPUT_TOKENS)


@pytest.mark.parametrize(("max_output", "charged"), [(None, 1000), (500, 500)])
def test_the_estimate_of_a_broken_stream_is_bounded_too(max_output, charged):
    broken = delivered(Usage(10, 1), units=2000, whole=False)
    counts = counts_of(broken, model=model(None, max_output))
    assert counts.usage == Usage(10, charged)
    assert counts.source == "estimated"


def bill_for(delivery, **changes):
    """Return the bill of a call that ended with this delivery."""
    call = a_call(**changes)
    return settle.bill_of(call, delivery, charged_counts(call, delivery))


def test_every_kind_of_token_has_its_price():
    for at in range(6):
        usage = Usage(*(10 if at == kind else 0 for kind in range(6)))
        assert bill_for(delivered(usage)).cost_nanos == (10 * (at + 1) + 7) * MILLION


def test_the_group_multiplies_and_what_is_stored_or_nothing_costs_nothing():
    gold = Group("gold", 1_500_000, None, frozenset(), False)
    assert bill_for(delivered(Usage(2, 0)), group=gold).cost_nanos == 13_500_000
    assert bill_for(delivered(Usage(10, 10)), model=None).cost_nanos == 0
    # despite a price for each call
    assert bill_for(Delivery()).cost_nanos == 0


def test_a_call_that_was_not_admitted_has_no_counts():
    call = a_call()
    call.admitted = None
    assert charged_counts(call, delivered(Usage(10, 10))) is settle.NOTHING


def test_a_cost_beyond_any_balance_is_cut_to_the_bounds_of_the_hold():
    call = a_call(group=Group("gold", 10**15, None, frozenset(), False))
    delivery = Delivery(relayed=True, whole=True, reported=REPORTED)
    counts = settle.Counts(Usage(10**9, 10**9), "reported")
    bill = settle.bill_of(call, delivery, counts)
    assert bill.counts == settle.Counts(Usage(100, 300), "reported", REPORTED)
    cut = settle.bill_of(call, delivery, settle.Counts(Usage(100, 300), "reported"))
    assert bill.cost_nanos == cut.cost_nanos < 2**63


RATED = Prices(
    PRICES.plain,
    (
        conditional_rate(PRICES.plain, (("tier", "flex"),), PPM_PER_ONE // 2),
        conditional_rate(PRICES.plain, (("input_over", 39),), PPM_PER_ONE * 2),
    ),
)


@pytest.mark.parametrize(
    ("served", "changes", "receipt"),
    [
        (NOT_REPORTED, {"prices": PRICES}, NO_RECEIPT),
        (Served("flex"), {"prices": PRICES}, Receipt(None, Served("flex"))),
        (Served("turbo"), {"prices": PRICES}, Receipt(None, Served("turbo"), (("tier.turbo", 1),))),
        (NOT_REPORTED, {"prices": RATED}, Receipt(RATED.rates[1].text)),
        (NOT_REPORTED, {"prices": RATED, "input_estimate_tokens": 39}, NO_RECEIPT),
        (
            Served("flex"),
            {"prices": RATED, "input_estimate_tokens": 39},
            Receipt(RATED.rates[0].text, Served("flex")),
        ),
        (Served("flex"), {"prices": RATED, **FREE}, NO_RECEIPT),
        (Served("flex"), {"model": None}, NO_RECEIPT),
    ],
)
def test_the_receipt_of_a_stream_that_goes_no_further(served, changes, receipt):
    assert settle.receipt_so_far(a_call(**changes), served, 5) == receipt
