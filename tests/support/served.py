"""A server of handlers.http whose handlers a test writes, and a client that observes it."""

import asyncio
import contextlib
import logging
import socket
import struct
from unittest.mock import patch

import pytest

from conf.settings import ServerSettings, Settings
from handlers.entries.base import Deadlines, Site
from handlers.entries.intake import BodyHandler
from handlers.entries.routes import ROUTES, RelayServer
from handlers.relay.upstream.idle_connections import max_connections
from handlers.telemetry.calls import Telemetry
from tests.support.client import encode_head, parse_head

HOST = "127.0.0.1"
PATIENCE_S = 5
BASE_URL = "http://gateway.test"
CHUNKED = {"Transfer-Encoding": "chunked"}
VERSION = {"anthropic-version": "2023-06-01"}


class Errors(logging.Handler):
    """A log handler that keeps warnings and errors."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def take(self):
        """Return the messages so far; they no longer count as unexpected."""
        taken, self.records = [record.getMessage() for record in self.records], []
        return taken


class Served:
    """A running server and the clock of its sweeps."""

    def __init__(self, site, server, port, errors):
        self.site = site
        self.server = server
        self.port = port
        self.errors = errors
        self.peers = []

    async def peer(self, *pieces, **options):
        """Return a connection on which `pieces` were sent, each in a segment of its own."""
        peer = Peer(**options)
        self.peers.append(peer)
        await peer.connect(self.port)
        for piece in pieces:
            await peer.send(piece)
            await turns()
        return peer

    async def ask(self, method, path, headers=None, body=None):
        """Return the answer to one request on a connection of its own."""
        peer = await self.peer(encode_head(method, path, headers, body) + (body or b""))
        answer = await peer.answer(method)
        peer.close()
        return answer

    async def pass_s(self, seconds):
        """Advance the server's clock by this time, with one sweep at the end."""
        now_s = self.server.now_s + seconds
        self.server.sweep(now_s)
        self.site.bodies.sweep(now_s)
        await turns()

    @property
    def waiting_bodies(self):
        return len(self.site.bodies._due_s)


@contextlib.asynccontextmanager
async def serving(routes=None, trusted=(), relay=None, listener=None, key_views=None, **settings):
    """Yield a server with the handlers of `routes` in addition to the usual ones; check that it
    logs nothing."""
    site = Site(
        settings=Settings(server=ServerSettings(**settings)),
        relay=relay,
        telemetry=Telemetry(None),
        bodies=Deadlines(),
        trusted=tuple(trusted),
        base_url=BASE_URL,
        key_views=key_views,
    )
    errors = Errors()
    logging.getLogger().addHandler(errors)
    server = RelayServer(site, max_connections())
    listener = listener or bound()
    served = Served(site, server, listener.getsockname()[1], errors)
    try:
        with patch.dict(ROUTES, routes or {}):
            server.listen_on(listener)
            yield served
            await turns()
    finally:
        for peer in served.peers:
            peer.close()
        server.drain()
        await until(lambda: not server.connections)
        logging.getLogger().removeHandler(errors)
    assert errors.take() == []


