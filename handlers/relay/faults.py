"""Faults for clients, made from errors of the store, a call's attempts, a plan without
candidates."""

import datetime
import math
from collections.abc import Sequence

from adapters.faults import Condition, Fault
from handlers.relay.routing.breaker import KEY_SUSPENDED, RATE_LIMITED
from handlers.relay.routing.plan import BEYOND_ITS_LIMIT, LeftOut
from store.money.accounts import KEY_LIMIT, USER_LIMIT
from store.money.funds import NotCovered, QuotaUsed, WalletEmpty
from store.values.errors import StoreError
from store.values.pricing import format_money

# Which of several faults of a call is reported: the one most useful to the client comes first. The
# last two are reported only if there is no other: a rate limit is understood as that of all
# channels, and a misconfiguration stops retries.
_USEFUL = (
    Condition.UPSTREAM_OVERLOADED,
    Condition.UPSTREAM_FAILED,
    Condition.UPSTREAM_TIMEOUT,
    Condition.UPSTREAM_INVALID,
    Condition.UPSTREAM_UNREACHABLE,
    Condition.UPSTREAM_RATE_LIMITED,
    Condition.CHANNEL_MISCONFIGURED,
)
_ADD_BALANCE = "The wallet balance does not cover this call: {}. Add balance in the API Hub."
_WINDOWS = {
    KEY_LIMIT: "spend limit of this API key",
    USER_LIMIT: "spend limit of this user",
}
_TOO_LARGE = "The request is larger than any channel for model '{}' may take in a minute."


def most_useful(faults: Sequence[Fault]) -> Fault:
    """Return the attempts' fault that is reported to the client: its own mistake before others."""
    return min(faults, key=_usefulness)


def no_candidate_fault(left_out: Sequence[LeftOut], model: str | None) -> Fault:
    """Return the fault if no candidate is left: the reason why all of them failed recently, if it
    is the same for all, else NO_CHANNEL."""
    # A channel that is too small for the call will not take it later, either.
    waiting = [channel for channel in left_out if channel.reason != BEYOND_ITS_LIMIT]
    if left_out and not waiting:
        fault = Fault(Condition.NO_CHANNEL, _TOO_LARGE.format(model), model=model)
        fault.permanent = True
        return fault
    reasons = {channel.reason for channel in waiting}
    condition = Condition.NO_CHANNEL
    if reasons == {RATE_LIMITED}:
        condition = Condition.UPSTREAM_RATE_LIMITED
    elif reasons == {KEY_SUSPENDED}:
        condition = Condition.CHANNEL_MISCONFIGURED
    wait_s = math.ceil(min((channel.wait_s for channel in waiting), default=0.0))
    return Fault(condition, model=model, retry_after_s=wait_s)


def _usefulness(fault: Fault) -> tuple[int, int]:
    place = _USEFUL.index(fault.condition) if fault.condition in _USEFUL else -1
    return place, fault.wait_s or 0


def from_store(error: StoreError, currency: str = "") -> Fault:
    """Return the fault for the client if the store, the journal or a lack of money refuses a call.
    `currency`: written after amounts; empty: omitted."""
    if isinstance(error, WalletEmpty):
        message = _ADD_BALANCE.format(_lacking(error, currency)) if error.left_nanos else None
        return Fault(Condition.WALLET_EMPTY, message)
    if isinstance(error, QuotaUsed):
        return Fault(Condition.QUOTA_USED, _quota_message(error, currency))
    return Fault(Condition.UNAVAILABLE)


def _quota_message(error: QuotaUsed, currency: str) -> str:
    account = error.account
    if account is None:
        return "No subscription of this user is in force."
    what, until = _WINDOWS.get(account.kind, "subscription quota"), ""
    if account.ends_ms is not None:
        # All windows end at midnight UTC.
        day = datetime.datetime.fromtimestamp(account.ends_ms // 1000, datetime.UTC).date()
        until = f" until {day}"
    if not error.left_nanos:
        return f"The {what} is used up{until}."
    return f"The {what} does not cover this call{until}: {_lacking(error, currency)}."


def _lacking(error: NotCovered, currency: str) -> str:
    """Return a text with the amounts left and needed. handlers.hub.web.formats parses both."""
    left, needed = (
        f"{format_money(nanos)} {currency}".rstrip()
        for nanos in (error.left_nanos, error.needed_nanos)
    )
    return f"{left} is left, and it needs at least {needed}"
