"""The attempts of a call: one channel after the other until one answer is accepted.

Each function adds one thing: `run` fails over, `_with_health` reports to the circuit breaker,
`_noted` writes the attempt into the call's record, `_exchange` sends the request and reads the
answer, whole or streamed. The pipeline settles the call and writes its last bytes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from adapters.bridge import Pairing
from adapters.codecs import CODECS, PAIRINGS
from adapters.endpoints.endpoint import Endpoint
from adapters.family import Envelope, UpstreamAnswer
from adapters.faults import Condition, Fault
from adapters.ir.request import Request
from adapters.translate import Translation, without_tools
from adapters.upstream_errors.read import read_upstream_error, retry_after_s
from conf.settings import Settings
from handlers.relay.admit import is_text_alone
from handlers.relay.answers import answer_context, headers_of_answer, read_answer, tier_of_head
from handlers.relay.call import (
    NO_CONTENT,
    Attempt,
    Call,
    Content,
    Delivery,
    Ending,
    Held,
    interrupted,
)
from handlers.relay.downstream import Downstream
from handlers.relay.editing import RefusedFields, admit_as_sent, check_received, fit, result_of
from handlers.relay.failure_log import FailureLog
from handlers.relay.faults import most_useful, no_candidate_fault
from handlers.relay.limits.limits import Limits
from handlers.relay.live import LiveCalls
from handlers.relay.outgoing import request_of, without_reasoning
from handlers.relay.pump import STREAM_HEADERS, StreamPump
from handlers.relay.records import Records
from handlers.relay.routing.affinity import Affinity
from handlers.relay.routing.breaker import PLAIN, STREAM
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import NONE_TRIED, Candidate, LeftOut, RoutingRequest, Tried
from handlers.relay.routing.selector import Selector
from handlers.relay.routing.suspended_keys import refusal_of
from handlers.relay.running import ClientGone, Interrupt, run_in_slices
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
from store.values.usage import served_tier
from store.values.usage_record import AttemptRecord

# Parts that can be left out of a translated request.
_TRANSLATED_WITHOUT = frozenset({"reasoning", "stream_options"})
BYTES_PER_TOKEN = 4  # in plain text, the mean of prose and code
USAGE_WITHIN_S = 0.4  # for an upstream to report usage after the client has left
USAGE_LOOKS = 8
FINISH_WITHIN_S = 1.0  # for the upstream to end a body after its terminal marker


@dataclass(slots=True)
class Attempts:
    """The attempts of one worker's calls."""

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
    cover: Callable[[Call], Awaitable[None]]  # raises the hold to what the next channel needs
    refused_fields: RefusedFields = field(default_factory=RefusedFields)

    def first(self, call: Call, channels: tuple[Channel, ...]) -> Coroutine[Any, Any, Attempt]:
        """Plan the first attempt at one of these channels and take its slots. Raises Fault if there
        can be none: NO_CHANNEL, the recent fault of all candidates, or the reason why no channel of
        another family can carry the request."""
        head, model, preference = call.head, call.requested.model or "", None
        assert call.admitted is not None
        if conversation := conversation_of(call, channels):
            preference = self.affinity.preference_of(
                head.key, head.family.name, model, conversation, time.monotonic()
            )
        demand = call.admitted.demand
        call.planned = RoutingRequest(channels, head.family.name, model, preference, demand)
        return self._next(call, NONE_TRIED)

    async def run(self, call: Call, attempt: Attempt, downstream: Downstream) -> Ending:
        """Try channels until one answer is accepted, or no channel is left that may be tried.
        Raises Fault as `first` does if none could be tried, since circuits opened in between."""
        routing = self.settings.routing
        last_start_s = time.monotonic() + routing.total_time_s
        pump = self._pump(call, downstream) if call.requested.stream else None
        tried: dict[str, set[int]] = {}
        faults: list[Fault] = []
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
                faults.append(ending.fault)
            if attempt.candidate.slots is not None:
                used_tokens = 0 if ending is not None else None
                self.limits.leave(attempt.candidate.slots, used_tokens)
            left = routing.max_attempts - len(faults)
            if left <= 0 or (
                faults and (time.monotonic() > last_start_s or downstream.connection.head_sent)
            ):
                return _failed(most_useful(faults))
            again = _note_tried(tried, attempt.candidate, ending) and left > 1
            call.running.check()
            try:
                channel = attempt.candidate.channel
                attempt = await self._next(call, tried, channel if again else None)
                if call.as_received is not None:
                    await self.cover(call)
            except Fault:
                if not faults:
                    raise
                return _failed(most_useful(faults))

    async def _next(self, call: Call, tried: Tried, again: Channel | None = None) -> Attempt:
        """Plan the next attempt. `again`: a channel whose other upstream keys come first. Raises
        Fault."""
        while True:
            assert call.planned is not None
            if self.limits.remote is None:
                candidate = self.selector.next(call.planned, time.monotonic(), tried, again)
            else:
                candidate = await self._next_everywhere(call, tried, again)
            if not isinstance(candidate, Candidate):
                raise no_candidate_fault(candidate, call.requested.model)
            if call.as_received is not None:
                call.admitted = call.as_received
            assert call.admitted is not None
            if call.head.operation.row:
                if (attempt := self._at_endpoint(call, candidate)) is not None:
                    return attempt
                continue
            family, reshaped = candidate.channel.family, call.admitted.peek.shape
            plain = not (candidate.channel.body or call.unchecked or self.refused_fields.until_s)
            attempt = None
            pairing: Pairing | Translation | None = None
            try:
                if family == call.head.family.name and not (
                    reshaped and await self._lacks_tools(call, candidate)
                ):
                    pairing = PAIRINGS[family, family]
                else:
                    pairing = await self._translation(call, candidate)
                if pairing is not None:
                    planned = Attempt(candidate, pairing)
                    attempt = planned if plain else await self._fitted(call, planned)
            finally:
                if attempt is None and candidate.slots is not None:
                    self.limits.leave(candidate.slots, None)
            if attempt is not None:
                return attempt

    async def _next_everywhere(
        self, call: Call, tried: Tried, again: Channel | None
    ) -> Candidate | list[LeftOut]:
        """Select by limits that all nodes count. The call's callers are counted in the same step,
        once. Raises Fault if they are at a limit."""
        planned, entering = call.planned, call.entering
        assert planned is not None
        candidate = await self.selector.next_everywhere(
            planned, time.monotonic(), tried, again, entering
        )
        if entering is not None and call.held.slots is None:
            call.held = Held(entering.slots, call.held.hold)
        return candidate

    async def _fitted(self, call: Call, attempt: Attempt) -> Attempt | None:
        """Give the attempt the body that its channel gets, and admit the call again with it. Return
        None if that is refused and the channel leaves the plan. Raises Fault if no other channel is
        left."""
        channel, planned = attempt.candidate.channel, call.planned
        assert planned is not None
        try:
            refused = self.refused_fields.of(channel.id, time.monotonic())
            edits = await fit(call, attempt, refused)
            if edits or (call.unchecked and not attempt.pairing.translated):
                await admit_as_sent(call, attempt, self.settings.money.unpriced, edits=edits)
            return attempt
        except Fault as fault:
            fault.model = fault.model or call.requested.model
            call.planned = self.translations.without(planned, (channel.id,), fault)
            return None

    def _at_endpoint(self, call: Call, candidate: Candidate) -> Attempt | None:
        """Return an attempt at a candidate for an endpoint beside chat; None if the candidate
        cannot carry the request and leaves the plan. Raises Fault if no other is left."""
        head, planned, channel = call.head, call.planned, candidate.channel
        operation, spans = head.operation, call.content.spans
        assert isinstance(operation, Endpoint) and spans is not None
        assert planned is not None and call.admitted is not None
        peek = call.admitted.peek
        try:
            upstream_model = channel.models[peek.model]
            pairing = operation.pairing(channel.family, spans, peek, upstream_model)
        except Fault as fault:
            if candidate.slots is not None:
                self.limits.leave(candidate.slots, None)
            call.planned = self.translations.without(planned, (channel.id,), fault)
            return None
        return Attempt(candidate, pairing)

    async def _translation(self, call: Call, candidate: Candidate) -> Translation | None:
        """Return the translation for a candidate of another family; None if the candidate cannot
        carry the request and leaves the plan. Raises Fault if no other is left."""
        channel = candidate.channel
        try:
            planned = await self._narrowed(call)
            if not any(other is channel for other in planned.channels):
                return None
            try:
                return await self._begin(call, candidate)
            except Fault as fault:
                call.planned = self.translations.without(planned, (channel.id,), fault)
                return None
        except Fault as fault:
            fault.model = call.requested.model
            raise

    async def _narrowed(self, call: Call) -> RoutingRequest:
        """Return the plan without the channels of other families that cannot carry the request.
        Raises Fault if no channel is left."""
        assert call.planned is not None
        if call.content.request is None:
            if call.unchecked:
                check_received(call, self.settings.money.unpriced)
            request = await self.decode(call)
            call.planned = self.translations.narrowed(request, call.planned)
        return call.planned

    async def _lacks_tools(self, call: Call, candidate: Candidate) -> bool:
        """Return whether a body that came in another shape has free-text tools that a channel of
        the client's family does not accept. The channel then gets functions, as in a
        translation."""
        await self._narrowed(call)
        request, model = call.content.request, call.requested.model or ""
        return request is not None and self.translations.lacks_tools(
            request, candidate.channel, model
        )

    async def decode(self, call: Call) -> Request:
        """Decode a call's whole request, for a channel of another family. Raises Fault for the
        client's mistakes."""
        head, content = call.head, call.content
        if content.request is None:
            assert content.spans is not None
            decode = CODECS[head.family.name].client.decode_request
            steps = decode(content.spans, bool(call.requested.stream), head.target)
            request = await result_of(call, steps)
            if call.admitted is not None and (paths := call.admitted.peek.asks.left_out):
                request = without_tools(request, paths)
            call.content = Content(content.body, content.spans, request)
            return request
        return content.request

    async def _begin(self, call: Call, candidate: Candidate, without: str = "") -> Translation:
        """Make the translation for a candidate. Raises Fault if it cannot carry the request."""
        head, request = call.head, call.content.request
        assert request is not None and call.planned is not None and call.offer is not None
        steps = self.translations.begin(
            request,
            call.planned,
            candidate,
            answer_context(call),
            user_id=head.key.user_id,
            max_output_tokens=call.offer.model.max_output_tokens,
            count=head.operation.job == "count",
            without=without,
        )
        return await result_of(call, steps)

    async def _leave_out(self, call: Call, attempt: Attempt, what: str | tuple[str, ...]) -> bool:
        """Return whether the same channel may be tried again without a part of the request, or
        without fields, which the channel's next requests leave out, too."""
        call.running.check()
        pairing, channel = attempt.pairing, attempt.candidate.channel
        if call.head.operation.row and (what != "stream_options" or pairing.translated):
            return False
        if isinstance(what, tuple):
            before = attempt.refused
            with suppress(Fault):
                await fit(call, attempt, (*before, *what))
            if attempt.refused != before:
                self.refused_fields.remember(channel.id, attempt.refused, time.monotonic())
            return attempt.refused != before
        if not pairing.translated:
            if what == "bare_turns":  # only the client has the reasoning
                return False
            attempt.without = what
            return what != "reasoning" or _has_reasoning(call, attempt)
        if what == "bare_turns":
            model = call.requested.model or ""
            if not self.translations.learn_echo(attempt.candidate.channel, model):
                return False
        elif what not in _TRANSLATED_WITHOUT or (what == "reasoning" and not pairing.sealed):
            return False
        try:
            attempt.pairing = await self._begin(call, attempt.candidate, what)
            if channel.body or attempt.refused:
                await fit(call, attempt, attempt.refused)
        except Fault:
            return False  # the request needs that part, so the refusal stands
        return True

    def _pump(self, call: Call, downstream: Downstream) -> StreamPump:
        on_accepted = partial(self._accepted, call)
        on_identified = partial(self.records.identified, call)
        pump = StreamPump(call.head.family.client, downstream, on_accepted, on_identified)
        self.live.stream(call, pump, downstream)
        return pump

    async def _with_health(
        self, call: Call, attempt: Attempt, pump: StreamPump | None
    ) -> Ending | None:
        """Make an attempt and report its end to the circuit breakers. Return None if it may no
        longer start."""
        health, candidate = self.health, attempt.candidate
        kind = STREAM if call.requested.stream else "" if call.head.operation.free else PLAIN
        begin = health.begin_anyway if candidate.anyway else health.begin
        now_s, model = time.monotonic(), call.requested.model or ""
        attempt_health = begin(candidate.channel, model, candidate.key, now_s, kind)
        if attempt_health is None:
            return None
        call.attempt, attempt.health = attempt, attempt_health
        try:
            ending = await self._noted(call, attempt, pump)
            if ending.outcome == "ok":
                health.succeeded(attempt_health, time.monotonic())
            elif ending.counts and (fault := ending.upstream_fault) is not None:
                status = call.outcome.attempts[-1].status
                refusal = refusal_of(fault, status, call.head.key.user_id)
                health.failed(attempt_health, time.monotonic(), fault, refusal)
        finally:
            attempt.health = None
            health.release(attempt_health)
        return ending

    async def _noted(self, call: Call, attempt: Attempt, pump: StreamPump | None) -> Ending:
        """Make an attempt and note it in the call's record and, if the channel starts to fail, in
        the log."""
        assert call.admitted is not None
        channel = attempt.candidate.channel
        attempt.upstream_model = channel.models.get(call.admitted.peek.model)
        record = AttemptRecord(channel.name, dropped=attempt.dropped)
        call.outcome.attempts.append(record)
        started_ms = call.head.arrival.elapsed_ms()
        try:
            ending = await self._exchange(call, attempt, pump)
        except UpstreamError as error:
            call.running.start()
            retry_timeouts = channel.retry_timeouts
            if retry_timeouts is None:
                retry_timeouts = self.settings.routing.retry_timeouts
            fail_over = may_fail_over(error, retry_timeouts)
            ending = _failed(fault_of(error), fail_over=fail_over)
            ending.counts = error.kind != "too_large"  # clients can request answers that large
            record.error = error.kind
        except Fault as refusal:
            # The request cannot be made for this channel; nothing was sent.
            ending = _failed(refusal, fail_over=True)
        finally:
            record.ms = call.head.arrival.elapsed_ms() - started_ms
        if ending.outcome == "ok":
            if self.failures.failing:
                self.failures.answered(channel, call.requested.model or "")
        elif (fault := ending.upstream_fault) is not None:
            fault.mask(secrets_of(channel))
            fault.model, record.detail = call.requested.model, fault.operator_message
            if not call.outcome.delivery.relayed:
                record.error = record.error or fault.code
            if ending.counts:
                self.failures.failed(call, attempt, fault, time.monotonic())
        return ending

    async def _exchange(self, call: Call, attempt: Attempt, pump: StreamPump | None) -> Ending:
        """Send the request and read the answer. Raises UpstreamError, Fault, Interrupt."""
        running = call.running
        exchange = self.client.start(request_of(call, attempt, self.settings.upstream))
        running.stop()
        try:
            running.start(await running.wait(exchange.head))
            call.outcome.attempts[-1].status = exchange.status
            if exchange.streaming:
                assert pump is not None
                return await self._streamed(call, attempt, exchange, pump)
            if exchange.status not in ANSWERED:
                return _refused(call, attempt, exchange)
            try:
                body, most_bytes = exchange.body, self.settings.upstream.max_event_bytes
                answer = read_answer(call, attempt, body, self.translations, most_bytes)
                if not isinstance(answer, UpstreamAnswer):
                    answer = await run_in_slices(answer, running)
            except Fault as fault:
                return _unreadable(exchange, fault)
            exchange.accept()
            return self._whole(call, attempt, exchange, answer)
        finally:
            running.waited()
            if not exchange.head.done() or running.interrupted is not None:
                outcome = call.outcome
                if isinstance(running.interrupted, ClientGone) and not outcome.delivery.relayed:
                    # The vendor works on a request whose client has left, and bills it.
                    outcome.delivery = Delivery(handed_over=exchange.handed_over)
                exchange.cancel()

    def _whole(
        self, call: Call, attempt: Attempt, exchange: Exchange, answer: UpstreamAnswer
    ) -> Ending:
        """Accept an answer that was read whole."""
        self._bind(call, attempt)
        pairing, upstream, outcome = attempt.pairing, attempt.pairing.upstream, call.outcome
        if not pairing.translated and (ids := upstream.issued_ids(answer.body, call.keeps_answer)):
            self.records.note_made(call, ids)
        units = answer.output_units
        if answer.usage is not None:  # the text was not counted; this is an upper bound
            units = len(answer.body) // BYTES_PER_TOKEN
        served = answer.served
        if not served.tier and (tier := tier_of_head(upstream, exchange)) is not None:
            served = replace(served, tier=served_tier(tier))
        outcome.delivery = Delivery(
            *(True, True, answer.usage, answer.reported, units, answer.upstream_id, served)
        )
        outcome.ttft_ms = call.head.arrival.elapsed_ms()
        headers = headers_of_answer(call, attempt, exchange)
        if not call.requested.stream:
            return Ending("ok", envelope=Envelope(200, headers, answer.body))
        envelope = Envelope(200, headers | dict(STREAM_HEADERS), answer.body)
        return Ending("ok", envelope=envelope, tail=answer.body)  # the head may have been sent

    async def _streamed(
        self, call: Call, attempt: Attempt, exchange: Exchange, pump: StreamPump
    ) -> Ending:
        """Let the pump relay the answer until the answer or the call ends."""
        assert call.admitted is not None
        running, peek, keeps_answer = call.running, call.admitted.peek, call.keeps_answer
        attempt.bridge = bridge = attempt.pairing.open_bridge(
            peek.model,
            attempt.upstream_model or "",
            not peek.include_usage,
            call.head.operation,
            self.settings.upstream.max_event_bytes,
        )
        if (tier := tier_of_head(attempt.pairing.upstream, exchange)) is not None:
            bridge.note_tier(tier)
        bridge.watch(partial(self.records.note_made, call), stored=keeps_answer)
        headers = tuple(headers_of_answer(call, attempt, exchange).items())
        ended = pump.attach(exchange, bridge, headers, awaits_id=keeps_answer)
        running.stop()  # from here on the time is the upstream's and the client's
        try:
            await running.wait(ended)
        except Interrupt as interrupt:
            if isinstance(interrupt, ClientGone):
                await _await_usage(pump)
            call.outcome.delivery = pump.delivery()
            ending = interrupted(interrupt)
            ending.at_boundary = pump.at_boundary
            return ending
        ending = ended.result()
        running.start()
        call.outcome.delivery = pump.delivery()
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
        """Free the request's body, since the answer was accepted. Note that in health and
        journal."""
        call.text_alone, call.content = is_text_alone(call), NO_CONTENT
        call.outcome.ttft_ms = call.head.arrival.elapsed_ms()
        call.running.stop()
        attempt = call.attempt
        assert attempt is not None
        attempt.pairing.free_body()
        attempt.content = None
        if (attempt_health := attempt.health) is not None:
            now_s = time.monotonic()
            self.health.started(attempt_health, now_s, now_s - attempt_health.begun_s)
        self._bind(call, attempt)
        self.records.identified(call)
        if call.outcome.stored is None:
            self.records.mark(call, 0)

    def _bind(self, call: Call, attempt: Attempt) -> None:
        """Keep the conversation at the channel and upstream key of an accepted answer."""
        planned = call.planned
        if planned is not None and planned.preference is not None:
            self.affinity.accepted(planned.preference, attempt.candidate, time.monotonic())