def entered(io_loop, manager):
    """Yield the value of an asynchronous context manager; for `yield from` in a fixture."""
    yield io_loop.run_sync(manager.__aenter__)
    io_loop.run_sync(lambda: manager.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def peer_of(routes, *pieces, receive_bytes=None, **options):
    """Yield a peer of a server of its own, on which `pieces` were sent; `peer.served` is the
    server."""
    async with serving(routes, **options) as served:
        peer = await served.peer(*pieces, receive_bytes=receive_bytes)
        peer.served = served
        yield peer


def bound(kind=socket.socket, send_bytes=None):
    """Return a listener; `send_bytes`: the kernel's send buffer of its connections."""
    listener = kind()
    if send_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    listener.bind((HOST, 0))
    listener.listen(512)
    listener.setblocking(False)
    return listener


async def turns(count=10):
    """Let the loop run whatever is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition, seconds=PATIENCE_S):
    """Wait for the condition; the test fails if it does not hold in time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nobody else could set an event
            await asyncio.sleep(0.002)


async def stands_still(size):
    """Wait until `size()` does not change any more; return it."""
    before = None
    while before != (before := size()):  # noqa: ASYNC110 - nobody else could set an event
        await asyncio.sleep(0.03)
    return before


class Peer:
    """A client that sees every byte of its connection."""

    def __init__(self, receive_bytes=None):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.buffer = b""

    async def connect(self, port):
        await asyncio.get_running_loop().sock_connect(self.socket, (HOST, port))

    async def send(self, data):
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def request(self, method, path, headers=None, body=None, version="1.1"):
        await self.send(encode_head(method, path, headers, body, version) + (body or b""))

    async def ask(self, method, path, headers=None, body=None, version="1.1"):
        await self.request(method, path, headers, body, version)
        return await self.answer(method)

    async def answer(self, method="GET"):
        """Read the next answer with its whole body."""
        answer = await self.head()
        if method == "HEAD" or answer.status == 100:
            answer.whole = True
        elif answer.headers.get("transfer-encoding") == "chunked":
            while data := await self.chunk():
                answer.pieces.append(data)
            answer.whole = True
        elif "content-length" in answer.headers:
            answer.pieces.append(await self.exactly(int(answer.headers["content-length"])))
            answer.whole = True
        else:
            answer.pieces.append(await self.rest())
        return answer

    async def last_answer(self, method="GET"):
        """Read the next answer, which ends the connection."""
        answer = await self.answer(method)
        assert answer.headers["connection"] == "close" and await self.rest() == b""
        return answer

    async def refusal(self):
        """Return the message of the refusal of bytes that are not HTTP; it ends the connection."""
        answer = await self.last_answer()
        assert (answer.status, answer.whole) == (400, True)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["request-id"] == answer.call_id
        assert answer.json["error"]["type"] == "invalid_request_error"
        return answer.json["error"]["message"]

    async def head(self):
        while b"\r\n\r\n" not in self.buffer:
            await self.fill()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 ")
        return parse_head(head)

    async def chunk(self):
        while b"\r\n" not in self.buffer:
            await self.fill()
        size, _, self.buffer = self.buffer.partition(b"\r\n")
        data = await self.exactly(int(size, 16))
        assert await self.exactly(2) == b"\r\n"
        return data

    async def exactly(self, size):
        parts, missing = [self.buffer[:size]], size - len(self.buffer)
        self.buffer = self.buffer[size:]
        while missing > 0:
            await self.fill()
            parts.append(self.buffer[:missing])
            self.buffer, missing = self.buffer[missing:], missing - len(parts[-1])
        return b"".join(parts)

    async def rest(self):
        """Read everything until the server has ended its side."""
        parts = [self.buffer]
        with contextlib.suppress(EOFError):
            while True:
                self.buffer = b""
                await self.fill()
                parts.append(self.buffer)
        return b"".join(parts)

    async def reset(self):
        """Check that nothing but a reset comes."""
        with pytest.raises(ConnectionResetError):
            await self.fill()
        return True

    async def fill(self):
        async with asyncio.timeout(PATIENCE_S):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)
        if not data:
            raise EOFError
        self.buffer += data

    async def is_silent(self, seconds=0.02):
        """Check that neither bytes nor an end come, although the server had enough time."""
        await asyncio.sleep(seconds)
        with contextlib.suppress(BlockingIOError):
            self.buffer += self.socket.recv(1 << 20)
            return False
        return not self.buffer

    def leave(self, reset=False):
        """Close the connection, with FIN or RST."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


class Echo(BodyHandler):
    """A handler that answers with what it was asked."""

    def check_head(self):
        return None

    def complete(self, body):
        request = self.request
        told = [request.method, request.path, f"?{request.query}", *request.headers]
        self.respond("\n".join(told).encode() + b"\n\n" + body)


class Acting(BodyHandler):
    """A handler that calls the test's functions and records its events. See `acting`."""

    def initialize(self, site):
        super().initialize(site)
        self.seen.append(self)
        self.events = []

    def check_head(self):
        return self.head_act(self) if self.head_act else None

    def complete(self, body):
        self.events.append("complete")
        return self.act(self, body)

    def refused(self, fault, body):
        self.events.append("refused")
        self.kept = body
        super().refused(fault, body)

    def client_left(self):
        self.events.append("left")

    def on_connection_close(self):
        self.events.append("closed")
        super().on_connection_close()


def acting(act=None, head_act=None, **attributes):
    """Return a handler class: `head_act(handler)` checks the head, `act(handler, body)` answers."""
    act = act or (lambda handler, body: handler.respond(b"{}"))
    functions = {"act": staticmethod(act), "head_act": head_act and staticmethod(head_act)}
    return type("Acted", (Acting,), {"seen": [], **functions, **attributes})


def held():
    """Return a handler class whose answer waits for the test: `seen[i].go.set_result(None)`."""

    async def act(handler, body):
        handler.go = asyncio.get_running_loop().create_future()
        await handler.go
        handler.respond(b"held")

    return acting(act)


def post(body, headers=None, path="/echo", version="1.1"):
    """Return the bytes of a whole request."""
    return encode_head("POST", path, headers, body, version) + body


def chunks(*pieces):
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))
