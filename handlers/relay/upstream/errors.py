"""Faults of upstreams: failed transfers, waits named by answers, secrets to mask.

The only place where curl errors become faults. Imported by the relay and by probes.
"""

from itertools import chain
from urllib.parse import urlsplit

from adapters.faults import Condition, Fault, clean_message
from handlers.relay.upstream.client import Exchange, UpstreamError
from store.catalog.catalog import Channel

# Kind of UpstreamError -> condition, whether another channel may be tried.
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
_MESSAGES = {
    "reset_before_head": "The upstream closed the connection before it answered.",
    "truncated": "The upstream channel stopped answering.",
    "too_large": "The upstream's answer is larger than upstream.max_answer_bytes.",
    "timeout_first_byte": "The upstream did not answer in time.",
    "timeout_idle": "The upstream channel stopped answering.",
}


def fault_of(error: UpstreamError) -> Fault:
    """Return the fault for the client of an upstream error."""
    condition, _ = _UPSTREAM[error.kind]
    fault = Fault(condition, _MESSAGES.get(error.kind))
    fault.operator_message = (
        error.detail or None
    )  # cleaned later by `mask`, with the channel's secrets
    return fault


def may_fail_over(error: UpstreamError, retry_timeouts: bool) -> bool:
    """Return whether another channel may be tried. If the answer timed out, only with
    `retry_timeouts`, since the vendor may already bill it."""
    condition, retry = _UPSTREAM[error.kind]
    return retry or (retry_timeouts and condition is Condition.UPSTREAM_TIMEOUT)


def wait_headers(exchange: Exchange) -> dict[str, str]:
    """Return the headers of an error answer that name the time to wait before a retry."""
    fields = ((name, exchange.header(name)) for name in ("retry-after-ms", "retry-after"))
    return {name: value for name, value in fields if value is not None}


def note_unreadable(exchange: Exchange, fault: Fault) -> None:
    """Describe for operators an answer with a success status and an invalid body."""
    if fault.operator_message is None:
        content_type = exchange.content_type or "no content type"
        fault.operator_message = clean_message(f"{content_type}, {len(exchange.body)} bytes")


def secrets_of(channel: Channel) -> tuple[str, ...]:
    """Return the strings that no message about a channel may contain: keys, header values,
    addresses, logins."""
    proxy = channel.route.proxy if channel.route else None
    places = [urlsplit(url) for url in (channel.base_url, proxy) if url]
    parts = [(at.password, at.username, at.netloc, at.hostname) for at in places]
    secrets = (*channel.keys, *channel.extra_headers.values(), *chain.from_iterable(parts))
    return tuple(filter(None, secrets))
