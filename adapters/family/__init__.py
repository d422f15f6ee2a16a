"""What a wire family offers to the relay, and the values that pass between them.

Only shapes: the Protocol ``Family``, the Protocol ``StreamTap`` and frozen values. A family
implements them in a folder of its own and is named in ``registry.py``; handlers and the relay
know nothing else of it. Values that are made for every call are structs, which are made six times
faster than dataclasses. Names of headers in mappings are lower case (or the mapping does not mind
case).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from adapters.family.ir import Usage
from adapters.family.rate_headers import RateLines
from adapters.faults import Fault
from adapters.json.jsonio import Spans, Struct


@dataclass(frozen=True, slots=True)
class Vendor:
    """A row of the table of vendors: what they speak, where, and what is odd about them.

    `prefixes`: what stands between a channel's base URL, which has no version path, and the path
    of a family; families that are not named have nothing there.
    """

    name: str
    families: frozenset[str]
    auth: Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"]
    prefixes: Mapping[str, str] = field(default_factory=dict)
    counts: bool = True  # false: has no endpoints that count tokens
    forward_openai_headers: bool = False  # OpenAI-Organization, -Project, -Beta of the client
    stream_options: bool = True  # false: refuses the field, so usage is not asked for


class Operation(Struct, frozen=True, gc=False):
    """One thing that clients of a family ask for: an endpoint of the relay port.

    `framing` says how a streamed answer is cut into events. A path may name a target that the
    endpoint shows as a placeholder: the model, or the id of something that the vendor has stored.
    """

    endpoint: str  # path of records, targets in it replaced: "/v1/responses/{id}"
    free: bool = False  # recorded with cost 0 and without a hold: counts, stored things
    counting: bool = False  # the answer is a number of tokens
    stored: bool = False  # about something stored; the request has no body that is read
    framing: Literal["sse", "json_array"] = "sse"
    streams: bool = False  # the path itself asks for a stream


class StoredRef(Struct, frozen=True, gc=False):
    """What a request builds on that some upstream account has stored: the field and its id.

    `response`: an answer, so that the gateway may know which account has made it.
    """

    param: str
    id: str
    response: bool = False


class Peek(Struct, frozen=True, gc=False):
    """The few fields of a request that the gateway reads."""

    model: str
    stream: bool
    max_output_tokens: int | None  # None: the client set no bound; 0 is none
    choices: int  # answers asked for, each is billed
    include_usage: bool  # whether the client's stream is to show usage
    stored: bool = False  # the vendor is to keep the answer, for later calls that name its id


class Envelope(Struct, frozen=True, gc=False):
    """An answer made by the gateway itself."""

    status: int
    headers: dict[str, str]
    body: bytes


class Answer(Struct, frozen=True, gc=False):
    """A whole answer of an upstream, ready for the client.

    ``usage`` is None when the vendor reported none that can be read; ``output_units`` is then the
    estimate of its output tokens (else 0). ``reported`` is the vendor's usage as it stands.
    """

    body: bytes
    usage: Usage | None
    reported: object | None
    upstream_id: str | None
    output_units: int = 0


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model as lists show it; None where a number is not known."""

    name: str
    created_s: int
    context_tokens: int | None
    max_output_tokens: int | None


