"""The attempts of a call: one channel after the other until one answer is accepted.

Each frame adds one thing: `run` fails over, `_with_health` tells the circuit breaker, `_noted`
writes the attempt into the call's record, `_exchange` sends the request and reads the answer, whole
or streamed. Nothing here settles the call or writes its last bytes (pipeline).
"""

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from adapters.family import Envelope, UpstreamAnswer
from adapters.family.codec import AnswerContext
from adapters.faults import Condition, Fault
from adapters.ir.request import Request
from adapters.json.structure import Steps, T, at_once
from adapters.registry import CODECS, PAIRINGS
from adapters.translate import Translation
from adapters.upstream_errors.read import read_upstream_error, retry_after_s
from conf.settings import Settings
from handlers.relay.call import Attempt, Call, ClientGone, Ending, Interrupt, interrupted
from handlers.relay.downstream import Downstream
from handlers.relay.failure_log import FailureLog
from handlers.relay.faults import most_useful, no_candidate_fault
from handlers.relay.limits.limits import Limits
from handlers.relay.live import LiveCalls, LiveStream
from handlers.relay.outgoing import request_of, without_reasoning
from handlers.relay.pump import CONTENT_TYPES, StreamPump
from handlers.relay.records import Records
from handlers.relay.routing.affinity import Affinity
from handlers.relay.routing.breaker import PLAIN, STREAM
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import NOTHING, Candidate, Tried, Wanted
from handlers.relay.routing.selector import Selector
from handlers.relay.routing.suspects import refusal_of
from handlers.relay.slices import LARGE_BYTES, in_turns
from handlers.relay.translations import Translations
from handlers.relay.upstream.client import Exchange, UpstreamClient, UpstreamError
from handlers.relay.upstream.errors import (
    fault_of,
    may_fail_over,
    note_unreadable,
    secrets_of,
    wait_headers,
)
from handlers.relay.upstream.request import ANSWERED
from store.catalog.catalog import Channel
from store.values.ids import now_ms
from store.values.usage_record import AttemptRecord

# Parts of a request that can be left out of one that is translated.
_TRANSLATED_WITHOUT = frozenset({"reasoning", "stream_options"})
BYTES_PER_TOKEN = 4  # of plain text, the mean of prose and code
USAGE_WITHIN_S = 0.4  # for an upstream to report usage after the client has left
USAGE_LOOKS = 8
FINISH_WITHIN_S = 1.0  # how long the upstream may take to end a body whose terminal marker was seen


