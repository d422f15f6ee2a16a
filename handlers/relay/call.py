"""The state of a call: one value for each phase that it reaches.

received (RequestHead) → requested (Requested) → offered (Offer) → admitted (Admitted) → planned
(RoutingRequest, Attempt) → held (Held) → outcome (Outcome, Ending). Here: plain state. Not here:
decisions (admit, plan), waits (running), bytes (pump, downstream), money (settle). Imported by the
relay's modules and the inference handlers. Structs rather than dataclasses, which take six times as
long to make.
"""

from collections.abc import Mapping
from time import monotonic

from msgspec import Struct, field

from adapters.bridge import Bridge, Pairing
from adapters.family import Envelope, Family, Operation, Peek
from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from adapters.ir.request import Request
from adapters.json.jsonio import Spans
from adapters.translate import Translation
from handlers.relay.limits.cells import Slots
from handlers.relay.limits.limits import NO_TOKENS, Demand, Entering
from handlers.relay.routing.breaker import AttemptHealth
from handlers.relay.routing.plan import Candidate, RoutingRequest
from handlers.relay.running import ClientGone, DrainForced, Interrupt, MoneyUsedUp, Running
from handlers.relay.upstream.spool import Spool
from handlers.telemetry.trace import Trace
from store.catalog.catalog import Channel, Group, Model, Snapshot
from store.catalog.keys import KeyEntry
from store.money.funds import Hold
from store.values.pricing import Prices, Rate
from store.values.usage import NOT_REPORTED, Served, Usage
from store.values.usage_record import AttemptRecord, CallFacts, StoredAt

DROPPED = "x-sluice-dropped"
_DRAINED = "The gateway is shutting down and has ended this call before its end; send it again."
# Outcomes that are the upstream's fault.
_BROKEN = frozenset({"upstream_error", "upstream_truncated", "timeout"})


class Arrival(Struct, frozen=True, gc=False):
    """The caller as shown by the request head, before anything is decided."""

    call_id: str
    started_ms: int
    client_ip: str
    user_agent: str | None
    client_request_id: str | None
    trace: Trace | None = None
    started_s: float = field(default_factory=monotonic)

    def elapsed_ms(self) -> int:
        """Return the time since the call arrived, also when the wall clock is set meanwhile."""
        return int((monotonic() - self.started_s) * 1000)


class RequestHead(Struct, frozen=True, gc=False):
    """A request of a known key at a known endpoint. `group`: the key's; None if it was deleted."""

    arrival: Arrival
    family: Family
    operation: Operation
    key: KeyEntry
    group: Group | None
    client_headers: Mapping[str, str]
    snapshot: Snapshot
    target: str | None = None  # named by the path: a model, or the id of something stored
    method: str = "POST"
    query: str = ""  # "?…" that is passed on to the upstream, only for stored responses


class Requested(Struct, frozen=True, gc=False):
    """The request's model and kind for the usage record, as far as they were read."""

    model: str | None = None  # None: not read, or a stored response is requested
    stream: bool | None = None


class Offer(Struct, frozen=True, gc=False):
    """A model that the key may call, its current prices, and its channels, best priority first."""

    group: Group
    model: Model
    prices: Prices
    channels: tuple[Channel, ...]


class InnerModel(Struct, frozen=True, gc=False):
    """Another model that may run inside a call: the rates at which it can be charged, the maximum
    number of uses, and the maximum tokens of each use."""

    rates: tuple[Rate, ...]
    uses: int
    input_tokens: int
    output_tokens: int


class Admitted(Struct, frozen=True, gc=False):
    """A request whose body was checked. `offer` None: it names something stored, not a model.
    `rates`: the rates at which it can be charged. `other_meters`: the meters of modalities other
    than text by which it may be charged."""

    peek: Peek
    offer: Offer | None = None
    channels: tuple[Channel, ...] = ()  # those of the offer that can do what is requested
    refs: tuple[StoredRef, ...] = ()  # references to objects stored in upstream accounts
    estimated: bool = False  # a token count that the gateway estimates
    has_foreign: bool = False  # the body may have opaque state of translated answers
    input_estimate_tokens: int = 0
    input_bound_tokens: int = 0
    output_bound_tokens: int = 0
    demand: Demand = NO_TOKENS
    rates: tuple[Rate, ...] = ()
    other_meters: tuple[str, ...] = ()
    inner_models: tuple[InnerModel, ...] = ()


class Content(Struct, frozen=True, gc=False):
    """The body, freed when an answer is accepted. `request`: the whole body, decoded when the first
    channel of another family is tried. `spool`: holds a large form, whose fields are the
    `spans`."""

    body: bytes = b""
    spans: Spans | None = None
    request: Request | None = None
    spool: Spool | None = None


NO_CONTENT = Content()


class Held(Struct, frozen=True, gc=False):
    """The call's slots of its callers' limits, and its hold of its payer's money."""

    slots: Slots | None = None
    hold: Hold | None = None


