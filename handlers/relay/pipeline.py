"""A call from its body to its record, phase by phase; the last phase always runs.

`Relay.run` reads top to bottom: admit, limits, plan, hold, open, attempts, settle, reply. Nothing
here knows a wire format, a database or pycurl.
"""

import logging
import os
import time
from dataclasses import dataclass, field
from random import random

from adapters.family import Envelope
from adapters.family.rate_headers import RateLevel
from adapters.faults import Condition, Fault
from adapters.json.structure import at_once
from adapters.registry import CODECS
from adapters.request_estimate import estimate_request
from conf.metrics import RATE_LIMITED
from conf.settings import Settings
from handlers.relay import admit, settle
from handlers.relay.admit_stored import admit_kept
from handlers.relay.attempts import Attempts
from handlers.relay.call import Attempt, Call, Ending, Interrupt, interrupted
from handlers.relay.downstream import Downstream
from handlers.relay.failure_log import FailureLog
from handlers.relay.holding import Holding
from handlers.relay.limits.body_memory import BodyMemory
from handlers.relay.limits.limits import Limits
from handlers.relay.live import LiveCalls
from handlers.relay.records import Records
from handlers.relay.routing.affinity import Affinity
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Planner
from handlers.relay.routing.selector import Selector
from handlers.relay.slices import LARGE_BYTES, in_turns
from handlers.relay.stored_responses import StoredResponses
from handlers.relay.translations import Translations
from handlers.relay.upstream.client import UpstreamClient
from handlers.telemetry.calls import Telemetry
from store.calls.journal import Journal
from store.catalog.catalog import EMPTY, Snapshot
from store.catalog.key_cache import KeyCache
from store.money.funds import Funds
from store.values.usage_record import Charge

log = logging.getLogger("sluice.relay")

