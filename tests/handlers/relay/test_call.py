"""A running call: who waits for it can be interrupted. Also makes calls for the tests beside it."""

import asyncio
from dataclasses import replace

import pytest

from adapters.family import Operation
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from handlers.relay.call import (
    ClientGone,
    Delivery,
    DrainForced,
    Ending,
    Interrupt,
    MoneyUsedUp,
    interrupted,
)
from tests.handlers.relay.calls import CHANNEL, a_call


def test_every_call_has_lists_of_its_own():
    first, second = a_call(), a_call()
    first.attempts.append("attempt")
    first.delivery.relayed = True
    assert second.attempts == [] and second.delivery == Delivery()


SPANS = top_level(b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}')
TWO = (CHANNEL, CHANNEL)


def test_a_conversation_has_a_name_where_there_is_something_to_choose():
    assert a_call(candidates=TWO, spans=SPANS).conversation()
    two_keys = replace(CHANNEL, keys=("x", "y"))
    assert a_call(candidates=(two_keys,), spans=SPANS).conversation()
    for channels in ((), (CHANNEL,), (replace(CHANNEL, keys=()),)):
        call = a_call(candidates=channels, spans=SPANS)
        call.family = None  # is not asked
        assert call.conversation() == b""


def test_counts_and_what_says_nothing_are_no_conversation():
    assert a_call(candidates=TWO).conversation() == b""
    silent = top_level(b'{"model":"m","messages":[]}')
    assert a_call(candidates=TWO, spans=silent).conversation() == b""
    counting = Operation("/v1/count", "count", free=True)
    assert a_call(candidates=TWO, spans=SPANS, operation=counting).conversation() == b""


async def await_it(call, future):
    await call.wait(future)


async def test_waiting_for_what_comes():
    call, future = a_call(), asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "came")
    await call.wait(future)
    assert future.result() == "came" and call.interrupted is None


async def test_waiting_for_what_fails():
    call, future = a_call(), asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        await call.wait(future)
    # Whoever is interrupted later must not meet the old future.
    call.interrupt(ClientGone())


@pytest.mark.parametrize("reason", [ClientGone, DrainForced])
async def test_who_waits_is_interrupted(reason):
    call, future = a_call(), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(await_it(call, future))
    await asyncio.sleep(0)
    call.interrupt(reason())
    with pytest.raises(reason):
        await waiting
    assert isinstance(call.interrupted, Interrupt)


async def test_who_waits_next_is_interrupted():
    call, future = a_call(), asyncio.get_running_loop().create_future()
    call.interrupt(ClientGone())
    with pytest.raises(ClientGone):
        await call.wait(future)
    assert not future.done()


async def test_the_first_interrupt_counts():
    call, future = a_call(), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(await_it(call, future))
    await asyncio.sleep(0)
    call.interrupt(ClientGone())
    call.interrupt(DrainForced())
    with pytest.raises(ClientGone):
        await waiting
    with pytest.raises(ClientGone):
        await call.wait(future)


async def test_an_interrupt_that_comes_with_the_result_leaves_the_result():
    call, future = a_call(), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(await_it(call, future))
    await asyncio.sleep(0)
    future.set_result("came")
    call.interrupt(ClientGone())
    await waiting
    assert future.result() == "came"
    with pytest.raises(ClientGone):
        await call.wait(asyncio.get_running_loop().create_future())


def test_how_a_call_ends_that_was_interrupted():
    used_up = Fault(Condition.QUOTA_USED)
    assert interrupted(ClientGone()) == Ending("client_gone")
    assert interrupted(MoneyUsedUp(used_up)) == Ending("refused", used_up)
    drained = interrupted(DrainForced())
    assert drained.outcome == "drained" and drained.fault.condition is Condition.UNAVAILABLE


@pytest.mark.parametrize(
    ("outcome", "by_upstream"),
    [
        ("upstream_error", True), ("upstream_truncated", True), ("timeout", True),
        ("refused", False), ("drained", False), ("internal_error", False),
    ],
)  # fmt: skip
def test_whose_fault_an_ending_has(outcome, by_upstream):
    fault = Fault(Condition.UPSTREAM_FAILED)
    assert (Ending(outcome, fault).upstream_fault is fault) is by_upstream
    assert Ending(outcome).upstream_fault is None


def test_a_call_was_tried_once_its_first_attempt_has_begun():
    call = a_call(attempt="the planned one")
    assert call.tried is None
    call.attempts.append("its record")
    assert call.tried == "the planned one"