class StreamTap(Protocol):
    """Reads the events of one streamed answer as they pass, and edits the few that need it.

    ``feed`` takes one complete event and returns the bytes to send: the same object when
    untouched, None when the event is left out. Once ``ended`` is true (terminal marker or fault)
    it is fed no more.
    """

    framing: Literal["sse", "json_array"]
    accepted: bool  # a data event that is no error was seen
    started: bool  # the client's reader is inside an answer (M: message_start was seen)
    finished: bool  # every choice has its finish reason
    terminal: bool  # the family's last event was seen
    ended: bool  # terminal, or fault is set
    fault: Fault | None  # error event of the vendor, or an unreadable one; it was not passed on
    upstream_id: str | None

    @property
    def whole(self) -> bool:
        """Whether the upstream may end here with nothing missing."""
        ...  # pragma: no cover

    @property
    def usage(self) -> Usage | None:
        """The usage reported so far, disjoint."""
        ...  # pragma: no cover

    @property
    def reported(self) -> object | None:
        """Usage as the vendor said it."""
        ...  # pragma: no cover

    @property
    def output_units(self) -> int:
        """Estimated output tokens so far: text, reasoning and tool arguments."""
        ...  # pragma: no cover

    def feed(self, event: bytes) -> bytes | None:
        """Read one event; return what to send of it."""
        ...  # pragma: no cover

    def feed_repeat(self, chunk: bytes) -> bytes | None:
        """``feed`` for a chunk that is one event like the last but for its text; None, and nothing
        is read, when it is anything else."""
        ...  # pragma: no cover

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """The last bytes of a stream that failed, also of one that nothing was fed to."""
        ...  # pragma: no cover


class Family(Protocol):
    """One wire format on its own ground: no conversion, bytes pass as they are."""

    name: str
    operations: Mapping[str, Operation]  # by what the family calls them
    answer_headers: frozenset[str]  # of the upstream, that may go down to the client
    # headers that may carry the key ("?key": the query's field); the first one present decides
    credentials: tuple[str, ...]
    # some vendors do not count reasoning towards the bound that a client sets
    reasoning_beyond_bound: bool

    @property
    def rate_lines(self) -> RateLines:
        """Makes the headers that tell the caller of its own limits."""
        ...  # pragma: no cover

    @property
    def conversation(self) -> Callable[[Spans], bytes]:
        """Tells what names the conversation of a request: what is another in each of a caller's
        conversations and the same in all turns of one. The name that the client gave it, else its
        beginning; empty when there is nothing. Makes no faults."""
        ...  # pragma: no cover

    def model_name(self, spans: Spans, target: str | None = None) -> str:
        """The model that is asked for, by the body or the path; raises Fault E10, E12."""
        ...  # pragma: no cover

    def peek(self, spans: Spans, operation: Operation, target: str | None = None) -> Peek:
        """Read the few fields; raises Fault E10, E12, E13."""
        ...  # pragma: no cover

    def stored_ref(self, spans: Spans) -> StoredRef | None:
        """What the request builds on that only one upstream account knows; E12 for a wrong type."""
        ...  # pragma: no cover

    def upstream_path(self, operation: Operation, upstream_model: str, target: str | None) -> str:
        """Where the upstream takes the call, behind its base URL: path, with the query if any."""
        ...  # pragma: no cover

    def request_headers(self, client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
        """Header lines for the upstream; E24 when the key cannot stand in a header."""
        ...  # pragma: no cover

    def edit_request(
        self,
        body: bytes,
        spans: Spans,
        peek: Peek,
        upstream_model: str,
        vendor: Vendor | None = None,
    ) -> bytes:
        """The body for the upstream: model name and, in streams, the wish for usage."""
        ...  # pragma: no cover

    def read_answer(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> Answer:
        """Read a whole answer; raises Fault E30 or the condition of an error inside it."""
        ...  # pragma: no cover

    def stream_tap(
        self, public: str, upstream_model: str, drop_usage: bool, operation: Operation
    ) -> StreamTap:
        """A tap for one streamed answer; ``drop_usage``: the client did not ask for usage."""
        ...  # pragma: no cover

    def encode_fault(self, fault: Fault, request_id: str) -> Envelope:
        """A refusal or failure before the answer began."""
        ...  # pragma: no cover

    def keep_alive(self, started: bool) -> bytes:
        """Bytes between two events that keep the connection alive and mean nothing."""
        ...  # pragma: no cover

    def model_list(self, models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
        """The body of a list of models; raises Fault E12 for a bad query."""
        ...  # pragma: no cover

    def model_entry(self, model: ModelEntry) -> bytes:
        """The body that shows one model."""
        ...  # pragma: no cover
