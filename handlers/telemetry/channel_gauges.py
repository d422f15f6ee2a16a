"""The gauges of channels: whether they take calls, and the state of their circuits.

Only enabled channels have gauges: a channel that an operator has disabled or drains is not down.

`show` sets a gauge and `hide` removes it. Updated once a second on the loop, a portion at a time.
"""

from collections.abc import Callable
from typing import NamedTuple

from handlers.relay.routing.breaker import PROBED, SLOW, names_of
from handlers.relay.routing.health import Health
from store.catalog.catalog import Channel, Snapshot

CLOSED, HALF_OPEN, OPEN = 0, 1, 2
PAIRS_MAX = 5000  # pairs of channel and model; further ones are shown once their circuit has opened
PER_UPDATE = 500  # new ones in one second; each takes some 10 us

Pair = tuple[str, str]
"""Names of channel and model."""


class ChannelHealth(NamedTuple):
    """The health of a channel for a model."""

    up: bool
    circuit: int


class ChannelGauges:
    """The gauges of one worker, from its Health and the catalogue."""

    def __init__(
        self,
        health: Health,
        show: Callable[[Pair, ChannelHealth], None],
        hide: Callable[[Pair], None],
    ) -> None:
        self._health = health
        self._show = show
        self._hide = hide
        self._channels: dict[str, Channel] = {}
        self._shown: dict[Pair, ChannelHealth] = {}
        self._due: list[Channel] = []  # channels whose gauges are not all up to date
        self._affected: set[str] = set()  # ids of channels with an open circuit

    def take_snapshot(self, snapshot: Snapshot, now_s: float) -> None:
        channels = [channel for channel in snapshot.channels if channel.takes_calls]
        self._channels = {channel.id: channel for channel in channels}
        pairs = {(channel.name, model) for channel in channels for model in channel.models}
        for pair in self._shown.keys() - pairs:
            del self._shown[pair]
            self._hide(pair)
        self._due = channels
        self.update(now_s)

    def update(self, now_s: float) -> None:
        left = PER_UPDATE
        while self._due and left > 0:
            channel = self._due.pop()
            left -= len(channel.models)
            self._update_channel(channel, now_s)
        breakers = self._health.breakers
        if not (breakers or self._affected):
            return
        affected = {name[0] for name, breaker in breakers.items() if breaker.open}
        for channel_id in affected | self._affected:
            affected_channel = self._channels.get(channel_id)
            if affected_channel is not None:
                self._update_channel(affected_channel, now_s)
        self._affected = affected

    def _update_channel(self, channel: Channel, now_s: float) -> None:
        for model in channel.models:
            pair, state = (channel.name, model), self._state(channel, model, now_s)
            before = self._shown.get(pair)
            if state == before:
                continue
            if before is not None or state.circuit or len(self._shown) < PAIRS_MAX:
                self._shown[pair] = state
                self._show(pair, state)

    def _state(self, channel: Channel, model: str, now_s: float) -> ChannelHealth:
        usable, worst = False, CLOSED
        for key in range(max(1, len(channel.keys))):
            circuit, reason = self._circuit(channel, model, key, now_s)
            usable |= circuit != OPEN or reason == SLOW
            worst = max(worst, circuit)
        return ChannelHealth(usable, worst)

    def _circuit(self, channel: Channel, model: str, key: int, now_s: float) -> tuple[int, str]:
        """Return the state of an upstream key's circuit for a model, and its reason."""
        reason, _ = self._health.fault_of(channel, model, key, now_s)
        if reason and reason != PROBED:
            return OPEN, reason
        breakers = map(self._health.breakers.get, names_of(channel, model, key))
        if any(breaker is not None and breaker.open for breaker in breakers):
            return HALF_OPEN, reason
        return CLOSED, ""
