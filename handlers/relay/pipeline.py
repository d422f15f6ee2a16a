"""A call from its body to its record, phase by phase; the last phase always runs.

`Relay.run` reads top to bottom: admit, limits, plan, hold, open, attempts, settle, reply. Nothing
here knows a wire format, a database or pycurl.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from random import random

from msgspec import Struct

from adapters.bridge import NativeBridge
from adapters.family import Answer, Envelope
from adapters.family.rate_headers import RateLevel
from adapters.faults import Condition, Fault
from adapters.upstream_errors.read import read_upstream_error, retry_after_s
from conf.settings import Settings
from handlers.relay import admit, faults, settle
from handlers.relay.call import Call, ClientGone, DrainForced, Ending, Interrupt, MoneyUsedUp
from handlers.relay.downstream import Downstream, Header
from handlers.relay.failure_log import FailureLog
from handlers.relay.holding import Holding
from handlers.relay.limits.limits import Limits
from handlers.relay.live import LiveCalls, LiveStream
from handlers.relay.outgoing import request_of
from handlers.relay.pump import PumpEnd, StreamPump
from handlers.relay.routing.affinity import Affinity
from handlers.relay.routing.health import PLAIN, STREAM, Health, Trial
from handlers.relay.routing.plan import Candidate, Planner
from handlers.relay.routing.selector import Selector
from handlers.relay.routing.suspects import refusal_of
from handlers.relay.stored import StoredResponses
from handlers.relay.turns import LARGE_BYTES, in_turns, large_answer
from handlers.relay.upstream.client import Exchange, UpstreamClient, UpstreamError, UpstreamRequest
from handlers.relay.upstream.errors import (
    fault_of,
    may_fail_over,
    note_unreadable,
    secrets_of,
    wait_headers,
)
from handlers.relay.upstream.request import ANSWERED
from handlers.telemetry import Telemetry
from store.calls.journal import Journal, JournalFull
from store.calls.journal_lines import OpenLine, Sent
from store.catalog.catalog import EMPTY, Snapshot
from store.catalog.key_cache import KeyCache
from store.money.funds import Funds
from store.values.usage_record import AttemptRecord, Charge

log = logging.getLogger("sluice.relay")

# Parts of a request that can be left out without translating it; opaque reasoning cannot.
_CAN_DO_WITHOUT = frozenset({"beta", "stream_options"})
BYTES_PER_TOKEN = 4  # of plain text, the mean of prose and code
_BROKEN = frozenset({"upstream_error", "upstream_truncated", "timeout"})  # by the upstream
USAGE_WITHIN_S = 0.4  # for which an upstream may still speak to a client that has left
USAGE_LOOKS = 8
FINISH_WITHIN_S = 1.0  # how long the upstream may take to end a body whose terminal marker was seen


_DRAINED = "The gateway is shutting down and has ended this call before its end; send it again."


def wall_ms() -> int:
    """Wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class AttemptEnd(Struct):
    """Outcome of one try: `ending` when the call is over with it, else the fault that it met.

    `retry_without`: the same channel may be asked once more without that part of the request.
    `counts` False: the fault says nothing of the channel's health.
    """

    ending: Ending | None = None
    fault: Fault | None = None
    fail_over: bool = False
    retry_without: str | None = None
    counts: bool = True

    @property
    def met(self) -> Fault | None:
        """The upstream's fault, met before its answer was accepted or after that."""
        if self.ending is None:
            return self.fault
        return self.ending.fault if self.ending.outcome in _BROKEN else None

    @property
    def of_key(self) -> bool:
        """Whether another upstream key of the same channel may be better off."""
        fault = self.fault
        if fault is None:
            return False
        return fault.key_refused or fault.condition is Condition.UPSTREAM_RATE_LIMITED


