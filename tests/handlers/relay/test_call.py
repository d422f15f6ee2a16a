"""A running call: who waits for it can be interrupted. Also makes calls for the tests beside it."""

import asyncio

import pytest

from adapters.family import Operation, Peek
from adapters.registry import FAMILIES
from handlers.relay.call import Arrival, Call, ClientGone, Delivery, DrainForced, Interrupt
from store.catalog.catalog import EMPTY, Channel, Group, Model
from store.catalog.keys import KeyEntry
from store.values.pricing import Prices

CALL_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
STARTED_MS = 1_800_000_000_000
# Units of a million nanos a token: the cost in millions is the sum of counts times prices.
PRICES = Prices(
    *(price * 10**12 for price in (1, 2, 3, 4, 5, 6)), call=7_000_000
)  # input, output, cache_read, cache_write, cache_write_1h, reasoning

KEY = KeyEntry(
    id="key-id", name="laptop", user_id="user-id", user="alice", group="gold", disabled=False,
    revoked=False, expires_ms=None, models=None, networks=(), spend_order="plan_first",
    valid_until_ms=None,
)  # fmt: skip
CHANNEL = Channel(
    id="channel-id", name="main", vendor="demo", family="messages", base_url="http://u.test",
    keys=("k",), groups=frozenset({"gold"}), models={"m": "alias"}, priority=0, weight=1,
    enabled=True,
)  # fmt: skip


def model(context_tokens=None, max_output_tokens=None):
    return Model("m", context_tokens, max_output_tokens, False, 0, ((0, PRICES),))


def a_call(family="chat_completions", **changes):
    """A call that was admitted, with what the test says besides."""
    fields = {
        "arrival": Arrival(CALL_ID, STARTED_MS, "198.51.100.7", "agent/1", "client-id"),
        "family": FAMILIES[family],
        "operation": Operation("/v1/some/endpoint"),
        "key": KEY,
        "client_headers": {},
        "snapshot": EMPTY,
        "peek": Peek("m", False, 300, 1, include_usage=True),
        "model_name": "m",
        "group": Group("gold", 10**6, None, frozenset({family}), False),
        "model": model(),
        "prices": PRICES,
        "input_estimate_tokens": 40,
        "input_bound_tokens": 100,
        "output_bound_tokens": 300,
    }
    return Call(**{**fields, **changes})


def test_every_call_has_lists_of_its_own():
    first, second = a_call(), a_call()
    first.attempts.append("attempt")
    first.delivery.relayed = True
    assert second.attempts == [] and second.delivery == Delivery()


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
