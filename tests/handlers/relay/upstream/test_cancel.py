"""The upstream client over real sockets: cancel in every phase, close, independence of other
exchanges."""

import asyncio
import gc
import gzip
import time

import pytest

from handlers.relay.upstream import idle_connections as module
from handlers.relay.upstream.client import Exchange, UpstreamClient, UpstreamError
from tests.handlers.relay.upstream.scripts import EVENT, echo, sending, streaming
from tests.support.served import stands_still, turns, until

CLOSED_WITHIN_S = 0.5


async def hang(peer, head, body):
    await peer.wait_closed_by_client()


async def part_of_a_stream(peer, head, body):
    await peer.begin_stream()
    await peer.chunk(EVENT)
    await peer.wait_closed_by_client()


_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
_PART_OF_A_BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n12345"


@pytest.mark.parametrize("sent", [b"", _STREAM_HEAD, _STREAM_HEAD + EVENT, _PART_OF_A_BODY])
@pytest.mark.parametrize("size", [10, 5_000_000])
async def test_cancel_closes_the_connection(start, sent, size):
    """Whatever has arrived, and even while the request is still being sent."""
    reached, gone = asyncio.Event(), asyncio.Event()

    async def script(peer, head, body):
        reached.set()
        await sending(sent, "hang")(peer, head, body)
        gone.set()

    exchange, _ = await start(script, read_body=False, body=b"x" * size, stream=True)
    await reached.wait()
    await until(lambda: len(exchange.raw_head) + exchange._size == len(sent))
    exchange.cancel()
    await asyncio.wait_for(gone.wait(), CLOSED_WITHIN_S)
    exchange.cancel()
    assert exchange.head.done()


@pytest.mark.parametrize("size", [10, 300_000])
async def test_a_request_is_handed_over_when_its_last_byte_was_written(start, size):
    exchange, upstream = await start(hang, body=b"x" * size)
    assert not exchange.handed_over  # not even connected
    await until(lambda: upstream.requests)
    assert exchange.handed_over
    exchange.cancel()
    assert not exchange.handed_over


@pytest.mark.parametrize(("status", "in_its_hands"), [("200 OK", True), ("500 Oops", False)])
@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_that_is_here_whole_is_still_the_vendors_work(
    start, status, in_its_hands, packed
):
    """Its client may disconnect while it is unpacked, or read in turns."""
    body = gzip.compress(bytes(20_000_000)) if packed else b"{}"
    coding = "Content-Encoding: gzip\r\n" if packed else ""
    head = f"HTTP/1.1 {status}\r\n{coding}Content-Length: {len(body)}\r\n\r\n"
    exchange, _ = await start(lambda peer, *_: peer.send(head.encode() + body))
    deadline = time.monotonic() + 5
    while exchange.handle is not None:  # checked in each turn, because unpacking takes several
        assert time.monotonic() < deadline
        await asyncio.sleep(0)
    assert exchange.head.done() is not packed
    assert exchange.handed_over is in_its_hands
    exchange.cancel()


async def test_what_waits_for_a_vendor_that_does_not_read_is_not_handed_over(client, start):
    script = lambda *_: asyncio.sleep(60)  # noqa: E731
    exchange, _ = await start(script, read_body=False, body=b"x" * 50_000_000)
    await until(lambda: client.sent_bytes(exchange) > 0)
    await stands_still(lambda: client.sent_bytes(exchange))
    assert not exchange.handed_over
    exchange.cancel()


