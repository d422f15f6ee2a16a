"""The address of a client behind trusted proxies, and networks of addresses.

Imported by the relay port and the Hub, and independent of both.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

Network = IPv4Network | IPv6Network

FORWARDED_MAX = 64  # the most addresses of X-Forwarded-For that are read, from the right


def client_address(peer: str, forwarded: str | None, trusted: Sequence[Network]) -> str:
    """Return the caller's address: `peer`, or the address that a trusted proxy reports.

    That is the first address from the right of X-Forwarded-For that is not a trusted proxy. An
    unreadable one ends the search, because any client may have written it.
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
    """Return whether an address is in one of the networks. False for a text that is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
