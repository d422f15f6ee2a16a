"""An endpoint that relays calls: checks the head, then hands the body to the relay."""

from collections.abc import Awaitable, Coroutine
from typing import Any

from adapters.family import Family, Operation
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from handlers.entries.keyed import KeyedHandler
from handlers.relay import admit
from handlers.relay.call import Call, Ending, Requested, RequestHead
from handlers.relay.downstream import Downstream
from handlers.relay.limits.body_memory import BodyHold
from handlers.relay.running import ClientGone
from store.catalog.keys import KeyEntry

_JSON = "application/json"


class InferenceHandler(KeyedHandler):
    """A call of one entry. Subclasses name the family and its operation."""

    family: Family
    operation: Operation
    methods: tuple[str, ...] = ("POST",)
    target: str | None = None  # what the path names
    KEEP_OF_REFUSED_BYTES = 65536
    # The record of a failed call needs the model's name, if a small body has it (specification).
    LOOKED_INTO = frozenset({Condition.KEY_DISABLED, Condition.KEY_EXPIRED,
                             Condition.IP_NOT_ALLOWED, Condition.ENTRY_NOT_ALLOWED})  # fmt: skip

    _call: Call | None = None
    _running = False

    @property
    def endpoint(self) -> str:
        """The path as records name it."""
        return self.operation.endpoint

    @property
    def dialect(self) -> Family:
        """Errors of an entry come in its family's shape, whoever calls."""
        return self.family

    def check_head(self) -> Awaitable[None] | None:
        """Method, key, entry point, content type, size, encoding, in this order."""
        if self.request.method not in self.methods:
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=", ".join(self.methods))
        return self.check_credential()

    def check_key(self, key: KeyEntry) -> None:
        """Make the call, then check the rest of the head."""
        request, operation, arrival = self.request, self.operation, self.arrival()
        headers, snapshot = request.headers, self.site.relay.snapshot
        method, query = "POST", ""
        if operation.stored:
            method = request.method or ""
            query = f"?{request.query}" if request.query else ""
        self._call = Call(
            self.call_id,
            RequestHead(
                arrival,
                self.family,
                operation,
                key,
                snapshot.groups.get(key.group),
                headers,
                snapshot,
                self.target,
                method,
                query,
            ),
        )
        admit.check_key(key, arrival.client_ip, arrival.started_ms)
        admit.check_entry(snapshot, key, self.family)
        if operation.stored:
            return
        if headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise Fault(Condition.CONTENT_TYPE)
        self.check_size()
        if (encoding := headers.get("content-encoding")) is not None:
            self.unpack(encoding)

    def complete(self, body: bytes) -> Coroutine[Any, Any, None]:
        """Relays the call."""
        assert self._call is not None
        self._running = True
        downstream = Downstream(self.connection, self.base_headers())
        return self.site.relay.run(self._call, body, downstream, self._hold)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """An internal error; the answer of a running call can only be cut off."""
        if self._running:
            self.connection.drop()
        else:
            super().write_error(status_code, **kwargs)

    def refused(self, fault: Fault, body: bytes) -> None:
        """A refusal of the head: recorded when the key is known, then answered."""
        if self._call is None:
            self.answer_fault(fault)
            return
        if fault.condition in self.LOOKED_INTO:
            _note_model(self._call, body)
        downstream = Downstream(self.connection, self.base_headers())
        self.site.relay.end(self._call, Ending("refused", fault), downstream)

    def hold_body(self) -> BodyHold | None:
        """The count of the body's bytes, for the call's key and user."""
        if self._call is None:
            return None
        key = self._call.head.key
        return self.site.relay.body_memory.hold(self._evict, key.user_id, key.id)

    def client_left(self) -> None:
        """The client disconnected while it was sending the body."""
        if self._call is not None:
            self.site.relay.record_gone(self._call)

    def on_connection_close(self) -> None:
        """The client disconnected; a running call ends."""
        super().on_connection_close()
        if self._running and self._call is not None:
            self._call.running.interrupt(ClientGone())


def _note_model(call: Call, body: bytes) -> None:
    """Note a refused call's model for its record, when path or body names it."""
    name: object = call.head.target
    stream: object = call.head.operation.job == "stream"
    if name is None:
        try:
            spans = top_level(body)
            name, stream = spans.value("model"), spans.value("stream")
        except Fault:
            return
    if isinstance(name, str) and name:
        call.requested = Requested(name[: admit.MODEL_NAME_MAX_CHARS], stream is True)