def conversation_of(call: Call, channels: tuple[Channel, ...]) -> bytes:
    """Return the name of a call's conversation; empty if it has none or there is no choice of
    channel or key."""
    head, spans = call.head, call.content.spans
    if len(channels) < 2 and not (channels and len(channels[0].keys) > 1):
        return b""
    if spans is None or head.operation.job == "count":
        return b""
    return head.family.client.conversation(spans)


def _failed(
    fault: Fault, *, fail_over: bool = False, retry_without: str | tuple[str, ...] | None = None
) -> Ending:
    """Return the ending of an attempt or a call whose answer was not accepted."""
    late = fault.condition is Condition.UPSTREAM_TIMEOUT
    outcome = "timeout" if late else "upstream_error"
    return Ending(outcome, fault, fail_over=fail_over, retry_without=retry_without)


def _note_tried(tried: dict[str, set[int]], candidate: Candidate, ending: Ending | None) -> bool:
    """Note which upstream keys an attempt rules out. Return whether another key of the channel
    should be tried next. A key that was refused, or may not be used just now, says nothing about
    the next one. After two such keys the channel's other keys come after all other channels, since
    the cause may be the account."""
    channel = candidate.channel
    keys = tried.setdefault(channel.id, set())
    if ending is None or _is_of_key(ending.fault):
        keys.add(candidate.key)
        return len(keys) == 1 < len(channel.keys)
    keys.update(range(max(1, len(channel.keys))))
    return False


