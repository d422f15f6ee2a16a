"""How a request's body is received, and when a refusal is answered.

A refusal known from the head is answered after the body was received and discarded: an early answer
and a close make a proxy answer 502. Exceptions: `Expect: 100-continue`, bodies over the limit,
bodies that do not arrive in time.

A gzipped body is unpacked while it arrives, one step in a turn of the loop, so that neither a bomb
nor a large body blocks the loop. The limit holds for the packed and the unpacked size.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from adapters.faults import Condition, Fault
from handlers.http.base import RelayHandler
from handlers.http.unpack import GZIP, PackedBody, unpacked_if_small
from handlers.relay.admit import client_address

# A trusted proxy makes a 502 of an early answer, so from it so much more is discarded first.
OVERSIZED_PROXY_BYTES = 64 << 20
# A piece of two bytes takes twenty times its size as an object.
_SMALL_PIECE_BYTES = 1024
_UNROUTABLE = "0.0.0.0"


class BodyHandler(RelayHandler):
    """Receives a body within its limits, then calls `complete` or `refused`.

    Subclasses check the head in `check_head` (raising Fault to refuse) and take the body in
    `complete`; `refused` ends the request with the refusal.
    """

    READS_BODY = True  # False: it is received and discarded
    KEEP_OF_REFUSED_BYTES = 0

    refusal: Fault | None = None
    _parts: list[bytes | bytearray] | None = None
    _size = 0
    _packed: PackedBody | None = None
    _unpacking: asyncio.Handle | None = None  # the next step
    _over = False  # `complete` or `refused` was called, or the client disconnected

    # ---- for subclasses --------------------------------------------------------------------------

    def check_head(self) -> Awaitable[None] | None:
        """Checks the head; returns what has to be awaited, None when nothing has."""
        raise NotImplementedError

    def complete(self, body: bytes) -> Coroutine[Any, Any, None] | None:
        """The body is complete."""
        raise NotImplementedError

    def refused(self, fault: Fault, body: bytes) -> None:
        """Ends the request with the refusal; `body` is what was kept of it."""
        self.answer_fault(fault)

    def client_left(self) -> None:
        """The client disconnected before `complete` or `refused` was called."""

    def check_size(self) -> None:
        """Raises Fault TOO_LARGE when the head announces a body over the limit."""
        if self._announces_too_much():
            raise self._too_large()

    def unpack(self, encoding: str) -> None:
        """Sets the body's content-encoding. Raises Fault CONTENT_ENCODING for an unknown one."""
        coding = encoding.lower()
        if coding in GZIP:
            self._packed = PackedBody(self.site.settings.server.max_body_bytes)
        elif coding != "identity":
            raise Fault(Condition.CONTENT_ENCODING)

    # ---- for HandlerRun --------------------------------------------------------------------------

    def prepare(self) -> Coroutine[Any, Any, None] | None:
        """Runs when the head is here; the body, if any, comes afterwards."""
        if self.connection.closed:
            # Pipelined behind a request that closed the connection: no answer is possible.
            self._over = True
            return None
        try:
            waiting = self.check_head()
        except Fault as fault:
            self._refuse(fault)
            return None
        if waiting is not None:
            return self._prepare_later(waiting)
        self._expect_body()
        return None

    async def _prepare_later(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except Fault as fault:
            self._refuse(fault)
        else:
            self._expect_body()

    def data_received(self, chunk: bytes) -> None:
        """A piece of the body."""
        if self._over:
            return
        self._size += len(chunk)
        limit_bytes = self.site.settings.server.max_body_bytes
        if self.refusal is None and self._size <= limit_bytes:
            if self._packed is not None:
                self._packed.feed(chunk)
                self._unpack_soon()
            elif self.READS_BODY:
                self._keep(chunk)
        elif self.refusal is None:
            self._refuse(self._too_large())
        elif self._size > self._discard_limit_bytes():
            self._end_refused()
        elif self._size <= self.KEEP_OF_REFUSED_BYTES:
            self._keep(chunk)
        else:
            self._parts = None

    def body_done(self) -> Coroutine[Any, Any, None] | None:
        """The body was received: refuses, or goes on."""
        self.site.bodies.drop(self)
        if self._over:
            return None
        if self.refusal is not None:
            self._end_refused()
            return None
        if self._packed is not None:
            return self._complete_unpacked(self._packed)
        self._over = True
        return self.complete(self._take_body())

    def on_connection_close(self) -> None:
        """The client disconnected, or the request was answered before its body was received."""
        super().on_connection_close()
        self.site.bodies.drop(self)
        if not self._over:
            self._over = True
            self._forget_body()
            self.client_left()

    def expire(self) -> None:
        """The body did not arrive in time."""
        if not self._over:
            self.refusal = self.refusal or Fault(Condition.BODY_TIMEOUT)
            self._end_refused()

    # ---- packed bodies ---------------------------------------------------------------------------

    def _unpack_soon(self) -> None:
        if self._unpacking is None:
            self._unpacking = asyncio.get_running_loop().call_soon(self._unpack_some)

    def _unpack_some(self) -> None:
        """One step; a body over the limit is refused at once."""
        self._unpacking = None
        if self._packed is None:
            return
        try:
            if self._packed.step():
                self._unpack_soon()
        except Fault as fault:
            self._refuse(self._worded(fault))

    async def _complete_unpacked(self, packed: PackedBody) -> None:
        """The packed body is complete: unpacks the rest, and goes on."""
        if self._unpacking is not None:
            self._unpacking.cancel()
        body = b""
        try:
            while self._still_wanted and packed.step():  # noqa: ASYNC110 - others have their turn
                await asyncio.sleep(0)
            if self._still_wanted:
                body = packed.take()
        except Fault as fault:
            self.refusal = self._worded(fault)
        if self._over:
            return
        if self.refusal is not None:
            self._end_refused()
            return
        self._over = True
        self._packed = None
        waiting = self.complete(body)
        if waiting is not None:
            await waiting

    @property
    def _still_wanted(self) -> bool:
        return not self._over and self.refusal is None

    def _worded(self, fault: Fault) -> Fault:
        return self._too_large() if fault.condition is Condition.TOO_LARGE else fault

    # ---- refusals --------------------------------------------------------------------------------

    def _refuse(self, fault: Fault) -> None:
        """Answers the refusal now, or after the body."""
        self.refusal = fault
        self._forget_body()
        oversized = fault.condition is Condition.TOO_LARGE or self._announces_too_much()
        early = oversized and not self._proxy_sends_it_all()
        if early:
            self.connection.linger_long()
        if early or self.request.expects_continue():
            self._end_refused()
        else:
            self._expect_body()

    def _end_refused(self) -> None:
        self._over = True
        self.site.bodies.drop(self)
        assert self.refusal is not None
        body = self._take_body()
        if body and self.request.headers.get("content-encoding", "").lower() in GZIP:
            body = unpacked_if_small(body, self.KEEP_OF_REFUSED_BYTES)
        self.refused(self.refusal, body)

    def _forget_body(self) -> None:
        self._parts = self._packed = None

    def _take_body(self) -> bytes:
        """The whole body, without keeping a copy."""
        parts, self._parts = self._parts, None
        return b"".join(parts or ())

    def _keep(self, chunk: bytes) -> None:
        parts = self._parts
        if parts is None:
            self._parts = [chunk]
        elif len(chunk) >= _SMALL_PIECE_BYTES:
            parts.append(chunk)
        elif isinstance(parts[-1], bytearray):
            parts[-1] += chunk
        else:
            parts.append(bytearray(chunk))

    def _expect_body(self) -> None:
        if self.request.announces_body() and not self._over:
            self.site.bodies.set(self, self.site.settings.server.body_timeout_s)

    def _announces_too_much(self) -> bool:
        return self._announced_bytes() > self.site.settings.server.max_body_bytes

    def _announced_bytes(self) -> int:
        """The announced length; 0 without one (the parser has checked its form)."""
        return int(self.request.headers.get("content-length", "0"))

    def _proxy_sends_it_all(self) -> bool:
        return self._from_trusted_proxy() and self._announced_bytes() <= OVERSIZED_PROXY_BYTES

    def _from_trusted_proxy(self) -> bool:
        peer = self.connection.peer
        return client_address(peer, _UNROUTABLE, self.site.trusted) != peer

    def _discard_limit_bytes(self) -> int:
        limit_bytes = self.site.settings.server.max_body_bytes
        if self._from_trusted_proxy():
            return max(limit_bytes, OVERSIZED_PROXY_BYTES)
        return limit_bytes

    def _too_large(self) -> Fault:
        limit = self.site.settings.server.max_body_bytes
        text = f"{limit >> 20} MiB" if limit % (1 << 20) == 0 else f"{limit} bytes"
        return Fault(Condition.TOO_LARGE, f"The body is larger than {text}.")
