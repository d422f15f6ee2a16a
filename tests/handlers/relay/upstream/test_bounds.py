"""Bounds of an answer, over real sockets: back-pressure, sizes, unpacking."""

import asyncio
import gzip
import threading
import zlib

import pytest

from handlers.relay.upstream.exchange import (
    DISCARD_MAX_BYTES,
    LOOK_PIECES,
    STREAM_BUFFER_BYTES,
    TURN_BYTES,
    Phase,
)
from handlers.relay.upstream.request import Unpacker
from tests.handlers.relay.upstream.scripts import EVENT, answering, failure, noise, streaming
from tests.support.served import stands_still, turns, until

KERNEL_BUFFERS_BYTES = 8 << 20  # what loopback sockets may hold of an unread stream
# Back-pressure


def flood(data, sent, gone=None, piece=65536):
    """Return a script that sends `data` as a stream, counts in sent[0] what the socket accepted,
    and sets `gone` if the connection ends too early."""

    async def script(peer, head, body):
        peer.writer.transport.set_write_buffer_limits(0)
        try:
            await peer.begin_stream()
            for begin in range(0, len(data), piece):
                await peer.chunk(data[begin : begin + piece])
                sent[0] += piece
            await peer.end_stream()
        except ConnectionError:
            if gone is not None:
                gone.set()

    return script


def held_bytes(exchange):
    return sum(map(len, exchange._buffer))


