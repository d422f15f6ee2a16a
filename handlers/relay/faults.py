"""Errors of the store and of the upstream client, as faults. The one table for both."""

from adapters.faults import Condition, Fault
from handlers.relay.upstream import UpstreamError
from store.errors import StoreUnavailable
from store.funds import WalletEmpty
from store.journal import JournalFull

# kind of UpstreamError -> condition, another channel may be tried (protocols: reading errors)
_UPSTREAM: dict[str, tuple[Condition, bool]] = {
    "connect": (Condition.UPSTREAM_UNREACHABLE, True),
    "tls": (Condition.UPSTREAM_UNREACHABLE, True),
    "timeout_connect": (Condition.UPSTREAM_UNREACHABLE, True),
    "reset_before_head": (Condition.UPSTREAM_FAILED, True),
    "truncated": (Condition.UPSTREAM_FAILED, True),
    "too_large": (Condition.UPSTREAM_INVALID, True),
    "protocol": (Condition.UPSTREAM_INVALID, True),
    "timeout_first_byte": (Condition.UPSTREAM_TIMEOUT, False),
    "timeout_idle": (Condition.UPSTREAM_TIMEOUT, False),
}
_MESSAGES = {
    "reset_before_head": "The upstream closed the connection before it answered.",
    "truncated": "The upstream channel stopped answering.",
    "too_large": "The upstream's answer is larger than upstream.max_answer_bytes.",
    "timeout_first_byte": "The upstream did not answer in time.",
    "timeout_idle": "The upstream channel stopped answering.",
}


def from_upstream(error: UpstreamError) -> Fault:
    """The fault a client is told when the upstream failed this way."""
    condition, _ = _UPSTREAM[error.kind]
    message = _MESSAGES.get(error.kind)
    return Fault(condition, message) if message else Fault(condition)


def may_fail_over(error: UpstreamError, retry_timeouts: bool) -> bool:
    """Whether another channel may be tried: a late answer may have been paid for already."""
    condition, retry = _UPSTREAM[error.kind]
    return retry or (retry_timeouts and condition is Condition.UPSTREAM_TIMEOUT)


def from_store(error: StoreUnavailable | WalletEmpty | JournalFull) -> Fault:
    """The fault a client is told when the store or the journal refuses a call."""
    if isinstance(error, WalletEmpty):
        return Fault(Condition.WALLET_EMPTY)
    return Fault(Condition.UNAVAILABLE)
