"""Processing of an answer by an exchange, over real sockets: streams, ends, deadlines."""

import asyncio
import gzip
import zlib

import pytest

from handlers.relay.upstream.exchange import Phase
from handlers.relay.upstream.request import RequestBody
from tests.handlers.relay.upstream import scripts
from tests.support.served import until

# Which answers are streams


async def test_chunks_come_straight_through(open_stream, collect):
    """Each chunk arrives before the next one is sent."""
    pieces = [b"data: %d\n\n" % n for n in range(20)] + [b"da", b"ta: split\n", b"\n"]
    go = asyncio.Semaphore(0)

    async def script(peer, head, body):
        await peer.begin_stream("X-Request-Id: 7")
        for piece in pieces:
            await peer.chunk(piece)
            await asyncio.wait_for(go.acquire(), 2)
        await peer.end_stream()

    exchange, _ = await open_stream(script)
    assert exchange.content_type == "text/event-stream; charset=utf-8"
    assert exchange.header("x-request-id") == "7"
    assert (exchange.status, exchange.body) == (200, b"")
    assert exchange.first_byte_ms < 2000
    sink = collect(exchange, came=go.release)
    assert await sink.ended is None
    assert sink.parts == pieces


async def test_what_is_passed_on_at_once_keeps_its_place(open_stream):
    """The sink gets the data that was not accepted before, and everything that follows in the same
    turn."""
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
    script = scripts.streaming(gzip.compress(scripts.EVENT * 3), headers=["Content-Encoding: gzip"])
    exchange, _ = await open_stream(script)
    got, ended = [], asyncio.get_running_loop().create_future()
    exchange.pipe(lambda data: not got.append(data), ended.set_result, lambda data: 1 / 0)
    assert await ended is None
    assert b"".join(got) == scripts.EVENT * 3


async def test_head_alone_decides_nothing(start):
    go = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await go.wait()
        await peer.chunk(scripts.EVENT)
        await peer.end_stream()

    exchange, _ = await start(script, stream=True)
    await until(lambda: exchange.raw_head.endswith(b"\r\n\r\n"))
    assert not exchange.head.done()
    go.set()
    await exchange.head
    assert exchange.streaming


async def test_pipe_after_the_end(open_stream, collect):
    exchange, _ = await open_stream(scripts.streaming(scripts.EVENT, scripts.EVENT))
    await until(lambda: exchange.phase is Phase.REST)
    sink = collect(exchange)
    assert sink.data == scripts.EVENT * 2
    assert sink.ended.result() is None


