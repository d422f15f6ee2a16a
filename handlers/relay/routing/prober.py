"""Probes: calls of the gateway's own to channels without traffic, so that their status is known.

Off unless an interval is set, since vendors charge for them. The writer's thread claims what is due
(`store.channels.probes.Rota`), the loop makes the call, like any call with a key whose circuit is
closed or half-open. Health learns from it as from a call: a success closes the circuits that it
probes, a failure counts. Results go to the store, apart from traffic; no usage record, no charge.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from random import random

from conf.settings import Settings
from handlers.relay.routing import probe
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Planner, Wanted
from handlers.relay.routing.suspects import refusal_of
from handlers.relay.upstream.addressing import Target
from handlers.relay.upstream.client import UpstreamClient
from store.catalog.catalog import EMPTY, Channel, Snapshot
from store.channels.probes import Pair, Rota
from store.channels.status_sums import Probed

log = logging.getLogger("sluice.probe")

RUNNING_MAX = 4


class Prober:
    """Makes the probes of one worker. `post` hands a function to the loop's thread."""

    def __init__(
        self,
        settings: Settings,
        client: UpstreamClient,
        health: Health,
        post: Callable[..., None],
    ) -> None:
        self.rota = Rota(settings.probe.interval_s, lambda pair: post(self._begin, pair))
        self._limits = settings.upstream
        self._client = client
        self._health = health
        self._planner = Planner(health, random)
        self._snapshot: Snapshot = EMPTY
        self._running: set[asyncio.Task[None]] = set()
        self._room = RUNNING_MAX

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Sets what there is to probe."""
        self._snapshot = snapshot
        if self.rota.interval_s:
            self.rota.pairs = _pairs(snapshot)

    def close(self) -> None:
        """Cancel running probes, without results, and begin no more."""
        self._room = 0
        self.rota.busy = True
        for task in self._running:
            task.cancel()

    def _begin(self, pair: Pair) -> None:
        name, model = pair
        if len(self._running) >= self._room:
            return
        for channel in self._snapshot.channels:
            if channel.name == name and channel.takes_calls and model in channel.models:
                task = asyncio.get_running_loop().create_task(self._probe(channel, model))
                self._running.add(task)
                self.rota.busy = len(self._running) >= self._room
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.rota.busy = len(self._running) >= self._room

    async def _probe(self, channel: Channel, model: str) -> None:
        health, now_s = self._health, time.monotonic()
        candidates = self._planner.plan(Wanted((channel,), channel.family, model), now_s)
        trial = health.begin(channel, model, candidates[0].key, now_s) if candidates else None
        if trial is None:
            return  # the circuits of all its keys are open, and none is due for a probe
        secret = channel.keys[trial.key] if channel.keys else ""
        target = Target(channel, model, secret, stream=True)
        try:
            outcome = await probe.call(self._client, target, self._limits)
            now_s = time.monotonic()
            if outcome.fault is not None:
                refusal = refusal_of(outcome.fault, outcome.status)
                health.failed(trial, now_s, outcome.fault, refusal)
            else:
                if outcome.first_byte_ms is not None:
                    health.started(trial, now_s, outcome.first_byte_ms / 1000)
                health.succeeded(trial, now_s)
        finally:
            health.release(trial)
        self._note(channel, model, outcome)

    def _note(self, channel: Channel, model: str, outcome: probe.Outcome) -> None:
        told = "probe of channel %s for model %s: %s in %d ms"
        log.info(told, channel.name, model, outcome.error or "ok", outcome.total_ms)
        result = Probed(
            channel.name,
            model,
            int(time.time() * 1000),
            outcome.error,
            outcome.first_byte_ms,
            outcome.total_ms,
        )
        if not self.rota.note(result):
            log.warning("probe result dropped: the store is unavailable")


def _pairs(snapshot: Snapshot) -> list[Pair]:
    """What could be called now."""
    return [
        (channel.name, model)
        for channel in snapshot.channels
        if channel.takes_calls
        for model in channel.models
        if model in snapshot.models and not snapshot.models[model].disabled
    ]
