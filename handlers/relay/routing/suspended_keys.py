"""Suspended upstream keys: their circuits are open for all models, in all workers.

A vendor's 401, 402 or 403 may be about one caller's request ("your organization must be verified").
So a key's circuit opens for all calls only when the refusal is confirmed: by the gateway's own
check (prober.py), or by a call of another user. A key that a check has cleared stays clear for a
while, whoever is refused. `on_report` reports suspended keys to all workers; `take` opens and
closes the circuits that others have reported. Sans-io. Times are of a monotonic clock, in s.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from adapters.faults import Fault
from adapters.upstream_errors.read import QUOTA_USED
from handlers.relay.routing.breaker import (
    KEY_COOLDOWN_MAX_S,
    KEY_SUSPENDED,
    AttemptHealth,
    BreakerName,
    Breakers,
    key_name,
)
from store.catalog.catalog import Channel, Snapshot
from store.catalog.suspended_keys import KeyName, SuspendedKey

KEY_CHECK_S = 15.0  # for which the circuit of a refused key stays open while it is checked
MAX_HISTORIES = 10_000
CLEARED_S = 60.0  # for which a key that a check has cleared is not checked again
NEXT_CHECK_S = 5.0  # between a check without a result and the next one
HISTORY_S = 600.0  # after which a refusal is forgotten

About = Literal["key", "access", "quota"]
"""The subject of a refusal: the key itself, a right of the key, or its account's payment."""

Meaning = Literal["confirmed", "unknown", "of_the_model", "of_the_call"]


class KeyRefusal(Struct, frozen=True):
    """A refusal of an attempt's key by the upstream. `caller`: the id of the call's user; "" for a
    probe, which confirms the refusal unless only a right is missing. `reason`: for the operator."""

    caller: str
    about: About = "key"
    reason: str = ""


def refusal_of(fault: Fault, status: int | None, caller: str = "") -> KeyRefusal | None:
    """Return the refusal of the upstream key that a fault reports; None if it reports none.
    `caller`: id of the user whose call failed, "" for the gateway's own call."""
    if not fault.key_refused:
        return None
    reason = f"upstream status {status}"
    if fault.quota_used:
        reason = f"{QUOTA_USED} ({reason})"
    return KeyRefusal(caller, fault.refused_for, reason)


class KeyCheck(Struct, frozen=True):
    """A check whether an upstream key is refused as a whole, or only for this model."""

    channel: Channel
    key: int  # position of the upstream key
    model: str
    about: About
    reason: str


class RefusalHistory(Struct):
    """The refusals and checks of one key."""

    caller: str = ""  # the first user who was refused
    several_callers: bool = False  # another user was refused, too
    checking: bool = False
    undecided: bool = False  # the last check had no result
    cleared_until_s: float = float("-inf")
    check_s: float = float("-inf")  # when the next check may start
    last_s: float = float("-inf")

    def record_refusal(self, refusal: KeyRefusal, now_s: float) -> Meaning:
        """Record a refusal and return its meaning. "unknown": the caller must start a check."""
        if not refusal.caller and refusal.about != "access":
            return "confirmed"
        if now_s - self.last_s > HISTORY_S:
            self.caller, self.several_callers, self.undecided = "", False, False
        self.last_s = now_s
        self.caller = self.caller or refusal.caller
        other = refusal.caller != self.caller
        self.several_callers |= other
        if now_s < self.cleared_until_s:
            self.caller = refusal.caller  # refusals of a single caller confirm nothing
            return "of_the_model" if other else "of_the_call"
        if other and (self.undecided or (self.checking and refusal.about == "key")):
            return "confirmed"
        if self.checking or now_s < self.check_s:
            return "of_the_call"
        self.checking = True
        return "unknown"

    def checked(self, refused: bool | None, now_s: float) -> Meaning:
        """Record the check's result and return its meaning. `refused` None: undecided."""
        self.checking, self.undecided = False, refused is None
        if refused or (refused is None and self.several_callers):
            return "confirmed"
        if refused is None:
            self.check_s = now_s + NEXT_CHECK_S
            return "unknown"
        self.cleared_until_s = now_s + CLEARED_S
        return "of_the_call"

    def answered(self) -> None:
        """Forget earlier refusals, since a call with the key succeeded."""
        self.caller, self.several_callers, self.undecided = "", False, False


class KeyReport(Struct, frozen=True):
    """A report for all workers that a key is suspended for `wait_s`; None: it works again."""

    channel: Channel
    key: int
    wait_s: float | None = None
    times: int = 0
    reason: str = ""


