"""What an attempt sends upstream: address, headers and body of a call for one channel and key."""

from dataclasses import replace

from adapters.family import Vendor
from adapters.registry import VENDORS
from conf.settings import UpstreamSettings
from handlers.relay.call import Call
from handlers.relay.pump import CONTENT_TYPES
from handlers.relay.routing.plan import Candidate
from handlers.relay.upstream.addressing import headers_of, url_of
from handlers.relay.upstream.client import UpstreamRequest


def request_of(call: Call, candidate: Candidate, limits: UpstreamSettings) -> UpstreamRequest:
    """The request of an attempt, without what `call.without` names.

    Raises Fault E12, E24 when it cannot be made for this channel.
    """
    family, channel, client_headers = call.family, candidate.channel, call.client_headers
    key = channel.keys[candidate.key] if channel.keys else ""
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


def _edited_body(call: Call, vendor: Vendor) -> bytes | None:
    """The body for the upstream; None for a method without one."""
    if call.operation.stored:
        return b"" if call.method == "POST" else None
    assert call.spans is not None and call.peek is not None and call.upstream_model is not None
    family = call.family
    return family.edit_request(call.body, call.spans, call.peek, call.upstream_model, vendor)
