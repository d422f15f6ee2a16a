"""One call in flight: what is known of it, and how what it waits for is interrupted.

Belongs here: plain state of a call. Not here: decisions (admit, plan), bytes (pump, downstream),
money (settle). Imported by the relay's modules and the inference handlers. Structs, not
dataclasses, which take six times as long to make.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from adapters.bridge import Bridge, Pairing
from adapters.family import Envelope, Family, Operation, Peek
from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from adapters.ir.request import Request
from adapters.ir.usage import Usage
from adapters.json.jsonio import Spans
from adapters.translate import Translation
from handlers.relay.limits.body_memory import BodyHold
from handlers.relay.limits.cells import Slots
from handlers.relay.limits.limits import NO_TOKENS, Demand
from handlers.relay.routing.breaker import Trial
from handlers.relay.routing.plan import Candidate, Wanted
from handlers.telemetry.trace import Trace
from store.catalog.catalog import Channel, Group, Model, Snapshot
from store.catalog.keys import KeyEntry
from store.money.funds import Hold
from store.values.pricing import Prices
from store.values.usage_record import AttemptRecord, CallFacts, StoredAt

DROPPED = "x-sluice-dropped"


class Interrupt(Exception):
    """Ends a call in flight from outside; the subclass says why."""


class ClientGone(Interrupt):
    """The client closed its connection."""


class DrainForced(Interrupt):
    """The drain's time is up."""


class MoneyUsedUp(Interrupt):
    """A stream costs more than its payer has left; `fault` says who."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


class Arrival(Struct, frozen=True, gc=False):
    """What the head of a request says about the caller, before anything is decided."""

    call_id: str
    started_ms: int
    client_ip: str
    user_agent: str | None
    client_request_id: str | None
    trace: Trace | None = None


_DRAINED = "The gateway is shutting down and has ended this call before its end; send it again."
# Outcomes for which the upstream is to blame: an attempt ended with its fault.
_BROKEN = frozenset({"upstream_error", "upstream_truncated", "timeout"})


class Ending(Struct):
    """How an attempt ended and, with its last attempt, the call; before anything of it is written.

    `outcome` is a word of the usage record. `fault` is what the client is told, None when the
    answer is whole or the client is gone. `envelope` is a whole answer of the upstream; `tail` the
    last bytes of a stream. `at_boundary` False: the last event went down in part, so that no event
    of ours may follow it.

    Of an attempt whose answer was not accepted: `fail_over` when another channel may be asked,
    `retry_without` a part of the request without which the same channel may be asked once more,
    `counts` False when the fault says nothing of the channel's health.
    """

    outcome: str
    fault: Fault | None = None
    envelope: Envelope | None = None
    tail: bytes = b""
    at_boundary: bool = True
    fail_over: bool = False
    retry_without: str | None = None
    counts: bool = True

    @property
    def upstream_fault(self) -> Fault | None:
        """The upstream's fault, before or after its answer was accepted."""
        return self.fault if self.outcome in _BROKEN else None


def interrupted(interrupt: Interrupt) -> Ending:
    """The end of a call that was ended from outside."""
    if isinstance(interrupt, ClientGone):
        return Ending("client_gone")
    if isinstance(interrupt, MoneyUsedUp):
        return Ending("refused", interrupt.fault)
    assert isinstance(interrupt, DrainForced)
    return Ending("drained", Fault(Condition.UNAVAILABLE, _DRAINED))


class Delivery(Struct):
    """What the client got of the upstream's answer, as far as the bill needs it."""

    relayed: bool = False  # something of an accepted answer went down
    whole: bool = False
    usage: Usage | None = None  # what the vendor reported last
    reported: object = None  # the same as the vendor wrote it
    # estimated output tokens of what was relayed; a reported plain answer's: no more than that
    output_units: int = 0
    upstream_id: str | None = None
    handed_over: bool = False  # the client left while the vendor was working on the request


