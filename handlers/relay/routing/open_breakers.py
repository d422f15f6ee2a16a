"""This worker's open circuits as the store has them: without secrets, in times of the monotonic
clock, which the writer turns into the database's.

Updated once a second, on the loop; the writer's thread takes the newest state. `restore` reads such
states back, for display.
"""

import math
from collections.abc import Iterable, Mapping

from handlers.relay.routing.breaker import Breaker, BreakerName
from handlers.relay.routing.health import Health
from store.catalog.catalog import Channel, Snapshot
from store.channels import breakers
from store.channels.breakers import Name, Open

SHOWN_MAX = 1000  # of a worker; more are not shown


class OpenBreakers:
    """Follows a Health."""

    def __init__(self, health: Health) -> None:
        self.rows: Mapping[Name, Open] = {}
        """The newest state; replaced, never changed."""
        self._health = health
        self._since_ms: dict[BreakerName, int] = {}

    def look(self, snapshot: Snapshot) -> None:
        """Update `rows`."""
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
            # A failed probe opens it anew; shown is the time of the first opening.
            since_ms[name] = self._since_ms.get(name) or _ms(breaker.since_s)
            model = name[1] if len(name) == 3 else ""
            until_ms = _ms(breaker.until_s)
            rows[channel.id, model, fingerprint] = (breaker.reason, since_ms[name], until_ms)
        self.rows, self._since_ms = rows, since_ms


def _ms(at_s: float) -> int:
    return round(at_s * 1000)


def restore(
    health: Health,
    snapshot: Snapshot,
    shown: Iterable[breakers.Breaker],
    now_s: float,
) -> None:
    """Opens in a Health for display what workers have open. Of several workers' circuits for the
    same key the one that is open longest counts. `now_s`: when the snapshot was read."""
    channels = {channel.id: channel for channel in snapshot.channels}
    for row in sorted(shown, key=lambda one: one.until_ms):
        channel = channels.get(row.channel_id)
        if channel is None or row.fingerprint not in (channel.fingerprints or ("",)):
            continue
        marks = channel.fingerprints
        secret = channel.keys[marks.index(row.fingerprint)] if marks else ""
        name = (row.channel_id, row.model, secret) if row.model else (row.channel_id, secret)
        until_s = now_s + (row.until_ms - snapshot.read_ms) / 1000
        known = health.breakers.get(name)
        if known is None or known.until_s < until_s:
            open_ = Breaker(open=True, reason=row.reason, until_s=until_s, since_s=-math.inf)
            health.breakers[name] = open_


def _fingerprint(channel: Channel, secret: str) -> str | None:
    """The fingerprint of an upstream key; None when the channel no longer has the key."""
    if not secret:
        return ""
    if secret in channel.keys:
        return channel.fingerprints[channel.keys.index(secret)]
    return None
