"""What every answer of the relay port shares: ids, error dialects, and how a body is taken in.

`BodyHandler` keeps the promises about bodies: a refusal known from the head still lets the body
pass by first (answering early and closing makes a proxy turn the answer into a 502), except where
waiting would be worse: `Expect: 100-continue`, and bodies over the limit.
"""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tornado.web import Finish, RequestHandler, stream_request_body

from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from conf.settings import Settings
from handlers.relay.admit import Network, client_address
from handlers.relay.call import Arrival
from handlers.relay.pipeline import Relay, wall_ms
from store.ids import new_ulid

log = logging.getLogger("sluice.http")

CLIENT_REQUEST_ID_MAX = 128
USER_AGENT_MAX = 256
# After an answer to a body that is too large: so much of it is still read, so long, so that the
# client sees the answer and not a reset connection.
OVERSIZED_DRAIN_BYTES = 1 << 20
OVERSIZED_DRAIN_S = 2
# A proxy turns an early answer into a 502 of its own, so from a trusted one more is discarded.
OVERSIZED_PROXY_BYTES = 64 << 20
UNBOUNDED_BYTES = 1 << 62  # Tornado's own limit closes without an answer; ours is checked here


class Expiring(Protocol):
    """Something that waits for the client."""

    def expire(self) -> None: ...


@dataclass(slots=True)
class Deadlines:
    """What waits for bytes of a client, with the second at which its patience ends.

    One sweep a second serves all, for a timer of its own costs a request 15 us.
    """

    now_s: int = 0
    _due_s: dict[Expiring, int] = field(default_factory=dict)

    def set(self, waiting: Expiring, seconds: float) -> None:
        """`waiting.expire()` is called at the first sweep after `seconds`."""
        self._due_s[waiting] = self.now_s + int(seconds) + 1

    def drop(self, waiting: Expiring) -> None:
        """Nothing is waited for any more. Idempotent."""
        self._due_s.pop(waiting, None)

    def sweep(self, now_s: int) -> None:
        """Expires what is due; called once a second."""
        self.now_s = now_s
        for waiting in [w for w, due_s in self._due_s.items() if due_s <= now_s]:
            self._due_s.pop(waiting, None)
            waiting.expire()


@dataclass(slots=True)
class Site:
    """What all handlers of a worker share."""

    settings: Settings
    relay: Relay
    bodies: Deadlines
    trusted: tuple[Network, ...]
    base_url: str
    draining: bool = False


