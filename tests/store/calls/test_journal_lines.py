"""The record of a call whose process died."""

import msgspec
import pytest

from store.calls.journal_lines import LOST_OUTCOME, MarkLine, Sent, lost_record
from store.values.pricing import MAX_BIGINT
from store.values.usage import Usage
from store.values.usage_record import Charge, UsageRecord
from tests.support.prices import rate_of
from tests.support.usage_records import open_line

PRICES = rate_of(10**9, 2 * 10**9, 0, 0, 0, 0, 5)


def opened(**fields):
    money = {"prices": PRICES.text, "multiplier_ppm": 2_000_000, "input_tokens": 1_000}
    return open_line(**({"started_ms": 1_000} | money | fields))


def test_a_lost_call_is_split_among_those_who_held_for_it_last():
    cost = 2 * (1_000 * 1_000 + 40 * 2_000 + 5)
    first = (Charge("subscription:monthly", cost - 9, "quota"),)
    raised = (*first, Charge("wallet", 50))
    mark = MarkLine("x", 3_500, 40, True, Sent(200), raised)
    lost = lost_record(opened(holds=first), mark, "web-1")
    assert lost.charges == (*first, Charge("wallet", 9))
    # A mark of an older gateway, or of a call whose hold was never raised, has no holds.
    old = msgspec.json.decode(b'["M","x",3500,40,true,[200]]', type=MarkLine)
    lost = lost_record(opened(holds=first), old, "web-1")
    assert lost.charges == (Charge("subscription:monthly", cost, "quota"),)


def test_a_lost_call_that_relayed_something_is_charged_for_it():
    line = opened(model="m", stream=True, client_ip="10.0.0.1")
    sent = Sent(200, "messages", "up", "main", "req_9")
    lost = lost_record(line, MarkLine(line.id, 3_500, 40, True, sent), "web-1")
    cost = 2 * (1_000 * 1_000 + 40 * 2_000 + 5)
    assert lost == UsageRecord(
        *(line.id, line.call),
        **{"cost_nanos": cost, "charges": (Charge("wallet", cost),), "usage_source": "estimated"},
        **{"usage": Usage(1_000, 40), "duration_ms": 2_500, "node": "web-1"},
        **{"outcome": LOST_OUTCOME, "error_code": LOST_OUTCOME, "status": 200},
        **{"upstream_family": "messages", "channel": "main", "upstream_model": "up"},
        **{"upstream_request_id": "req_9", "error_message": lost.error_message},
        **{"attempts": lost.attempts},
    )


@pytest.mark.parametrize("marked", [False, True])
def test_a_lost_call_that_relayed_nothing_costs_nothing(marked):
    line = opened()
    mark = MarkLine(line.id, 1_500, 0, False, Sent()) if marked else None
    lost = lost_record(line, mark, "web-1")
    assert (lost.cost_nanos, lost.charges) == (0, ())
    assert (lost.usage_source, lost.status, lost.usage.input_tokens) == ("none", None, 0)
    assert lost.duration_ms == (500 if marked else None)


def test_a_lost_call_of_a_free_model_or_without_prices_costs_nothing():
    relayed = MarkLine("x", 1_500, 9, True, Sent(200))
    for fields in ({"prices": rate_of(0, 0, 0, 0, 0, 0, 0).text}, {"prices": None}):
        lost = lost_record(opened(**fields), relayed, "web-1")
        assert (lost.cost_nanos, lost.charges) == (0, ())
        assert lost.usage.output_tokens == 9


def test_a_cost_that_cannot_be_computed_is_not_charged():
    relayed = MarkLine("x", 1_500, 10**9, True, Sent(200))
    for prices in ("{}", rate_of(0, MAX_BIGINT, 0, 0, 0, 0, 0).text):
        lost = lost_record(opened(prices=prices), relayed, "web-1")
        assert (lost.cost_nanos, lost.charges, lost.usage_source) == (0, (), "none")
        assert "Not charged" in lost.error_message
