"""The base of all handlers of the relay port: ids, error dialects, deadlines.

Answers are written to the connection in one write: Tornado's own code takes 40 us more. Imported by
the endpoint handlers.
"""

import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl

from tornado.web import RequestHandler

from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from conf.settings import Settings
from handlers.client_address import Network, client_address
from handlers.entries import cors
from handlers.entries.grants import Grants
from handlers.http.connection import ClientConnection, Header
from handlers.http.request import Request
from handlers.relay.call import Arrival, Call, Ending
from handlers.relay.downstream import Downstream
from handlers.relay.limits.body_memory import BodyHold, BodyMemory
from handlers.relay.limits.limits import Limits
from handlers.telemetry.calls import Telemetry, Unrecorded
from handlers.telemetry.trace import trace_of
from store.catalog.catalog import Snapshot
from store.catalog.key_cache import KeyCache
from store.catalog.keys import KeyEntry
from store.hub.key_view import KeyView
from store.values.ids import new_ulid, now_ms

CLIENT_REQUEST_ID_MAX = 128
USER_AGENT_MAX = 256
QUERY_FIELDS_MAX = 100

JSON: tuple[Header, ...] = (("Content-Type", "application/json"),)


class Expiring(Protocol):
    """An object that waits for bytes of a client."""

    def expire(self) -> None: ...


@dataclass(slots=True)
class Deadlines:
    """Deadlines of objects that wait for bytes of a client. One sweep a second serves them all: a
    timer would cost a request 15 us."""

    now_s: int = field(default_factory=lambda: int(time.monotonic()))
    _due_s: dict[Expiring, int] = field(default_factory=dict)

    def set(self, waiting: Expiring, seconds: int) -> None:
        """Set a deadline: `waiting.expire()` is called at the first sweep after `seconds`."""
        self._due_s[waiting] = self.now_s + seconds + 1

    def drop(self, waiting: Expiring) -> None:
        self._due_s.pop(waiting, None)

    def sweep(self, now_s: int) -> None:
        """Expire what is due. Called once a second with the loop's time."""
        self.now_s = now_s
        for waiting in [w for w, due_s in self._due_s.items() if due_s <= now_s]:
            self._due_s.pop(waiting, None)
            waiting.expire()


class PathNotes(Protocol):
    """The notes of calls of wrong paths (handlers.entries.wrong_paths)."""

    def note(self, handler: "RelayHandler") -> None: ...


class CallRelay(Protocol):
    """The relay of a worker (handlers.relay.pipeline), as its handlers use it."""

    snapshot: Snapshot
    keys: KeyCache
    limits: Limits
    body_memory: BodyMemory

    def run(
        self, call: Call, body: bytes, downstream: Downstream, body_hold: BodyHold | None = None
    ) -> Coroutine[Any, Any, None]: ...

    def end(self, call: Call, ending: Ending, downstream: Downstream) -> None: ...

    def record_gone(self, call: Call) -> None: ...


class KeyViewReader(Protocol):
    """The reader of views of keys (handlers.entries.key_view)."""

    def read(self, key: KeyEntry) -> Coroutine[Any, Any, KeyView]: ...


@dataclass(slots=True)
class Site:
    """The parts of a worker that all its handlers use."""

    settings: Settings
    relay: CallRelay
    telemetry: Telemetry
    bodies: Deadlines
    trusted: tuple[Network, ...]
    base_url: str
    wrong_paths: PathNotes | None = None  # None: they are not noted
    key_views: KeyViewReader | None = None
    grants: Grants | None = None  # None: no grant is accepted
    spool_dir: str = "."  # for large forms
    spool_memory: BodyMemory = field(default_factory=lambda: BodyMemory(1 << 30))
    origins: frozenset[str] = field(init=False)  # pages from these may read answers

    def __post_init__(self) -> None:
        self.origins = frozenset(self.settings.server.cors_origins)

    def base_headers(self, call_id: str, request: Request | None) -> tuple[Header, ...]:
        """Return the headers of every answer: the request id under both names that SDKs read, and
        the headers that a browser needs to let its page read the answer."""
        ids = (("x-request-id", call_id), ("request-id", call_id))
        if self.origins and request is not None:
            return ids + cors.answer_headers(request.headers, self.origins)
        return ids