@dataclass(slots=True)
class Attempts:
    """What the attempts of every call need; one object a worker."""

    settings: Settings
    client: UpstreamClient
    live: LiveCalls
    limits: Limits
    records: Records
    health: Health
    selector: Selector
    affinity: Affinity
    failures: FailureLog
    translations: Translations

    async def first(self, call: Call) -> Attempt:
        """Plans the first attempt and takes what it needs of limits. Raises Fault when none can be
        made: NO_CHANNEL, what all candidates have lately failed with, or why no channel of another
        family can carry the request."""
        family, model, preference = call.family.name, call.model_name or "", None
        if said := call.conversation():
            now_s = time.monotonic()
            preference = self.affinity.preference_of(call.key, family, model, said, now_s)
        call.wanted = Wanted(call.candidates, family, model, preference, call.demand)
        return await self._next(call, NOTHING)

    async def run(self, call: Call, attempt: Attempt, downstream: Downstream) -> Ending:
        """Tries channels until one answer is accepted, or none is left that may be tried.

        Raises Fault as `first` does when none could be tried, since circuits opened in between.
        """
        routing = self.settings.routing
        last_start_s = time.monotonic() + routing.total_time_s
        pump = self._pump(call, downstream) if call.stream else None
        tried: dict[str, set[int]] = {}
        met: list[Fault] = []
        while True:
            ending = await self._with_health(call, attempt, pump)
            if ending is not None and (
                ending.retry_without is not None
                and await self._leave_out(call, attempt, ending.retry_without)
            ):
                ending = await self._with_health(call, attempt, pump) or ending
            if ending is not None:
                if not ending.fail_over:
                    return ending
                assert ending.fault is not None
                met.append(ending.fault)
            if attempt.candidate.slots is not None:
                used_tokens = 0 if ending is not None else None
                self.limits.leave(attempt.candidate.slots, used_tokens)
            left = routing.max_attempts - len(met)
            if left <= 0 or (met and (time.monotonic() > last_start_s or downstream.head_sent)):
                return _failed(most_useful(met))
            again = _note_tried(tried, attempt.candidate, ending) and left > 1
            call.check()
            try:
                channel = attempt.candidate.channel
                attempt = await self._next(call, tried, channel if again else None)
            except Fault:
                if not met:
                    raise
                return _failed(most_useful(met))

    def waiting(self, call: Call) -> None:
        """A call has no answer yet; once a second."""
        attempt = call.attempt
        if attempt is not None and attempt.trial is not None:
            self.health.late(attempt.trial, time.monotonic())

    async def _next(self, call: Call, tried: Tried, again: Channel | None = None) -> Attempt:
        """`again`: the channel of which another upstream key comes first. Raises Fault."""
        while True:
            assert call.wanted is not None
            found = self.selector.next(call.wanted, time.monotonic(), tried, again)
            if not isinstance(found, Candidate):
                raise no_candidate_fault(found, call.model_name)
            family = found.channel.family
            if family == call.family.name:
                return Attempt(found, PAIRINGS[family, family])
            pairing: Translation | None = None
            try:
                pairing = await self._translation(call, found)
            finally:
                if pairing is None and found.slots is not None:
                    self.limits.leave(found.slots, None)
            if pairing is not None:
                return Attempt(found, pairing)

    async def _translation(self, call: Call, candidate: Candidate) -> Translation | None:
        """What serves a candidate of another family; None when it cannot carry the request and is
        wanted no more. Raises Fault when no other is left."""
        translations, wanted, channel = self.translations, call.wanted, candidate.channel
        assert wanted is not None
        try:
            if call.request is None:
                request = await self.decode(call)
                call.wanted = wanted = translations.narrowed(request, wanted)
                if not any(one is channel for one in wanted.channels):
                    return None
            try:
                return await self._begin(call, candidate)
            except Fault as fault:
                call.wanted = translations.without(wanted, (channel.id,), fault)
                return None
        except Fault as fault:
            fault.model = call.model_name
            raise

    async def decode(self, call: Call) -> Request:
        """All of a call's request, for a channel of another family. Raises Fault of the client's
        mistakes."""
        if call.request is None:
            assert call.spans is not None
            decode = CODECS[call.family.name].client.decode_request
            steps = decode(call.spans, bool(call.stream), call.target)
            call.request = await _done(call, steps)
        return call.request

    async def _begin(self, call: Call, candidate: Candidate, without: str = "") -> Translation:
        """The translation for a candidate. Raises Fault when it cannot carry the request."""
        assert call.request is not None and call.wanted is not None and call.model is not None
        steps = self.translations.begin(
            call.request,
            call.wanted,
            candidate,
            _answer_context(call),
            user_id=call.key.user_id,
            max_output_tokens=call.model.max_output_tokens,
            count=call.operation.job == "count",
            without=without,
        )
        return await _done(call, steps)

    async def _leave_out(self, call: Call, attempt: Attempt, what: str) -> bool:
        """Whether the same channel may be asked again, without a part of the request."""
        call.check()
        pairing = attempt.pairing
        if not pairing.translated:
            attempt.without = what
            return what != "reasoning" or _has_reasoning(call, attempt)
        if what not in _TRANSLATED_WITHOUT or (what == "reasoning" and not pairing.sealed):
            return False
        try:
            attempt.pairing = await self._begin(call, attempt.candidate, what)
        except Fault:
            return False  # without it the request says too little; the refusal stands
        return True

    def _pump(self, call: Call, downstream: Downstream) -> StreamPump:
        pump = StreamPump(call, downstream, self._accepted, self.records.identified)
        self.live.stream(LiveStream(call, pump, downstream))
        return pump

    async def _with_health(
        self, call: Call, attempt: Attempt, pump: StreamPump | None
    ) -> Ending | None:
        """One try, whose end the circuit breakers are told; None when it may not begin any more."""
        health, candidate = self.health, attempt.candidate
        kind = STREAM if call.stream else "" if call.operation.free else PLAIN
        begin = health.begin_anyway if candidate.anyway else health.begin
        now_s, model = time.monotonic(), call.model_name or ""
        trial = begin(candidate.channel, model, candidate.key, now_s, kind)
        if trial is None:
            return None
        call.attempt, attempt.trial = attempt, trial
        try:
            ending = await self._noted(call, attempt, pump)
            if ending.outcome == "ok":
                health.succeeded(trial, time.monotonic())
            elif ending.counts and (fault := ending.upstream_fault) is not None:
                status = call.attempts[-1].status
                refusal = refusal_of(fault, status, call.key.user_id)
                health.failed(trial, time.monotonic(), fault, refusal)
        finally:
            attempt.trial = None
            health.release(trial)
        return ending

    async def _noted(self, call: Call, attempt: Attempt, pump: StreamPump | None) -> Ending:
        """One try, noted in the call's record and, when a channel begins to fail, in the log."""
        assert call.peek is not None
        channel = attempt.candidate.channel
        attempt.upstream_model = channel.models.get(call.peek.model)
        record = AttemptRecord(channel.name, dropped=attempt.pairing.dropped)
        call.attempts.append(record)
        started_ms = now_ms()
        try:
            ending = await self._exchange(call, attempt, pump)
        except UpstreamError as error:
            if call.own_ns >= 0:
                call.own_ns -= time.monotonic_ns()
            fail_over = may_fail_over(error, self.settings.routing.retry_timeouts)
            ending = _failed(fault_of(error), fail_over=fail_over)
            ending.counts = error.kind != "too_large"  # clients can ask for such answers
            record.error = error.kind
        except Fault as fault:
            # The request cannot be made for this channel; nothing was sent.
            ending = _failed(fault, fail_over=True)
        finally:
            record.ms = now_ms() - started_ms
        if ending.outcome == "ok":
            if self.failures.failing:
                self.failures.answered(channel, call.model_name or "")
        elif (met := ending.upstream_fault) is not None:
            met.mask(secrets_of(channel))
            met.model, record.detail = call.model_name, met.operator_message
            if not call.delivery.relayed:
                record.error = record.error or met.code
            if ending.counts:
                self.failures.failed(call, attempt, met, time.monotonic())
        return ending

    async def _exchange(self, call: Call, attempt: Attempt, pump: StreamPump | None) -> Ending:
        """Sends the request and reads the answer. Raises UpstreamError, Fault, Interrupt."""
        exchange = self.client.start(request_of(call, attempt, self.settings.upstream))
        call.own_ns += time.monotonic_ns()
        try:
            call.own_ns -= await call.wait(exchange.head)
            call.attempts[-1].status = exchange.status
            if exchange.streaming:
                assert pump is not None
                return await self._streamed(call, attempt, exchange, pump)
            if exchange.status not in ANSWERED:
                return _refused(call, attempt, exchange)
            try:
                answer = await _read_answer(call, attempt, exchange.body)
            except Fault as fault:
                return _unreadable(exchange, fault)
            exchange.accept()
            return self._whole(call, attempt, exchange, answer)
        finally:
            call.waiter = None  # it may refer to an exception, and so to the call
            if not exchange.head.done() or call.interrupted is not None:
                # The vendor works for a client that has left, and bills it.
                if isinstance(call.interrupted, ClientGone):
                    call.delivery.handed_over = exchange.handed_over
                exchange.cancel()

    def _whole(
        self, call: Call, attempt: Attempt, exchange: Exchange, answer: UpstreamAnswer
    ) -> Ending:
        """An answer that was read whole is accepted."""
        self._bind(call, attempt)
        pairing = attempt.pairing
        if not pairing.translated and (made := pairing.upstream.issued_ids(answer.body, call.kept)):
            self.records.note_made(call, made)
        delivery = call.delivery
        delivery.relayed = delivery.whole = True
        delivery.usage, delivery.reported = answer.usage, answer.reported
        units = answer.output_units
        if answer.usage is not None:  # the text alone was not counted: it has no more tokens
            units = len(answer.body) // BYTES_PER_TOKEN
        delivery.output_units, delivery.upstream_id = units, answer.upstream_id
        call.first_byte_ms = now_ms()
        envelope = Envelope(200, _headers(call, attempt, exchange), answer.body)
        return Ending("ok", envelope=envelope)

    async def _streamed(
        self, call: Call, attempt: Attempt, exchange: Exchange, pump: StreamPump
    ) -> Ending:
        """Lets the pump carry the answer until it or the call has ended."""
        assert call.peek is not None
        attempt.bridge = bridge = attempt.pairing.open_bridge(
            call.peek.model,
            attempt.upstream_model or "",
            not call.peek.include_usage,
            call.operation,
            self.settings.upstream.max_event_bytes,
        )
        bridge.watch(partial(self.records.note_made, call), stored=call.kept)
        headers = tuple(_headers(call, attempt, exchange).items())
        ended = pump.attach(exchange, bridge, headers)
        if call.own_ns < 0:  # from here on it is the upstream's time, and the client's
            call.own_ns += time.monotonic_ns()
        try:
            await call.wait(ended)
        except Interrupt as interrupt:
            if isinstance(interrupt, ClientGone):
                await _hear_usage(pump)
            pump.note_delivery()
            ending = interrupted(interrupt)
            ending.at_boundary = pump.at_boundary
            return ending
        ending = ended.result()
        call.own_ns -= time.monotonic_ns()
        pump.note_delivery()
        pump.begin()
        if ending.fault is None:
            exchange.finish_within(FINISH_WITHIN_S)
            return ending
        exchange.cancel()
        if not pump.accepted:
            return _unreadable(exchange, ending.fault)
        ending.at_boundary = pump.at_boundary
        return ending

    def _accepted(self, call: Call) -> None:
        """The answer of a stream was accepted: frees the body, tells health and journal."""
        call.body, call.spans, call.request = b"", None, None
        call.first_byte_ms = now_ms()
        if call.own_ns < 0:
            call.own_ns += time.monotonic_ns()
        attempt = call.attempt
        assert attempt is not None
        attempt.pairing.free_body()
        if (trial := attempt.trial) is not None:
            now_s = time.monotonic()
            self.health.started(trial, now_s, now_s - trial.begun_s)
        self._bind(call, attempt)
        self.records.identified(call)
        if call.stored is None:
            self.records.mark(call, 0)

    def _bind(self, call: Call, attempt: Attempt) -> None:
        """An answer was accepted: the conversation stays at its channel and upstream key."""
        wanted = call.wanted
        if wanted is not None and wanted.preference is not None:
            self.affinity.accepted(wanted.preference, attempt.candidate, time.monotonic())


