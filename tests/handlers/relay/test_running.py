"""A running call: interrupts, its stopwatch, long work in slices that never block the loop."""

import asyncio
import time

import pytest

from adapters.family.estimate import input_bound_steps, weight_steps
from adapters.faults import Fault
from adapters.json.jsonio import Spans, top_level_steps
from handlers.relay import running
from tests.adapters.json.odd_bodies import ODD_BODIES, odd_bodies
from tests.support.served import acting, serving, turns

SIZE = 32 << 20  # the default of server.max_body_bytes
# In CPU time of the loop's thread; 28 ms were measured.
LONGEST_S = 0.1  # twice the slowest body's longest step: cores differ, and are shared
TRIES = 3  # other load on the machine makes CPU time longer, never shorter


class Ticker:
    """A measurement of the longest time that the loop works without giving others a turn."""

    def __init__(self):
        self.longest_s = 0.0
        self._last_s = None
        self._task = None

    async def __aenter__(self):
        self._task = asyncio.create_task(self._tick())
        await turns(3)
        return self

    async def __aexit__(self, *_):
        await turns(3)
        self._task.cancel()

    async def _tick(self):
        self._last_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            self.longest_s = max(self.longest_s, now_s - self._last_s)
            self._last_s = now_s


def steps_of(body):
    """Do what is done with every large body."""
    spans = yield from top_level_steps(body)
    assert isinstance(spans, Spans)
    yield from input_bound_steps(body)
    yield from weight_steps(body, 0, len(body))
    return spans


@pytest.mark.parametrize("name", ODD_BODIES)
async def test_no_body_keeps_the_loop(name):
    body = ODD_BODIES[name](SIZE)
    longest_s = []
    for _ in range(TRIES):
        async with Ticker() as ticker:
            try:
                spans = await running.run_in_slices(steps_of(body), running.Running())
                for field in ("model", "stream", "stream_options"):
                    await asyncio.sleep(0)
                    spans.value(field)
            except Fault:
                pass
        longest_s.append(ticker.longest_s)
        if ticker.longest_s < LONGEST_S:
            break
    assert min(longest_s) < LONGEST_S


def step_by_step(count, fault=None):
    for number in range(count):
        yield number % 2 == 0
    if fault is not None:
        raise fault
    return "done"


async def test_the_result_and_the_fault_of_the_steps():
    assert await running.run_in_slices(step_by_step(5), running.Running()) == "done"
    assert await running.run_in_slices(step_by_step(0), running.Running()) == "done"
    with pytest.raises(KeyError):
        await running.run_in_slices(step_by_step(3, KeyError("x")), running.Running())


async def test_a_call_that_is_interrupted_ends_at_its_next_turn():
    call = running.Running()

    def steps():
        for _ in range(10):
            yield True
            call.interrupt(running.ClientGone())
        raise AssertionError

    with pytest.raises(running.ClientGone):
        await running.run_in_slices(steps(), call)


@pytest.mark.parametrize("chunk", [b"1\r\nx\r\n", b"2;a\r\nab\r\n"])
async def test_a_body_of_tiny_chunks_does_not_keep_the_loop(chunk):
    handler = acting(lambda handler, body: handler.respond(b"%d" % len(body)))
    async with serving({"/acted": handler}) as served:
        head = b"POST /acted HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        count = 1000 if b";" in chunk else 300_000
        peer = await served.peer(head)
        async with Ticker() as ticker:
            await peer.send(chunk * count + b"0\r\n\r\n")
            answer = await peer.answer()
        assert answer.body == b"%d" % (count * int(chunk[:1]))
        assert ticker.longest_s < LONGEST_S


def test_what_is_not_large_is_read_at_one_go_soon():
    for name, body in odd_bodies(running.LARGE_BYTES):
        assert min(read_s(body) for _ in range(TRIES)) < LONGEST_S, name


def read_s(body):
    """Return the CPU time of all steps of a body."""
    began_s = time.thread_time()
    try:
        for _ in steps_of(body):
            pass
    except Fault:
        pass
    return time.thread_time() - began_s


@pytest.fixture
def waiting(io_loop):
    """Return waiting: `await waiting()` returns (call, the future it waits for, the task that
    waits)."""

    async def begin():
        call, future = running.Running(), io_loop.asyncio_loop.create_future()
        task = asyncio.ensure_future(call.wait(future))
        await asyncio.sleep(0)
        return call, future, task

    return begin


async def test_waiting_for_what_comes_and_what_fails(waiting):
    call, future, task = await waiting()
    future.set_result("came")
    await task
    assert call.interrupted is None
    call, future, task = await waiting()
    future.set_exception(OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        await task
    # A later interrupt must not hit the old future.
    call.interrupt(running.ClientGone())


@pytest.mark.parametrize("reason", [running.ClientGone, running.DrainForced])
async def test_who_waits_is_interrupted_and_the_first_interrupt_counts(waiting, reason):
    call, _, task = await waiting()
    call.interrupt(reason())
    call.interrupt(running.DrainForced())
    with pytest.raises(reason):
        await task
    assert isinstance(call.interrupted, running.Interrupt) and isinstance(call.interrupted, reason)
    later = asyncio.get_running_loop().create_future()
    with pytest.raises(reason):
        await call.wait(later)
    assert not later.done()


async def test_an_interrupt_that_comes_with_the_result_leaves_the_result(waiting):
    call, future, task = await waiting()
    future.set_result("came")
    call.interrupt(running.ClientGone())
    await task
    with pytest.raises(running.ClientGone):
        await call.wait(asyncio.get_running_loop().create_future())


def test_a_stopwatch_adds_what_lies_between_start_and_stop(monkeypatch):
    now = [1000]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])
    watch = running.Running()
    watch.stop()
    for start_at, stop_at in ((1000, 1010), (1100, 1105)):
        now[0] = start_at
        watch.start()
        watch.start(start_at - 50)  # it is running already
        now[0] = stop_at
        watch.stop()
        now[0] += 7
        watch.stop()
    assert watch.own_ns == 15
    watch.start(now[0] - 20)  # since the upstream's head arrived
    watch.stop()
    assert watch.own_ns == 35
