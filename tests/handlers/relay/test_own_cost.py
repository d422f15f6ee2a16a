"""The operator's cost of a call: by the vendor's report, by the channel's prices or its factor."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from handlers.relay import settle
from handlers.relay.call import Attempt, Delivery
from handlers.relay.routing.plan import Candidate
from store.catalog.catalog import EMPTY, Group, Model
from store.values.pricing import Prices, conditional_rate, plain_rate
from store.values.usage import NOT_REPORTED, Extras, OtherUsage, Served, Usage
from tests.handlers.relay.calls import CHANNEL, NATIVE, a_call

NANO = 10**9
PLAIN = plain_rate({"input": 2 * NANO, "output": 10 * NANO, "call": 5, "web_search": 10**7})
FLEX = conditional_rate(PLAIN, (("tier", "flex"),), 500_000)
PRICES = Prices(PLAIN, (FLEX,))
OWN = plain_rate({"input": NANO, "output": 5 * NANO, "call": 0})
SMALL = Usage(1000, 500)
SEARCHED = Usage(1000, 500, more=(("web_search", 2), ("input_audio", 100)))
ADVISED = Usage(1000, 500, extras=Extras(0, (OtherUsage("u-other", Usage(100, 10), "advisor"),)))
OTHER = Model(
    "other", None, None, False, 0, ((0, Prices(plain_rate({"input": NANO, "output": NANO}))),)
)


def reported(nanos, usage=SMALL):
    return with_fields(usage, extras=Extras(vendor_nanos=nanos))


@pytest.mark.parametrize(
    ("fields", "usage", "served", "nanos"),
    [
        ({}, SMALL, NOT_REPORTED, None),
        ({"cost_factor_ppm": 800_000}, SMALL, NOT_REPORTED, 5_600_004),
        ({"cost_factor_ppm": 0}, SMALL, NOT_REPORTED, 0),
        # at the call's rate, rounded up to a whole nano
        ({"cost_factor_ppm": 800_000}, SMALL, Served("flex"), 2_800_004),
        ({"cost_factor_ppm": 100_000}, SMALL, NOT_REPORTED, 700_001),
        ({"cost": {"m": OWN}}, SMALL, NOT_REPORTED, 3_500_000),
        ({"cost": {"m": OWN}}, SMALL, Served("flex"), 3_500_000),
        ({"cost": {"m": OWN}, "cost_factor_ppm": 1}, SMALL, NOT_REPORTED, 3_500_000),
        ({"cost": {"x": OWN}}, SMALL, NOT_REPORTED, None),
        # uses without a price there cost what the model's plain price says
        ({"cost": {"m": OWN}}, SEARCHED, NOT_REPORTED, 3_500_000 + 2 * 10**7 + 100_000),
        # other models at their own cost, otherwise by the factor
        ({"cost_factor_ppm": 800_000}, ADVISED, NOT_REPORTED, 5_688_004),
        ({"cost": {"m": OWN, "other": OWN}}, ADVISED, NOT_REPORTED, 3_650_000),
        ({"cost": {"m": OWN}, "cost_factor_ppm": 500_000}, ADVISED, NOT_REPORTED, 3_555_000),
        ({"cost": {"m": OWN}}, ADVISED, NOT_REPORTED, None),
        # the vendor's report comes first
        ({}, reported(3_140_000), NOT_REPORTED, 3_140_000),
        ({"cost_factor_ppm": 800_000, "cost": {"m": OWN}}, reported(0), NOT_REPORTED, 0),
        ({}, reported(2**63), NOT_REPORTED, None),
    ],
)  # fmt: skip
def test_what_a_call_costs_the_operator(fields, usage, served, nanos):
    bill = bill_of(fields, usage, served)
    assert bill.upstream_nanos == nanos
    assert bill.cost_nanos == bill_of({}, usage, served).cost_nanos


def bill_of(fields, usage, served=NOT_REPORTED, *, in_usd=True):
    channel = replace(CHANNEL, models={"m": "alias", "other": "u-other"}, **fields)
    call = a_call(
        "messages",
        prices=PRICES,
        group=Group("gold", 2_000_000, None, frozenset(), False),
        snapshot=replace(EMPTY, models={"other": OTHER}),
        output_bound_tokens=600,
        attempt=Attempt(Candidate(channel, 0), NATIVE),
    )
    delivery = Delivery(True, True, usage, served=served)
    return settle.bill_of(call, delivery, settle.charged_counts(call, delivery), in_usd=in_usd)


def test_a_vendors_cost_in_another_currency_is_not_taken():
    assert bill_of({}, reported(1), in_usd=False).upstream_nanos is None
    assert (
        bill_of({"cost_factor_ppm": 10**6}, reported(1), in_usd=False).upstream_nanos == 7_000_005
    )


def test_a_cost_that_no_column_holds_is_unknown_and_the_charge_stays():
    dear = plain_rate({"input": 2**63 - 1, "output": 2**63 - 1})
    assert bill_of({"cost": {"m": dear}}, Usage(1, 0)).upstream_nanos == -(-(2**63 - 1) // 10**6)
    bill = bill_of({"cost": {"m": dear}}, Usage(9_000_000, 300))
    assert bill.upstream_nanos is None and bill.cost_nanos == 2 * (18 * 10**9 + 3 * 10**6 + 5)
