"""A scripted upstream on a real socket, and the client under test."""

import asyncio
import contextlib
import logging
import socket
import struct

import pytest

from handlers.relay.upstream.client import UpstreamClient, UpstreamRequest
from tests.handlers.relay.upstream.scripts import failure
from tests.support.served import turns


class Peer:
    """The upstream's end of one connection."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.closing = False

    async def read_head(self):
        """Return the raw head of the next request; None if the connection has ended."""
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def read_body(self, head):
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                return await self.reader.readexactly(int(value))
        return b""

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body=b"{}", status="200 OK", headers=()):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def begin_stream(self, *headers):
        lines = ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *headers]
        if not any(line.lower().startswith("content-type") for line in headers):
            lines.append("Content-Type: text/event-stream; charset=utf-8")
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data):
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_stream(self):
        await self.send(b"0\r\n\r\n")

    def reset(self):
        """Close with RST instead of FIN."""
        self.closing = True
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_closed_by_client(self):
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.closing = True


class Upstream:
    """A server that runs `script(peer, head, body)` for each request and counts the requests."""

    def __init__(self, script, read_body=True):
        self.script = script
        self.read_body = read_body
        self.connections = 0
        self.writers = []
        self.requests = []
        self.server = None
        self.url = ""

    async def start(self, **options):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, **options)
        port = self.server.sockets[0].getsockname()[1]
        scheme = "https" if options.get("ssl") else "http"
        self.url = f"{scheme}://127.0.0.1:{port}/v1/test"

    async def _serve(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        peer = Peer(reader, writer)
        try:
            while not peer.closing and (head := await peer.read_head()) is not None:
                body = await peer.read_body(head) if self.read_body else b""
                self.requests.append((head, body))
                await self.script(peer, head, body)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
def serve(io_loop):
    """Yield serve: `await serve(script)` returns a running Upstream."""
    running = []

    async def start(script, read_body=True, **options):
        upstream = Upstream(script, read_body)
        await upstream.start(**options)
        running.append(upstream)
        return upstream

    yield start

    async def stop():
        for upstream in running:
            upstream.server.close()
            for writer in upstream.writers:
                # A TLS shutdown waits for the peer, longer than the loop exists.
                if writer.get_extra_info("ssl_object") is not None:
                    writer.transport.abort()

    io_loop.run_sync(stop)


@pytest.fixture
def client(io_loop, capfd, caplog):
    """Yield the client under test; check that no callback prints and nothing is logged as an
    error."""

    async def build():
        return UpstreamClient(force_instance=True)

    client = io_loop.run_sync(build)
    yield client
    client.close()
    assert "Traceback" not in capfd.readouterr().err
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.fixture
def full_backlog():
    """Yield the URL of a listener that accepts no connections any more: SYNs are not answered."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


@pytest.fixture
def pass_s(client):
    """Return pass_s: `await pass_s(seconds)` runs this many sweeps of the client, one after the
    other."""
    client._sweeper.cancel()

    async def sweep(seconds):
        for _ in range(seconds):
            client._sweep()
            client._sweeper.cancel()
            await turns()

    return sweep


@pytest.fixture
def request_to():
    """Return a function that makes a request like the relay's, with limits that a test may
    replace."""

    def build(url, **changes):
        fields = {
            "method": "POST",
            "url": url,
            "headers": ["Content-Type: application/json", "Authorization: Bearer upstream-key"],
            "body": b'{"model":"m"}',
            "connect_timeout_s": 5,
            "first_byte_timeout_s": 60,
            "idle_timeout_s": 60,
            "max_answer_bytes": 1 << 26,
            "stream": False,
        }
        return UpstreamRequest(**(fields | changes))

    return build


class Collector:
    """A sink with a capacity: full at `capacity_bytes` until `drain`; calls `came` for each
    chunk."""

    def __init__(self, exchange, capacity_bytes=None, came=lambda: None):
        self.exchange = exchange
        self.capacity_bytes = capacity_bytes
        self.parts = []
        self.waiting_bytes = 0
        self.largest_waiting_bytes = 0
        self.came = came
        self.ended = asyncio.get_running_loop().create_future()
        exchange.pipe(self.take, self.ended.set_result)

    def take(self, data):
        self.parts.append(data)
        self.waiting_bytes += len(data)
        self.largest_waiting_bytes = max(self.largest_waiting_bytes, self.waiting_bytes)
        self.came()
        return self.capacity_bytes is None or self.waiting_bytes < self.capacity_bytes

    def drain(self):
        self.waiting_bytes = 0
        self.exchange.resume()

    @property
    def data(self):
        return b"".join(self.parts)


@pytest.fixture
def collect():
    return Collector


@pytest.fixture
def start(client, serve, request_to):
    """Return start: `await start(script)` returns (exchange that has started, upstream)."""

    async def begin(script, read_body=True, **changes):
        upstream = await serve(script, read_body)
        return client.start(request_to(upstream.url, **changes)), upstream

    return begin


@pytest.fixture
def ask(start):
    """Return ask: `await ask(script)` returns (exchange with its head, upstream)."""

    async def begin(script, read_body=True, **changes):
        exchange, upstream = await start(script, read_body, **changes)
        await asyncio.wait_for(exchange.head, 10)
        return exchange, upstream

    return begin


@pytest.fixture
def fail(start):
    """Return fail: `await fail(script)` returns the kind of an exchange's error."""

    async def begin(script, **changes):
        exchange, _ = await start(script, **changes)
        return (await failure(exchange)).kind

    return begin


@pytest.fixture
def open_stream(ask):
    """Return open_stream: `await open_stream(script)` returns (exchange with a stream's head,
    upstream)."""

    async def build(script, **changes):
        exchange, upstream = await ask(script, **({"stream": True} | changes))
        assert exchange.streaming
        return exchange, upstream

    return build
