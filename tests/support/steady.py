"""Calls at a steady rate and a steady number of streams, from one thread, over TLS. As with real
clients, connections are kept and reused. Every single call is checked."""

import asyncio
import contextlib
import itertools
import json
import ssl
import threading
import time
from collections import deque
from dataclasses import dataclass, field

PATIENCE_S = 120
END = b"data: [DONE]"


@dataclass(frozen=True, slots=True)
class Pace:
    """A rate of calls a second and a number of open streams, each of `chunks` events `gap_ms`
    apart. After a failed stream, its caller rests for `rest_s`."""

    calls_s: float
    streams: int
    gap_ms: int
    chunks: int
    rest_s: float = 0.0

    @property
    def stream_s(self):
        """Return how long a stream takes."""
        return self.gap_ms * self.chunks / 1000


@dataclass(slots=True)
class Exchange:
    """One call as its client saw it, in monotonic time; `head_s`: when its response head came."""

    name: str
    stream: bool
    began_s: float
    head_s: float = 0.0
    ended_s: float = 0.0
    status: int = 0  # no answer
    call_id: str = ""
    fault: str = ""


@dataclass(slots=True)
class Outcome:
    """The results: each call, the ids of all that ended well, and descriptions of all faults."""

    exchanges: list = field(default_factory=list)

    calls: list = field(default_factory=list)
    streams: list = field(default_factory=list)
    faults: list = field(default_factory=list)

    @property
    def ids(self):
        return {*self.calls, *self.streams}


class Steady:
    """A context manager that calls at its pace while the block runs; streams that have started
    then end in their time."""

    def __init__(self, port, secret, pace, tag="steady"):
        self._tag, self._numbers = tag, itertools.count()
        self.seen = Outcome()
        self.in_flight = 0
        self._port, self._pace = port, pace
        self._headers = f"Host: gateway.example\r\nAuthorization: Bearer {secret}\r\n"
        self._idle = deque()
        self._opened = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._tls = ssl._create_unverified_context()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(PATIENCE_S + self._pace.stream_s)
        assert not self._thread.is_alive(), "a call hangs"

    async def _run(self):
        streams = [asyncio.create_task(self._stream_on(n)) for n in range(self._pace.streams)]
        calls, due = set(), time.monotonic()
        while not self._over.is_set():
            if not self._pace.calls_s:
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(self._one(self.seen.calls, "[[demo chunks=3]]", False))
            calls.add(task)
            task.add_done_callback(calls.discard)
            due += 1 / self._pace.calls_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await asyncio.gather(*streams, *calls)
        for _, writer in self._idle:
            writer.close()
        closing = (writer.wait_closed() for writer in self._opened)
        await asyncio.gather(*closing, return_exceptions=True)

    async def _stream_on(self, number):
        pace = self._pace
        await asyncio.sleep(pace.stream_s * number / pace.streams)  # staggered starts
        script = f"[[demo ms={pace.gap_ms} chunks={pace.chunks}]]"
        while not self._over.is_set():
            self.in_flight += 1
            exchange = await self._one(self.seen.streams, script, True)
            self.in_flight -= 1
            if exchange.fault:
                await asyncio.sleep(pace.rest_s)

    async def _one(self, ended, text, stream):
        name = f"call-{self._tag}-{next(self._numbers)}"
        exchange = Exchange(name, stream, time.monotonic())
        self.seen.exchanges.append(exchange)
        try:
            async with asyncio.timeout(PATIENCE_S + self._pace.stream_s):
                exchange.fault = await self._exchange(text, exchange)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            exchange.fault = f"{type(error).__name__}: {error}"
        exchange.ended_s = time.monotonic()
        if exchange.fault:
            kind = "stream" if stream else "call"
            self.seen.faults.append(f"{kind} {exchange.call_id}: {exchange.fault}")
        else:
            ended.append(exchange.call_id)
        return exchange

    async def _exchange(self, text, exchange):
        reader, writer = await self._connection()
        try:
            return await self._asked(reader, writer, text, exchange)
        except BaseException:
            writer.close()
            raise

    async def _asked(self, reader, writer, text, exchange):
        """Return the exchange's fault as a text; empty if there is none."""
        words = [{"role": "user", "content": f"{text} {exchange.name}"}]
        body = {"model": "tea", "stream": exchange.stream, "max_tokens": 200, "messages": words}
        data = json.dumps(body)
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\n{self._headers}"
            f"X-Client-Request-Id: {exchange.name}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n{data}".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        exchange.head_s = time.monotonic()
        status, *lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        exchange.status = int(status.split()[1])
        exchange.call_id = headers.get("x-request-id", "")
        answer = await _body(reader, headers)
        if headers.get("connection") == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        if exchange.status != 200:
            return f"{status}: {answer[:200]!r}"
        whole = END in answer and answer.count(b"data: {") >= self._pace.chunks
        return "" if whole or not exchange.stream else f"the stream is not whole: {answer[-200:]!r}"

    async def _connection(self):
        while self._idle:
            reader, writer = self._idle.popleft()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        self._opened.append(writer)
        return reader, writer


async def _body(reader, headers):
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers["content-length"]))
    pieces = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    with contextlib.suppress(asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n")
    return b"".join(pieces)
