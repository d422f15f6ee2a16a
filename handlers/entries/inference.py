"""The endpoints that relay calls, by family: they check the request head and pass the body to the
relay.
"""

import re
from collections.abc import Awaitable, Coroutine
from typing import Any
from urllib.parse import unquote

from adapters.endpoints.endpoint import Endpoint
from adapters.endpoints.table import ENDPOINTS, VERBS
from adapters.family import Family, Operation
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES
from handlers.entries.base import Site
from handlers.entries.grants import Grants
from handlers.entries.intake import KeyedHandler
from handlers.relay import admit
from handlers.relay.call import Call, Ending, Requested, RequestHead
from handlers.relay.downstream import Downstream
from handlers.relay.limits.body_memory import BodyHold
from handlers.relay.running import ClientGone
from store.catalog.keys import KeyEntry
from store.values.grants import GRANT_HEADER, Grant, request_digest
from store.values.ids import now_ms

_JSON = "application/json"
_GRANTED_JOBS = frozenset({"generate", "stream"})

RESPONSES_PREFIX = "/v1/responses/"
# The form of vendors' ids. Anything else might lead to another path of the upstream.
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,255}")
_ID_SHOWN_MAX = 64
# the path after the id -> job, methods
_STORED = {
    "": ("stored", ("GET", "HEAD", "DELETE")),
    "cancel": ("cancel", ("POST",)),
    "input_items": ("list_input", ("GET", "HEAD")),
}

_GENERATE_CONTENT = FAMILIES["generate_content"].client.operations
# operations by the verb at the end of a path
_VERBS = {
    "generateContent": _GENERATE_CONTENT["generate"],
    "streamGenerateContent": _GENERATE_CONTENT["stream"],
    "countTokens": _GENERATE_CONTENT["count"],
    **VERBS,
}
# A model's name may contain slashes and colons, so it ends at the last colon. It may be empty.
_MODEL_PATH = re.compile(r"/(?:v1|v1beta)/models/(.*):([A-Za-z]+)")


class InferenceHandler(KeyedHandler):
    """A call of one entry. Subclasses name the family and its operation."""

    family: Family
    operation: Operation
    methods: tuple[str, ...] = ("POST",)
    target: str | None = None  # the id or name in the path
    KEEP_OF_REFUSED_BYTES = 65536
    # The record of a failed call needs the model's name if a small body has it (specification).
    LOOKED_INTO = frozenset({Condition.KEY_DISABLED, Condition.KEY_EXPIRED,
                             Condition.IP_NOT_ALLOWED, Condition.ENTRY_NOT_ALLOWED})  # fmt: skip

    _call: Call | None = None
    _grant: Grant | None = None
    _running = False

    @property
    def endpoint(self) -> str:
        return self.operation.endpoint

    @property
    def dialect(self) -> Family:
        """Return the entry's family: its errors have that family's shape for all callers."""
        return self.family

    def check_head(self) -> Awaitable[None] | None:
        """Check method, key, entry, content type, size and encoding, in this order."""
        if self.request.method not in self.methods:
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=", ".join(self.methods))
        try:
            return self.check_credential()
        except Fault as fault:
            text, grants = self.request.headers.get(GRANT_HEADER), self.site.grants
            if text is None or grants is None or fault.condition is not Condition.MISSING_KEY:
                raise
        if self.operation.job not in _GRANTED_JOBS or self.operation.row:
            raise Fault(Condition.MISSING_KEY)
        self._grant = grants.take(text, self.client_ip(), now_ms())
        return self._check_granted(grants, self._grant)

    async def _check_granted(self, grants: Grants, grant: Grant) -> None:
        self.check_key(await grants.key(grant))

    def check_key(self, key: KeyEntry) -> None:
        """Create the call, then check the rest of the request head."""
        request, operation, grant = self.request, self.operation, self._grant
        arrival = self.arrival(None if grant is None else grant.client_ip)
        headers, snapshot = request.headers, self.site.relay.snapshot
        method, query = "POST", ""
        if operation.stored:
            method = request.method or ""
            query = f"?{request.query}" if request.query else ""
            if method == "HEAD":  # the connection omits the body of the answer
                method, query = "GET", ""
        family, group = self.family, snapshot.groups.get(key.group)
        head = RequestHead(
            arrival,
            self.family,
            operation,
            key,
            group,
            headers,
            snapshot,
            self.target,
            method,
            query,
        )
        self._call = Call(self.call_id, head)
        admit.check_key(key, arrival.client_ip, arrival.started_ms)
        admit.check_entry(snapshot, key, family, operation)
        if operation.stored:
            return
        self.check_content_type(headers.get("content-type", ""))
        self.check_size()
        if (encoding := headers.get("content-encoding")) is not None:
            self.unpack(encoding)

    def check_content_type(self, content_type: str) -> None:
        """Raise Fault CONTENT_TYPE for a body that this handler does not read."""
        if content_type.partition(";")[0].strip().lower() != _JSON:
            raise Fault(Condition.CONTENT_TYPE)

    def complete(self, body: bytes) -> Coroutine[Any, Any, None] | None:
        assert self._call is not None
        if self._grant is not None and self._grant.digest != self._digest(body):
            self.refused(Fault(Condition.INVALID_KEY), b"")
            return None
        self._running = True
        downstream = Downstream(self.connection, self.base_headers())
        return self.site.relay.run(self._call, body, downstream, self._hold)

    def _digest(self, body: bytes) -> str:
        request = self.request
        target = f"{request.path}?{request.query}" if request.query else request.path
        return request_digest(request.method or "", target, body)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an internal error. If the call is already running, its answer can only be
        cut off."""
        if self._running:
            self.connection.drop()
        else:
            super().write_error(status_code, **kwargs)

    def refused(self, fault: Fault, body: bytes) -> None:
        """Answer a refusal of the request head. If the key is known, record it first."""
        if self._call is None:
            self.answer_fault(fault)
            return
        if fault.condition in self.LOOKED_INTO:
            _note_model(self._call, body)
        downstream = Downstream(self.connection, self.base_headers())
        self.site.relay.end(self._call, Ending("refused", fault), downstream)

    def hold_body(self) -> BodyHold | None:
        """Return the count of the body's bytes, for the call's key and user."""
        if self._call is None:
            return None
        key = self._call.head.key
        return self.site.relay.body_memory.hold(self._evict, key.user_id, key.id)

    def client_left(self) -> None:
        """Record that the client disconnected while it was sending the body."""
        if self._call is not None:
            self.site.relay.record_gone(self._call)

    def on_connection_close(self) -> None:
        """End a running call: the client has disconnected."""
        super().on_connection_close()
        if self._running and self._call is not None:
            self._call.running.interrupt(ClientGone())


class ChatCompletionsHandler(InferenceHandler):
    family = FAMILIES["chat_completions"]
    operation = family.client.operations["generate"]


class ResponsesHandler(InferenceHandler):
    family = FAMILIES["responses"]
    operation = family.client.operations["generate"]

    def check_head(self) -> Awaitable[None] | None:
        """Refuse websockets at once, then check as usual."""
        request = self.request
        if request.method == "GET" and "websocket" in request.headers.get("upgrade", "").lower():
            raise Fault(Condition.UPGRADE_NOT_SUPPORTED)
        return super().check_head()


class InputTokensHandler(InferenceHandler):
    """The handler of token counts of a responses request: free of charge, but recorded."""

    family = FAMILIES["responses"]
    operation = family.client.operations["count"]


class CompactHandler(InferenceHandler):
    """The handler of a conversation's compaction, which is answered whole."""

    family = FAMILIES["responses"]
    operation = family.client.operations["compact"]


