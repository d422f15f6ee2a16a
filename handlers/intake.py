"""How a request's body is taken in, and when a refusal is answered.

A refusal known from the head still lets the body pass by first: answering early and closing makes
a proxy turn the answer into a 502 of its own. Except where waiting would be worse:
`Expect: 100-continue`, bodies over the limit, bodies that do not come in time.
"""

from collections.abc import Awaitable

from adapters.faults import Condition, Fault
from handlers.base import RelayHandler, Site
from handlers.relay.admit import client_address

# A trusted proxy makes a 502 of an early answer, so from it so much more is discarded first.
OVERSIZED_PROXY_BYTES = 64 << 20
_UNROUTABLE = "0.0.0.0"


class BodyHandler(RelayHandler):
    """Takes a body in, within its limits, and hands it to `complete` or refuses.

    Subclasses say in `check_head` what they make of the head (raising Fault to refuse) and in
    `complete` what they do with the body; `refused` ends the request with the refusal.
    """

    READS_BODY = True  # False: it is taken in like any other and thrown away
    KEEP_OF_REFUSED_BYTES = 0

    def initialize(self, site: Site) -> None:
        """Takes what the URL table passes."""
        super().initialize(site)
        self.refusal: Fault | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._over = False  # `complete` or `refused` was called, or the client has left

    # ---- for subclasses --------------------------------------------------------------------------

    def check_head(self) -> Awaitable[None] | None:
        """Checks what the head can tell; None when nothing had to be waited for."""
        raise NotImplementedError

    def complete(self, body: bytes) -> Awaitable[None] | None:
        """The body is here."""
        raise NotImplementedError

    def refused(self, fault: Fault, body: bytes) -> None:
        """Ends the request with the refusal; `body` is what was kept of it."""
        self.answer_fault(fault)

    def client_left(self) -> None:
        """The connection closed before `complete` or `refused` was called."""

    def check_size(self) -> None:
        """Raises Fault E15 when the head announces a body over the limit."""
        if self._announces_too_much:
            raise self._too_large()

    # ---- for HandlerRun --------------------------------------------------------------------------

    def prepare(self) -> Awaitable[None] | None:
        """Runs when the head is here; the body, if any, comes afterwards."""
        if self.connection.closed:
            # Pipelined behind a request that closed the connection: nobody would get the answer.
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
            if self.READS_BODY:
                self._parts.append(chunk)
        elif self.refusal is None:
            self._refuse(self._too_large())
        elif self._size > self._discard_limit_bytes():
            self._end_refused()
        elif self._size <= self.KEEP_OF_REFUSED_BYTES:
            self._parts.append(chunk)
        else:
            self._parts.clear()

    def body_done(self) -> Awaitable[None] | None:
        """The body has passed: refuse, or go on."""
        self.site.bodies.drop(self)
        if self._over:
            return None
        if self.refusal is not None:
            self._end_refused()
            return None
        self._over = True
        return self.complete(self._take_body())

    def on_connection_close(self) -> None:
        """The client is gone, or its request was answered before the body was here."""
        super().on_connection_close()
        self.site.bodies.drop(self)
        if not self._over:
            self._over = True
            self._parts.clear()
            self.client_left()

    def expire(self) -> None:
        """The body did not come in time."""
        if not self._over:
            self.refusal = self.refusal or Fault(Condition.BODY_TIMEOUT)
            self._end_refused()

    # ---- refusals --------------------------------------------------------------------------------

    def _refuse(self, fault: Fault) -> None:
        """Decides whether the refusal is answered now or when the body has passed by."""
        self.refusal = fault
        self._parts.clear()
        oversized = fault.condition is Condition.TOO_LARGE or self._announces_too_much
        if self.request.expects_continue or (oversized and not self._proxy_sends_it_all()):
            self._end_refused()
        else:
            self._expect_body()

    def _end_refused(self) -> None:
        self._over = True
        self.site.bodies.drop(self)
        assert self.refusal is not None
        self.refused(self.refusal, self._take_body())

    def _take_body(self) -> bytes:
        """The whole body; nothing keeps a copy of it."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _expect_body(self) -> None:
        if self.request.announces_body and not self._over:
            self.site.bodies.set(self, self.site.settings.server.body_timeout_s)

    @property
    def _announces_too_much(self) -> bool:
        return self._announced_bytes() > self.site.settings.server.max_body_bytes

    def _announced_bytes(self) -> int:
        """The length that the head says; 0 when it says none (the parser has checked its form)."""
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