class SuspendedKeys:
    """The suspended keys of one worker. `on_check` starts the check of a key that was refused to
    one caller, or returns False. `checked` gets the result."""

    def __init__(
        self,
        breakers: Breakers,
        random: Callable[[], float],
        on_report: Callable[[KeyReport], None],
        on_check: Callable[[KeyCheck], bool],
    ) -> None:
        self.on_report = on_report
        self.on_check = on_check
        self._breakers = breakers
        self._random = random
        self._histories: dict[BreakerName, RefusalHistory] = {}
        self._stored: Mapping[KeyName, SuspendedKey] = {}

    def take(self, snapshot: Snapshot, now_s: float, now_ms: int) -> None:
        """Open the circuits of the keys that the store lists, and close those it no longer lists.
        `now_ms`: the database's clock. However wrong it is, no circuit stays open for longer than
        KEY_COOLDOWN_MAX_S after its row was first seen."""
        before, stored = self._stored, snapshot.suspended_keys
        if not (before or stored):
            return
        self._stored = stored
        for channel in snapshot.channels:
            for key, fingerprint in enumerate(channel.fingerprints or ("",)):
                name = (channel.id, fingerprint)
                row = stored.get(name)
                if row is None and name in before:
                    self._lift(key_name(channel, key))
                elif row is not None and row != before.get(name):
                    breaker = self._breakers.named(key_name(channel, key))
                    left_s = min(max(0.0, (row.until_ms - now_ms) / 1000), KEY_COOLDOWN_MAX_S)
                    breaker.open, breaker.reason, breaker.openings = True, KEY_SUSPENDED, row.times
                    breaker.since_s, breaker.until_s = now_s, now_s + left_s

    def refused(self, attempt: AttemptHealth, now_s: float, refusal: KeyRefusal) -> bool:
        """Note that the upstream refused an attempt's key. Return whether that counts as a fault of
        the model. This call avoids the key; all calls do once the refusal of the key itself is
        confirmed."""
        channel, key = attempt.channel, attempt.key
        name = key_name(channel, key)
        breaker = self._breakers.named(name)
        if not breaker.judges(attempt):
            return False
        history = self._histories.get(name)
        if history is None:
            if len(self._histories) >= MAX_HISTORIES:
                del self._histories[next(iter(self._histories))]
            history = self._histories[name] = RefusalHistory()
        meaning = history.record_refusal(refusal, now_s)
        if meaning == "confirmed":
            self._open(channel, key, now_s, refusal.reason)
        elif meaning == "unknown":
            if breaker.open:  # the check is the only probe
                breaker.until_s = now_s + KEY_CHECK_S
            check = KeyCheck(channel, key, attempt.model, refusal.about, refusal.reason)
            if not self.on_check(check):
                self.checked(check, now_s, None)
        return meaning == "of_the_model"

    def checked(self, check: KeyCheck, now_s: float, refused: bool | None) -> None:
        """Take the result of a check. `refused` None: undecided."""
        channel, key = check.channel, check.key
        name = key_name(channel, key)
        history, breaker = self._histories.get(name), self._breakers.get(name)
        if history is None or breaker is None:
            return
        meaning = history.checked(refused, now_s)
        if meaning == "confirmed" or (refused is None and breaker.open):
            self._open(channel, key, now_s, check.reason)
        elif refused is False and breaker.open:
            self.on_report(KeyReport(channel, key))
            breaker.open, breaker.since_s = False, now_s

    def answered(self, attempt: AttemptHealth, now_s: float) -> None:
        """Note that a call with a key succeeded."""
        if not self._histories:
            return
        name = key_name(attempt.channel, attempt.key)
        history = self._histories.get(name)
        if history is None:
            return
        history.answered()
        if not history.checking and now_s >= max(history.cleared_until_s, history.check_s):
            del self._histories[name]
            breaker = self._breakers.get(name)
            if breaker is not None and not breaker.open:
                del self._breakers[name]

    def _open(self, channel: Channel, key: int, now_s: float, reason: str) -> None:
        name = key_name(channel, key)
        breaker = self._breakers.named(name)
        self._histories.pop(name, None)
        breaker.trip(now_s, KEY_SUSPENDED, self._random)
        self.on_report(KeyReport(channel, key, breaker.until_s - now_s, breaker.openings, reason))

    def _lift(self, name: BreakerName) -> None:
        breaker = self._breakers.get(name)
        if breaker is not None and breaker.reason == KEY_SUSPENDED:
            del self._breakers[name]


def discard_report(news: KeyReport) -> None:
    """Ignore the report. For plans that are only displayed."""


def refuse_check(check: KeyCheck) -> bool:
    """Refuse a check, so that only another user's call can confirm a refusal."""
    return False
