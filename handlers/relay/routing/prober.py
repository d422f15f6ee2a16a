"""The gateway's own calls in the background: probes of quiet channels, checks of upstream keys.

Both use the relay's client, and so the channel's own route, with no usage record, no charge and no
limits. Results of probes are stored separately from those of traffic.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from random import random

from adapters.faults import Fault
from conf.settings import Settings
from handlers.relay.routing import probe
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Planner, RoutingRequest
from handlers.relay.routing.suspended_keys import KeyCheck, refusal_of
from handlers.relay.upstream.addressing import Target
from handlers.relay.upstream.client import UpstreamClient
from store.catalog.catalog import EMPTY, Channel, Snapshot
from store.channels.probes import Pair, Rota
from store.channels.status_sums import Probed

log = logging.getLogger("sluice.probe")
health_log = logging.getLogger("sluice.health")

PROBES_MAX = 4  # of a worker
CHECKS_MAX = 4  # of a worker; at most one for each key
CHECK_S = 10.0  # time limit of a check, after which its result is unknown


class Prober:
    """The probes and key checks of one worker. `post` hands a function to the loop's thread.

    Probes are off unless an interval is set, since vendors charge for them. The writer's thread
    claims due probes (`store.channels.probes.Rota`), and the loop makes the call, as any call with
    a key whose circuit is closed or half-open. Health learns from it as from a call: a success
    closes the circuits that it probes, a failure counts.

    A key check finds out whether the vendor refused an upstream key itself, or only one caller's
    call with it. It first requests the vendor's list of models, which is free: a refused list
    confirms that the key is refused, a served one clears a key that lacks a right. Some vendors
    serve their list to anybody, and most serve it to accounts that cannot pay. Then the check
    requests a short answer of the refused model and, if that is refused too, of another one.
    """

    def __init__(
        self, settings: Settings, client: UpstreamClient, health: Health, post: Callable[..., None]
    ) -> None:
        self.rota = Rota(settings.probe.interval_s, lambda pair: post(self._begin_probe, pair))
        self._limits = settings.upstream
        self._client = client
        self._health = health
        self._planner = Planner(health, random)
        self._snapshot: Snapshot = EMPTY
        self._probes: set[asyncio.Task[None]] = set()
        self._checks: set[asyncio.Task[None]] = set()
        self._closed = False

    def take_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if self.rota.interval_s:
            self.rota.pairs = _pairs(snapshot)

    def close(self) -> None:
        """Cancel running probes and checks, record no results of probes, and start no more."""
        self._closed = self.rota.busy = True
        for task in (*self._probes, *self._checks):
            task.cancel()

    def begin_check(self, check: KeyCheck) -> bool:
        """Start a key check. Return False if too many are running."""
        if self._closed or len(self._checks) >= CHECKS_MAX:
            return False
        task = _start(self._checks, self._check(check))
        task.add_done_callback(self._checks.discard)
        return True

    def _begin_probe(self, pair: Pair) -> None:
        name, model = pair
        if self._closed or len(self._probes) >= PROBES_MAX:
            return
        for channel in self._snapshot.channels:
            if channel.name == name and channel.takes_calls and model in channel.models:
                task = _start(self._probes, self._probe(channel, model))
                self.rota.busy = len(self._probes) >= PROBES_MAX
                task.add_done_callback(self._probe_ended)

    def _probe_ended(self, task: asyncio.Task[None]) -> None:
        self._probes.discard(task)
        self.rota.busy = self._closed or len(self._probes) >= PROBES_MAX

    async def _probe(self, channel: Channel, model: str) -> None:
        health, now_s = self._health, time.monotonic()
        candidates = self._planner.plan(RoutingRequest((channel,), channel.family, model), now_s)
        attempt = health.begin(channel, model, candidates[0].key, now_s) if candidates else None
        if attempt is None:
            return  # the circuits of all the channel's keys are open, and none is due for a probe
        secret = channel.keys[attempt.key] if channel.keys else ""
        target = Target(channel, model, secret, stream=True)
        try:
            outcome = await probe.call(self._client, target, self._limits)
            now_s = time.monotonic()
            if outcome.fault is not None:
                refusal = refusal_of(outcome.fault, outcome.status)
                health.failed(attempt, now_s, outcome.fault, refusal)
            else:
                if outcome.first_byte_ms is not None:
                    health.started(attempt, now_s, outcome.first_byte_ms / 1000)
                health.succeeded(attempt, now_s)
        finally:
            health.release(attempt)
        self._note(channel, model, outcome)

    def _note(self, channel: Channel, model: str, outcome: probe.Outcome) -> None:
        name, error, ms = channel.name, outcome.error, outcome.total_ms
        log.info("probe of channel %s for model %s: %s in %d ms", name, model, error or "ok", ms)
        at_ms = int(time.time() * 1000)
        result = Probed(name, model, at_ms, error, outcome.first_byte_ms, ms)
        if not self.rota.note(result):
            log.warning("probe result dropped: the store is unavailable")

    async def _check(self, check: KeyCheck) -> None:
        refused: bool | None = None
        try:
            async with asyncio.timeout(CHECK_S):
                refused = await self._is_refused(check)
        except TimeoutError:
            pass
        finally:
            self._health.keys.checked(check, time.monotonic(), refused)
        if refused is False:
            health_log.warning(
                'upstream key refused to one call only: channel=%s upstream_key=%d/%d cause="%s"',
                check.channel.name,
                check.key + 1,
                len(check.channel.keys),
                check.reason,
            )

    async def _is_refused(self, check: KeyCheck) -> bool | None:
        channel, about = check.channel, check.about
        secret = channel.keys[check.key] if channel.keys else ""
        if about != "quota":
            fault = await probe.list_models(self._client, channel, secret, self._limits)
            if fault is None and about == "access":
                return False
            if fault is not None and fault.key_refused and fault.refused_for == "key":
                return True
        other_models = [model for model in channel.models if model != check.model]
        refused: bool | None = None
        for model in (check.model, *other_models[:1]):
            if model in channel.models:
                target = Target(channel, model, secret, stream=False)
                outcome = await probe.call(self._client, target, self._limits)
                refused = _refuses_key(outcome.fault)
                if not refused:
                    break
        return refused


def _start(
    running: set[asyncio.Task[None]], work: Coroutine[None, None, None]
) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work)
    running.add(task)
    return task


def _refuses_key(fault: Fault | None) -> bool | None:
    """Return whether the key is refused; None if the call does not decide it."""
    if fault is None:
        return False
    if fault.key_refused:
        return True
    # A vendor that finds fault with the request has accepted the key.
    return False if fault.blame == "client" else None


def _pairs(snapshot: Snapshot) -> list[Pair]:
    """Return the pairs of channel name and model that take calls now."""
    return [
        (channel.name, model)
        for channel in snapshot.channels
        if channel.takes_calls
        for model in channel.models
        if model in snapshot.models and not snapshot.models[model].disabled
    ]