async def test_full_sink_pauses_the_upstream(open_stream, collect):
    data, sent, came = noise(12 << 20), [0], asyncio.Event()
    exchange, _ = await open_stream(flood(data, sent))
    sink = collect(exchange, capacity_bytes=100_000, came=came.set)
    assert await stands_still(lambda: sent[0]) < KERNEL_BUFFERS_BYTES
    drained = 0
    while not sink.ended.done():
        assert held_bytes(exchange) <= STREAM_BUFFER_BYTES
        came.clear()
        sink.drain()
        drained += 1
        if sink.waiting_bytes < 100_000 and not sink.ended.done():
            await asyncio.wait([asyncio.ensure_future(came.wait()), sink.ended],
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
    assert sink.ended.result() is None
    assert drained > 50
    # One turn of libcurl may exceed the limit.
    assert sink.largest_waiting_bytes < 100_000 + STREAM_BUFFER_BYTES
    assert sink.data == data


async def test_own_bound_before_there_is_a_sink(pass_s, open_stream, collect):
    data, sent = noise(12 << 20), [0]
    exchange, _ = await open_stream(flood(data, sent), idle_timeout_s=3)
    assert await stands_still(lambda: sent[0]) < KERNEL_BUFFERS_BYTES
    assert 0 < held_bytes(exchange) <= STREAM_BUFFER_BYTES
    await pass_s(9)  # it is paused on this side, so not idle
    sink = collect(exchange)
    assert await sink.ended is None
    assert sink.data == data


async def test_own_bound_and_full_sink_together(open_stream, collect):
    """Both pauses at once: the stream continues only when both have ended, and then it does."""
    data, sent = noise(12 << 20), [0]
    exchange, _ = await open_stream(flood(data, sent))
    await stands_still(lambda: sent[0])
    sink = collect(exchange, capacity_bytes=1)
    await turns(50)
    assert len(sink.parts) == 1
    sink.capacity_bytes = None
    exchange.resume()
    exchange.resume()
    assert await sink.ended is None
    assert sink.data == data


async def test_the_end_waits_for_a_full_sink(open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await asyncio.sleep(0.02)
        await peer.send(b"a\r\n" + EVENT + b"\r\n0\r\n\r\n")

    exchange, _ = await open_stream(script)
    sink = collect(exchange, capacity_bytes=1)
    await asyncio.sleep(0.05)
    sink.capacity_bytes = None
    assert (sink.data, sink.ended.done()) == (EVENT, False)
    exchange.resume()
    assert await sink.ended is None
    assert sink.data == EVENT * 2


async def test_cancel_while_paused(open_stream, collect):
    gone, sent = asyncio.Event(), [0]
    exchange, _ = await open_stream(flood(noise(12 << 20), sent, gone))
    sink = collect(exchange, capacity_bytes=1)
    await stands_still(lambda: sent[0])
    exchange.cancel()
    await asyncio.wait_for(gone.wait(), 5)
    exchange.resume()
    assert len(sink.parts) == 1
    assert not sink.ended.done()


async def test_cancel_from_within_the_sink(open_stream):
    async def script(peer, head, body):
        await peer.begin_stream()
        while True:
            await peer.chunk(EVENT)
            await asyncio.sleep(0.001)

    exchange, _ = await open_stream(script)
    calls = []

    def sink(data):
        calls.append(data)
        exchange.cancel()
        return False

    exchange.pipe(sink, calls.append)
    await asyncio.sleep(0.05)
    exchange.resume()
    assert len(calls) == 1


async def test_a_sink_that_raises_does_not_stop_the_others(
    client, serve, request_to, collect, io_loop
):
    errors = []
    io_loop.asyncio_loop.set_exception_handler(lambda loop, context: errors.append(context))
    go, end = asyncio.Event(), asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await go.wait()
        await peer.chunk(EVENT)
        await end.wait()
        await peer.end_stream()

    upstream = await serve(script)
    exchanges = [client.start(request_to(upstream.url, stream=True)) for _ in range(5)]
    await asyncio.gather(*[exchange.head for exchange in exchanges])
    spoilt = exchanges.pop(2)
    sinks = [collect(exchange) for exchange in exchanges]
    seen = []

    def broken(data):
        seen.append(data)
        if len(seen) > 1:
            raise ZeroDivisionError
        return True

    spoilt.pipe(broken, lambda error: None)
    go.set()
    await until(lambda: errors and [sink.data for sink in sinks] == [EVENT * 2] * 4)
    end.set()
    for sink in sinks:
        assert await asyncio.wait_for(sink.ended, 2) is None
    assert [type(context["exception"]) for context in errors] == [ZeroDivisionError]


async def test_finish_within_ends_a_flood(open_stream, collect):
    sent, gone = [0], asyncio.Event()
    exchange, _ = await open_stream(flood(bytes(64 << 20), sent, gone))
    collect(exchange, capacity_bytes=1)
    exchange.finish_within(1)
    await asyncio.wait_for(gone.wait(), 5)
    assert sent[0] < KERNEL_BUFFERS_BYTES + DISCARD_MAX_BYTES


# The work in one turn of the loop


class Turns:
    """Sums for each turn of the loop."""

    def __init__(self):
        self.sums = [0]
        self._task = asyncio.create_task(self._count())

    @classmethod
    async def begin(cls):
        turns = cls()
        for _ in range(3):
            await asyncio.sleep(0)
        return turns

    async def _count(self):
        while True:
            await asyncio.sleep(0)
            self.sums.append(0)

    def add(self, amount):
        self.sums[-1] += amount

    def end(self):
        self._task.cancel()
        return self.sums


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
@pytest.mark.parametrize("slow", [False, True])
async def test_a_stream_has_its_share_of_a_turn(open_stream, encoding, slow):
    """However much of it has arrived, and whether or not the sink is full meanwhile."""
    data = bytes(8 << 20)
    script = streaming(PACKED[encoding](data), headers=[f"Content-Encoding: {encoding}"])
    exchange, _ = await open_stream(script)
    turns, ended = await Turns.begin(), asyncio.get_running_loop().create_future()

    def sink(piece):
        turns.add(len(piece))
        if slow:
            asyncio.get_running_loop().call_soon(exchange.resume)
        return not slow

    exchange.pipe(sink, ended.set_result)
    assert await ended is None
    shares = turns.end()
    assert sum(shares) == len(data)
    assert max(shares) <= TURN_BYTES


async def test_a_sink_that_has_not_read_all_goes_on_in_the_next_turn(open_stream):
    exchange, _ = await open_stream(streaming(EVENT * 20_000))
    turns, given, ended = await Turns.begin(), [], asyncio.get_running_loop().create_future()

    def sink(piece):
        turns.add(1)
        given.append(piece)
        exchange.unread = len(given) % 5 > 0
        return len(given) % 3 > 0 or not asyncio.get_running_loop().call_soon(exchange.resume)

    exchange.pipe(sink, ended.set_result, lambda data: 1 / 0)
    assert await ended is None
    assert max(turns.end()) == 1
    assert b"".join(given) == EVENT * 20_000
    assert all(given[place] == b"" for place in range(len(given)) if place % 5)
    assert not exchange.unread


@pytest.mark.parametrize("end", ["cancel", "finish"])
async def test_nothing_is_unpacked_once_the_call_is_over(open_stream, monkeypatch, end):
    packed = gzip.compress(bytes(16 << 20))
    exchange, _ = await open_stream(streaming(packed, headers=["Content-Encoding: gzip"]))
    given = []
    exchange.pipe(lambda piece: given.append(piece) or True, lambda error: 1 / 0)
    await until(lambda: len(given) >= 3)
    exchange.cancel() if end == "cancel" else exchange.finish_within(1)
    before = len(given)
    monkeypatch.setattr(Unpacker, "piece", lambda self: 1 / 0)
    await turns(100)
    assert len(given) == before < (16 << 20) / TURN_BYTES


async def test_what_is_passed_on_is_bounded_in_a_turn(open_stream):
    """A vendor that sends many tiny chunks in one segment."""
    chunk = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await asyncio.sleep(0.02)
        await peer.send(chunk * 30_000 + b"0\r\n\r\n")

    exchange, _ = await open_stream(script)
    turns, got, ended = await Turns.begin(), [], asyncio.get_running_loop().create_future()

    def take(piece):
        turns.add(1)
        got.append(piece)
        return True

    exchange.pipe(take, ended.set_result, take)
    assert await ended is None
    assert b"".join(got) == EVENT * 30_001
    counts = turns.end()
    assert LOOK_PIECES < max(counts) <= 2 * LOOK_PIECES


# Bounds of whole answers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", [1000, 400_000])
@pytest.mark.parametrize("excess", [0, 1])
async def test_whole_answers_are_bounded(start, stream, limit, excess):
    """This includes answers that a streaming call did not want; an answer of exactly the bound is
    allowed."""
    script = answering(noise(limit + 16)[: limit + excess], "400 Bad Request")
    exchange, _ = await start(script, stream=stream, max_answer_bytes=limit)
    if excess:
        assert (await failure(exchange)).kind == "too_large"
    else:
        await exchange.head
        assert exchange.body == noise(limit + 16)[:limit]


async def test_endless_answer_ends(fail):
    gone = asyncio.Event()

    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                await peer.send(b"x" * 65536)
        finally:
            gone.set()

    assert await fail(script, max_answer_bytes=3_000_000) == "too_large"
    await asyncio.wait_for(gone.wait(), 5)


# Answers that are compressed although identity was requested


def raw_deflate(data):
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


PACKED = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", PACKED)
async def test_packed_whole_answer(ask, encoding):
    data = noise(1 << 20)
    packed = PACKED[encoding](data)
    exchange, _ = await ask(answering(packed, headers=[f"Content-Encoding: {encoding}"]))
    assert exchange.body == data


async def test_packed_answer_without_a_body(ask):
    exchange, _ = await ask(answering(b"", headers=["Content-Encoding: gzip"]))
    assert exchange.body == b""


async def test_packed_stream_comes_event_by_event(open_stream, collect):
    go = asyncio.Semaphore(0)

    async def script(peer, head, body):
        machine = zlib.compressobj(wbits=31)
        await peer.begin_stream("Content-Encoding: gzip")
        for number in range(10):
            piece = machine.compress(b"data: %d\n\n" % number)
            await peer.chunk(piece + machine.flush(zlib.Z_SYNC_FLUSH))
            await asyncio.wait_for(go.acquire(), 2)
        await peer.chunk(machine.flush())
        await peer.end_stream()

    exchange, _ = await open_stream(script)
    sink = collect(exchange, came=go.release)
    assert await sink.ended is None
    assert sink.parts == [b"data: %d\n\n" % number for number in range(10)]


MEGABYTE = 1 << 20


async def test_bomb_in_a_whole_answer(fail):
    script = answering(gzip.compress(bytes(32 * MEGABYTE)), headers=["Content-Encoding: gzip"])
    assert await fail(script, max_answer_bytes=4 * MEGABYTE) == "too_large"


class MostMemory:
    """The peak memory of this process while it runs, measured by a thread."""

    def __enter__(self):
        self.before = self.most = self._now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    @property
    def grown(self):
        return self.most - self.before

    def _look(self):
        while not self._ended.wait(0.0005):
            self.most = max(self.most, self._now())

    def _now(self):
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096


async def test_bombs_take_no_memory(client, serve, request_to):
    """Not even several at a time whose bytes alternate take memory."""
    bomb = gzip.compress(bytes(64 * MEGABYTE))

    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
        for start in range(0, len(bomb), 10_000):
            await peer.send(bomb[start : start + 10_000])
            await asyncio.sleep(0.001)
        peer.closing = True

    upstream = await serve(script)
    request = request_to(upstream.url, max_answer_bytes=48 * MEGABYTE)
    with MostMemory() as memory:
        exchanges = [client.start(request) for _ in range(3)]
        for exchange in exchanges:
            assert (await failure(exchange)).kind == "too_large"
    assert memory.grown < 16 * MEGABYTE


async def test_a_packed_answer_of_allowed_size_is_not_copied(ask):
    packed = gzip.compress(bytes(47 * MEGABYTE))
    script = answering(packed, headers=["Content-Encoding: gzip"])
    with MostMemory() as memory:
        exchange, _ = await ask(script, max_answer_bytes=48 * MEGABYTE)
    assert len(exchange.body) == 47 * MEGABYTE
    assert memory.grown < (48 + 16) * MEGABYTE


async def test_cancel_while_a_packed_answer_is_unpacked(start):
    packed = gzip.compress(bytes(32 * MEGABYTE))
    exchange, _ = await start(answering(packed, headers=["Content-Encoding: gzip"]))
    for _ in range(100_000):
        if exchange.phase in (Phase.UNPACK, Phase.OVER):
            break
        await asyncio.sleep(0)
    assert not exchange.head.done()  # it takes some turns
    exchange.cancel()
    await turns(100)
    assert exchange.head.cancelled() and exchange.body == b""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("spoil", "kind"), [
    (lambda packed: packed[:-9], "truncated"),
    (lambda packed: packed[:50] + b"\0\xff\0\xff" + packed[54:], "protocol"),
    (lambda packed: packed + b"behind", "protocol"),
    (lambda packed: b"data: not packed\n\n", "protocol"),
])  # fmt: skip
async def test_spoilt_packed_answer(start, collect, stream, spoil, kind):
    packed = spoil(gzip.compress(noise(100_000)))
    script = streaming(packed, headers=["Content-Encoding: gzip"])
    exchange, _ = await start(script, stream=stream)
    if stream:
        await exchange.head
        error = await asyncio.wait_for(collect(exchange).ended, 2)
    else:
        error = await failure(exchange)
    assert error.kind == kind
