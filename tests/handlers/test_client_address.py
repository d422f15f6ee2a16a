"""Addresses of clients behind proxies."""

from ipaddress import ip_network

import pytest

from handlers.client_address import client_address

PROXIES = (ip_network("10.0.0.0/8"), ip_network("::1/128"))


@pytest.mark.parametrize(("peer", "forwarded", "expected"), [
    ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
    ("10.0.0.1", None, "10.0.0.1"),
    ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
    ("10.0.0.1", "192.0.2.66, 198.51.100.1", "198.51.100.1"),
    ("10.0.0.1", "198.51.100.1, 10.2.3.4", "198.51.100.1"),
    ("10.0.0.1", "10.9.9.9, 10.2.3.4", "10.9.9.9"),
    ("10.0.0.1", "evil, 10.2.3.4", "10.2.3.4"),
    ("10.0.0.1", "garbage", "10.0.0.1"),
    ("10.0.0.1", "", "10.0.0.1"),
    ("::1", "2001:db8::7", "2001:db8::7"),
])  # fmt: skip
def test_client_address(peer, forwarded, expected):
    assert client_address(peer, forwarded, PROXIES) == expected


def test_nobody_is_trusted_by_default():
    assert client_address("127.0.0.1", "198.51.100.1", ()) == "127.0.0.1"
