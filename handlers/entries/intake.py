"""The reception of a request's body, and the time at which a refusal is answered.

A refusal that is known from the request head is answered only after the body was received and
discarded: if an answer and a close come earlier, a proxy answers 502. Exceptions are `Expect:
100-continue`, bodies over the limit or without memory for them, and bodies that do not arrive in
time.

A compressed body is unpacked while it arrives, one step in each turn of the loop, so that neither a
bomb nor a large body blocks the loop. The limit applies to both the packed and the unpacked size.

The bytes of a known key's bodies are counted (handlers.relay.limits.body_memory), unless the first
chunk is the whole body. Most bodies are like that, and are handled in the same turn.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from adapters.faults import Condition, Fault
from handlers.client_address import client_address
from handlers.entries.base import RelayHandler
from handlers.entries.unpack import CODINGS, PackedBody, keep_piece, unpacked_if_small
from handlers.relay import admit
from handlers.relay.limits.body_memory import BodyHold, size_text
from store.catalog.key_cache import MISS
from store.catalog.keys import KeyEntry

# A trusted proxy turns an early answer into a 502, so up to this many bytes are discarded first.
OVERSIZED_PROXY_BYTES = 64 << 20
_NO_MEMORY = frozenset({Condition.RATE_LIMITED, Condition.UNAVAILABLE})  # after the first chunk
_UNROUTABLE = "0.0.0.0"


class BodyHandler(RelayHandler):
    """A handler that receives a body within its limits, then calls `complete` or `refused`.

    Subclasses check the request head in `check_head`, which raises Fault to refuse, and process the
    body in `complete`. `refused` ends the request with the refusal.
    """

    READS_BODY = True  # False: it is received and discarded
    KEEP_OF_REFUSED_BYTES = 0  # after a refusal in LOOKED_INTO
    LOOKED_INTO: frozenset[Condition] = frozenset()  # after these `refused` reads a small body

    refusal: Fault | None = None
    _keep_bytes = 0  # of a refused body
    _hold: BodyHold | None = None
    _parts: list[bytes | bytearray] | None = None
    _announced_bytes = 0  # also without a length; the parser has checked its form
    _size = 0
    _packed: PackedBody | None = None
    _unpacking: asyncio.Handle | None = None  # the next step
    _over = False  # `complete` or `refused` was called, or the client disconnected

    @property
    def limit_bytes(self) -> int:
        """Return the size of the largest body, also after unpacking."""
        return self.site.settings.server.max_body_bytes

    def check_head(self) -> Awaitable[None] | None:
        """Check the request head. Return an awaitable if the check has to wait, else None."""
        raise NotImplementedError

    def complete(self, body: bytes) -> Coroutine[Any, Any, None] | None:
        """Process the complete body."""
        raise NotImplementedError

    def refused(self, fault: Fault, body: bytes) -> None:
        """End the request with the refusal. `body`: the part of it that was stored."""
        self.answer_fault(fault)

    def hold_body(self) -> BodyHold | None:
        """Return a count of the body's bytes, or None for an unknown caller."""
        return None

    def client_left(self) -> None:
        """Note that the client disconnected before `complete` or `refused` was called."""

    def check_size(self) -> None:
        """Raise Fault TOO_LARGE if the request head announces a body over the limit."""
        if self._announces_too_much():
            raise self._too_large()

    def unpack(self, encoding: str) -> None:
        """Set the body's content-encoding. Raises Fault CONTENT_ENCODING for an unknown one."""
        coding = encoding.lower()
        if coding in CODINGS:
            self._packed = PackedBody(coding, self.limit_bytes)
        elif coding != "identity":
            raise Fault(Condition.CONTENT_ENCODING)

    def prepare(self) -> Coroutine[Any, Any, None] | None:
        """Check the request head. The body, if any, comes afterwards."""
        if self.connection.closed:
            # Pipelined after a request that closed the connection, so no answer is possible.
            self._over = True
            return None
        self._announced_bytes = int(self.request.headers.get("content-length", "0"))
        try:
            waiting = self.check_head()
        except Fault as fault:
            self._refuse_head(fault)
            return None
        if waiting is not None:
            return self._prepare_later(waiting)
        self._expect_body()
        return None

    async def _prepare_later(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except Fault as fault:
            self._refuse_head(fault)
        else:
            self._expect_body()

    def data_received(self, chunk: bytes) -> None:
        """Receive a chunk of the body."""
        if self._over:
            return
        self._size += len(chunk)
        if self.refusal is None and self._size <= self.limit_bytes:
            self._take(chunk)
        elif self.refusal is None:
            self._refuse(self._too_large())
        elif self._size > self._discard_limit_bytes():
            self._end_refused()
        elif self._size <= self._keep_bytes:
            self._take(chunk)
        elif self._parts is not None:
            self._forget_body()

    def body_done(self) -> Coroutine[Any, Any, None] | None:
        """Refuse or process the request: its body was received."""
        self.site.bodies.drop(self)
        if self._over:
            return None
        if self.refusal is not None:
            self._end_refused()
            return None
        if self._packed is not None:
            return self._complete_unpacked(self._packed)
        self._over = True
        if self._hold is not None:
            self._hold.finish()
        return self.complete(self._take_body())

    def on_connection_close(self) -> None:
        """End the request: the client disconnected, or was answered before the body was
        received."""
        super().on_connection_close()
        self.site.bodies.drop(self)
        if not self._over:
            self._over = True
            self._forget_body()
            self.client_left()

    def expire(self) -> None:
        """Refuse a body that did not arrive in time."""
        if not self._over:
            self.refusal = self.refusal or Fault(Condition.BODY_TIMEOUT)
            self._end_refused()

    def _evict(self, fault: Fault) -> None:
        """Refuse the unfinished body because its memory is needed. If it is refused already, store
        no more of it."""
        if self.refusal is None:
            self._refuse(fault)
        else:
            self._keep_bytes = 0
            self._forget_body()

    def _take(self, chunk: bytes) -> None:
        """Store the next chunk, unless the memory for it is refused."""
        try:
            if self._packed is not None:
                self._packed.feed(chunk)
                self._count(self._packed.held_bytes)
                self._unpack_soon()
            elif self.READS_BODY:
                self._keep(chunk)
        except Fault as fault:
            self._evict(fault)

    def _keep(self, chunk: bytes) -> None:
        """Store a chunk. Raises Fault RATE_LIMITED or UNAVAILABLE if the memory is refused."""
        parts = self._parts
        if parts is None:
            if self._size != self._announced_bytes:
                self._count(self._size)
            self._parts = [chunk]
            return
        self._count(self._size)
        keep_piece(parts, chunk)

    def _count(self, held_bytes: int) -> None:
        hold = self._hold
        if hold is None:
            self._hold = hold = self.hold_body()
        if hold is not None:
            hold.resize(held_bytes)

    def _forget_body(self) -> None:
        self._parts = self._packed = None
        if self._hold is not None:
            self._hold.release()

    def _take_body(self) -> bytes:
        """Return the whole body without keeping a copy."""
        parts, self._parts = self._parts, None
        return b"".join(parts or ())

    def _unpack_soon(self) -> None:
        if self._unpacking is None:
            self._unpacking = asyncio.get_running_loop().call_soon(self._unpack_some)

    def _unpack_some(self) -> None:
        """Unpack one step. A body over the limit is refused at once."""
        self._unpacking = None
        if self._packed is None:
            return
        try:
            if self._packed.step():
                self._unpack_soon()
            self._count(self._packed.held_bytes)
        except Fault as fault:
            self._refuse(self._worded(fault))

    async def _complete_unpacked(self, packed: PackedBody) -> None:
        """Unpack the rest of a complete body, then process it."""
        if self._unpacking is not None:
            self._unpacking.cancel()
        if self._hold is not None:
            self._hold.finish()
        body = b""
        try:
            while self._unpacks and packed.step():
                self._count(packed.held_bytes)
                await asyncio.sleep(0)  # let other tasks run
            if self._unpacks:
                body = packed.take()
                self._count(len(body))
        except Fault as fault:
            self._set_refusal(self._worded(fault))
        except Exception:
            self._forget_body()
            raise
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
    def _unpacks(self) -> bool:
        return not self._over and self.refusal is None

    def _worded(self, fault: Fault) -> Fault:
        return self._too_large() if fault.condition is Condition.TOO_LARGE else fault

    def _refuse_head(self, fault: Fault) -> None:
        if fault.condition in self.LOOKED_INTO:
            self._keep_bytes = self.KEEP_OF_REFUSED_BYTES
        self._refuse(fault)

    def _refuse(self, fault: Fault) -> None:
        """Answer the refusal now or after the body."""
        self._set_refusal(fault)
        self._forget_body()
        oversized = fault.condition is Condition.TOO_LARGE or self._announces_too_much()
        undesired = oversized or (self._size > 0 and fault.condition in _NO_MEMORY)
        early = undesired and not self._proxy_sends_it_all()
        if early:
            self.connection.linger_long()
        if early or self.request.expects_continue():
            self._end_refused()
        else:
            self._expect_body()

    def _set_refusal(self, fault: Fault) -> None:
        # The traceback's frames refer to the body's chunks and to this handler, a cycle that only
        # the garbage collector would free.
        fault.__traceback__ = fault.__cause__ = fault.__context__ = None
        self.refusal = fault

    def _end_refused(self) -> None:
        self._over = True
        self.site.bodies.drop(self)
        assert self.refusal is not None
        body = self._take_body()
        coding = self.request.headers.get("content-encoding", "").lower()
        if body and coding in CODINGS:
            body = unpacked_if_small(coding, body, self.KEEP_OF_REFUSED_BYTES)
        self._forget_body()
        self.refused(self.refusal, body)

    def _expect_body(self) -> None:
        if self.request.announces_body() and not self._over:
            self.site.bodies.set(self, self.site.settings.server.body_timeout_s)

    def _announces_too_much(self) -> bool:
        return self._announced_bytes > self.limit_bytes

    def _proxy_sends_it_all(self) -> bool:
        return self._from_trusted_proxy() and self._announced_bytes <= OVERSIZED_PROXY_BYTES

    def _from_trusted_proxy(self) -> bool:
        peer = self.connection.peer
        return client_address(peer, _UNROUTABLE, self.site.trusted) != peer

    def _discard_limit_bytes(self) -> int:
        if self._from_trusted_proxy():
            return max(self.limit_bytes, OVERSIZED_PROXY_BYTES)
        return self.limit_bytes

    def _too_large(self) -> Fault:
        size = size_text(self.limit_bytes)
        return Fault(Condition.TOO_LARGE, f"The body is larger than {size}.")


class KeyedHandler(BodyHandler):
    """A handler for callers with an API key. Subclasses may add checks in `check_key`."""

    _key: KeyEntry

    def check_credential(self) -> Awaitable[None] | None:
        """Check the key of the request. A key that is not in memory is looked up in the store."""
        secret = admit.credential(self.credential_field, self.dialect.client.credentials)
        entry = self.site.relay.keys.peek(secret)
        if entry is MISS:
            return self._check_later(secret)
        if entry is None:
            raise admit.unknown_key(secret)
        self.check_key(entry)
        return None

    def check_key(self, key: KeyEntry) -> None:
        """Check that a known key may be used. Raises Fault if the request is refused."""
        arrival = self.arrival()
        admit.check_key(key, arrival.client_ip, arrival.started_ms)
        self._key = key

    async def _check_later(self, secret: str) -> None:
        self.check_key(await admit.find_key(self.site.relay.keys, secret))