ESTIMATED = {"Content-Type": "application/json", "x-token-count": "estimated"}
_SECRET_BYTES = 32


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
    # without the installation's secrets, opaque state goes back to its maker by this worker alone
    translations: Translations = field(
        default_factory=lambda: Translations((os.urandom(_SECRET_BYTES),))
    )
    body_memory: BodyMemory = field(init=False)
    attempts: Attempts = field(init=False)
    holding: Holding = field(init=False)
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.body_memory = BodyMemory(self.settings.server.body_memory_bytes)
        self.body_memory.on_refused = self._count_refused
        self.records = Records(self.journal, self.stored, self.node)
        self.holding = Holding(self.funds, self.settings.money.currency)
        self.attempts = Attempts(
            settings=self.settings,
            client=self.client,
            live=self.live,
            limits=self.limits,
            records=self.records,
            health=self.health,
            selector=Selector(Planner(self.health, random), self.limits),
            affinity=Affinity(),
            failures=FailureLog(),
            translations=self.translations,
        )
        self.health.running = self.live.trials
        self.limits.on_refused = self._count_refused
        self.live.on_waiting = self.attempts.waiting
        self.live.on_grown = self.holding.follow
        self.live.on_mark = self.records.mark

    async def run(self, call: Call, body: bytes, downstream: Downstream) -> None:
        """Relays one call whose head was admitted; whatever happens, it is settled and answered."""
        self.live.enter(call)
        call.own_ns = -time.monotonic_ns()
        try:
            if call.operation.stored:
                admit.read_stored(call)
            elif len(body) <= LARGE_BYTES:
                admit.read_body(call, body)
            else:
                await in_turns(admit.large_body_steps(call, body), call)
            levels = self._limit(call, downstream)
            if call.kept_refs:
                await admit_kept(call, self.stored)
                call.check()
            if call.estimated:
                ending = await self._count(call)
                self._tell_limits(call, levels, downstream)
            else:
                attempt = await self._begin(call)
                if call.body_hold is not None:
                    call.body_hold.release()
                self._tell_limits(call, levels, downstream)
                ending = await self.attempts.run(call, attempt, downstream)
        except Fault as fault:
            ending = Ending("refused", fault)
        except Interrupt as interrupt:
            ending = interrupted(interrupt)
        except Exception:
            log.exception("call %s failed inside the gateway", call.arrival.call_id)
            ending = Ending("internal_error", Fault(Condition.INTERNAL))
        try:
            self.end(call, ending, downstream)
        except BaseException:
            self._leave_limits(call)  # a slot must never stay
            raise

    async def _begin(self, call: Call) -> Attempt:
        """Plans the first attempt, holds money, opens the record. Raises Fault, Interrupt."""
        call.attempt = attempt = await self.attempts.first(call)
        if not self.holding.at_once(call):
            await self.holding.wait(call)
            call.check()
        self.records.open(call)
        return attempt

    async def _count(self, call: Call) -> Ending:
        """A count of tokens that no channel can be asked for: an estimate. Raises Fault."""
        steps = estimate_request(await self.attempts.decode(call))
        tokens = await in_turns(steps, call) if len(call.body) > LARGE_BYTES else at_once(steps)
        self.records.open(call)
        body = CODECS[call.family.name].client.encode_count(tokens)
        return Ending("ok", envelope=Envelope(200, dict(ESTIMATED), body))

    def end(self, call: Call, ending: Ending, downstream: Downstream) -> None:
        """Settles the call, then writes its last bytes. For refusals of the head, too."""
        self.live.leave(call)
        if call.body_hold is not None:
            call.body_hold.release()
        if ending.outcome == "refused" and downstream.gone:
            ending = Ending("client_gone")
        envelope = ending.envelope
        if envelope is None and ending.fault is not None and not downstream.head_sent:
            envelope = call.family.client.encode_fault(ending.fault, call.arrival.call_id)
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

    def _tell_limits(
        self, call: Call, levels: tuple[RateLevel, ...], downstream: Downstream
    ) -> None:
        if levels:
            downstream.add_headers(call.family.client.rate_lines(levels, time.time()))

    def _limit(self, call: Call, downstream: Downstream) -> tuple[RateLevel, ...]:
        """Takes what the call needs of its limits: what is left is for the head of its answer."""
        key, group = call.key, call.group
        assert group is not None
        if not (key.limited or group.limited):  # as most are
            return ()
        levels, taken = self.limits.enter(key, group, call.demand, free=call.operation.free)
        if isinstance(taken, Fault):
            self._tell_limits(call, levels, downstream)
            raise taken
        call.slots = taken
        return levels

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
        self._leave_limits(call, counts)
        if call.kept and call.delivery.relayed:
            self.records.note_stored(call, call.delivery.upstream_id)
        elif call.method == "DELETE" and ending.outcome == "ok":
            call.stored = self.stored.forget(call.key.user_id, call.target or "")
        record, kept = self.records.close(call, ending, settle.Bill(counts, cost, charges))
        if call.own_ns < 0:
            call.own_ns += time.monotonic_ns()
        self.telemetry.call_ended(record, call.own_ns // 1000, call.arrival.trace, line=kept)

    def _count_refused(self, limit: str) -> None:
        self.telemetry.metrics.count(RATE_LIMITED, limit)

    def _leave_limits(self, call: Call, counts: settle.Counts | None = None) -> None:
        """Gives back what the call has of limits; of one never opened as if it had not come."""
        attempt = call.attempt
        of_attempt = None if attempt is None else attempt.candidate.slots
        if call.slots is None and of_attempt is None:
            return
        used_tokens = settle.tokens_of(counts) if counts is not None else 0
        for slots in (call.slots, of_attempt):
            if slots is not None:
                self.limits.leave(slots, used_tokens if call.opened else None)

    def _end_stream(self, call: Call, ending: Ending, downstream: Downstream) -> None:
        """The last bytes of a stream whose head is out."""
        if ending.fault is None or downstream.gone:
            downstream.finish(ending.tail)
            return
        if not ending.at_boundary:
            # An error event inside a half sent one would be read as a part of it.
            downstream.drop()
            return
        attempt = call.attempt
        assert attempt is not None
        bridge = attempt.bridge
        if bridge is None or not bridge.accepted:  # nothing but heartbeats went down
            name, limit = call.model_name or "", self.settings.upstream.max_event_bytes
            bridge = attempt.pairing.open_bridge(name, name, False, call.operation, limit)
        event = bridge.encode_fault(ending.fault, call.arrival.call_id)
        downstream.finish(ending.tail + event)
