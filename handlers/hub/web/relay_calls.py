"""Calls of the Hub to the relay of its node, as a key of the signed-in user, with a grant (ADR
0041).

The answer is passed on as it arrives. While its reader is busy, nothing more is read from the
relay, which then pauses the upstream. A call ends when the task that makes it ends. Only a few run
at a
time.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

from tornado import httputil
from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.iostream import IOStream, StreamClosedError
from tornado.tcpclient import TCPClient

from conf.settings import ServerSettings
from handlers.hub.web.base import Failure, HubHandler
from operations.chat import AnswerReader
from operations.client_settings import SampleRequest, base_url
from store.calls.usage_queries import Filters, Row, history
from store.values.grants import GRANT_HEADER, request_digest
from store.values.ids import now_ms

MAX_RUNNING, MAX_OF_USER = 20, 2
BUSY_WAIT_S = 5
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 900  # longer than the relay's own time limits
CHUNK_BYTES = 64 << 10
BUFFER_BYTES = 256 << 10
MAX_BODY_BYTES = 1 << 20  # the most that a page shows
MAX_ANSWER_BYTES = 64 << 20
RECORD_WAIT_S, RECORD_LOOK_S = 3.0, 0.15
SHOWN_HEADERS = ("content-type", "retry-after", "x-should-retry", "x-request-id")
"""Headers of an error that are useful to the client."""


class AnswerSink(Protocol):
    """The receiver of an answer."""

    def begin(self, status: int) -> None:
        """Receive the status."""

    async def take(self, chunk: bytes) -> None:
        """Receive a chunk of the body. The call waits until this returns."""


class AnswerText:
    """A sink that collects the model's text from an answer, and up to MAX_BODY_BYTES of a body that
    is not a stream."""

    def __init__(self, family: str, *, is_stream: bool = True) -> None:
        self.is_stream = is_stream
        self._reader = AnswerReader(family)
        self._status = 0
        self._body = bytearray()
        self._pieces: list[str] = []

    def begin(self, status: int) -> None:
        """Receive the status."""
        self._status = status

    async def take(self, chunk: bytes) -> None:
        """Receive a chunk of the body."""
        if self._status == HTTPStatus.OK and self.is_stream:
            self._pieces.append(self._reader.feed(chunk))
        else:
            self._body += chunk[: max(0, MAX_BODY_BYTES - len(self._body))]

    @property
    def raw(self) -> str:
        """Return the body of an answer that is not a stream."""
        return self._body.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """Return the model's text."""
        if self._status == HTTPStatus.OK and not self.is_stream:
            return self._reader.whole(bytes(self._body))
        return "".join(self._pieces)


@dataclass(slots=True)
class RelayAnswer:
    """An answer without its body. `status` None: there was no answer, `error` has the reason.
    `complete` False: the answer was truncated."""

    status: int | None = None
    headers: Mapping[str, str] | None = None
    first_byte_ms: int | None = None
    total_ms: int = 0
    complete: bool = False
    error: str | None = None

    @property
    def request_id(self) -> str | None:
        """Return the id of the call's usage record, if it has one."""
        return (self.headers or {}).get("x-request-id")


@contextlib.contextmanager
def running(handler: HubHandler, count: int = 1) -> Iterator[None]:
    """Count `count` calls of the user while the block runs. Raises Failure if too many are
    running."""
    calls, user = handler.site.relay_calls, handler.me.user_id
    if calls[user] + count > MAX_OF_USER or calls.total() + count > MAX_RUNNING:
        text = "too many calls are running here; try again in a few seconds"
        raise Failure(HTTPStatus.TOO_MANY_REQUESTS, "too_many", text, wait_s=BUSY_WAIT_S)
    calls[user] += count
    try:
        yield
    finally:
        calls[user] -= count
        if not calls[user]:
            del calls[user]


