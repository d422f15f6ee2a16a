"""A strict HTTP/1.1 server side, and one connection with every fault under control.

Plain asyncio, because a scripted vendor must be able to send half a chunk, a reset or nothing. It
knows neither families nor scripts. Source of the rules: RFC 9112.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 128 * 1024 * 1024
CHUNK_LINE_BYTES_MAX = 1024
BODY_TIMEOUT_S = 60
IDLE_TIMEOUT_S = 300

REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (/[!-~]*) HTTP/1\.1")
HEADER_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[^\r\n]*)?\r\n")
CONTENT_LENGTH = re.compile(r"[0-9]{1,12}")


class ClientGone(Exception):
    """The error of a connection that the client closed or reset."""


class Hangup(Exception):
    """The error of a connection that this side ended on purpose."""


class BadRequest(Exception):
    """The error of bytes that are not a request; `request` has the parts that could be read."""

    def __init__(self, status: int, problem: str, request: Request | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem
        self.request = request


@dataclass(slots=True)
class Request:
    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)  # names lower-case, repeats joined
    body: bytes = b""

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2]))

    @property
    def keep_alive(self) -> bool:
        return "close" not in self.headers.get("connection", "").lower()


class Wire(asyncio.StreamReader):
    """One accepted connection. While `busy`, a client's closing is noticed at once.

    A client that closes only its sending half also counts as gone.
    """

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=HEAD_BYTES_MAX, loop=loop)
        self.number = number
        self.busy = False
        self.gone_at_ms: int | None = None
        self._loop = loop
        self._sleeper: asyncio.Future[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    def attach(self, writer: asyncio.StreamWriter) -> None:
        # With a high-water mark of 0, `drain` returns when the kernel has taken everything.
        writer.transport.set_write_buffer_limits(high=0)
        self._writer = writer

    @property
    def writer(self) -> asyncio.StreamWriter:
        assert self._writer is not None
        return self._writer

    def feed_eof(self) -> None:
        super().feed_eof()
        self._notice_end()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._notice_end()

    def _notice_end(self) -> None:
        if self.gone_at_ms is None:
            self.gone_at_ms = time.time_ns() // 1_000_000
        if self.busy:
            # Otherwise a `drain` for a client that has stopped reading would never end.
            self.writer.transport.abort()
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def pause(self, seconds: float | None) -> None:
        """Sleep (None: for ever). Raises ClientGone as soon as the client has closed."""
        if self.gone_at_ms is None:
            self._sleeper = sleeper = self._loop.create_future()
            timer = None
            if seconds is not None:
                timer = self._loop.call_later(seconds, _wake, sleeper)
            try:
                await sleeper
            finally:
                self._sleeper = None
                if timer is not None:
                    timer.cancel()
        if self.gone_at_ms is not None:
            raise ClientGone

    async def send(self, data: bytes) -> None:
        """Send bytes; return when the kernel has taken them. Lets other connections run."""
        if self.gone_at_ms is not None:
            raise ClientGone
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError as error:
            raise ClientGone from error

    def close(self) -> None:
        self.busy = False
        self.writer.close()

    def abort(self) -> None:
        self.busy = False
        self.writer.transport.abort()

    def reset(self) -> None:
        """End the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


async def read_request(wire: Wire) -> Request | None:
    """Return the next request with its whole body; None if the client has ended the connection."""
    try:
        async with asyncio.timeout(IDLE_TIMEOUT_S):
            head = await wire.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadRequest(400, "the head is not complete") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequest(431, f"the head is over {HEAD_BYTES_MAX} bytes") from error
    except (TimeoutError, ConnectionError):
        return None
    request = _read_head(head)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            request.body = await _read_body(wire, request)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise BadRequest(400, "the body is not complete", request) from error
    except TimeoutError as error:
        raise BadRequest(408, "the body did not arrive in time", request) from error
    return request


def _read_head(head: bytes) -> Request:
    line, *lines = head[:-4].decode("latin-1").split("\r\n")
    match = REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "the request line is malformed")
    request = Request(match[1], match[2])
    for line in lines:
        match = HEADER_LINE.fullmatch(line)
        if match is None:
            raise BadRequest(400, "a header line is malformed", request)
        name, value = match[1].lower(), match[2].rstrip(" \t")
        earlier = request.headers.get(name)
        request.headers[name] = value if earlier is None else f"{earlier}, {value}"
    if not request.headers.get("host"):
        raise BadRequest(400, "the header host is missing", request)
    return request


async def _read_body(wire: Wire, request: Request) -> bytes:
    encoding = request.headers.get("transfer-encoding")
    length = request.headers.get("content-length")
    if encoding is None and length is None:
        return b""
    if encoding is not None and length is not None:
        raise BadRequest(400, "both content-length and transfer-encoding were sent", request)
    if length is not None and not CONTENT_LENGTH.fullmatch(length):
        raise BadRequest(400, "content-length is no number", request)
    if length is not None and int(length) > BODY_BYTES_MAX:
        raise BadRequest(413, f"the body is over {BODY_BYTES_MAX} bytes", request)
    if encoding is not None and encoding.lower() != "chunked":
        raise BadRequest(501, "only the transfer encoding chunked is known", request)
    if request.headers.get("expect", "").lower() == "100-continue":
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    if length is not None:
        return await wire.readexactly(int(length))
    return await _read_chunks(wire, request)


async def _read_chunks(wire: Wire, request: Request) -> bytes:
    parts = []
    total_bytes = 0
    while True:
        line = await _read_line(wire, request)
        match = CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise BadRequest(400, "a chunk's size is malformed", request)
        size = int(match[1], 16)
        total_bytes += size
        if total_bytes > BODY_BYTES_MAX:
            raise BadRequest(413, f"the body is over {BODY_BYTES_MAX} bytes", request)
        if size == 0:
            break
        parts.append(await wire.readexactly(size))
        if await wire.readexactly(2) != b"\r\n":
            raise BadRequest(400, "a chunk does not end where its size says", request)
    while await _read_line(wire, request) != b"\r\n":
        pass  # trailers are not used
    return b"".join(parts)


async def _read_line(wire: Wire, request: Request) -> bytes:
    try:
        line = await wire.readuntil(b"\r\n")
    except asyncio.LimitOverrunError as error:
        raise BadRequest(400, "a line of the chunked body has no end", request) from error
    if len(line) > CHUNK_LINE_BYTES_MAX:
        raise BadRequest(400, "a line of the chunked body is too long", request)
    return line