def _failed(fault: Fault, *, fail_over: bool = False, retry_without: str | None = None) -> Ending:
    """The end of an attempt, or of a call, whose answer was not accepted."""
    late = fault.condition is Condition.UPSTREAM_TIMEOUT
    outcome = "timeout" if late else "upstream_error"
    return Ending(outcome, fault, fail_over=fail_over, retry_without=retry_without)


def _note_tried(tried: dict[str, set[int]], candidate: Candidate, ending: Ending | None) -> bool:
    """Notes which upstream keys an attempt rules out; whether another one of the channel is due.

    A key that was refused, or may not be asked just now, says nothing of the next one. After two of
    them the channel's others come after all other channels: it may be the account.
    """
    channel = candidate.channel
    out = tried.setdefault(channel.id, set())
    if ending is None or _is_of_key(ending.fault):
        out.add(candidate.key)
        return len(out) == 1 < len(channel.keys)
    out.update(range(max(1, len(channel.keys))))
    return False


def _is_of_key(fault: Fault | None) -> bool:
    """Whether another upstream key of the same channel may be better off."""
    if fault is None:
        return False
    return fault.key_refused or fault.condition is Condition.UPSTREAM_RATE_LIMITED


def _refused(call: Call, attempt: Attempt, exchange: Exchange) -> Ending:
    """The upstream has answered with an error."""
    waits, secrets = wait_headers(exchange), secrets_of(attempt.candidate.channel)
    read = read_upstream_error(exchange.status, waits, exchange.body, secrets)
    if call.operation.stored and exchange.status == 404:
        return _failed(Fault(Condition.ID_NOT_FOUND, detail=call.target))
    return _failed(read.fault, fail_over=read.fail_over, retry_without=read.retry_without)


