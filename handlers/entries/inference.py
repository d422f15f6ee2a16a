"""An endpoint that relays calls: checks of the head, then the body into the relay."""

from collections.abc import Awaitable, Coroutine
from typing import Any

from adapters.family import Family, Operation
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from handlers.http.intake import BodyHandler
from handlers.relay import admit
from handlers.relay.call import Call, ClientGone, Ending
from handlers.relay.downstream import Downstream
from store.catalog.key_cache import MISS
from store.catalog.keys import KeyEntry

_JSON = "application/json"
# Refusals of the head after which a small body is read for the model's name, so that the record
# carries it (specification: model, endpoint and error of each failed call).
_LOOKED_INTO = frozenset({Condition.KEY_DISABLED, Condition.KEY_EXPIRED,
                          Condition.IP_NOT_ALLOWED, Condition.ENTRY_NOT_ALLOWED})  # fmt: skip


class InferenceHandler(BodyHandler):
    """A call of one entry. Subclasses name the family and its operation."""

    family: Family
    operation: Operation
    methods: tuple[str, ...] = ("POST",)
    target: str | None = None  # what the path names
    KEEP_OF_REFUSED_BYTES = 65536

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
        secret = admit.credential(self.credential_field, self.family.client.credentials)
        keys = self.site.relay.keys
        entry = keys.peek(secret)
        if entry is MISS:
            return self._check_later(secret)
        if entry is None:
            raise admit.unknown_key(secret)
        self._check_key(entry)
        return None

    async def _check_later(self, secret: str) -> None:
        self._check_key(await admit.find_key(self.site.relay.keys, secret))

    def _check_key(self, key: KeyEntry) -> None:
        headers = self.request.headers
        arrival = self.arrival()
        snapshot = self.site.relay.snapshot
        self._call = call = Call(
            arrival=arrival,
            family=self.family,
            operation=self.operation,
            key=key,
            client_headers=headers,
            snapshot=snapshot,
            target=self.target,
        )
        admit.check_key(key, arrival.client_ip, arrival.started_ms)
        call.group = admit.check_entry(snapshot, key, self.family)
        if self.operation.stored:
            call.method = self.request.method or ""
            call.query = f"?{self.request.query}" if self.request.query else ""
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
        return self.site.relay.run(self._call, body, downstream)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A bug of ours; nothing else would end the answer of a relayed call once it has begun."""
        if self._running:
            self.connection.drop()
        else:
            super().write_error(status_code, **kwargs)

    def refused(self, fault: Fault, body: bytes) -> None:
        """A refusal of the head: recorded when the key is known, then answered."""
        if self._call is None:
            self.answer_fault(fault)
            return
        if fault.condition in _LOOKED_INTO and not self.operation.stored:
            _note_model(self._call, body)
        downstream = Downstream(self.connection, self.base_headers())
        self.site.relay.end(self._call, Ending("refused", fault), downstream)

    def client_left(self) -> None:
        """The client left while it was sending the body."""
        if self._call is not None:
            self.site.relay.record_gone(self._call)

    def on_connection_close(self) -> None:
        """The client left; a running call ends with it."""
        super().on_connection_close()
        if self._running and self._call is not None:
            self._call.interrupt(ClientGone())


def _note_model(call: Call, body: bytes) -> None:
    """Puts the model's name of a refused call into its record, when path or body tells it."""
    name: object = call.target
    stream: object = call.operation.job == "stream"
    if name is None:
        try:
            spans = top_level(body)
            name, stream = spans.value("model"), spans.value("stream")
        except Fault:
            return
    if isinstance(name, str) and name:
        call.model_name = name[: admit.MODEL_NAME_MAX_CHARS]
        call.stream = stream is True