@pytest.mark.parametrize(("script", "data"), [
    (scripts.answering(b"", headers=["Content-Type: text/event-stream"]), b""),
    (scripts.streaming(), b""),
    (scripts.sending(b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\n\r\n" + scripts.EVENT),
     scripts.EVENT),
], ids=["length 0", "no chunk", "until the connection closes"])  # fmt: skip
async def test_the_end_of_a_stream(open_stream, collect, script, data):
    exchange, _ = await open_stream(script)
    sink = collect(exchange)
    assert await sink.ended is None
    assert sink.data == data


@pytest.mark.parametrize(("status", "stream", "content_type"), [
    ("429 Too Many", True, "application/json"),
    ("429 Too Many", True, "text/event-stream"),
    ("200 OK", False, "text/event-stream"),
    ("200 OK", True, "x/y"),
])  # fmt: skip
async def test_refusals_and_other_answers_are_read_whole(ask, status, stream, content_type):
    async def script(peer, head, body):
        lines = [f"HTTP/1.1 {status}", "Retry-After: 7", "Transfer-Encoding: chunked"]
        await peer.send("\r\n".join([*lines, f"Content-Type: {content_type}\r\n\r\n"]).encode())
        await peer.chunk(b'{"error":')
        await asyncio.sleep(0.02)
        await peer.chunk(b"{}}")
        await peer.end_stream()

    exchange, _ = await ask(script, stream=stream)
    assert (exchange.streaming, exchange.status) == (False, int(status[:3]))
    assert exchange.body == b'{"error":{}}'
    assert exchange.header("retry-after") == "7"


EVENTS, OBJECT, NO_TYPE = "text/event-stream", "application/json", "x-none"


@pytest.mark.parametrize(("asked", "content_type", "pieces", "streaming"), [
    (EVENTS, EVENTS, [b"data: 1\n\n"], True),
    (EVENTS, EVENTS, [b'{"a":', b"1}"], False),
    (EVENTS, EVENTS, [b"\n", b"{}"], True),  # its type counts until the bytes contradict it
    (EVENTS, EVENTS, [b"<html>"], True),
    *((EVENTS, kind, [b"data: 1\n\n"], True) for kind in (NO_TYPE, OBJECT, "text/plain")),
    *((EVENTS, kind, [b"\xef\xbb\xbf\r\n", b"e", b"vent: x\n\n"], True)
      for kind in (NO_TYPE, OBJECT)),
    (EVENTS, NO_TYPE, [b"\n", b"da", b"ta: 1\n\n"], True),
    (EVENTS, NO_TYPE, [b"da", b"ta"], False),  # and nothing more comes
    (EVENTS, NO_TYPE, [b" " * 300, b"data: 1\n\n"], False),
    (EVENTS, NO_TYPE, [b": hello\n"], True),
    (EVENTS, NO_TYPE, [b'{"a":', b"1}"], False),
    (EVENTS, NO_TYPE, [], False),
    (OBJECT, OBJECT, [b"[", b"{}]"], True),
    (OBJECT, NO_TYPE, [b" ", b"[{}]"], True),
    (OBJECT, OBJECT, [b"{}"], False),
    (OBJECT, OBJECT, [b"data: {}\n\n"], False),
    (OBJECT, NO_TYPE, [b"data: {}\n\n"], False),
])  # fmt: skip
async def test_the_first_bytes_tell_a_stream(ask, collect, asked, content_type, pieces, streaming):
    async def script(peer, head, body):
        kind = "X-Other: x" if content_type == NO_TYPE else f"Content-Type: {content_type}"
        lines = ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", kind]
        await peer.send("\r\n".join([*lines, "\r\n"]).encode())
        for piece in pieces:
            await peer.chunk(piece)
            await asyncio.sleep(0.02)
        await peer.end_stream()

    exchange, _ = await ask(script, stream=True, stream_type=asked)
    assert exchange.streaming is streaming
    if streaming:
        sink = collect(exchange)
        assert await sink.ended is None
    assert (sink.data if streaming else exchange.body) == b"".join(pieces)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("script", "status"), [
    (lambda peer, *_: peer.send(b"HTTP/1.1 204 No Content\r\n\r\n"), 204),
    (scripts.answering(b"", "500 Internal Server Error"), 500),
])  # fmt: skip
async def test_answers_without_a_body(ask, stream, script, status):
    exchange, _ = await ask(script, stream=stream)
    assert (exchange.status, exchange.body, exchange.streaming) == (status, b"", False)
    assert exchange.first_byte_ms is None


async def test_informational_heads_and_trailers_are_left_out(ask):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 100 Continue\r\nX-From: first\r\n\r\n")
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nX-From: second\r\n\r\n")
        await asyncio.sleep(0.02)
        await peer.begin_stream("X-From: last", "Trailer: X-Late", "Content-Type: a/b")
        await peer.chunk(b"body")
        await peer.send(b"0\r\nX-Late: trailer\r\nX-From: trailer\r\n\r\n")

    exchange, _ = await ask(script)
    assert (exchange.status, exchange.body) == (200, b"body")
    assert (exchange.header("x-from"), exchange.header("x-late")) == ("last", None)


async def test_bare_line_feeds(ask):
    exchange, _ = await ask(
        scripts.sending(b"HTTP/1.1 201 Created\nX-A: b\nContent-Length: 2\n\nok")
    )
    assert (exchange.status, exchange.body, exchange.header("X-A")) == (201, b"ok", "b")


CUT = [
    b"Transfer-Encoding: chunked\r\n\r\na\r\n" + scripts.EVENT + b"\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n40\r\n" + scripts.EVENT,
    b"Content-Length: 40\r\n\r\n" + scripts.EVENT,
]


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("stream", [False, True])
async def test_truncated(start, collect, how, cut, stream):
    script = scripts.sending(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + cut, how)
    exchange, _ = await start(script, stream=stream)
    if stream:
        await exchange.head
        sink = collect(exchange)
        error = await sink.ended
        assert sink.data == scripts.EVENT
    else:
        error = await scripts.failure(exchange)
    assert (error.kind, exchange.status) == ("truncated", 200)


async def test_truncated_before_the_first_byte_of_the_body(fail):
    async def script(peer, head, body):
        await peer.begin_stream()
        peer.closing = True

    assert await fail(script, stream=True) == "truncated"


