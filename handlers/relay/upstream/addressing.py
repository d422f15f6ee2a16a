"""Addresses and header lines of requests to channels, and the target of the gateway's own requests.

Imported by the relay, the probes and the commands. It must not import the upstream client, which
costs memory in processes that rarely make a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from adapters.family import Family, Operation, Vendor
from adapters.registry import FAMILIES, upstream_url
from handlers.relay.upstream.request import with_extra_headers
from store.catalog.catalog import Channel


def url_of(channel: Channel, path: str) -> str:
    """Return the URL of a path of a channel's family at its vendor."""
    return upstream_url(channel.vendor, channel.family, channel.base_url, path)


def headers_of(channel: Channel, vendor: Vendor, key: str, client: Mapping[str, str]) -> list[str]:
    """Return the header lines for a channel: its key, the client's lines that may pass, and the
    channel's own. Raises Fault CHANNEL_MISCONFIGURED for a key that is not valid in a header."""
    lines = FAMILIES[channel.family].upstream.request_headers(client, vendor, key)
    if removed := channel.remove_headers:
        lines = [line for line in lines if line.partition(":")[0] not in removed]
    extra = channel.extra_headers
    return with_extra_headers(lines, extra) if extra else lines


@dataclass(frozen=True, slots=True)
class Target:
    """A model of a channel (its public name) and one of the channel's keys ("": none)."""

    channel: Channel
    model: str
    key: str
    stream: bool

    @property
    def upstream_model(self) -> str:
        return self.channel.models[self.model]

    @property
    def family(self) -> Family:
        return FAMILIES[self.channel.family]

    @property
    def operation(self) -> Operation:
        return self.family.upstream.operations["stream" if self.stream else "generate"]
