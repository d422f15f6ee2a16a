"""Upstream keys that a call was refused, until it is known whether the key itself is refused.

A vendor's 401, 402 or 403 may be about what one caller asked for ("your organization must be
verified"). So a key's circuit opens for all calls only when the refusal is confirmed: by a check of
our own (key_check.py), or by a call of another user. A key that a check has cleared stays clear for
a while, whoever is refused. Sans-io; times are of a monotonic clock, in s.
"""

from typing import Literal

from msgspec import Struct

from adapters.faults import Fault
from adapters.upstream_errors.read import QUOTA_USED
from store.catalog.catalog import Channel

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
