"""The address of a client behind trusted proxies, and networks of addresses.

Imported by the relay port and the Hub; it knows neither.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

Network = IPv4Network | IPv6Network

FORWARDED_MAX = 64  # addresses of X-Forwarded-For that are read, from the right


def client_address(peer: str, forwarded: str | None, trusted: Sequence[Network]) -> str:
    """Return the caller's address: `peer`, or what a trusted proxy says it is.

    The first address from the right of X-Forwarded-For that is not a trusted proxy; an unreadable
    one ends the search, since anybody may have written it.
    """
    if not trusted or forwarded is None or not is_within(peer, trusted):
        return peer
    client = peer
    for part in reversed(forwarded.split(",")[-FORWARDED_MAX:]):
        candidate = part.strip()
        try:
            ip_address(candidate)
        except ValueError:
            return client
        client = candidate
        if not is_within(candidate, trusted):
            return client
    return client


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of some networks; a text that is none is not."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