def _is_of_key(fault: Fault | None) -> bool:
    """Return whether another upstream key of the same channel may succeed."""
    if fault is None:
        return False
    return fault.key_refused or fault.condition is Condition.UPSTREAM_RATE_LIMITED


def _refused(call: Call, attempt: Attempt, exchange: Exchange) -> Ending:
    """Return the ending of an attempt that the upstream answered with an error."""
    waits, secrets = wait_headers(exchange), secrets_of(attempt.candidate.channel)
    read = read_upstream_error(exchange.status, waits, exchange.body, secrets)
    if call.head.operation.stored and exchange.status == 404:
        return _failed(Fault(Condition.ID_NOT_FOUND, detail=call.head.target))
    return _failed(read.fault, fail_over=read.fail_over, retry_without=read.retry_without)


def _unreadable(exchange: Exchange, fault: Fault) -> Ending:
    """Return the ending of an attempt whose answer has a success status but an invalid body."""
    if fault.retry_after_s is None:
        fault.retry_after_s = retry_after_s(wait_headers(exchange))
    note_unreadable(exchange, fault)
    return _failed(fault, fail_over=True)


def _has_reasoning(call: Call, attempt: Attempt) -> bool:
    """Return whether a native request has opaque reasoning that can be left out."""
    spans = call.content.spans
    if spans is None:
        return False
    return without_reasoning(call.head.family, spans, attempt.upstream_model or "") is not spans


async def _await_usage(pump: StreamPump) -> None:
    """Wait briefly for the usage of a finished answer, which may include hidden reasoning."""
    left = USAGE_LOOKS
    while pump.lacks_usage and left:
        left -= 1
        await asyncio.sleep(USAGE_WITHIN_S / USAGE_LOOKS)