async def test_bytes_behind_the_content_length_are_left(client, serve, request_to):
    script = scripts.sending(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokand more")
    upstream = await serve(script)
    for _ in range(2):
        exchange = client.start(request_to(upstream.url))
        await exchange.head
        assert exchange.body == b"ok"


_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(("stream", "sent", "kind", "seconds"), [
    (True, b"", "timeout_first_byte", 4),
    (False, b"", "timeout_first_byte", 4),
    (False, b"HTTP/1.1 100 Continue\r\n\r\n", "timeout_first_byte", 4),
    (True, _STREAM_HEAD, "timeout_first_byte", 4),
    # The first sweep sees the head; from then on the answer is idle.
    (False, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "timeout_idle", 9),
    (False, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12", "timeout_idle", 8),
    (True, b"HTTP/1.1 400 No\r\nContent-Length: 5\r\n\r\n12", "timeout_idle", 8),
])  # fmt: skip
async def test_silent_upstream(pass_s, start, stream, sent, kind, seconds):
    gone = asyncio.Event()

    async def script(peer, head, body):
        await scripts.sending(sent, "hang")(peer, head, body)
        gone.set()

    limits = {"first_byte_timeout_s": 4, "idle_timeout_s": 8}
    exchange, upstream = await start(script, stream=stream, **limits)
    await until(lambda: upstream.requests)
    await until(lambda: len(exchange.raw_head) + exchange._size == len(sent))
    await pass_s(seconds)
    assert not exchange.head.done()
    await pass_s(1)
    assert (await scripts.failure(exchange)).kind == kind
    await asyncio.wait_for(gone.wait(), 5)


async def test_stream_falls_silent(pass_s, open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(scripts.EVENT)
        await peer.wait_closed_by_client()

    exchange, _ = await open_stream(script, idle_timeout_s=3)
    sink = collect(exchange)
    await pass_s(3)
    assert not sink.ended.done()
    await pass_s(1)
    assert (await sink.ended).kind == "timeout_idle"


async def test_waiting_for_the_client_is_not_silence(pass_s, open_stream, collect):
    go = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(scripts.EVENT)
        await go.wait()
        await peer.chunk(scripts.EVENT)
        await peer.end_stream()

    exchange, _ = await open_stream(script, idle_timeout_s=4)
    sink = collect(exchange, capacity_bytes=1)
    await pass_s(12)
    assert not sink.ended.done()
    sink.drain()
    await pass_s(3)
    go.set()
    await until(lambda: sink.data == scripts.EVENT * 2)
    sink.drain()
    assert await sink.ended is None


# The request's body


async def test_answer_before_the_request_is_whole(ask):
    """A refusal that comes early; the rest of the request body may be read or not."""

    async def script(peer, head, body):
        await peer.answer(b"too large", "413 Content Too Large", ["Connection: close"])
        await peer.wait_closed_by_client()

    exchange, _ = await ask(script, read_body=False, body=scripts.noise(8 << 20), stream=True)
    assert (exchange.status, exchange.body) == (413, b"too large")


async def test_stream_before_the_request_is_whole(open_stream, collect):
    size = 8 << 20
    taken = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(scripts.EVENT)
        await taken.wait()
        rest = await peer.reader.readexactly(size)
        await peer.chunk(b"data: %d\n\n" % zlib.crc32(rest))
        await peer.end_stream()

    exchange, _ = await open_stream(script, read_body=False, body=scripts.noise(size))
    exchange.accept()
    sink = collect(exchange)
    taken.set()
    assert await asyncio.wait_for(sink.ended, 5) is None
    assert sink.data == scripts.EVENT + b"data: %d\n\n" % zlib.crc32(scripts.noise(size))


async def test_accept_frees_the_body(open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(scripts.EVENT)
        await asyncio.sleep(0.02)
        await peer.end_stream()

    exchange, _ = await open_stream(script, body=scripts.noise(1 << 20))
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


async def test_finish_within_gives_the_connection_back(open_stream, collect, client, request_to):
    go = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(b"data: [DONE]\n\n")
        await go.wait()
        await peer.chunk(b"rest")
        await peer.end_stream()

    exchange, upstream = await open_stream(script)
    sink = collect(exchange)
    exchange.finish_within(20)
    go.set()
    await until(lambda: client.idle_connections.connections)
    assert sink.data == b"data: [DONE]\n\n"
    assert not sink.ended.done()
    again = client.start(request_to(upstream.url, stream=True))
    await again.head
    assert upstream.connections == 1
    again.cancel()


async def test_finish_within_drops_the_connection(pass_s, open_stream, collect):
    gone = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(b"data: [DONE]\n\n")
        await peer.wait_closed_by_client()
        gone.set()

    exchange, _ = await open_stream(script)
    collect(exchange)
    exchange.finish_within(4)
    await pass_s(3)
    await asyncio.sleep(0.02)
    assert not gone.is_set()
    await pass_s(1)
    await asyncio.wait_for(gone.wait(), 5)


async def test_finish_within_after_the_end(open_stream, collect, client, request_to):
    exchange, upstream = await open_stream(scripts.streaming(scripts.EVENT))
    assert await collect(exchange).ended is None
    exchange.finish_within(1)
    await client.start(request_to(upstream.url, stream=True)).head
    assert upstream.connections == 1