class RelayHandler(RequestHandler):
    """The base of the handlers: ids on every answer, errors in the caller's dialect, JSON only."""

    request: Request
    connection: ClientConnection
    site: Site
    call_id: str

    def __init__(self, request: Request, site: Site) -> None:
        # Tornado's own constructor is not called. It costs 10 us (ADR 0001): it prepares a
        # namespace for templates, a reference cycle that keeps the request in memory until the
        # garbage collector runs, and headers of an answer that is never sent.
        self.request = request
        self.connection = request.connection  # type: ignore[assignment]
        self.initialize(site)

    def initialize(self, site: Site) -> None:
        self.site = site
        self.call_id = new_ulid()

    def base_headers(self) -> tuple[Header, ...]:
        """Return the headers of every answer."""
        return self.site.base_headers(self.call_id, self.request)

    @property
    def endpoint(self) -> str | None:
        """Return the path as records name it; None if it may be any text."""
        return None

    @property
    def dialect(self) -> Family:
        """Return the family whose error shape this request gets, chosen by its headers unless the
        path determines it."""
        headers = self.request.headers
        if "x-goog-api-key" in headers or self.query_field("key") is not None:
            return FAMILIES["generate_content"]
        if any(name in headers for name in ("anthropic-version", "compat-version", "x-api-key")):
            return FAMILIES["messages"]
        return FAMILIES["chat_completions"]

    def query_field(self, name: str) -> str | None:
        """Return the first query field of that name, or None if it is missing or there are too many
        fields."""
        query = self.request.query
        if not query:
            return None
        try:
            fields = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            return None
        return next((value for field_name, value in fields if field_name == name), None)

    def credential_field(self, source: str) -> str | None:
        """Return the value of a source of credentials: a header, or a query field if it starts with
        `?`."""
        if source[0] == "?":
            return self.query_field(source[1:])
        return self.request.headers.get(source)

    def arrival(self, client_ip: str | None = None) -> Arrival:
        """Return the facts of the request head. `client_ip`: the client for whom the Hub makes the
        call."""
        headers = self.request.headers
        client_id = headers.get("x-client-request-id")
        if client_id is not None and not _visible_ascii(client_id):
            client_id = None
        agent, parent, trace = headers.get("user-agent"), headers.get("traceparent"), None
        if parent is not None or self.site.telemetry.spans is not None:
            exporting = self.site.telemetry.spans is not None
            trace = trace_of(parent, headers.get("tracestate"), exporting=exporting)
        agent = agent[:USER_AGENT_MAX] if agent else None
        return Arrival(
            self.call_id, now_ms(), client_ip or self.client_ip(), agent, client_id, trace
        )

    def client_ip(self) -> str:
        """Return the caller's address, as trusted proxies report it."""
        peer = self.connection.peer
        trusted = self.site.trusted
        if not trusted:
            return peer
        return client_address(peer, self.request.headers.get("x-forwarded-for"), trusted)

    def respond(self, body: bytes, status: int = 200, headers: tuple[Header, ...] = JSON) -> None:
        self.connection.answer(status, (*self.base_headers(), *headers), body)

    def answer_fault(self, fault: Fault) -> None:
        """End the request with an error in its dialect, without a usage record."""
        dialect = self.dialect
        envelope = dialect.client.encode_fault(fault, self.call_id)
        refusal = Unrecorded(
            request_id=self.call_id,
            family=dialect.name,
            endpoint=self.endpoint,
            status=envelope.status,
            error_code=fault.code,
            outcome="internal_error" if fault.condition is Condition.INTERNAL else "refused",
            client_ip=self.client_ip(),
        )
        self.site.telemetry.not_recorded(refusal, now_ms())
        self.respond(envelope.body, envelope.status, tuple(envelope.headers.items()))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an internal error, in the caller's dialect."""
        self.answer_fault(Fault(Condition.INTERNAL))


def _visible_ascii(text: str) -> bool:
    return (
        len(text) <= CLIENT_REQUEST_ID_MAX
        and text.isascii()
        and text.isprintable()
        and " " not in text
        and text != ""
    )
