"""What an exchange does with an answer, over real sockets: streams, ends, deadlines."""

import asyncio
import gzip
import time
import zlib

import pytest

from handlers.relay.upstream.client import UpstreamError
from handlers.relay.upstream.request import RequestBody

EVENT = b"data: {}\n\n"


async def failure(exchange):
    with pytest.raises(UpstreamError) as caught:
        await asyncio.wait_for(exchange.head, 10)
    return caught.value


def noise(size):
    """Bytes that differ everywhere, so that a lost or doubled piece shows."""
    return b"".join(b"%015d\n" % n for n in range(size // 16))


# Which answers are streams


async def test_chunks_come_straight_through(open_stream, collect):
    """Each piece arrives before the next one is sent."""
    pieces = [b"data: %d\n\n" % n for n in range(20)] + [b"da", b"ta: split\n", b"\n"]
    taken = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream("X-Request-Id: 7")
        for piece in pieces:
            await peer.chunk(piece)
            await asyncio.wait_for(taken.wait(), 2)
            taken.clear()
        await peer.end_stream()

    exchange, _ = await open_stream(script)
    assert exchange.content_type == "text/event-stream; charset=utf-8"
    assert exchange.header("x-request-id") == "7"
    assert (exchange.status, exchange.body) == (200, b"")
    assert exchange.first_byte_ms is not None
    assert exchange.first_byte_ms < 2000
    parts = []

    def sink(data):
        parts.append(data)
        taken.set()
        return True

    ended = asyncio.get_running_loop().create_future()
    exchange.pipe(sink, ended.set_result)
    assert await ended is None
    assert parts == pieces


async def test_what_is_passed_on_at_once_keeps_its_place(open_stream):
    """The sink gets what was not taken, and all that comes in one turn after it."""
    pieces = [b"data: %d\n\n" % n for n in range(40)]
    taken = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        for place, piece in enumerate(pieces):
            await peer.chunk(piece)
            if place % 8 == 7:  # eight in one turn
                await asyncio.wait_for(taken.wait(), 2)
                taken.clear()
        await peer.end_stream()

    exchange, _ = await open_stream(script)
    got, at_once = [], []

    def sink(data):
        got.append(data)
        if b"".join(got).count(b"\n\n") % 8 == 0:
            taken.set()
        return True

    def pass_on(data):
        if data.endswith(b"5\n\n"):
            return False
        at_once.append(data)
        return sink(data)

    ended = asyncio.get_running_loop().create_future()
    exchange.pipe(sink, ended.set_result, pass_on)
    assert await ended is None
    assert b"".join(got) == b"".join(pieces)
    assert at_once


async def test_what_must_be_unpacked_is_not_passed_on_at_once(open_stream):
    packed = gzip.compress(EVENT * 3)

    async def script(peer, head, body):
        await peer.begin_stream("Content-Encoding: gzip")
        await peer.chunk(packed)
        await peer.end_stream()

    exchange, _ = await open_stream(script)
    got, ended = [], asyncio.get_running_loop().create_future()
    exchange.pipe(lambda data: not got.append(data), ended.set_result, lambda data: 1 / 0)
    assert await ended is None
    assert b"".join(got) == EVENT * 3


async def test_head_alone_decides_nothing(client, serve, request_to):
    go = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await go.wait()
        await peer.chunk(EVENT)
        await peer.end_stream()

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, stream=True))
    await asyncio.sleep(0.05)
    assert not exchange.head.done()
    go.set()
    await exchange.head
    assert exchange.streaming


async def test_pipe_after_the_end(open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await peer.chunk(EVENT)
        await peer.end_stream()

    exchange, _ = await open_stream(script)
    await asyncio.sleep(0.05)
    sink = collect(exchange)
    assert sink.data == EVENT * 2
    assert sink.ended.result() is None


@pytest.mark.parametrize("length", [True, False])
async def test_stream_with_nothing_in_it(open_stream, collect, length):
    async def script(peer, head, body):
        if length:
            await peer.answer(b"", headers=["Content-Type: text/event-stream"])
        else:
            await peer.begin_stream()
            await peer.end_stream()

    exchange, _ = await open_stream(script)
    sink = collect(exchange)
    assert await sink.ended is None
    assert sink.data == b""


async def test_stream_until_the_connection_closes(open_stream, collect):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\n\r\n" + EVENT)
        peer.closing = True

    exchange, _ = await open_stream(script)
    sink = collect(exchange)
    assert await sink.ended is None
    assert sink.data == EVENT


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_refused_stream_is_read_whole(client, serve, request_to, content_type):
    async def script(peer, head, body):
        await peer.send(
            b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: %b\r\n\r\n" % content_type.encode()
        )
        await peer.chunk(b'{"error":')
        await asyncio.sleep(0.03)
        await peer.chunk(b"{}}")
        await peer.end_stream()

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, stream=True))
    await exchange.head
    assert (exchange.streaming, exchange.status) == (False, 429)
    assert exchange.body == b'{"error":{}}'
    assert exchange.header("retry-after") == "7"


