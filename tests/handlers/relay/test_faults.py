"""What a client is told of errors of the store, of its attempts, of a plan without candidates."""

import pytest

from adapters.faults import Condition, Fault
from handlers.relay import faults
from handlers.relay.routing.plan import LeftOut
from store.calls.journal_files import JournalFull
from store.money.funds import WalletEmpty
from store.values.errors import StoreUnavailable


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (WalletEmpty("alice"), Condition.WALLET_EMPTY),
        (StoreUnavailable("no route to db.internal"), Condition.UNAVAILABLE),
        (JournalFull("/var/journal"), Condition.UNAVAILABLE),
    ],
)
def test_an_error_of_the_store(error, condition):
    fault = faults.from_store(error)
    assert fault.condition is condition
    assert "internal" not in fault.message and "/var" not in fault.message


@pytest.mark.parametrize(
    ("met", "told"),
    [
        (["E24", "E22", "E29"], "E22"),  # the client's own mistake before all others
        (["E29", "E35"], "E35"),
        (["E25", "E26", "E24"], "E26"),  # E25 would say that all channels are limited
        (["E24", "E25"], "E25"),  # E24 would keep the client from trying again
        (["E30", "E27", "E26"], "E27"),
        (["E24"], "E24"),
    ],
)
def test_the_most_useful_fault_is_told(met, told):
    assert faults.most_useful([Fault(Condition(one)) for one in met]).condition == told


def test_of_several_limits_the_shortest_wait_is_told():
    met = [Fault(Condition.UPSTREAM_RATE_LIMITED, retry_after_s=wait) for wait in (30, 4, 9)]
    assert faults.most_useful(met).wait_s == 4


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["rate_limited", "rate_limited"], "E25"),
        (["key_put_aside"], "E24"),
        (["key_put_aside", "rate_limited"], "E09"),
        (["failing"], "E09"),
        ([], "E09"),
    ],
)
def test_when_none_is_left_what_all_have_told_is_told(reasons, told):
    left_out = [LeftOut(None, reason, 3.2 + place) for place, reason in enumerate(reasons)]
    fault = faults.of_none_left(left_out, "m")
    assert fault.condition == told and fault.model == "m"
    if told != "E24":
        assert fault.wait_s == (4 if reasons else 2)


def test_a_request_beyond_the_limits_of_all_channels_is_not_to_be_repeated():
    fault = faults.of_none_left([LeftOut(None, "beyond_its_limit")] * 2, "m")
    assert fault.condition == "E09" and (fault.wait_s, fault.should_retry_header) == (None, "false")
    assert fault.message == (
        "The request is larger than any channel for model 'm' may take in a minute."
    )


def test_a_channel_that_is_too_small_says_nothing_of_the_others():
    small, late = LeftOut(None, "beyond_its_limit"), LeftOut(None, "rate_limited", 7)
    fault = faults.of_none_left([small, late], "m")
    assert (fault.condition, fault.wait_s, fault.should_retry_header) == ("E25", 7, None)