@dataclass(slots=True)
class Relay:
    """What every call needs; one object a worker."""

    settings: Settings
    keys: KeyCache
    funds: Funds
    journal: Journal
    client: UpstreamClient
    live: LiveCalls
    telemetry: Telemetry
    limits: Limits
    stored: StoredResponses
    node: str
    snapshot: Snapshot = EMPTY
    health: Health = field(default_factory=lambda: Health(random))
    affinity: Affinity = field(default_factory=Affinity)
    failures: FailureLog = field(default_factory=FailureLog)
    selector: Selector = field(init=False)
    holding: Holding = field(init=False)

    def __post_init__(self) -> None:
        self.selector = Selector(Planner(self.health, random), self.limits)
        self.health.running = self.live.trials
        self.holding = Holding(self.funds)
        self.live.when_waiting(self._waiting)
        self.live.when_grown(self.holding.follow)

    async def run(self, call: Call, body: bytes, downstream: Downstream) -> None:
        """Relays one call whose head was admitted; whatever happens, it is settled and answered."""
        self.live.enter(call)
        try:
            if call.operation.stored:
                admit.read_stored(call)
            else:
                if len(body) <= LARGE_BYTES:
                    admit.read_body(call, body)
                else:
                    await in_turns(admit.large_body_steps(call, body), call)
            levels = self._limit(call, downstream) if self.limits.concern(call) else ()
            if call.stored_ref is not None:
                await self.stored.admit(call)
                call.check()
            candidate = self._plan(call)
            if not self.holding.at_once(call):
                await self.holding.wait(call)
                call.check()
            self._open(call)
            if levels:
                downstream.add_headers(call.family.rate_lines(levels, time.time()))
            ending = await self._attempts(call, candidate, downstream)
        except Fault as fault:
            ending = Ending("refused", fault)
        except Interrupt as interrupt:
            ending = _interrupted(interrupt)
        except Exception:
            log.exception("call %s failed inside the gateway", call.arrival.call_id)
            ending = Ending("internal_error", Fault(Condition.INTERNAL))
        try:
            self.end(call, ending, downstream)
        finally:
            # Settled already, unless that failed: a slot must never stay.
            if call.slots is not None or call.upstream_slots is not None:
                self.limits.leave(call, 0)

    def end(self, call: Call, ending: Ending, downstream: Downstream) -> None:
        """Settles the call, then writes its last bytes. For refusals of the head, too."""
        self.live.leave(call)
        if ending.outcome == "refused" and downstream.gone:
            ending = Ending("client_gone")
        envelope = ending.envelope
        if envelope is None and ending.fault is not None and not downstream.head_sent:
            envelope = call.family.encode_fault(ending.fault, call.arrival.call_id)
        begun = downstream.head_sent
        if begun:
            call.status = 200
        elif envelope is not None and not downstream.gone:
            call.status = envelope.status
        self._settle(call, ending)
        if begun:
            self._end_stream(call, ending, downstream)
        elif envelope is not None:
            downstream.send(envelope.status, tuple(envelope.headers.items()), envelope.body)

    def _limit(self, call: Call, downstream: Downstream) -> tuple[RateLevel, ...]:
        """Takes what the call needs of its limits: what is left is for the head of its answer."""
        levels, refusal = self.limits.enter(call)
        if refusal is not None:
            downstream.add_headers(call.family.rate_lines(levels, time.time()))
            raise refusal
        return levels

    def _plan(self, call: Call) -> Candidate:
        """The first attempt, with room for it. Raises Fault E09, E24, E25."""
        now_s = time.monotonic()
        call.preference = self.affinity.preference_of(call, now_s)
        candidate = self.selector.next(call, now_s)
        if isinstance(candidate, Fault):
            raise candidate
        return candidate

    def _open(self, call: Call) -> None:
        """The journal knows of the call before any upstream does."""
        arrival, key = call.arrival, call.key
        hold, prices = call.hold, None if call.operation.free else call.prices
        # By position, in the order of the class: to match twenty names takes 1 us.
        line = OpenLine(
            arrival.call_id,
            arrival.started_ms,
            key.user_id,
            key.user,
            key.id,
            key.name,
            key.group,
            call.operation.endpoint,
            call.family.name,
            call.model_name,
            call.stream,
            prices.text if prices else None,
            call.group.multiplier_ppm if call.group else None,
            call.input_estimate_tokens,
            arrival.client_request_id,
            arrival.client_ip,
            arrival.user_agent,
            hold.parts if hold else (),
            hold.limit_account if hold else None,
        )
        try:
            self.journal.open_call(line)
        except JournalFull as error:
            raise faults.from_store(error) from None
        call.opened = True

    async def _attempts(self, call: Call, first: Candidate, downstream: Downstream) -> Ending:
        """Tries channels until one answer is accepted, or none is left that may be tried.

        Raises Fault E09, E24, E25 when none could be tried, for others did worse in between.
        """
        routing = self.settings.routing
        last_start = time.monotonic() + routing.total_time_s
        pump = self._pump(call, downstream) if call.stream else None
        tried: dict[str, set[int]] = {}
        met: list[Fault] = []
        candidate: Candidate | Fault = first
        while isinstance(candidate, Candidate):
            end = await self._attempt(call, candidate, pump)
            if end is not None and end.retry_without in _CAN_DO_WITHOUT:
                call.check()
                call.without = end.retry_without
                end = await self._attempt(call, candidate, pump) or end
                call.without = None
            if end is not None:
                if end.ending is not None:
                    return end.ending
                assert end.fault is not None
                if not end.fail_over:
                    return _failed(end.fault)
                met.append(end.fault)
            self.limits.leave_upstream(call, sent=end is not None)
            left = routing.max_attempts - len(met)
            if left <= 0 or (met and (time.monotonic() > last_start or downstream.head_sent)):
                break
            again = _note_tried(tried, candidate, end) and left > 1
            call.check()
            candidate = self.selector.next(
                call, time.monotonic(), tried, candidate.channel if again else None
            )
        if not met:
            assert isinstance(candidate, Fault)
            raise candidate
        return _failed(faults.most_useful(met))

    def _pump(self, call: Call, downstream: Downstream) -> StreamPump:
        pump = StreamPump(call, downstream, self._accepted, self._identified)
        self.live.stream(LiveStream(call, pump, downstream))
        return pump

    async def _attempt(
        self, call: Call, candidate: Candidate, pump: StreamPump | None
    ) -> AttemptEnd | None:
        """One try, from which health learns; None when the channel may not be asked any more."""
        health, model = self.health, call.model_name or ""
        kind = STREAM if call.stream else "" if call.operation.free else PLAIN
        begin = health.begin_anyway if candidate.anyway else health.begin
        trial = begin(candidate.channel, model, candidate.key, time.monotonic(), kind)
        if trial is None:
            return None
        call.trial = trial
        try:
            end = await self._try(call, candidate, pump)
            self._learn(call, trial, end)
        finally:
            call.trial = None
            health.release(trial)
        return end

    def _learn(self, call: Call, trial: Trial, end: AttemptEnd) -> None:
        """What the end of an attempt says of the channel."""
        fault, ending = end.fault, end.ending
        if ending is not None:
            if ending.outcome == "ok":
                self.health.succeeded(trial, time.monotonic())
                return
            fault = ending.fault if ending.outcome in _BROKEN else None
        if fault is not None and end.counts:
            status = call.attempts[-1].status
            refusal = refusal_of(fault, status, call.key.user_id)
            self.health.failed(trial, time.monotonic(), fault, refusal)

    def _waiting(self, call: Call) -> None:
        """A call has no answer yet, and a second has passed."""
        if call.trial is not None:
            self.health.late(call.trial, time.monotonic())

    async def _try(self, call: Call, candidate: Candidate, pump: StreamPump | None) -> AttemptEnd:
        """One try at one channel, noted in the call."""
        assert call.peek is not None
        channel, call.candidate, limits = candidate.channel, candidate, self.settings.upstream
        call.channel, call.upstream_model = channel, channel.models.get(call.peek.model)
        started_ms = wall_ms()
        attempt = AttemptRecord(channel.name)
        call.attempts.append(attempt)
        try:
            end = await self._exchange(call, request_of(call, candidate, limits), attempt, pump)
        except UpstreamError as error:
            fail_over = may_fail_over(error, self.settings.routing.retry_timeouts)
            end = AttemptEnd(fault=fault_of(error), fail_over=fail_over)
            end.counts = error.kind != "too_large"  # clients can ask for such answers
            attempt.error = error.kind
        except Fault as fault:
            # The request cannot be made for this channel; nothing was sent.
            end = AttemptEnd(fault=fault, fail_over=True)
        finally:
            attempt.ms = wall_ms() - started_ms
        if end.ending is not None and end.ending.outcome == "ok":
            if self.failures.failing:
                self.failures.answered(channel, call.model_name or "")
        elif (met := end.met) is not None:
            faults.note(call, attempt, met)
            if end.ending is None:
                attempt.error = attempt.error or met.code
            if end.counts:
                self.failures.failed(call, attempt, met, time.monotonic())
        return end

    async def _exchange(
        self, call: Call, request: UpstreamRequest, attempt: AttemptRecord, pump: StreamPump | None
    ) -> AttemptEnd:
        """Sends the request and reads the answer. Raises UpstreamError, Interrupt."""
        exchange = self.client.start(request)
        try:
            await call.wait(exchange.head)
            attempt.status = exchange.status
            if not exchange.streaming:
                large = exchange.status < 300 and len(exchange.body) > LARGE_BYTES
                read = await large_answer(call, exchange.body) if large else None
                return self._whole_answer(call, exchange, read)
            if pump is not None:
                return await self._streamed_answer(call, exchange, pump)
            return AttemptEnd(fault=Fault(Condition.UPSTREAM_INVALID), fail_over=True)
        finally:
            call.waiter = None  # it may refer to an exception, and so to the call
            if not exchange.head.done() or call.interrupted is not None:
                # The vendor works for a client that has left, and bills it.
                if isinstance(call.interrupted, ClientGone):
                    call.delivery.handed_over = exchange.handed_over
                exchange.cancel()

    def _whole_answer(
        self, call: Call, exchange: Exchange, read_in_turns: Answer | Fault | None
    ) -> AttemptEnd:
        family = call.family
        if exchange.status not in ANSWERED:
            assert call.channel is not None
            waits, secrets = wait_headers(exchange), secrets_of(call.channel)
            read = read_upstream_error(exchange.status, waits, exchange.body, secrets)
            if call.operation.stored and exchange.status == 404:
                return AttemptEnd(fault=Fault(Condition.ID_NOT_FOUND, detail=call.target))
            return AttemptEnd(None, read.fault, read.fail_over, read.retry_without)
        assert call.peek is not None
        upstream_model = call.upstream_model or ""
        try:
            answer = read_in_turns or family.read_answer(
                exchange.body, call.peek.model, upstream_model, call.operation
            )
            if isinstance(answer, Fault):
                raise answer
            if call.stream:
                raise Fault(Condition.UPSTREAM_INVALID)
        except Fault as fault:
            return _inside(exchange, fault)
        exchange.accept()
        self._bind(call)
        delivery = call.delivery
        delivery.relayed = delivery.whole = True
        delivery.usage, delivery.reported = answer.usage, answer.reported
        units = answer.output_units
        if answer.usage is not None:  # the text alone was not counted: it has no more tokens
            units = len(answer.body) // BYTES_PER_TOKEN
        delivery.output_units, delivery.upstream_id = units, answer.upstream_id
        call.first_byte_ms = wall_ms()
        envelope = Envelope(200, dict(_passed_headers(call, exchange)), answer.body)
        return AttemptEnd(ending=Ending("ok", envelope=envelope))

    async def _streamed_answer(
        self, call: Call, exchange: Exchange, pump: StreamPump
    ) -> AttemptEnd:
        assert call.peek is not None
        tap = call.family.stream_tap(
            call.peek.model,
            call.upstream_model or "",
            drop_usage=not call.peek.include_usage,
            operation=call.operation,
        )
        bridge = NativeBridge(tap, self.settings.upstream.max_event_bytes)
        ended = pump.attach(exchange, bridge, _passed_headers(call, exchange))
        try:
            await call.wait(ended)
        except Interrupt as interrupt:
            if isinstance(interrupt, ClientGone):
                await _hear_usage(pump)
            pump.note_delivery()
            ending = _interrupted(interrupt)
            ending.at_boundary = pump.at_boundary
            return AttemptEnd(ending=ending)
        end = ended.result()
        pump.note_delivery()
        pump.begin()
        if end.fault is None:
            exchange.finish_within(FINISH_WITHIN_S)
            return AttemptEnd(ending=Ending("ok", tail=end.tail))
        exchange.cancel()
        if not pump.accepted:
            return _inside(exchange, end.fault)
        ending = Ending(_stream_outcome(end), end.fault, tail=end.tail)
        ending.at_boundary = pump.at_boundary
        return AttemptEnd(ending=ending)

    def _accepted(self, call: Call) -> None:
        """The answer of a stream was accepted: the body is not needed again, the journal told."""
        call.body, call.spans = b"", None
        call.first_byte_ms = wall_ms()
        if (trial := call.trial) is not None:
            now_s = time.monotonic()
            self.health.started(trial, now_s, now_s - trial.begun_s)
        self._bind(call)
        self._identified(call)
        if call.stored is None:
            self.mark(call, 0)

    def _identified(self, call: Call) -> None:
        """The client is about to read the id of an answer that the vendor keeps, if it has one."""
        bridge, key = call.bridge, call.key
        if bridge is None or call.peek is None or not call.peek.stored:
            return
        if self.stored.note(call, bridge.upstream_id):
            so_far = settle.text_tokens(call, bridge.output_units)
            self.journal.hand_out(call.arrival.call_id, key.user_id, so_far, _sent(call))

    def _bind(self, call: Call) -> None:
        """An answer was accepted: the conversation stays where it came from."""
        if call.preference is not None and call.candidate is not None:
            self.affinity.accepted(call.preference, call.candidate, time.monotonic())

    def record_gone(self, call: Call) -> None:
        """The client left before its body was here."""
        self._settle(call, Ending("client_gone"))

    def _settle(self, call: Call, ending: Ending) -> None:
        """Cost, hold and record of a call that is over; in the journal before any last byte."""
        counts, cost = settle.charged_counts(call), 0
        charges: tuple[Charge, ...] = ()
        if call.hold is not None:
            counts, cost = settle.payable(call, counts)
            charges = self.funds.settle(call.hold, cost)
        if call.slots is not None or call.upstream_slots is not None:
            self.limits.leave(call, settle.tokens_of(counts))
        if call.peek is not None and call.peek.stored and call.delivery.relayed:
            self.stored.note(call, call.delivery.upstream_id)
        elif call.method == "DELETE" and ending.outcome == "ok":
            self.stored.forget(call)
        bill = settle.Bill(counts, cost, charges)
        record = settle.record_of(call, ending, bill, self.node, wall_ms())
        if call.opened:
            self.journal.close_call(record)
        else:
            self.journal.refused(record)
        self.telemetry.call_ended(record)

    def mark(self, call: Call, output_tokens: int) -> None:
        """The journal knows how far a stream has come."""
        # Were the process killed, this would be charged.
        output_tokens = settle.text_tokens(call, output_tokens)
        hold, call_id = call.hold, call.arrival.call_id
        holds = hold.parts if hold is not None and hold.raised else ()
        self.journal.mark(call_id, output_tokens, relayed=True, sent=_sent(call), holds=holds)

    def _end_stream(self, call: Call, ending: Ending, downstream: Downstream) -> None:
        """The last bytes of a stream whose head is out."""
        if ending.fault is None or downstream.gone:
            downstream.finish(ending.tail)
            return
        if not ending.at_boundary:
            # An error event inside a half sent one would be read as a part of it.
            downstream.drop()
            return
        bridge = call.bridge
        if bridge is None:  # nothing but heartbeats went down
            name = call.model_name or ""
            tap = call.family.stream_tap(name, name, drop_usage=False, operation=call.operation)
            bridge = NativeBridge(tap, self.settings.upstream.max_event_bytes)
        event = bridge.encode_fault(ending.fault, call.arrival.call_id)
        downstream.finish(ending.tail + event)


