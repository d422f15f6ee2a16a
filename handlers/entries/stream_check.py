"""GET /v1/sluice/stream: a stream without a model, with which `doctor` tests proxies before it.

It costs nothing and makes no usage record. Each key may have one at a time, over all workers of the
node, because an open stream occupies a connection.
"""

import asyncio
from collections.abc import Awaitable

from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps
from handlers.entries.intake import KeyedHandler
from handlers.relay.limits.cells import Slots
from handlers.relay.pump import STREAM_HEADERS

PATH = "/v1/sluice/stream"
EVENTS = 20
INTERVAL_S = 0.1
BUSY_WAIT_S = 2

# Headers that clients of the four families send and a proxy may drop. The first event names those
# that arrived.
WATCHED = (
    *("authorization", "anthropic-version", "anthropic-beta", "openai-organization"),
    *("x-client-request-id", "traceparent"),
)


class StreamCheckHandler(KeyedHandler):
    """The handler of a stream of EVENTS events, one every INTERVAL_S. The first lists what arrived
    of the request."""

    ALLOW = "GET, HEAD"
    READS_BODY = False

    _slots: Slots | None = None
    _timer: asyncio.TimerHandle | None = None
    _sent = 0

    @property
    def endpoint(self) -> str:
        return PATH

    def check_head(self) -> Awaitable[None] | None:
        if self.request.method not in ("GET", "HEAD"):
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=self.ALLOW)
        return self.check_credential()

    def complete(self, body: bytes) -> None:
        """Start the stream, unless the key has one already. HEAD gets only the response head."""
        headers = (("Content-Type", "text/event-stream"), *STREAM_HEADERS)
        if self.request.method == "HEAD":
            self.respond(b"", 200, headers)
            return
        entered = self.site.relay.limits.enter_alone(f"stream check of key {self._key.id}")
        if isinstance(entered, Fault):
            self._refuse_busy(entered)
            return
        self._slots = entered
        self.connection.start(200, (*self.base_headers(), *headers), self._event())
        self._next()

    def on_connection_close(self) -> None:
        """Release what the stream holds: the client has disconnected."""
        super().on_connection_close()
        self._give_back()

    def _refuse_busy(self, fault: Fault) -> None:
        """Answer 429 in the caller's dialect. The refusal is not counted."""
        fault.retry_after_s = BUSY_WAIT_S
        fault.message = f"This API key has such a stream already. Try again in {BUSY_WAIT_S}s."
        envelope = self.dialect.client.encode_fault(fault, self.call_id)
        self.respond(envelope.body, envelope.status, tuple(envelope.headers.items()))

    def _next(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._send)

    def _send(self) -> None:
        if self.connection.closed:
            self._give_back()
        elif self._sent + 1 < EVENTS:
            self.connection.send(self._event())
            self._next()
        else:
            self._give_back()
            self.connection.finish(self._event())

    def _event(self) -> bytes:
        fields = {} if self._sent else self._seen()
        self._sent += 1
        return b"data: %b\n\n" % dumps({"event": self._sent, "of": EVENTS, **fields})

    def _seen(self) -> dict[str, object]:
        """Return what arrived of the request: the names of headers, and the client's address."""
        headers = self.request.headers
        return {
            "headers": [name for name in WATCHED if name in headers],
            "client_ip": self.client_ip(),
            "forwarded": "x-forwarded-for" in headers,
            "proxy_trusted": self._from_trusted_proxy(),
            "max_body_bytes": self.site.settings.server.max_body_bytes,
        }

    def _give_back(self) -> None:
        """Release the timer and slots of the stream. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._slots is not None:
            self.site.relay.limits.leave(self._slots, None)
            self._slots = None
