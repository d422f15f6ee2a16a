"""A call from its body to its record, phase by phase. The last phase always runs.

`Relay.run` reads from top to bottom: admit, limits, plan, hold, open, attempts, settle, reply. This
module knows no wire format, no database and no pycurl.
"""

import logging
import os
import time
from functools import partial
from random import random

from msgspec.structs import replace

from adapters.codecs import CODECS
from adapters.endpoints.form import Form
from adapters.family import Envelope, Peek
from adapters.family.asks import bounded_steps
from adapters.family.rate_headers import RateLevel
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans, top_level, top_level_steps
from adapters.json.structure import at_once
from adapters.request_estimate import estimate_request
from adapters.reshape import reshape
from conf.metrics import RATE_LIMITED
from conf.settings import Settings
from handlers.relay import admit, settle
from handlers.relay.admit_asks import check_asks, check_inline_tools, limits_tools
from handlers.relay.admit_stored import admit_stored
from handlers.relay.attempts import Attempts
from handlers.relay.call import (
    Admitted,
    Attempt,
    Call,
    Content,
    Ending,
    Held,
    Offer,
    Requested,
    interrupted,
)
from handlers.relay.downstream import Downstream
from handlers.relay.failure_log import FailureLog
from handlers.relay.holding import Holding, call_bound
from handlers.relay.limits.body_memory import BodyHold, BodyMemory
from handlers.relay.limits.limits import Entering, Limits
from handlers.relay.live import LiveCalls
from handlers.relay.records import Records
from handlers.relay.routing.affinity import Affinity
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Planner
from handlers.relay.routing.selector import Selector
from handlers.relay.running import LARGE_BYTES, Interrupt, run_in_slices
from handlers.relay.stored_responses import StoredResponses
from handlers.relay.sweep import Sweep
from handlers.relay.translations import Translations
from handlers.relay.upstream.client import UpstreamClient
from handlers.telemetry.calls import Telemetry
from store.calls.journal import Journal
from store.catalog.catalog import EMPTY, Channel, Snapshot
from store.catalog.key_cache import KeyCache
from store.money.funds import Funds

log = logging.getLogger("sluice.relay")

ESTIMATED = {"Content-Type": "application/json", "x-token-count": "estimated"}
_SECRET_BYTES = 32
VENDORS_CURRENCY = "USD"  # the currency of costs that vendors report


