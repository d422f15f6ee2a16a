"""Suspended upstream keys: whose circuits open for all models, here and in other workers.

A vendor's 401, 402 or 403 may be about what one caller requested ("your organization must be
verified"). So a key's circuit opens for all calls only when the refusal is confirmed: by a check of
our own (prober.py), or by a call of another user. A key that a check has cleared stays clear for
a while, whoever is refused. Suspended keys are reported by `on_key` to all workers, `take` opens
and closes the circuits that others have reported. Sans-io; times are of a monotonic clock, in s.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from adapters.faults import Fault
from adapters.upstream_errors.read import QUOTA_USED
from handlers.relay.routing.breaker import (
    KEY_COOLDOWN_MAX_S,
    KEY_SUSPENDED,
    BreakerName,
    Breakers,
    Trial,
    key_name,
)
from store.catalog.catalog import Channel, Snapshot
from store.catalog.suspended_keys import KeyName, SuspendedKey

KEY_CHECK_S = 15.0  # for which a refused key stays open while it is checked
MAX_SUSPECTS = 10_000
CLEARED_S = 60.0  # for which a key that a check has cleared is not checked again
AGAIN_S = 5.0  # between a check without a result and the next one
MEMORY_S = 600.0  # after which a refusal is forgotten

About = Literal["key", "access", "quota"]
"""What is refused: the key itself, a right of it, or its account's payment."""

Meaning = Literal["confirmed", "unknown", "of_the_model", "of_the_call"]


class Refusal(Struct, frozen=True):
    """An upstream refused the key of an attempt. `caller`: the id of the call's user; "" for a
    probe, which confirms it unless only a right is missing. `reason`: for the operator."""

    caller: str
    about: About = "key"
    reason: str = ""


def refusal_of(fault: Fault, status: int | None, caller: str = "") -> Refusal | None:
    """What a fault says of the upstream key that was used, with the reason as operators read it;
    None: nothing. `caller`: id of the user whose call met it, "" for a call of our own."""
    if not fault.key_refused:
        return None
    told = f"upstream status {status}"
    reason = f"{QUOTA_USED} ({told})" if fault.quota_used else told
    return Refusal(caller, fault.refused_for, reason)


class Suspicion(Struct, frozen=True):
    """What a check has to find out: whether the key itself is refused, or the model to it."""

    channel: Channel
    key: int  # position of the upstream key
    model: str
    about: About
    reason: str


class Suspect(Struct):
    """What is known of one key."""

    caller: str = ""  # the first one who was refused
    seconded: bool = False  # by another user's call
    checking: bool = False
    undecided: bool = False  # the last check had no result
    cleared_until_s: float = float("-inf")
    check_s: float = float("-inf")  # when the next check may begin
    last_s: float = float("-inf")

    def meet(self, refusal: Refusal, now_s: float) -> Meaning:
        """What one more refusal means; "unknown": a check is due, and begins."""
        if not refusal.caller and refusal.about != "access":
            return "confirmed"
        if now_s - self.last_s > MEMORY_S:
            self.caller, self.seconded, self.undecided = "", False, False
        self.last_s = now_s
        self.caller = self.caller or refusal.caller
        other = refusal.caller != self.caller
        self.seconded |= other
        if now_s < self.cleared_until_s:
            self.caller = refusal.caller  # refusals of one caller alone confirm nothing
            return "of_the_model" if other else "of_the_call"
        if other and (self.undecided or (self.checking and refusal.about == "key")):
            return "confirmed"
        if self.checking or now_s < self.check_s:
            return "of_the_call"
        self.checking = True
        return "unknown"

    def checked(self, refused: bool | None, now_s: float) -> Meaning:
        """The check's result: refused, answered, or (None) neither."""
        self.checking, self.undecided = False, refused is None
        if refused or (refused is None and self.seconded):
            return "confirmed"
        if refused is None:
            self.check_s = now_s + AGAIN_S
            return "unknown"
        self.cleared_until_s = now_s + CLEARED_S
        return "of_the_call"

    def answered(self) -> None:
        """A call with the key has gone well: earlier refusals no longer count."""
        self.caller, self.seconded, self.undecided = "", False, False


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
