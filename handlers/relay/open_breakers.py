"""The open breakers of this worker as the store shows them: no secrets, wall clock.

Looked at once a second, on the loop; the writer's thread takes the newest picture.
"""

from collections.abc import Mapping

from handlers.relay.health import BreakerName, Health
from store.breakers import Name, Open
from store.catalog import Channel, Snapshot

SHOWN_MAX = 1000  # of a worker; what is beyond them is not shown


class OpenBreakers:
    """Follows a Health. `offset_ms`: wall clock less monotonic clock, taken once, so that a row
    does not change with every look."""

    def __init__(self, health: Health, offset_ms: int) -> None:
        self.rows: Mapping[Name, Open] = {}
        """The newest picture; never changed, but replaced."""
        self._health = health
        self._offset_ms = offset_ms
        self._since_ms: dict[BreakerName, int] = {}

    def look(self, snapshot: Snapshot) -> None:
        """Make the picture anew."""
        if not (self._health.breakers or self.rows):
            return
        channels = {channel.id: channel for channel in snapshot.channels}
        rows: dict[Name, Open] = {}
        since_ms: dict[BreakerName, int] = {}
        for name, breaker in self._health.breakers.items():
            channel = channels.get(name[0])
            if not breaker.open or channel is None or len(rows) >= SHOWN_MAX:
                continue
            fingerprint = _fingerprint(channel, name[-1])
            if fingerprint is None:
                continue
            # Each probe that fails opens it anew; since when is told by the first opening.
            since_ms[name] = self._since_ms.get(name) or self._wall_ms(breaker.since_s)
            model = name[1] if len(name) == 3 else ""
            until_ms = self._wall_ms(breaker.until_s)
            rows[channel.id, model, fingerprint] = (breaker.reason, since_ms[name], until_ms)
        self.rows, self._since_ms = rows, since_ms

    def _wall_ms(self, at_s: float) -> int:
        return round(at_s * 1000) + self._offset_ms


def _fingerprint(channel: Channel, secret: str) -> str | None:
    """What stands for an upstream key; None for one that the channel has no more."""
    if not secret:
        return ""
    if secret in channel.keys:
        return channel.fingerprints[channel.keys.index(secret)]
    return None