@pytest.mark.parametrize(("stream", "content_type"), [(False, "text/event-stream"), (True, "x/y")])
async def test_other_answers_are_read_whole(client, serve, request_to, stream, content_type):
    async def script(peer, head, body):
        await peer.begin_stream(f"Content-Type: {content_type}")
        await peer.chunk(b"a")
        await asyncio.sleep(0.02)
        await peer.chunk(b"b")
        await peer.end_stream()

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, stream=stream))
    await exchange.head
    assert (exchange.streaming, exchange.body) == (False, b"ab")


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_without_a_body(client, serve, request_to, stream):
    async def script(peer, head, body):
        if body == b"204":
            await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            await peer.answer(b"", "500 Internal Server Error")

    upstream = await serve(script)
    for body, status in ((b"204", 204), (b"", 500)):
        exchange = client.start(request_to(upstream.url, body=body, stream=stream))
        await exchange.head
        assert (exchange.status, exchange.body, exchange.streaming) == (status, b"", False)
        assert exchange.first_byte_ms is None


async def test_informational_heads_and_trailers_are_left_out(client, serve, request_to):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 100 Continue\r\nX-From: first\r\n\r\n")
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nX-From: second\r\n\r\n")
        await asyncio.sleep(0.02)
        await peer.begin_stream("X-From: last", "Trailer: X-Late", "Content-Type: a/b")
        await peer.chunk(b"body")
        await peer.send(b"0\r\nX-Late: trailer\r\nX-From: trailer\r\n\r\n")

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url))
    await exchange.head
    assert (exchange.status, exchange.body) == (200, b"body")
    assert exchange.header("x-from") == "last"
    assert exchange.header("x-late") is None


async def test_bare_line_feeds(client, serve, request_to):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 201 Created\nX-A: b\nContent-Length: 2\n\nok")

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url))
    await exchange.head
    assert (exchange.status, exchange.body, exchange.header("X-A")) == (201, b"ok", "b")


# Cut answers


CUT = {
    "chunked": b"Transfer-Encoding: chunked\r\n\r\na\r\n" + EVENT + b"\r\n",
    "inside a chunk": b"Transfer-Encoding: chunked\r\n\r\n40\r\n" + EVENT,
    "content-length": b"Content-Length: 40\r\n\r\n" + EVENT,
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("stream", [False, True])
async def test_truncated(client, serve, request_to, collect, how, cut, stream):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + CUT[cut])
        await asyncio.sleep(0.03)
        peer.closing = True
        if how == "reset":
            peer.reset()

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, stream=stream))
    if stream:
        await exchange.head
        sink = collect(exchange)
        error = await sink.ended
        assert sink.data == EVENT
    else:
        error = await failure(exchange)
    assert error.kind == "truncated"
    assert exchange.status == 200


async def test_truncated_before_the_first_byte_of_the_body(client, serve, request_to):
    async def script(peer, head, body):
        await peer.begin_stream()
        peer.closing = True

    upstream = await serve(script)
    assert (await failure(client.start(request_to(upstream.url, stream=True)))).kind == "truncated"


async def test_bytes_behind_the_content_length_are_left(client, serve, request_to):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokand more")

    upstream = await serve(script)
    for _ in range(2):
        exchange = client.start(request_to(upstream.url))
        await exchange.head
        assert exchange.body == b"ok"


# Deadlines (a second lasts 50 ms)