class Relay:
    """The relay of one worker, composed of its dependencies. Without `translations`, only this
    worker can return opaque state to the account that made it."""

    def __init__(
        self,
        settings: Settings,
        *,
        keys: KeyCache,
        funds: Funds,
        journal: Journal,
        client: UpstreamClient,
        live: LiveCalls,
        health: Health,
        limits: Limits,
        stored: StoredResponses,
        telemetry: Telemetry,
        node: str,
        translations: Translations | None = None,
    ) -> None:
        self.snapshot: Snapshot = EMPTY
        self.keys, self.funds, self.client = keys, funds, client
        self.live, self.health, self.limits = live, health, limits
        self.telemetry = telemetry
        self.body_memory = BodyMemory(
            settings.server.body_memory_bytes, partial(telemetry.metrics.count, RATE_LIMITED)
        )
        self._max_event_bytes = settings.upstream.max_event_bytes
        self._unpriced = settings.money.unpriced
        self._stored = stored
        self._records = records = Records(journal, stored, node)
        self._holding = Holding(funds, settings.money.currency)
        self._in_usd = settings.money.currency == VENDORS_CURRENCY
        self._sweep = Sweep(settings.upstream, live, health, self._holding, records)
        self._attempts = Attempts(
            settings=settings,
            client=client,
            live=live,
            limits=limits,
            records=records,
            health=health,
            selector=Selector(Planner(health, random), limits),
            affinity=Affinity(),
            failures=FailureLog(),
            translations=translations or Translations((os.urandom(_SECRET_BYTES),)),
            cover=self._cover,
        )

    def take_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def sweep(self, now_s: int) -> None:
        """Do the periodic work for the calls in flight. Called once a second, with the time of a
        monotonic clock."""
        self._sweep.run(now_s)

    async def run(
        self, call: Call, body: bytes, downstream: Downstream, body_hold: BodyHold | None = None
    ) -> None:
        """Relay a call whose request head was admitted. The call is settled and answered, whatever
        happens. `body_hold` counts the body until it is handed on."""
        self.live.enter(call)
        call.running.start()
        try:
            if len(body) <= LARGE_BYTES or call.head.operation.stored:
                admitted = self._admit(call, body)
            else:
                admitted = await self._admit_large(call, body)
            if self.limits.remote is None:
                levels = self._limit(call, admitted, downstream)
            else:
                levels = await self._limit_everywhere(call, admitted, downstream)
            channels = admitted.channels
            if admitted.refs:
                channels = await admit_stored(call.head, admitted, self._stored)
                call.running.check()
            if admitted.estimated:
                ending = await self._count(call)
                self._add_levels(call, levels, downstream)
            else:
                attempt = await self._begin(call, channels)
                if body_hold is not None:
                    body_hold.release()
                self._add_levels(call, levels or _levels_of(call), downstream)
                ending = await self._attempts.run(call, attempt, downstream)
        except Fault as fault:
            if call.entering is not None and call.attempt is None:
                self._add_levels(call, _levels_of(call), downstream)
            ending = Ending("refused", fault)
        except Interrupt as interrupt:
            ending = interrupted(interrupt)
        except Exception:
            log.exception("call %s failed inside the gateway", call.id)
            ending = Ending("internal_error", Fault(Condition.INTERNAL))
        try:
            if body_hold is not None:
                body_hold.release()
            self.end(call, ending, downstream)
        except BaseException:
            self._leave_limits(call)  # a slot must never stay taken
            raise

    def _admit(self, call: Call, body: bytes) -> Admitted:
        """Read and check the body. Raises Fault."""
        head = call.head
        if head.operation.stored:
            call.admitted = admitted = admit.admit_stored_thing(head)
            call.requested = Requested(None, admitted.peek.stream)
            return admitted
        if isinstance(call.content.spans, Form):
            return self._admit_form(call, call.content.spans)
        spans = top_level(body)
        offer, peek = self._offer(call, spans)
        if peek.shape:
            spans = at_once(reshape(spans, peek))
            body = spans.body
        if limits_tools(head, offer):
            at_once(check_inline_tools(head, offer, spans))
        call.content = Content(body, spans)
        call.admitted = admitted = admit.admit_body(head, offer, spans, peek, body)
        return admitted

    def _admit_form(self, call: Call, form: Form) -> Admitted:
        """Check a form, whose fields were read while it arrived. Raises Fault."""
        offer, peek = self._offer(call, form)
        call.admitted = admitted = admit.admit_form(call.head, offer, form, peek)
        return admitted

    async def _admit_large(self, call: Call, body: bytes) -> Admitted:
        """Read and check the body in slices. Raises Fault, Interrupt."""
        spans = await run_in_slices(top_level_steps(body), call.running)
        await run_in_slices(bounded_steps(spans), call.running)
        offer, peek = self._offer(call, spans)
        if peek.shape:
            spans = await run_in_slices(reshape(spans, peek), call.running)
            body = spans.body
        if limits_tools(call.head, offer):
            await run_in_slices(check_inline_tools(call.head, offer, spans), call.running)
        call.content = Content(body, spans)
        steps = admit.admit_large_body(call.head, offer, spans, peek, body)
        call.admitted = admitted = await run_in_slices(steps, call.running)
        return admitted

    def _offer(self, call: Call, spans: Spans) -> tuple[Offer, Peek]:
        """Read the fields and find the model. Raises Fault."""
        head = call.head
        try:
            peek = head.family.client.peek(spans, head.operation, head.target)
        except Fault:
            # A model that this key may not use is reported before an invalid field.
            name, stream = admit.read_model(head, spans)
            call.requested = Requested(name[: admit.MODEL_NAME_MAX_CHARS], stream)
            call.offer = admit.find_offer(head, name)
            raise
        name = peek.model
        call.requested = Requested(name[: admit.MODEL_NAME_MAX_CHARS], peek.stream)
        call.offer = offer = admit.find_offer(head, name)
        if peek.asks.features or peek.asks.models:
            # If channels edit their requests, the edited requests are checked.
            call.unchecked = any(channel.body for channel in offer.channels)
            if not call.unchecked:
                peek = check_asks(head, offer, peek, self._unpriced)
        if peek.stored_by_default and "stored" not in offer.group.features:
            peek = replace(peek, stored=False)
        return offer, peek

    async def _begin(self, call: Call, channels: tuple[Channel, ...]) -> Attempt:
        """Plan the first attempt, hold money, open the record. Raises Fault, Interrupt."""
        call.attempt = attempt = await self._attempts.first(call, channels)
        admitted = call.admitted  # for the body that the channel gets
        assert admitted is not None
        bound_nanos = 0 if call.head.operation.free else call_bound(admitted)
        if bound_nanos:
            slots, hold = call.held.slots, self._holding.at_once(call.head, bound_nanos)
            if hold is not None:
                call.held = Held(slots, hold)
            else:
                body = call.content.body
                hold, call.admitted = await self._holding.wait(call.head, admitted, body)
                call.held = Held(slots, hold)
                call.running.check()
        call.opened = self._records.open(call)
        return attempt

    async def _cover(self, call: Call) -> None:
        """Raise the hold to what the call can cost with the body that its next channel gets. Raises
        Fault."""
        admitted, held = call.admitted, call.held
        if admitted is not None and not call.head.operation.free:
            hold = await self._holding.cover(call.head, admitted, held.hold)
            call.held = Held(held.slots, hold)

    async def _count(self, call: Call) -> Ending:
        """Answer a token count with an estimate, since no channel can count. Raises Fault."""
        if call.unchecked and call.offer is not None and call.admitted is not None:
            check_asks(call.head, call.offer, call.admitted.peek, self._unpriced)
        steps = estimate_request(await self._attempts.decode(call))
        large = len(call.content.body) > LARGE_BYTES
        tokens = await run_in_slices(steps, call.running) if large else at_once(steps)
        call.opened = self._records.open(call)
        body = CODECS[call.head.family.name].client.encode_count(tokens)
        return Ending("ok", envelope=Envelope(200, dict(ESTIMATED), body))

    def end(self, call: Call, ending: Ending, downstream: Downstream) -> None:
        """Settle the call, then write its last bytes. Also for calls refused by their head."""
        self.live.leave(call)
        if ending.outcome == "refused" and downstream.connection.closed:
            ending = Ending("client_gone")
        envelope, begun = ending.envelope, downstream.connection.head_sent
        if envelope is None and ending.fault is not None and not begun:
            envelope = call.head.family.client.encode_fault(ending.fault, call.id)
        if begun:
            call.outcome.status = 200
        elif envelope is not None and not downstream.connection.closed:
            call.outcome.status = envelope.status
        self._settle(call, ending)
        if begun:
            self._end_stream(call, ending, downstream)
        elif envelope is not None:
            downstream.send(envelope.status, tuple(envelope.headers.items()), envelope.body)

    def _add_levels(
        self, call: Call, levels: tuple[RateLevel, ...], downstream: Downstream
    ) -> None:
        """Add the levels of the limits to the answer's headers."""
        if levels:
            downstream.add_headers(call.head.family.client.rate_lines(levels, time.time()))

    def _limit(
        self, call: Call, admitted: Admitted, downstream: Downstream
    ) -> tuple[RateLevel, ...]:
        """Take the call's part of its callers' limits. Return the levels left. Raises Fault."""
        key, group, free = call.head.key, call.head.group, call.head.operation.free
        assert group is not None
        if not (key.limited or group.limited):  # the usual case
            return ()
        levels, slots = self.limits.enter(key, group, admitted.demand, free=free)
        if isinstance(slots, Fault):
            self._add_levels(call, levels, downstream)
            raise slots
        call.held = Held(slots)
        return levels

    async def _limit_everywhere(
        self, call: Call, admitted: Admitted, downstream: Downstream
    ) -> tuple[RateLevel, ...]:
        """Take limits as `_limit` does, counted by all nodes. If channels have limits, that happens
        later, together with the first channel. Raises Fault."""
        key, group, free = call.head.key, call.head.group, call.head.operation.free
        assert group is not None
        if not (key.limited or group.limited):
            return ()
        call.entering = entering = Entering(key, group, free)
        if not admitted.estimated and any(channel.limited for channel in admitted.channels):
            return ()
        try:
            await self.limits.enter_everywhere(entering, admitted.demand)
        finally:
            call.held = Held(entering.slots)
        return entering.levels

    def record_gone(self, call: Call) -> None:
        """Record that the client left before its body was received."""
        self._settle(call, Ending("client_gone"))

    def _settle(self, call: Call, ending: Ending) -> None:
        """Settle the cost, hold and record of a call that is over. The journal has the record
        before the last byte is written."""
        head, outcome, hold = call.head, call.outcome, call.held.hold
        delivery = outcome.delivery
        counts = settle.charged_counts(call, delivery)
        bill = settle.bill_of(call, delivery, counts, in_usd=self._in_usd)
        if hold is not None:
            bill.charges = self.funds.settle(hold, bill.cost_nanos)
        elif bill.cost_nanos:  # for another model inside a call that holds no money
            bill = settle.Bill(bill.counts)
        self._leave_limits(call, bill.counts)
        if delivery.relayed and call.keeps_answer:
            self._records.note_stored(call, delivery.upstream_id)
        elif head.method == "DELETE" and ending.outcome == "ok":
            outcome.stored = self._stored.forget(head.key.user_id, head.target or "")
        record, has_line = self._records.close(call, ending, bill)
        running = call.running
        running.stop()
        own_us = running.own_ns // 1000
        self.telemetry.call_ended(record, own_us, head.arrival.trace, line=has_line)

    def _leave_limits(self, call: Call, counts: settle.Counts | None = None) -> None:
        """Return the call's slots. A call that was never opened counts as if it had not come."""
        attempt, slots = call.attempt, call.held.slots
        attempt_slots = None if attempt is None else attempt.candidate.slots
        if slots is None and attempt_slots is None:
            return
        used_tokens = None
        if call.opened is not None:
            used_tokens = settle.tokens_of(counts) if counts is not None else 0
        for taken_slots in (slots, attempt_slots):
            if taken_slots is not None:
                self.limits.leave(taken_slots, used_tokens)

    def _end_stream(self, call: Call, ending: Ending, downstream: Downstream) -> None:
        """Write the last bytes of a stream whose head was sent."""
        connection = downstream.connection
        if ending.fault is None or connection.closed:
            connection.finish(ending.tail)
            return
        if not ending.at_boundary:
            # An error event inside a half-sent event would be read as part of it.
            connection.drop()
            return
        attempt = call.attempt
        assert attempt is not None
        bridge = attempt.bridge
        if bridge is None or not bridge.accepted:  # only heartbeats were sent to the client
            name, operation = call.requested.model or "", call.head.operation
            bridge = attempt.pairing.open_bridge(
                name, name, False, operation, self._max_event_bytes
            )
        event = bridge.encode_fault(ending.fault, call.id)
        connection.finish(ending.tail + event)


def _levels_of(call: Call) -> tuple[RateLevel, ...]:
    """Return the levels of limits that were counted with the first channel."""
    return () if call.entering is None else call.entering.levels