class Attempt(Struct, eq=False):
    """One try of a call at a channel, with one of its upstream keys."""

    candidate: Candidate
    pairing: Pairing | Translation  # of the caller's family with the channel's
    upstream_model: str | None = None
    content: Content | None = None  # the body for this channel, if it differs from the client's
    refused: tuple[str, ...] = ()  # fields that are left out, since the upstream refuses them
    without: str | None = None  # part of the request that is left out
    health: AttemptHealth | None = None  # set while the attempt runs
    bridge: Bridge | None = None  # for a streamed answer

    @property
    def loss_headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that name the fields of the request that were not carried."""
        dropped = self.dropped if self.refused else self.pairing.dropped
        return ((DROPPED, ", ".join(dropped)),) if dropped else ()

    @property
    def dropped(self) -> tuple[str, ...]:
        """Return the fields of the request that are not carried."""
        return (*self.pairing.dropped, *self.refused) if self.refused else self.pairing.dropped


class Delivery(Struct, frozen=True, gc=False):
    """The part of the upstream's answer that was sent to the client, as far as the bill needs
    it."""

    relayed: bool = False  # a part of an accepted answer was sent to the client
    whole: bool = False
    usage: Usage | None = None  # the vendor's last report
    reported: object = None  # the same report as the vendor wrote it
    # Estimated output tokens relayed; an upper bound for plain answers with reported usage.
    output_units: int = 0
    upstream_id: str | None = None
    served: Served = NOT_REPORTED
    handed_over: bool = False  # the client left while the vendor was working on the request


class Outcome(Struct, gc=False):
    """The results of a call so far. `made_marks`: marks of ids that its answer hands out."""

    attempts: list[AttemptRecord] = []  # started attempts; each call has its own list
    delivery: Delivery = Delivery()
    ttft_ms: int | None = None
    status: int | None = None  # for the client; None: nothing was sent
    stored: StoredAt | None = None  # where the vendor stores the answer
    made_marks: frozenset[str] = frozenset()


class Call(Struct, eq=False):
    """A call with the value of each phase that it has reached; None: not yet. The pipeline and the
    attempts replace these values; the records replace those of the outcome."""

    id: str  # the request id
    head: RequestHead
    running: Running = field(default_factory=Running)
    requested: Requested = Requested()
    offer: Offer | None = None
    admitted: Admitted | None = None
    # The admission of the body as received, set once `admitted` was replaced for a channel.
    as_received: Admitted | None = None
    unchecked: bool = False  # features are checked for each channel, on the request that it gets
    content: Content = NO_CONTENT
    planned: RoutingRequest | None = None
    attempt: Attempt | None = None  # the planned, running or last attempt
    held: Held = Held()
    entering: Entering | None = None  # its callers, if all nodes count limits together
    opened: CallFacts | None = None  # the facts that the journal has
    outcome: Outcome = field(default_factory=Outcome)
    text_alone: bool | None = None  # result of admit.is_text_alone; None: not computed yet

    @property
    def begun_attempt(self) -> Attempt | None:
        """Return the running or last attempt; None before the first has started."""
        return self.attempt if self.outcome.attempts else None

    @property
    def keeps_answer(self) -> bool:
        """Return whether the vendor should store the answer. Translated answers are not stored."""
        if self.admitted is None or not self.admitted.peek.stored:
            return False
        return self.attempt is not None and not self.attempt.pairing.translated


class Ending(Struct):
    """The end of an attempt and, for the last attempt, of the call. Nothing of it is written yet.

    `outcome` is a word of the usage record. `fault` is for the client, None if the answer is
    complete or the client has left. `envelope` is a whole answer of the upstream, `tail` the last
    bytes of a stream. `at_boundary` False: the last event was sent only in part, so that no event
    of the gateway's own may follow it.

    For an attempt whose answer was not accepted: `fail_over` if another channel may be tried,
    `retry_without` a part of the request, or fields, without which the same channel may be tried
    once more, `counts` False if the fault does not concern the channel's health.
    """

    outcome: str
    fault: Fault | None = None
    envelope: Envelope | None = None
    tail: bytes = b""
    at_boundary: bool = True
    fail_over: bool = False
    retry_without: str | tuple[str, ...] | None = None
    counts: bool = True

    @property
    def upstream_fault(self) -> Fault | None:
        """Return the upstream's fault, before or after its answer was accepted."""
        return self.fault if self.outcome in _BROKEN else None


def interrupted(interrupt: Interrupt) -> Ending:
    """Return the ending of a call that was interrupted."""
    if isinstance(interrupt, ClientGone):
        return Ending("client_gone")
    if isinstance(interrupt, MoneyUsedUp):
        return Ending("refused", interrupt.fault)
    assert isinstance(interrupt, DrainForced)
    return Ending("drained", Fault(Condition.UNAVAILABLE, _DRAINED))