class StoredResponseHandler(InferenceHandler):
    """The handler of a stored response by its id, which calls the channel that made it."""

    READS_BODY = False
    LOOKED_INTO = frozenset()
    family = FAMILIES["responses"]

    def initialize(self, site: Site) -> None:
        """Take operation and id from the path."""
        super().initialize(site)
        self.target, _, what = self.request.path.removeprefix(RESPONSES_PREFIX).partition("/")
        job, self.methods = _STORED[what]
        self.operation = self.family.client.operations[job]

    def check_key(self, key: KeyEntry) -> None:
        """Check the id last, so that the record of an invalid one has the key."""
        super().check_key(key)
        assert self.target is not None
        if _ID.fullmatch(self.target) is None:
            raise Fault(Condition.ID_NOT_FOUND, param="id", detail=self.target[:_ID_SHOWN_MAX])


class MessagesHandler(InferenceHandler):
    """The handler of messages, plain and streamed. Any query string (`beta=true`) is ignored."""

    family = FAMILIES["messages"]
    operation = family.client.operations["generate"]


class CountTokensHandler(InferenceHandler):
    """The handler of token counts of a messages request: free of charge, but recorded."""

    family = FAMILIES["messages"]
    operation = family.client.operations["count"]


class GenerateContentHandler(InferenceHandler):
    """The handler of the family's answers, its streams (events or one JSON array) and token
    counts."""

    family = FAMILIES["generate_content"]

    def initialize(self, site: Site) -> None:
        """Take model and verb from the path; `alt=sse` requests events."""
        super().initialize(site)
        match = _MODEL_PATH.fullmatch(self.request.path)
        assert match is not None
        self.operation = _VERBS[match[2]]
        if self.operation.job == "stream" and self.query_field("alt") != "sse":
            self.operation = _GENERATE_CONTENT["stream_array"]
        if isinstance(self.operation, Endpoint):
            self.family = self.operation.family
        self.target = unquote(match[1]).removeprefix("models/")


class EndpointHandler(InferenceHandler):
    """An endpoint beside chat, a row of the table. The body names the model."""

    def initialize(self, site: Site) -> None:
        """Set the row of the path."""
        super().initialize(site)
        self.operation = row = ENDPOINTS[self.request.path]
        self.family = row.family


def is_stored(path: str) -> bool:
    if not path.startswith(RESPONSES_PREFIX) or path.endswith("/"):
        return False
    id_, _, rest = path.removeprefix(RESPONSES_PREFIX).partition("/")
    # "responses" is not an id: it comes from a base URL that contains the endpoint.
    return id_ not in ("", "responses") and rest in _STORED


def verb_of(path: str) -> str:
    """Return the verb of a path that names a model, else an empty string."""
    match = _MODEL_PATH.fullmatch(path)
    return match[2] if match else ""


def is_call(path: str) -> bool:
    """Return whether a path names a model and an operation of models."""
    return verb_of(path) in _VERBS


def _note_model(call: Call, body: bytes) -> None:
    """Note a refused call's model for its record, if the path or the body names it."""
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