@pytest.mark.parametrize(
    ("stream", "sent", "kind"),
    [
        (True, b"", "timeout_first_byte"),
        (False, b"", "timeout_first_byte"),
        (False, b"HTTP/1.1 100 Continue\r\n\r\n", "timeout_first_byte"),
        (True, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "timeout_first_byte"),
        (False, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "timeout_idle"),
        (False, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12", "timeout_idle"),
        (True, b"HTTP/1.1 400 No\r\nContent-Length: 5\r\n\r\n12", "timeout_idle"),
    ],
)
async def test_silent_upstream(fast_seconds, client, serve, request_to, stream, sent, kind):
    gone = asyncio.Event()

    async def script(peer, head, body):
        await peer.send(sent)
        await peer.wait_closed_by_client()
        gone.set()

    upstream = await serve(script)
    limits = {"first_byte_timeout_s": 4, "idle_timeout_s": 8}
    begun = time.monotonic()
    error = await failure(client.start(request_to(upstream.url, stream=stream, **limits)))
    seconds = (time.monotonic() - begun) / 0.05
    assert error.kind == kind
    least = 4 if kind == "timeout_first_byte" else 8
    assert least <= seconds < least + 20
    await asyncio.wait_for(gone.wait(), 5)


async def test_first_byte_limit_is_not_for_later_ones(fast_seconds, client, serve, request_to):
    async def script(peer, head, body):
        await peer.begin_stream("Content-Type: a/b")
        for _ in range(10):
            await asyncio.sleep(0.05)
            await peer.chunk(b"x")
        await peer.end_stream()

    upstream = await serve(script)
    limits = {"first_byte_timeout_s": 6, "idle_timeout_s": 20}
    exchange = client.start(request_to(upstream.url, **limits))
    await exchange.head
    assert exchange.body == b"x" * 10


async def test_stream_falls_silent(fast_seconds, open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await peer.wait_closed_by_client()

    exchange, _ = await open_stream(script, idle_timeout_s=3)
    error = await asyncio.wait_for(collect(exchange).ended, 2)
    assert error.kind == "timeout_idle"


async def test_waiting_for_the_client_is_not_silence(fast_seconds, open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await asyncio.sleep(0.7)
        await peer.chunk(EVENT)
        await peer.end_stream()

    exchange, _ = await open_stream(script, idle_timeout_s=4)
    sink = collect(exchange, capacity_bytes=1)
    await asyncio.sleep(0.6)
    assert not sink.ended.done()
    sink.drain()
    await asyncio.sleep(0.15)
    sink.drain()
    assert await sink.ended is None
    assert sink.data == EVENT * 2


# The request's body


async def test_answer_before_the_request_is_whole(client, serve, request_to):
    """A refusal that does not wait; the rest of the body may be read or not."""

    async def script(peer, head, body):
        await peer.answer(b"too large", "413 Content Too Large", ["Connection: close"])
        await peer.wait_closed_by_client()

    upstream = await serve(script, read_body=False)
    exchange = client.start(request_to(upstream.url, body=noise(8 << 20), stream=True))
    await exchange.head
    assert (exchange.status, exchange.body) == (413, b"too large")


async def test_stream_before_the_request_is_whole(client, serve, request_to, collect):
    size = 8 << 20
    taken = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await taken.wait()
        rest = await peer.reader.readexactly(size)
        await peer.chunk(b"data: %d\n\n" % zlib.crc32(rest))
        await peer.end_stream()

    upstream = await serve(script, read_body=False)
    exchange = client.start(request_to(upstream.url, body=noise(size), stream=True))
    await asyncio.wait_for(exchange.head, 5)
    exchange.accept()
    sink = collect(exchange)
    taken.set()
    assert await asyncio.wait_for(sink.ended, 5) is None
    assert sink.data == EVENT + b"data: %d\n\n" % zlib.crc32(noise(size))


async def test_accept_frees_the_body(open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await asyncio.sleep(0.02)
        await peer.end_stream()

    exchange, _ = await open_stream(script, body=noise(1 << 20))
    source = exchange.source
    assert source.taken
    exchange.accept()
    exchange.accept()
    with pytest.raises(ValueError, match="closed"):
        source.read(1)
    assert exchange.source is None
    assert await collect(exchange).ended is None


def test_a_body_follows_another_and_each_may_be_sent_twice():
    source = RequestBody()
    for body in (b"first", b"", b"the third"):
        source.fill(body)
        assert source.read(100) == body and source.taken
        assert source.rewind(0, 0) == 0
        assert source.read(100) == body
        assert source.rewind(0, 0) != 0
        source.close()
    source.fill(b"left unread")
    assert not source.taken


# After the terminal marker


async def test_finish_within_gives_the_connection_back(fast_seconds, open_stream, collect, client,
                                                       request_to):  # fmt: skip
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(b"data: [DONE]\n\n")
        await asyncio.sleep(0.06)
        await peer.chunk(b"rest")
        await peer.end_stream()
        over.set()

    over = asyncio.Event()
    exchange, upstream = await open_stream(script)
    sink = collect(exchange)
    exchange.finish_within(20)
    await over.wait()
    await asyncio.sleep(0.05)
    assert sink.data == b"data: [DONE]\n\n"
    assert not sink.ended.done()
    again = client.start(request_to(upstream.url, stream=True))
    await again.head
    assert upstream.connections == 1
    again.cancel()


async def test_finish_within_drops_the_connection(fast_seconds, open_stream, collect):
    gone = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(b"data: [DONE]\n\n")
        await peer.wait_closed_by_client()
        gone.set()

    exchange, _ = await open_stream(script)
    collect(exchange)
    exchange.finish_within(4)
    await asyncio.sleep(0.1)
    assert not gone.is_set()
    await asyncio.wait_for(gone.wait(), 5)


async def test_finish_within_after_the_end(open_stream, collect, client, request_to):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(EVENT)
        await peer.end_stream()

    exchange, upstream = await open_stream(script)
    assert await collect(exchange).ended is None
    exchange.finish_within(1)
    await client.start(request_to(upstream.url, stream=True)).head
    assert upstream.connections == 1
