"""What this worker knows of channels as gauges: may they take calls, are their circuits open.

Of channels that are enabled: one that an operator has switched off, or drains, is not down.

`set` and `unset` show a value and take it away. Updated once a second, on the loop, a portion at a
time.
"""

from collections.abc import Callable
from typing import NamedTuple

from handlers.relay.routing.breaker import PROBED, SLOW, names_of
from handlers.relay.routing.health import Health
from store.catalog.catalog import Channel, Snapshot

CLOSED, HALF_OPEN, OPEN = 0, 1, 2
PAIRS_MAX = 5000  # of channel and model; further ones show once their circuit has opened
PER_LOOK = 500  # new ones in one second: each takes some 10 us

Pair = tuple[str, str]
"""Names of channel and model."""


class State(NamedTuple):
    """Of a channel for a model."""

    up: bool
    circuit: int


class ChannelGauges:
    """Follows a Health and the catalogue."""

    def __init__(
        self, health: Health, show: Callable[[Pair, State], None], hide: Callable[[Pair], None]
    ) -> None:
        self._health = health
        self._show = show
        self._hide = hide
        self._channels: dict[str, Channel] = {}
        self._shown: dict[Pair, State] = {}
        self._due: list[Channel] = []  # whose pairs are not all shown as they are now
        self._affected: set[str] = set()  # ids of channels with an open circuit

    def take_snapshot(self, snapshot: Snapshot, now_s: float) -> None:
        """The catalogue has changed."""
        taking = [one for one in snapshot.channels if one.takes_calls]
        self._channels = {one.id: one for one in taking}
        there = {(one.name, model) for one in taking for model in one.models}
        for pair in self._shown.keys() - there:
            del self._shown[pair]
            self._hide(pair)
        self._due = taking
        self.look(now_s)

    def look(self, now_s: float) -> None:
        """Show what has changed."""
        left = PER_LOOK
        while self._due and left > 0:
            channel = self._due.pop()
            left -= len(channel.models)
            self._update(channel, now_s)
        breakers = self._health.breakers
        if not (breakers or self._affected):
            return
        affected = {name[0] for name, breaker in breakers.items() if breaker.open}
        for channel_id in affected | self._affected:
            if (found := self._channels.get(channel_id)) is not None:
                self._update(found, now_s)
        self._affected = affected

    def _update(self, channel: Channel, now_s: float) -> None:
        for model in channel.models:
            pair, state = (channel.name, model), self._state(channel, model, now_s)
            before = self._shown.get(pair)
            if state == before:
                continue
            if before is not None or state.circuit or len(self._shown) < PAIRS_MAX:
                self._shown[pair] = state
                self._show(pair, state)

    def _state(self, channel: Channel, model: str, now_s: float) -> State:
        usable, worst = False, CLOSED
        for key in range(max(1, len(channel.keys))):
            circuit, reason = self._circuit(channel, model, key, now_s)
            usable |= circuit != OPEN or reason == SLOW
            worst = max(worst, circuit)
        return State(usable, worst)

    def _circuit(self, channel: Channel, model: str, key: int, now_s: float) -> tuple[int, str]:
        """(state, why) of an upstream key for a model."""
        reason, _ = self._health.fault_of(channel, model, key, now_s)
        if reason and reason != PROBED:
            return OPEN, reason
        found = (self._health.breakers.get(name) for name in names_of(channel, model, key))
        if any(one is not None and one.open for one in found):
            return HALF_OPEN, reason
        return CLOSED, ""