@pytest.mark.parametrize("status", ["500 Oops", "429 Slow Down", "307 Elsewhere"])
async def test_a_request_that_the_vendor_refuses_is_not_in_its_hands(start, status):
    """From its head on, although the body of the refusal is still to come."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: 100\r\n\r\n"
    exchange, _ = await start(sending(head.encode(), "hang"))
    await until(lambda: exchange.raw_head.endswith(b"\r\n\r\n"))
    assert not exchange.handed_over
    exchange.cancel()


async def test_cancel_while_connecting_and_resolving(client, ask, request_to, full_backlog):
    for url in (full_backlog, "http://nowhere.invalid/"):
        for pause_s in (0, 0.02):
            exchange = client.start(request_to(url))
            await asyncio.sleep(pause_s)
            begun = time.monotonic()
            exchange.cancel()
            assert time.monotonic() - begun < 1  # otherwise five
    await ask(echo)


async def test_cancel_after_the_end_keeps_the_connection(client, serve, request_to):
    upstream = await serve(echo)
    for _ in range(3):
        exchange = client.start(request_to(upstream.url))
        await exchange.head
        exchange.cancel()
    assert upstream.connections == 1


async def test_handles_of_cancelled_exchanges_are_good(client, serve, request_to):
    async def script(peer, head, body):
        if body == b"hang":
            await peer.wait_closed_by_client()
        else:
            await peer.answer(body)

    upstream = await serve(script, backlog=256)
    exchanges = [client.start(request_to(upstream.url, body=b"hang")) for _ in range(120)]
    await until(lambda: len(upstream.requests) == 120)
    for exchange in exchanges:
        exchange.cancel()
    exchanges = [client.start(request_to(upstream.url, body=b"%d" % n)) for n in range(120)]
    await asyncio.gather(*[exchange.head for exchange in exchanges])
    assert [exchange.body for exchange in exchanges] == [b"%d" % n for n in range(120)]


async def test_handles_are_kept_for_reuse_up_to_a_bound(
    monkeypatch, pass_s, client, serve, request_to
):
    monkeypatch.setattr(module, "HANDLES_MAX", 5)
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 12)
    upstream = await serve(echo)
    for _ in range(3):
        exchanges = [client.start(request_to(upstream.url)) for _ in range(20)]
        await asyncio.gather(*[exchange.head for exchange in exchanges])
        await until(lambda: client.idle_connections.connections == 20)
        await pass_s(1)
        assert (client.idle_connections.connections, client.idle_connections.spare) == (12, 5)
    assert upstream.connections == 20 + 2 * 8


async def test_cancelling_each_other_at_the_end(client, serve, request_to):
    """Two streams end in one turn of libcurl; the first end cancels the second and continues."""
    go = asyncio.Event()

    async def script(peer, head, body):
        if body == b"later":
            await peer.answer(b"later")
            return
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await go.wait()
        await peer.end_stream()

    upstream = await serve(script)
    pair = [client.start(request_to(upstream.url, stream=True)) for _ in range(2)]
    await asyncio.gather(*[exchange.head for exchange in pair])
    ends, later = [], []

    def end(number, error):
        ends.append(error)
        pair[1 - number].cancel()
        later.append(client.start(request_to(upstream.url, body=b"later")))

    for number, exchange in enumerate(pair):
        exchange.pipe(lambda data: True, lambda error, number=number: end(number, error))
    go.set()
    await until(lambda: ends)
    await later[0].head
    assert later[0].body == b"later"
    assert ends == [None]


async def test_fetch_beside_exchanges(client, serve, request_to, collect):
    release = asyncio.Event()

    async def script(peer, head, body):
        if body != b"stream":
            await peer.answer(body or b"probe")
            return
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await release.wait()
        await peer.end_stream()

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, body=b"stream", stream=True))
    await exchange.head
    sink = collect(exchange)
    answers = await asyncio.gather(*[client.fetch(upstream.url) for _ in range(10)])
    assert [answer.body for answer in answers] == [b"probe"] * 10
    plain = [client.start(request_to(upstream.url, body=b"x")) for _ in range(5)]
    fetched = client.fetch(upstream.url, method="POST", body=b"y")
    await asyncio.gather(*[other.head for other in plain])
    assert (await fetched).body == b"y"
    release.set()
    assert await sink.ended is None


async def test_close_fails_what_runs(io_loop, serve, request_to, collect):
    client = UpstreamClient(force_instance=True)

    async def script(peer, head, body):
        await (part_of_a_stream if body == b"stream" else hang)(peer, head, body)

    upstream = await serve(script)
    stream = client.start(request_to(upstream.url, body=b"stream", stream=True))
    await stream.head
    sink = collect(stream)
    plain = client.start(request_to(upstream.url))
    await until(lambda: len(upstream.requests) == 2)
    client.close()
    with pytest.raises(UpstreamError) as caught:
        await plain.head
    assert caught.value.kind == "reset_before_head"
    assert (await sink.ended).kind == "truncated"
    plain.cancel()
    stream.cancel()
    stream.finish_within(1)
    client.close()
    with pytest.raises(RuntimeError):
        client.start(request_to(upstream.url))


async def test_a_failure_nobody_waits_for_is_silent(client, request_to, caplog):
    exchange = client.start(request_to("http://nowhere.invalid/"))
    await until(exchange.head.done)
    del exchange
    await asyncio.sleep(0)
    assert caplog.records == []


async def test_exchanges_go_without_the_garbage_collector(client, serve, request_to, collect):
    """A worker switches it off, and idle handles must not keep the last answer alive."""

    def count():
        return sum(isinstance(thing, Exchange) for thing in gc.get_objects())

    async def calls():
        exchange = client.start(request_to(upstream.url))
        await exchange.head
        exchange.accept()
        exchange = client.start(request_to(upstream.url, stream=True))
        await exchange.head
        await collect(exchange).ended
        exchange = client.start(request_to(upstream.url))
        exchange.cancel()
        with pytest.raises(UpstreamError):
            await client.start(request_to("http://nowhere.invalid/")).head

    upstream = await serve(streaming(EVENT))
    gc.collect()
    gc.disable()
    try:
        before = count()
        for _ in range(5):
            await calls()
        await turns(50)
        assert count() - before <= 1  # the last error's traceback may still be referenced
    finally:
        gc.enable()
