"""Where a request to a channel goes, and with which header lines. Imported by the relay, probes."""

from collections.abc import Mapping

from adapters.family import Vendor
from adapters.registry import FAMILIES, VENDORS
from handlers.relay.upstream.request import with_extra_headers
from store.catalog.catalog import Channel


def url_of(channel: Channel, path: str) -> str:
    """Where a path of a channel's family is at its vendor."""
    return channel.base_url + VENDORS[channel.vendor].prefixes.get(channel.family, "") + path


def headers_of(channel: Channel, vendor: Vendor, key: str, client: Mapping[str, str]) -> list[str]:
    """Header lines for a channel: the key, what goes on of the client's, the channel's own.

    Raises Fault CHANNEL_MISCONFIGURED for a key that cannot stand in a header.
    """
    lines = FAMILIES[channel.family].upstream.request_headers(client, vendor, key)
    extra = channel.extra_headers
    return with_extra_headers(lines, extra) if extra else lines
