"""Errors of the store and of the upstream client, as faults. The one table for both."""

import datetime
import math
from collections.abc import Sequence
from itertools import chain
from urllib.parse import urlsplit

from adapters.faults import QUOTA_USED, Condition, Fault, clean_message
from handlers.relay.call import Call
from handlers.relay.routing.health import KEY_ASIDE, RATE_LIMITED
from handlers.relay.routing.plan import BEYOND_ITS_LIMIT, LeftOut
from handlers.relay.routing.suspects import Refusal
from handlers.relay.upstream.client import Exchange, UpstreamError
from store.catalog.catalog import Channel
from store.money.accounts import LIMIT, Account
from store.money.funds import QuotaUsed, WalletEmpty
from store.values.errors import StoreError
from store.values.usage_record import AttemptRecord

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
_TOO_LARGE = "The request is larger than any channel for model '{}' may take in a minute."


def wait_headers(exchange: Exchange) -> dict[str, str]:
    """What an error answer says about when to come again."""
    found = ((name, exchange.header(name)) for name in ("retry-after-ms", "retry-after"))
    return {name: value for name, value in found if value is not None}


def secrets_of(channel: Channel) -> tuple[str, ...]:
    """What no word about a channel may say: keys, values of its headers, where it is."""
    proxy = channel.route.proxy if channel.route else None
    places = [urlsplit(url) for url in (channel.base_url, proxy) if url]
    parts = [(at.password, at.username, at.netloc, at.hostname) for at in places]
    found = (*channel.keys, *channel.extra_headers.values(), *chain.from_iterable(parts))
    return tuple(filter(None, found))


def note(call: Call, attempt: AttemptRecord, fault: Fault) -> None:
    """What an attempt met, without secrets: for its record, and for what the client is told."""
    assert call.channel is not None
    fault.mask(secrets_of(call.channel))
    fault.model = call.model_name
    attempt.detail = fault.told


def unreadable(exchange: Exchange, fault: Fault) -> None:
    """Notes for operators what an answer was that says success and is none."""
    if fault.told is None:
        content_type = exchange.content_type or "no content type"
        fault.told = clean_message(f"{content_type}, {len(exchange.body)} bytes")


def refusal_of(fault: Fault, status: int | None, caller: str = "") -> Refusal | None:
    """What a fault says of the upstream key that was used, with the reason as operators read it;
    None: nothing. `caller`: id of the user whose call met it, "" for a call of our own."""
    if not fault.key_refused:
        return None
    told = f"upstream status {status}"
    reason = f"{QUOTA_USED} ({told})" if fault.quota_used else told
    return Refusal(caller, fault.refused_for, reason)


def from_upstream(error: UpstreamError) -> Fault:
    """The fault a client is told when the upstream failed this way."""
    condition, _ = _UPSTREAM[error.kind]
    fault = Fault(condition, _MESSAGES.get(error.kind))
    fault.told = error.detail or None  # `mask` cleans it, with the channel's own secrets
    return fault


def may_fail_over(error: UpstreamError, retry_timeouts: bool) -> bool:
    """Whether another channel may be tried: a late answer may have been paid for already."""
    condition, retry = _UPSTREAM[error.kind]
    return retry or (retry_timeouts and condition is Condition.UPSTREAM_TIMEOUT)


def most_useful(met: Sequence[Fault]) -> Fault:
    """The fault to tell a client of those its attempts met: its own mistake before all others."""
    return min(met, key=_usefulness)


def of_none_left(left_out: Sequence[LeftOut], model: str | None) -> Fault:
    """The fault when no candidate can be asked: what all of them have told lately, else E09."""
    # A channel that is too small for the call will not take it later, either.
    able = [one for one in left_out if one.reason != BEYOND_ITS_LIMIT]
    if left_out and not able:
        fault = Fault(Condition.NO_CHANNEL, _TOO_LARGE.format(model), model=model)
        fault.permanent = True
        return fault
    reasons = {one.reason for one in able}
    condition = Condition.NO_CHANNEL
    if reasons == {RATE_LIMITED}:
        condition = Condition.UPSTREAM_RATE_LIMITED
    elif reasons == {KEY_ASIDE}:
        condition = Condition.CHANNEL_MISCONFIGURED
    wait_s = math.ceil(min((one.wait_s for one in able), default=0.0))
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
