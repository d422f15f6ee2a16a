"""What an attempt sends upstream: address, headers and body of a call for one channel and key."""

from collections.abc import Mapping
from dataclasses import replace

from adapters.family import Vendor
from adapters.registry import FAMILIES, VENDORS
from conf.settings import UpstreamSettings
from handlers.relay.call import Call
from handlers.relay.pump import CONTENT_TYPES
from handlers.relay.routing.plan import Step
from handlers.relay.upstream.client import UpstreamRequest
from handlers.relay.upstream.request import with_extra_headers
from store.catalog.catalog import Channel


def request_of(call: Call, step: Step, limits: UpstreamSettings) -> UpstreamRequest:
    """The request of an attempt, without what `call.without` names.

    Raises Fault E12, E24 when it cannot be made for this channel.
    """
    family, channel, client_headers = call.family, step.channel, call.client_headers
    key = channel.keys[step.key] if channel.keys else ""
    vendor = VENDORS[channel.vendor]
    if call.without == "stream_options":
        vendor = replace(vendor, stream_options=False)
    elif call.without == "beta":
        client_headers = {n: v for n, v in client_headers.items() if n != "anthropic-beta"}
    path = family.upstream_path(call.operation, call.upstream_model or "", call.target)
    # By position, as with all that is made for each call.
    return UpstreamRequest(
        call.method,
        url_of(channel, path) + call.query,
        headers_of(channel, vendor, key, client_headers),
        _edited_body(call, vendor),
        limits.connect_timeout_s,
        limits.first_byte_timeout_s,
        limits.idle_timeout_s,
        limits.max_answer_bytes,
        bool(call.stream),
        CONTENT_TYPES[call.operation.framing],
        channel.route,
    )


def url_of(channel: Channel, path: str) -> str:
    """Where a path of a channel's family is at its vendor."""
    return channel.base_url + VENDORS[channel.vendor].prefixes.get(channel.family, "") + path


def headers_of(channel: Channel, vendor: Vendor, key: str, client: Mapping[str, str]) -> list[str]:
    """Header lines for a channel: the key, what goes on of the client's, the channel's own.

    Raises Fault E24 for a key that cannot stand in a header.
    """
    lines = FAMILIES[channel.family].request_headers(client, vendor, key)
    extra = channel.extra_headers
    return with_extra_headers(lines, extra) if extra else lines


def _edited_body(call: Call, vendor: Vendor) -> bytes | None:
    """The body for the upstream; None for a method without one."""
    if call.operation.stored:
        return b"" if call.method == "POST" else None
    assert call.spans is not None and call.peek is not None and call.upstream_model is not None
    family = call.family
    return family.edit_request(call.body, call.spans, call.peek, call.upstream_model, vendor)
