"""Upstream keys that were refused to a call, while nobody knows yet whether it is about the key.

A vendor's 401, 402 or 403 may be about what one caller asked for ("your organization must be
verified"). So a key is put aside for everybody only when that is confirmed: by a cheap call of our
own (key_check.py makes it), or by the call of another user. What the cheap call has cleared stays
clear for a while, whoever is refused. Sans-io; times are of a monotonic clock, in s.
"""

from typing import Literal

from msgspec import Struct

from adapters.faults import Fault
from adapters.upstream_errors.read import QUOTA_USED
from store.catalog.catalog import Channel

CLEARED_S = 60.0  # a key that answered a call of our own is not asked for again so soon
AGAIN_S = 5.0  # between a check that could not tell and the next one
MEMORY_S = 600.0  # after which a refusal is forgotten

About = Literal["key", "access", "quota"]
"""What a refusal speaks of: the key itself, what it may do, what its account can pay."""

Meaning = Literal["confirmed", "unknown", "of_the_model", "of_the_call"]


class Refusal(Struct, frozen=True):
    """An upstream refused the key of an attempt. `caller`: whose call it was, an id of a user; ""
    for a probe, which confirms it unless it may just not do what was asked. `reason`: for the
    operator."""

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
    """What is to be found out by a call of our own: whether the channel's key is refused as such,
    or what was asked of the model."""

    channel: Channel
    key: int  # position of the upstream key
    model: str
    about: About
    reason: str


class Suspect(Struct):
    """What is known of one key."""

    caller: str = ""  # the first one that it was refused to
    seconded: bool = False  # by another user's call
    checking: bool = False
    undecided: bool = False  # the last check could not tell
    cleared_until_s: float = float("-inf")
    check_s: float = float("-inf")  # when the next check may begin
    last_s: float = float("-inf")

    def meet(self, refusal: Refusal, now_s: float) -> Meaning:
        """What one more refusal says; "unknown": a check is due, and begins."""
        if not refusal.caller and refusal.about != "access":
            return "confirmed"
        if now_s - self.last_s > MEMORY_S:
            self.caller, self.seconded, self.undecided = "", False, False
        self.last_s = now_s
        self.caller = self.caller or refusal.caller
        other = refusal.caller != self.caller
        self.seconded |= other
        if now_s < self.cleared_until_s:
            self.caller = refusal.caller  # one caller alone says nothing, however often
            return "of_the_model" if other else "of_the_call"
        if other and (self.undecided or (self.checking and refusal.about == "key")):
            return "confirmed"
        if self.checking or now_s < self.check_s:
            return "of_the_call"
        self.checking = True
        return "unknown"

    def checked(self, refused: bool | None, now_s: float) -> Meaning:
        """What a check has found: refused, answered, or (None) neither."""
        self.checking, self.undecided = False, refused is None
        if refused or (refused is None and self.seconded):
            return "confirmed"
        if refused is None:
            self.check_s = now_s + AGAIN_S
            return "unknown"
        self.cleared_until_s = now_s + CLEARED_S
        return "of_the_call"

    def answered(self) -> None:
        """A call with the key has gone well: what was refused before says nothing of it."""
        self.caller, self.seconded, self.undecided = "", False, False