class Attempt(Struct, eq=False):
    """One try of a call at a channel, with one of its upstream keys."""

    candidate: Candidate
    pairing: Pairing | Translation  # of the caller's family with the channel's
    upstream_model: str | None = None
    without: str | None = None  # part of the request that is left out
    trial: Trial | None = None  # while it runs
    bridge: Bridge | None = None  # of a streamed answer

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """Headers that tell the client what of its request was not carried."""
        dropped = self.pairing.dropped
        return ((DROPPED, ", ".join(dropped)),) if dropped else ()


class Call(Struct, eq=False):
    """A call of a known key at a known endpoint; grows phase by phase."""

    arrival: Arrival
    family: Family
    operation: Operation
    key: KeyEntry
    client_headers: Mapping[str, str]
    snapshot: Snapshot
    target: str | None = None  # what the path names: a model, or the id of something stored
    method: str = "POST"
    query: str = ""  # "?…" that goes on to the upstream, of stored things only
    body: bytes = b""
    body_hold: BodyHold | None = None  # counts the body until it is handed on
    spans: Spans | None = None
    peek: Peek | None = None
    request: Request | None = None  # all of it, once a channel of another family comes up
    has_foreign: bool = False  # the body may have opaque state of translated answers
    estimated: bool = False  # a count of tokens that is made here
    model_name: str | None = None
    stream: bool | None = None
    group: Group | None = None
    model: Model | None = None
    prices: Prices | None = None
    candidates: tuple[Channel, ...] = ()  # best priority first
    kept_refs: tuple[StoredRef, ...] = ()  # what it names of what upstream accounts keep
    stored: StoredAt | None = None  # where its own answer is kept
    made_marks: set[str] = field(default_factory=set)  # of the ids that its answer hands out
    input_estimate_tokens: int = 0
    input_bound_tokens: int = 0
    output_bound_tokens: int = 0
    demand: Demand = NO_TOKENS
    slots: Slots | None = None  # of its caller's limits
    wanted: Wanted | None = None  # what the selector is asked for
    hold: Hold | None = None
    covered_units: int = 0  # tokens of its stream that the hold surely covers
    opened: bool = False
    facts: CallFacts | None = None  # as the open line has them
    attempt: Attempt | None = None  # that is planned or running, or was the last one
    attempts: list[AttemptRecord] = []  # those that have begun; each call gets a list of its own
    delivery: Delivery = field(default_factory=Delivery)
    status: int | None = None
    first_byte_ms: int | None = None
    own_ns: int = 0  # how long the gateway was at work; while it is, less the moment it began
    interrupted: Interrupt | None = None
    waiter: "asyncio.Future[Any] | None" = None

    @property
    def tried(self) -> Attempt | None:
        """The attempt that is running, or was the last one; None before the first has begun."""
        return self.attempt if self.attempts else None

    @property
    def kept(self) -> bool:
        """The vendor is to keep the answer; of a translated one it is asked not to."""
        if self.peek is None or not self.peek.stored:
            return False
        return self.attempt is not None and not self.attempt.pairing.translated

    def conversation(self) -> bytes:
        """What names its conversation; empty when it has none, or there is nothing to choose."""
        channels, spans = self.candidates, self.spans
        if len(channels) < 2 and not (channels and len(channels[0].keys) > 1):
            return b""
        if spans is None or self.operation.job == "count":
            return b""
        return self.family.client.conversation(spans)

    def check(self) -> None:
        """Raises the Interrupt that has come meanwhile."""
        if self.interrupted is not None:
            raise self.interrupted

    def wait(self, future: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        """What to await for `future`, which `interrupt` may end with an Interrupt."""
        if self.interrupted is not None:
            raise self.interrupted
        self.waiter = future
        return future

    def interrupt(self, reason: Interrupt) -> None:
        """Makes whoever waits, now or next, get `reason`; the first one counts."""
        if self.interrupted is not None:
            return
        self.interrupted = reason
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(reason)
