"""Upstream keys that are refused: whose circuits open for all models, here and in other workers.

A refusal is confirmed first (suspects.py). Confirmed ones are reported by `on_key` to all workers,
`take` opens and closes the circuits that others have reported. Sans-io; times are of a monotonic
clock, in s. Imported by health.py.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from handlers.relay.routing.breaker import (
    KEY_COOLDOWN_MAX_S,
    KEY_SUSPENDED,
    BreakerName,
    Breakers,
    Trial,
    key_name,
)
from handlers.relay.routing.suspects import Refusal, Suspect, Suspicion
from store.catalog.catalog import Channel, Snapshot
from store.catalog.suspended_keys import KeyName, SuspendedKey

KEY_CHECK_S = 15.0  # for which a refused key stays open while it is checked
MAX_SUSPECTS = 10_000


class KeyNews(Struct, frozen=True):
    """An upstream key was refused, its circuit is open for `wait_s`; None: it answers again."""

    channel: Channel
    key: int
    wait_s: float | None = None
    times: int = 0
    reason: str = ""


class RefusedKeys:
    """The refused keys of one worker. `on_suspect` begins a check of a key that one caller was
    refused, unless it says False; `checked` gets the result."""

    def __init__(
        self,
        breakers: Breakers,
        random: Callable[[], float],
        on_key: Callable[[KeyNews], None],
        on_suspect: Callable[[Suspicion], bool],
    ) -> None:
        self.on_key = on_key
        self.on_suspect = on_suspect
        self._breakers = breakers
        self._random = random
        self._suspects: dict[BreakerName, Suspect] = {}
        self._stored: Mapping[KeyName, SuspendedKey] = {}

    def take(self, snapshot: Snapshot, now_s: float, now_ms: int) -> None:
        """Opens the circuits of the keys that the store lists, closes those it lists no more.

        `now_ms`: the database's clock. However wrong it is, no circuit stays open for longer than
        KEY_COOLDOWN_MAX_S after its row was seen first.
        """
        before, stored = self._stored, snapshot.suspended_keys
        if not (before or stored):
            return
        self._stored = stored
        for channel in snapshot.channels:
            for key, fingerprint in enumerate(channel.fingerprints or ("",)):
                name = (channel.id, fingerprint)
                row = stored.get(name)
                if row is None and name in before:
                    self._take_back(key_name(channel, key))
                elif row is not None and row != before.get(name):
                    breaker = self._breakers.named(key_name(channel, key))
                    left_s = min(max(0.0, (row.until_ms - now_ms) / 1000), KEY_COOLDOWN_MAX_S)
                    breaker.open, breaker.reason, breaker.openings = True, KEY_SUSPENDED, row.times
                    breaker.since_s, breaker.until_s = now_s, now_s + left_s

    def refused(self, trial: Trial, now_s: float, refusal: Refusal) -> bool:
        """An attempt was refused its key: this call avoids the key, all calls do once the refusal
        is known to be about it. Whether the refusal is a fault of the model instead."""
        channel, key = trial.channel, trial.key
        name = key_name(channel, key)
        breaker = self._breakers.named(name)
        if not breaker.judges(trial):
            return False
        suspect = self._suspects.get(name)
        if suspect is None:
            if len(self._suspects) >= MAX_SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
            suspect = self._suspects[name] = Suspect()
        meaning = suspect.meet(refusal, now_s)
        if meaning == "confirmed":
            self._open(channel, key, now_s, refusal.reason)
        elif meaning == "unknown":
            if breaker.open:  # the check is the only probe
                breaker.until_s = now_s + KEY_CHECK_S
            suspicion = Suspicion(channel, key, trial.model, refusal.about, refusal.reason)
            if not self.on_suspect(suspicion):
                self.checked(suspicion, now_s, None)
        return meaning == "of_the_model"

    def checked(self, suspicion: Suspicion, now_s: float, refused: bool | None) -> None:
        """The result of a check: whether the key is refused to us, too; None: it could not tell."""
        channel, key = suspicion.channel, suspicion.key
        name = key_name(channel, key)
        suspect, breaker = self._suspects.get(name), self._breakers.get(name)
        if suspect is None or breaker is None:
            return
        meaning = suspect.checked(refused, now_s)
        if meaning == "confirmed" or (refused is None and breaker.open):
            self._open(channel, key, now_s, suspicion.reason)
        elif refused is False and breaker.open:
            self.on_key(KeyNews(channel, key))
            breaker.open, breaker.since_s = False, now_s

    def answered(self, trial: Trial, now_s: float) -> None:
        """A call with a key has gone well."""
        if not self._suspects:
            return
        name = key_name(trial.channel, trial.key)
        suspect = self._suspects.get(name)
        if suspect is None:
            return
        suspect.answered()
        if not suspect.checking and now_s >= max(suspect.cleared_until_s, suspect.check_s):
            del self._suspects[name]
            breaker = self._breakers.get(name)
            if breaker is not None and not breaker.open:
                del self._breakers[name]

    def _open(self, channel: Channel, key: int, now_s: float, reason: str) -> None:
        name = key_name(channel, key)
        breaker = self._breakers.named(name)
        self._suspects.pop(name, None)
        breaker.trip(now_s, KEY_SUSPENDED, self._random)
        self.on_key(KeyNews(channel, key, breaker.until_s - now_s, breaker.openings, reason))

    def _take_back(self, name: BreakerName) -> None:
        found = self._breakers.get(name)
        if found is not None and found.reason == KEY_SUSPENDED:
            del self._breakers[name]


def tell_nobody(news: KeyNews) -> None:
    """For plans that are only shown: refused keys are not reported."""


def check_nothing(suspicion: Suspicion) -> bool:
    """No checks: another user's call has to confirm a refusal."""
    return False
