"""The values of a call, and its end."""

from dataclasses import replace

import msgspec
import pytest

from adapters.family import Operation
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from handlers.relay.attempts import conversation_of
from handlers.relay.call import Delivery, Ending, Outcome, interrupted
from handlers.relay.running import ClientGone, DrainForced, MoneyUsedUp
from tests.handlers.relay.calls import CHANNEL, a_call


def test_every_call_has_lists_of_its_own():
    first, second = a_call(), a_call()
    first.outcome.attempts.append("attempt")
    first.outcome.delivery = Delivery(relayed=True)
    assert second.outcome == Outcome()
    first.running.interrupt(ClientGone())
    assert second.running.interrupted is None


SPANS = top_level(b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}')
TWO = (CHANNEL, CHANNEL)


def test_a_conversation_has_a_name_where_there_is_something_to_choose():
    call = a_call(spans=SPANS)
    assert conversation_of(call, TWO)
    assert conversation_of(call, (replace(CHANNEL, keys=("x", "y")),))
    unasked = a_call(spans=SPANS)
    unasked.head = msgspec.structs.replace(unasked.head, family=None)
    for channels in ((), (CHANNEL,), (replace(CHANNEL, keys=()),)):
        assert conversation_of(unasked, channels) == b""


@pytest.mark.parametrize("changes", [
    {"spans": None},
    {"spans": top_level(b'{"model":"m","messages":[]}')},
    {"spans": SPANS, "operation": Operation("/v1/count", "count", free=True)},
])  # fmt: skip
def test_counts_and_what_says_nothing_are_no_conversation(changes):
    assert conversation_of(a_call(**changes), TWO) == b""


def test_how_a_call_ends_that_was_interrupted():
    used_up = Fault(Condition.QUOTA_USED)
    assert interrupted(ClientGone()) == Ending("client_gone")
    assert interrupted(MoneyUsedUp(used_up)) == Ending("refused", used_up)
    drained = interrupted(DrainForced())
    assert drained.outcome == "drained" and drained.fault.condition is Condition.UNAVAILABLE


@pytest.mark.parametrize(("outcome", "by_upstream"), [
    ("upstream_error", True), ("upstream_truncated", True), ("timeout", True),
    ("refused", False), ("drained", False), ("internal_error", False),
])  # fmt: skip
def test_whose_fault_an_ending_has(outcome, by_upstream):
    fault = Fault(Condition.UPSTREAM_FAILED)
    assert (Ending(outcome, fault).upstream_fault is fault) is by_upstream
    assert Ending(outcome).upstream_fault is None


def test_a_call_was_tried_once_its_first_attempt_has_begun():
    call = a_call(attempt="the planned one")
    assert call.begun_attempt is None
    call.outcome.attempts.append("its record")
    assert call.begun_attempt == "the planned one"