def _unreadable(exchange: Exchange, fault: Fault) -> Ending:
    """The answer's status is a success, its body is not."""
    if fault.retry_after_s is None:
        fault.retry_after_s = retry_after_s(wait_headers(exchange))
    note_unreadable(exchange, fault)
    return _failed(fault, fail_over=True)


async def _read_answer(call: Call, attempt: Attempt, body: bytes) -> UpstreamAnswer:
    """A whole answer of the upstream. Raises Fault when it is none."""
    assert call.peek is not None
    pairing, names = attempt.pairing, (call.peek.model, attempt.upstream_model or "")
    if len(body) > pairing.at_once_bytes:
        steps = pairing.read_large_answer(body, *names, call.operation)
        answer = await in_turns(steps, call)
    else:
        answer = pairing.read_answer(body, *names, call.operation)
    if call.stream:
        raise Fault(Condition.UPSTREAM_INVALID)
    return answer


def _headers(call: Call, attempt: Attempt, exchange: Exchange) -> dict[str, str]:
    """The content type, and the upstream's headers that the family lets go down."""
    own = CONTENT_TYPES[call.operation.framing] if call.stream else "application/json"
    if attempt.pairing.translated:
        return {"Content-Type": own, **dict(attempt.told)}
    passed = {"Content-Type": exchange.content_type or own}
    for name in call.family.client.answer_headers:
        value = exchange.header(name)
        if value is not None:
            passed[name] = value
    return passed


def _has_reasoning(call: Call, attempt: Attempt) -> bool:
    """Whether a native request says something without its opaque reasoning that it did not say
    with it."""
    if call.spans is None:
        return False
    return without_reasoning(call, call.spans, attempt.upstream_model or "") is not call.spans


async def _done(call: Call, steps: Steps[T]) -> T:
    """What steps over a call's request come to."""
    return await in_turns(steps, call) if len(call.body) > LARGE_BYTES else at_once(steps)


def _answer_context(call: Call) -> AnswerContext:
    """What a translated answer repeats of its call."""
    peek = call.peek
    assert peek is not None
    return AnswerContext(
        model=peek.model,
        id=call.arrival.call_id,
        created_s=call.arrival.started_ms // 1000,
        input_tokens=call.input_estimate_tokens,
        include_usage=peek.include_usage,
        framing=call.operation.framing,
    )


async def _hear_usage(pump: StreamPump) -> None:
    """Waits a moment for the usage of a finished answer, which may have hidden reasoning."""
    left = USAGE_LOOKS
    while pump.lacks_usage and left:
        left -= 1
        await asyncio.sleep(USAGE_WITHIN_S / USAGE_LOOKS)
