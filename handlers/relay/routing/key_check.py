"""Checks by a request of our own whether an upstream key that one caller was refused is refused.

In the background, with the relay's own client and so by the channel's own route. First the vendor's
list of models, which is free: a refused list confirms that the key is refused, a served one clears
a key that lacks a right. Some vendors serve their list to anybody, and most to accounts that cannot
pay: then a short answer is asked for, of the refused model and, when that is refused too, of
another one. No usage record, no charge, no limits.
"""

import asyncio
import logging
import time

from adapters.faults import Fault
from conf.settings import UpstreamSettings
from handlers.relay.routing import probe
from handlers.relay.routing.health import Health
from handlers.relay.routing.suspects import Suspicion
from handlers.relay.upstream.addressing import Target
from handlers.relay.upstream.client import UpstreamClient

log = logging.getLogger("sluice.health")

CHECK_S = 10.0  # after which the result is unknown
RUNNING_MAX = 4  # of a worker; at most one for each key


class KeyChecks:
    """The checks of one worker; health asks for them and gets their results."""

    def __init__(self, client: UpstreamClient, limits: UpstreamSettings, health: Health) -> None:
        self._client = client
        self._limits = limits
        self._health = health
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    def begin(self, suspicion: Suspicion) -> bool:
        """Begin a check; False when too many are running."""
        if self._closed or len(self._running) >= RUNNING_MAX:
            return False
        task = asyncio.get_running_loop().create_task(self._run(suspicion))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return True

    def close(self) -> None:
        """Cancel running checks, begin no more."""
        self._closed = True
        for task in self._running:
            task.cancel()

    async def _run(self, suspicion: Suspicion) -> None:
        refused: bool | None = None
        try:
            async with asyncio.timeout(CHECK_S):
                refused = await self._is_refused(suspicion)
        except TimeoutError:
            pass
        finally:
            self._health.keys.checked(suspicion, time.monotonic(), refused)
        if refused is False:
            told = 'upstream key refused to one call only: channel=%s upstream_key=%d/%d cause="%s"'
            channel = suspicion.channel
            count = len(channel.keys)
            log.warning(told, channel.name, suspicion.key + 1, count, suspicion.reason)

    async def _is_refused(self, suspicion: Suspicion) -> bool | None:
        channel, about = suspicion.channel, suspicion.about
        secret = channel.keys[suspicion.key] if channel.keys else ""
        if about != "quota":
            fault = await probe.list_models(self._client, channel, secret, self._limits)
            if fault is None and about == "access":
                return False
            if fault is not None and fault.key_refused and fault.refused_for == "key":
                return True
        others = [model for model in channel.models if model != suspicion.model]
        refused: bool | None = None
        for model in (suspicion.model, *others[:1]):
            if model in channel.models:
                target = Target(channel, model, secret, stream=False)
                outcome = await probe.call(self._client, target, self._limits)
                refused = _verdict(outcome.fault)
                if not refused:
                    break
        return refused


def _verdict(fault: Fault | None) -> bool | None:
    """Whether the key is refused; None: the call could not tell."""
    if fault is None:
        return False
    if fault.key_refused:
        return True
    return False if fault.blame == "client" else None  # a judged request had a valid key