class RelayHandler(RequestHandler):
    """Ids on every answer, errors in the caller's dialect, JSON only."""

    ALLOW = "POST"
    site: Site
    call_id: str

    def initialize(self, site: Site) -> None:
        """Takes what the URL table passes."""
        self.site = site
        if site.draining:
            self.set_header("Connection", "close")

    def set_default_headers(self) -> None:
        """The request id goes out with every answer, under both names that SDKs read."""
        if not hasattr(self, "call_id"):
            self.call_id = new_ulid()
        self.set_header("Server", "sluice")
        self.set_header("Content-Type", "application/json")
        self.set_header("x-request-id", self.call_id)
        self.set_header("request-id", self.call_id)

    def compute_etag(self) -> None:
        """No answer of a relay is cached."""

    @property
    def dialect(self) -> Family:
        """The family whose error shape this request gets: by its headers when the path is mute."""
        headers = self.request.headers
        if any(name in headers for name in ("anthropic-version", "compat-version", "x-api-key")):
            return FAMILIES["messages"]
        return FAMILIES["chat_completions"]

    def arrival(self) -> Arrival:
        """What the head says about the caller."""
        request = self.request
        headers = request.headers
        client_id = headers.get("X-Client-Request-Id")
        if client_id is not None and not _visible_ascii(client_id):
            client_id = None
        agent = headers.get("User-Agent")
        return Arrival(
            call_id=self.call_id,
            started_ms=wall_ms(),
            client_ip=client_address(
                request.remote_ip or "", headers.get("X-Forwarded-For"), self.site.trusted
            ),
            user_agent=agent[:USER_AGENT_MAX] if agent else None,
            client_request_id=client_id,
        )

    def answer_fault(self, fault: Fault) -> None:
        """Ends the request with an error in its dialect."""
        envelope = self.dialect.encode_fault(fault, self.call_id)
        self.set_status(envelope.status)
        for name, value in envelope.headers.items():
            self.set_header(name, value)
        self.finish(envelope.body)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Tornado's own refusals and our bugs, in the caller's dialect."""
        if status_code == 405:
            self.answer_fault(Fault(Condition.METHOD_NOT_ALLOWED, allow=self.ALLOW))
        else:
            self.answer_fault(Fault(Condition.INTERNAL))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """A bug: its traceback goes to the log, the request id connects it with the answer."""
        if not isinstance(value, Exception) or getattr(value, "status_code", 500) >= 500:
            log.error("request %s failed", self.call_id, exc_info=(typ, value, tb))


def _visible_ascii(text: str) -> bool:
    return 0 < len(text) <= CLIENT_REQUEST_ID_MAX and all("!" <= char <= "~" for char in text)


@stream_request_body
class BodyHandler(RelayHandler):
    """Takes a body in, within its limits, and hands it to `complete` or refuses.

    Subclasses say in `check_head` what they make of the head (raising Fault to refuse) and in
    `complete` what they do with the body; `refused` ends the request with the refusal.
    """

    KEEP_OF_REFUSED_BYTES = 0

    def initialize(self, site: Site) -> None:
        """Takes what the URL table passes."""
        super().initialize(site)
        self.refusal: Fault | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._answered = False
        self._over = False

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
        """The connection closed before `complete` was called."""

    def prepare(self) -> Awaitable[None] | None:
        """Runs when the head is here; the body, if any, comes afterwards."""
        connection = self.request.connection
        assert connection is not None
        if connection.stream.closed():  # type: ignore[attr-defined]
            # Pipelined behind a request that closed the connection: nobody would get the answer.
            raise Finish
        connection.set_max_body_size(UNBOUNDED_BYTES)  # type: ignore[attr-defined]
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

    def _expect_body(self) -> None:
        headers = self.request.headers
        if "Content-Length" in headers or "Transfer-Encoding" in headers:
            self.site.bodies.set(self, self.site.settings.server.body_timeout_s)

    def check_size(self) -> None:
        """Raises Fault E15 when the head announces a body over the limit."""
        length = self.request.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit():
            if int(length) > self.site.settings.server.max_body_bytes:
                raise Fault(Condition.TOO_LARGE, _too_large(self.site.settings))

    def _refuse(self, fault: Fault) -> None:
        """Decides whether the refusal is answered now or when the body has passed by."""
        self.refusal = fault
        headers = self.request.headers
        if headers.get("Expect", "").lower() == "100-continue":
            self.set_header("Connection", "close")
            self._end_refused()
            return
        self._expect_body()
        if fault.condition is Condition.TOO_LARGE:
            self._refuse_oversized()

    def _refuse_oversized(self) -> None:
        length = self.request.headers.get("Content-Length", "")
        announced = int(length) if length.isdigit() else OVERSIZED_PROXY_BYTES
        if self._from_trusted_proxy() and announced <= OVERSIZED_PROXY_BYTES:
            return
        self._answer_before_body()

    def _answer_before_body(self) -> None:
        """Answers, then reads on for a moment so that the client sees the answer, then closes."""
        assert self.refusal is not None
        self._answered = True
        envelope = self.dialect.encode_fault(self.refusal, self.call_id)
        self.set_status(envelope.status)
        for name, value in envelope.headers.items():
            self.set_header(name, value)
        self.set_header("Connection", "close")
        self.set_header("Content-Length", str(len(envelope.body)))
        self.write(envelope.body)
        self.flush()
        self.note_refusal(self.refusal, envelope.status, b"")
        self._size = 0
        self.site.bodies.set(self, OVERSIZED_DRAIN_S)

    def note_refusal(self, fault: Fault, status: int, body: bytes) -> None:
        """A refusal was answered before the body: what has to be recorded is recorded now."""

    def _from_trusted_proxy(self) -> bool:
        peer = self.request.remote_ip or ""
        return client_address(peer, "0.0.0.0", self.site.trusted) != peer

    def data_received(self, chunk: bytes) -> None:
        """A piece of the body."""
        if self._over:
            return
        self._size += len(chunk)
        if self._answered:
            if self._size > OVERSIZED_DRAIN_BYTES:
                self._close()
            return
        if self.refusal is not None:
            if self._size <= self.KEEP_OF_REFUSED_BYTES:
                self._parts.append(chunk)
            else:
                self._parts.clear()
            if self._size > self._discard_limit():
                self._answer_before_body()
            return
        if self._size > self.site.settings.server.max_body_bytes:
            self._parts.clear()
            self.refusal = Fault(Condition.TOO_LARGE, _too_large(self.site.settings))
            self._refuse_oversized()
            return
        self._parts.append(chunk)

    def _discard_limit(self) -> int:
        limit = self.site.settings.server.max_body_bytes
        return max(limit, OVERSIZED_PROXY_BYTES) if self._from_trusted_proxy() else limit

    def take_body(self) -> bytes:
        """The whole body; nothing keeps a copy of it."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _body_done(self) -> Awaitable[None] | None:
        """The body has passed: refuse, or go on."""
        self.site.bodies.drop(self)
        if self._over:
            return None
        self._over = True
        if self._answered:
            self.finish()
            return None
        if self.refusal is not None:
            self.refused(self.refusal, self.take_body())
            return None
        return self.complete(self.take_body())

    head = get = post = delete = patch = put = options = _body_done

    def _end_refused(self) -> None:
        self._over = True
        assert self.refusal is not None
        self.refused(self.refusal, b"")

    def _close(self) -> None:
        self._over = True
        self.site.bodies.drop(self)
        self.finish()

    def expire(self) -> None:
        """The body did not come in time."""
        if self._over:
            return
        if self._answered:
            self._close()
            return
        self.refusal = self.refusal or Fault(Condition.BODY_TIMEOUT)
        self.set_header("Connection", "close")
        self._end_refused()

    def on_connection_close(self) -> None:
        """The client is gone."""
        super().on_connection_close()
        self.site.bodies.drop(self)
        if not self._over:
            self._over = True
            self._parts.clear()
            if not self._answered:
                self.client_left()


def _too_large(settings: Settings) -> str:
    limit = settings.server.max_body_bytes
    text = f"{limit >> 20} MiB" if limit % (1 << 20) == 0 else f"{limit} bytes"
    return f"The body is larger than {text}."
