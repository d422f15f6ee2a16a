"""Addresses as they are counted: one host of IPv6 has a whole /64."""

from ipaddress import IPv4Address, IPv6Address, ip_address

IPV6_PREFIX = 64
IPV4_PREFIX = 24
IPV4_BITS = 32


def host_of(address: str) -> str:
    """The host that an address stands for: itself with IPv4, its /64 with IPv6."""
    return _cut(address, IPV4_BITS)


def network_of(address: str) -> str:
    """The network of an address, whose hosts one person may have: /24 of IPv4, /64 of IPv6."""
    return _cut(address, IPV4_PREFIX)


def _cut(address: str, ipv4_prefix: int) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address  # of a socket without one
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is None:
            return _network(parsed, IPV6_PREFIX)
        parsed = parsed.ipv4_mapped
    return str(parsed) if ipv4_prefix == IPV4_BITS else _network(parsed, ipv4_prefix)


def _network(address: IPv4Address | IPv6Address, prefix: int) -> str:
    rest = address.max_prefixlen - prefix
    return f"{type(address)(int(address) >> rest << rest)}/{prefix}"
