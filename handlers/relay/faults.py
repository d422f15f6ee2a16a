"""Errors of the store and of the upstream client, as faults. The one table for both."""

import datetime
import math
from collections.abc import Sequence

from adapters.faults import Condition, Fault
from handlers.relay.health import KEY_ASIDE, RATE_LIMITED
from handlers.relay.plan import LeftOut
from handlers.relay.upstream import Exchange, UpstreamError
from store.accounts import LIMIT, Account
from store.errors import StoreError
from store.funds import QuotaUsed, WalletEmpty

# kind of UpstreamError -> condition, another channel may be tried (protocols: reading errors)
_UPSTREAM: dict[str, tuple[Condition, bool]] = {
    "connect": (Condition.UPSTREAM_UNREACHABLE, True),
    "tls": (Condition.UPSTREAM_UNREACHABLE, True),
    "ca_file": (Condition.CHANNEL_MISCONFIGURED, True),
    "timeout_connect": (Condition.UPSTREAM_UNREACHABLE, True),
    "reset_before_head": (Condition.UPSTREAM_FAILED, True),
    "truncated": (Condition.UPSTREAM_FAILED, True),
    "too_large": (Condition.UPSTREAM_INVALID, True),
    "protocol": (Condition.UPSTREAM_INVALID, True),
    "timeout_first_byte": (Condition.UPSTREAM_TIMEOUT, False),
    "timeout_idle": (Condition.UPSTREAM_TIMEOUT, False),
}
# Of several faults that a call met: what the client can act on, best first. E25 speaks of all
# channels, and E24 keeps clients from trying again: they are told when there is nothing else.
_USEFUL = (
    Condition.UPSTREAM_OVERLOADED,
    Condition.UPSTREAM_FAILED,
    Condition.UPSTREAM_TIMEOUT,
    Condition.UPSTREAM_INVALID,
    Condition.UPSTREAM_UNREACHABLE,
    Condition.UPSTREAM_RATE_LIMITED,
    Condition.CHANNEL_MISCONFIGURED,
)
_MESSAGES = {
    "reset_before_head": "The upstream closed the connection before it answered.",
    "truncated": "The upstream channel stopped answering.",
    "too_large": "The upstream's answer is larger than upstream.max_answer_bytes.",
    "timeout_first_byte": "The upstream did not answer in time.",
    "timeout_idle": "The upstream channel stopped answering.",
}


def wait_headers(exchange: Exchange) -> dict[str, str]:
    """What an error answer says about when to come again."""
    found = ((name, exchange.header(name)) for name in ("retry-after-ms", "retry-after"))
    return {name: value for name, value in found if value is not None}


def from_upstream(error: UpstreamError) -> Fault:
    """The fault a client is told when the upstream failed this way."""
    condition, _ = _UPSTREAM[error.kind]
    message = _MESSAGES.get(error.kind)
    return Fault(condition, message) if message else Fault(condition)


def may_fail_over(error: UpstreamError, retry_timeouts: bool) -> bool:
    """Whether another channel may be tried: a late answer may have been paid for already."""
    condition, retry = _UPSTREAM[error.kind]
    return retry or (retry_timeouts and condition is Condition.UPSTREAM_TIMEOUT)


def most_useful(met: Sequence[Fault]) -> Fault:
    """The fault to tell a client of those its attempts met: its own mistake before all others."""
    return min(met, key=_usefulness)


def of_none_left(left_out: Sequence[LeftOut], model: str | None) -> Fault:
    """The fault when no candidate can be asked: what all of them have told lately, else E09."""
    reasons = {one.reason for one in left_out}
    condition = Condition.NO_CHANNEL
    if reasons == {RATE_LIMITED}:
        condition = Condition.UPSTREAM_RATE_LIMITED
    elif reasons == {KEY_ASIDE}:
        condition = Condition.CHANNEL_MISCONFIGURED
    wait_s = math.ceil(min((one.wait_s for one in left_out), default=0.0))
    return Fault(condition, model=model, retry_after_s=wait_s)


def _usefulness(fault: Fault) -> tuple[int, int]:
    place = _USEFUL.index(fault.condition) if fault.condition in _USEFUL else -1
    return place, fault.wait_s or 0


def from_store(error: StoreError) -> Fault:
    """The fault a client is told when the store, the journal or its money refuses a call."""
    if isinstance(error, WalletEmpty):
        return Fault(Condition.WALLET_EMPTY)
    if isinstance(error, QuotaUsed):
        return Fault(Condition.QUOTA_USED, _quota_message(error.account))
    return Fault(Condition.UNAVAILABLE)


def _quota_message(account: Account | None) -> str:
    if account is None:
        return "No subscription of this user is in force."
    what = "spend limit of this API key" if account.kind == LIMIT else "subscription quota"
    if account.ends_ms is None:
        return f"The {what} is used up."
    # All windows turn at midnight UTC.
    day = datetime.datetime.fromtimestamp(account.ends_ms // 1000, datetime.UTC).date()
    return f"The {what} is used up until {day}."