def _note_tried(tried: dict[str, set[int]], candidate: Candidate, end: AttemptEnd | None) -> bool:
    """Notes which upstream keys an attempt rules out; whether another one of the channel is due.

    One that was refused for itself, or may not be asked just now, says nothing of the next. When
    two were, the channel's others come after all other channels: it may be the account.
    """
    channel = candidate.channel
    out = tried.setdefault(channel.id, set())
    if end is None or end.of_key:
        out.add(candidate.key)
        return len(out) == 1 < len(channel.keys)
    out.update(range(max(1, len(channel.keys))))
    return False


async def _hear_usage(pump: StreamPump) -> None:
    """Waits a moment for what a finished answer has cost, reasoning that nobody saw for one."""
    left = USAGE_LOOKS
    while pump.lacks_usage and left:
        left -= 1
        await asyncio.sleep(USAGE_WITHIN_S / USAGE_LOOKS)


def _sent(call: Call) -> Sent:
    assert call.channel is not None
    return Sent(
        status=200,
        upstream_family=call.channel.family,
        upstream_model=call.upstream_model,
        channel=call.channel.name,
        stored=call.stored,
    )


def _inside(exchange: Exchange, fault: Fault) -> AttemptEnd:
    """The end of an attempt whose answer says success and is none."""
    if fault.retry_after_s is None:
        fault.retry_after_s = retry_after_s(wait_headers(exchange))
    note_unreadable(exchange, fault)
    return AttemptEnd(fault=fault, fail_over=True)


def _failed(fault: Fault) -> Ending:
    """The end of a call that no channel has answered."""
    late = fault.condition is Condition.UPSTREAM_TIMEOUT
    return Ending("timeout" if late else "upstream_error", fault)


def _passed_headers(call: Call, exchange: Exchange) -> tuple[Header, ...]:
    """The upstream's headers that may go down: the content type and the family's allow-list."""
    passed = [("Content-Type", exchange.content_type or "application/json")]
    for name in call.family.answer_headers:
        value = exchange.header(name)
        if value is not None:
            passed.append((name, value))
    return tuple(passed)


def _interrupted(interrupt: Interrupt) -> Ending:
    if isinstance(interrupt, ClientGone):
        return Ending("client_gone")
    if isinstance(interrupt, MoneyUsedUp):
        return Ending("refused", interrupt.fault)
    assert isinstance(interrupt, DrainForced)
    return Ending("drained", Fault(Condition.UNAVAILABLE, _DRAINED))


def _stream_outcome(end: PumpEnd) -> str:
    """The record's word for a stream that broke after it was accepted."""
    if end.error is None:
        return "upstream_error"
    return "timeout" if end.error.kind.startswith("timeout") else "upstream_truncated"