class RelayCall:
    """A call as a key, of which the caller has checked that it belongs to the user. `agent`: the
    client's name in the usage record. `stop` ends the call, so that `run` returns."""

    def __init__(self, handler: HubHandler, key_id: str, agent: str) -> None:
        self._handler, self._key_id, self._agent = handler, key_id, agent
        self._stream: IOStream | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the call. To the relay it looks like a client that disconnects."""
        self._stopped = True
        if self._stream is not None:
            self._stream.close()

    async def run(self, request: SampleRequest, sink: AnswerSink) -> RelayAnswer:
        """Make the call. StreamClosedError of the sink ends it. Raises Failure if there is no
        relay."""
        answer, begin_s = RelayAnswer(), time.monotonic()
        host, port = _address_of(self._handler.site.settings.server)
        body = json.dumps(request.body, ensure_ascii=False).encode()
        fields = {
            **request.headers,
            "Host": f"{host}:{port}",
            "Connection": "close",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": self._agent,
            GRANT_HEADER: self._grant(request.path, body),
        }
        line = httputil.RequestStartLine("POST", request.path, "HTTP/1.1")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._stream = await TCPClient().connect(host, port, max_buffer_size=BUFFER_BYTES)
            if self._stopped:  # while it was connecting
                raise StreamClosedError
            expiry = asyncio.get_running_loop().call_later(ANSWER_TIMEOUT_S, self.stop)
            try:
                connection = HTTP1Connection(self._stream, is_client=True, params=_PARAMETERS)
                await connection.write_headers(line, httputil.HTTPHeaders(fields), body)
                connection.finish()
                await connection.read_response(_Reading(self, answer, sink, begin_s))
            finally:
                expiry.cancel()
        except (OSError, TimeoutError) as error:
            answer.error = str(error) or "no connection in time"
        finally:
            self.stop()
        if answer.status is None and answer.error is None:
            answer.error = "the connection was closed"
        answer.total_ms = _ms_since(begin_s)
        return answer

    def _grant(self, path: str, body: bytes) -> str:
        handler, digest = self._handler, request_digest("POST", path, body)
        if handler.site.grants is None:
            raise Failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "there is no relay here")
        session, address = handler.me.session_id, handler.address
        return handler.site.grants.make(self._key_id, session, address, digest, now_ms=now_ms())


def _address_of(server: ServerSettings) -> tuple[str, int]:
    """Return the host and port at which this machine reaches the relay."""
    url = urlsplit(base_url(ServerSettings(host=server.host, port=server.port)))
    return url.hostname or "", server.port


def _ms_since(begin_s: float) -> int:
    return round((time.monotonic() - begin_s) * 1000)


_PARAMETERS = HTTP1ConnectionParameters(
    no_keep_alive=True, chunk_size=CHUNK_BYTES, max_body_size=MAX_ANSWER_BYTES
)


class _Reading(httputil.HTTPMessageDelegate):
    """Tornado's delegate for one answer. It raises no errors, which Tornado would log."""

    def __init__(
        self, call: RelayCall, answer: RelayAnswer, sink: AnswerSink, begin_s: float
    ) -> None:
        self._call, self._answer, self._sink, self._begin_s = call, answer, sink, begin_s

    def headers_received(self, start_line: Any, headers: httputil.HTTPHeaders) -> None:
        self._answer.status = start_line.code
        self._answer.headers = {name.lower(): value for name, value in headers.get_all()}
        self._sink.begin(start_line.code)

    async def data_received(self, chunk: bytes) -> None:
        if self._answer.first_byte_ms is None:
            self._answer.first_byte_ms = _ms_since(self._begin_s)
        try:
            await self._sink.take(chunk)
        except StreamClosedError:
            self._call.stop()

    def finish(self) -> None:
        self._answer.complete = True


async def record_of(handler: HubHandler, call_id: str | None) -> Row | None:
    """Wait for the usage record of a call and return it. None: it did not appear within
    RECORD_WAIT_S."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECORD_WAIT_S
    while call_id is not None:
        rows = await handler.store(history, Filters(user=handler.me.user, request_id=call_id), 1)
        if rows or loop.time() >= until:
            return rows[0] if rows else None
        await asyncio.sleep(RECORD_LOOK_S)
    return None
