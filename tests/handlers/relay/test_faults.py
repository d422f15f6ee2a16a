"""The client's error for errors of the store, of its attempts, and of a plan without candidates."""

import pytest

from adapters.faults import Condition, Fault
from handlers.hub.web.formats import failure_reason
from handlers.relay import faults
from handlers.relay.routing.plan import LeftOut
from store.calls.journal_files import JournalFull
from store.money.accounts import KEY_LIMIT, SUBSCRIPTION, USER_LIMIT, Account
from store.money.funds import QuotaUsed, WalletEmpty
from store.values.errors import StoreUnavailable
from store.values.pricing import format_money


@pytest.mark.parametrize(("error", "condition"), [
    (WalletEmpty(), Condition.WALLET_EMPTY),
    (StoreUnavailable("no route to db.internal"), Condition.UNAVAILABLE),
    (JournalFull("/var/journal"), Condition.UNAVAILABLE),
])  # fmt: skip
def test_an_error_of_the_store(error, condition):
    fault = faults.from_store(error)
    assert fault.condition is condition
    assert "internal" not in fault.message and "/var" not in fault.message


DAY_MS = 1_790_000_000_000


@pytest.mark.parametrize(("error", "message"), [
    (WalletEmpty(), "The wallet balance is used up. Add balance in the API Hub."),
    (
        WalletEmpty(1_000_000, 4_312_500),
        "The wallet balance does not cover this call: 0.001 USD is left, and it needs at least"
        " 0.0043125 USD. Add balance in the API Hub.",
    ),
    *(
        (
            QuotaUsed(Account("a", kind, "k", kind), 500_000_000, 10**9),
            f"The spend limit of {whose} does not cover this call: 0.5 USD is left, and it"
            " needs at least 1 USD.",
        )
        for kind, whose in ((KEY_LIMIT, "this API key"), (USER_LIMIT, "this user"))
    ),
    (
        QuotaUsed(Account("a", SUBSCRIPTION, "u", "pro", DAY_MS), 500_000_000, 10**9),
        "The subscription quota does not cover this call until 2026-09-21: 0.5 USD is left,"
        " and it needs at least 1 USD.",
    ),
    (
        QuotaUsed(Account("a", SUBSCRIPTION, "u", "pro", DAY_MS), 0, 10**9),
        "The subscription quota is used up until 2026-09-21.",
    ),
])  # fmt: skip
def test_a_refusal_says_what_is_left_and_what_is_needed(error, message):
    fault = faults.from_store(error, "USD")
    assert fault.message == message
    said = failure_reason({f"codes.{fault.code}_left": "{left}, {needed}"}, fault.code, message)
    lacks = f"{format_money(error.left_nanos)} USD, {format_money(error.needed_nanos)} USD"
    assert said == (lacks if error.left_nanos else fault.code)


@pytest.mark.parametrize(("met", "told"), [
    (["E24", "E22", "E29"], "E22"),  # the client's own mistake has precedence
    (["E29", "E35"], "E35"),
    (["E25", "E26", "E24"], "E26"),  # E25 would say that all channels are limited
    (["E24", "E25"], "E25"),  # E24 would keep the client from trying again
    (["E30", "E27", "E26"], "E27"),
    (["E24"], "E24"),
])  # fmt: skip
def test_the_most_useful_fault_is_told(met, told):
    assert faults.most_useful([Fault(Condition(one)) for one in met]).condition == told


def test_of_several_limits_the_shortest_wait_is_told():
    met = [Fault(Condition.UPSTREAM_RATE_LIMITED, retry_after_s=wait) for wait in (30, 4, 9)]
    assert faults.most_useful(met).wait_s == 4


@pytest.mark.parametrize(("reasons", "told"), [
    (["rate_limited", "rate_limited"], "E25"),
    (["key_suspended"], "E24"),
    (["key_suspended", "rate_limited"], "E09"),
    (["failing"], "E09"),
    ([], "E09"),
])  # fmt: skip
def test_when_none_is_left_what_all_have_told_is_told(reasons, told):
    left_out = [LeftOut(None, reason, 3.2 + place) for place, reason in enumerate(reasons)]
    fault = faults.no_candidate_fault(left_out, "m")
    assert fault.condition == told and fault.model == "m"
    if told != "E24":
        assert fault.wait_s == (4 if reasons else 2)


def test_a_request_beyond_the_limits_of_all_channels_is_not_to_be_repeated():
    small, late = LeftOut(None, "beyond_its_limit"), LeftOut(None, "rate_limited", 7)
    fault = faults.no_candidate_fault([small, small], "m")
    assert fault.condition == "E09" and (fault.wait_s, fault.should_retry_header) == (None, "false")
    text = "The request is larger than any channel for model 'm' may take in a minute."
    assert fault.message == text
    fault = faults.no_candidate_fault([small, late], "m")  # the message omits the other reasons
    assert (fault.condition, fault.wait_s, fault.should_retry_header) == ("E25", 7, None)
