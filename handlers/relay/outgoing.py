"""What an attempt sends upstream: address, headers and body of a call for one channel and key."""

from dataclasses import replace

from adapters.family import Vendor
from adapters.json.jsonio import Spans, top_level
from adapters.registry import CODECS, VENDORS
from conf.settings import UpstreamSettings
from handlers.relay.call import Attempt, Call
from handlers.relay.pump import CONTENT_TYPES
from handlers.relay.upstream.addressing import headers_of, url_of
from handlers.relay.upstream.client import UpstreamRequest


def request_of(call: Call, attempt: Attempt, limits: UpstreamSettings) -> UpstreamRequest:
    """The request of an attempt, without what `attempt.without` names.

    Raises Fault INVALID_FIELD, CHANNEL_MISCONFIGURED when it cannot be made for this channel.
    """
    candidate, pairing, client_headers = attempt.candidate, attempt.pairing, call.client_headers
    if pairing.translated:
        client_headers = {}  # they speak of the client's family
    channel, upstream_model = candidate.channel, attempt.upstream_model or ""
    key = channel.keys[candidate.key] if channel.keys else ""
    vendor = VENDORS[channel.vendor]
    if attempt.without == "stream_options":
        vendor = replace(vendor, stream_options=False)
    elif attempt.without == "beta":
        client_headers = {n: v for n, v in client_headers.items() if n != "anthropic-beta"}
    operation = pairing.operation(call.operation, bool(call.stream))
    path = pairing.upstream.path(operation, upstream_model, call.target)
    headers, body = headers_of(channel, vendor, key, client_headers), _body(call, attempt, vendor)
    if (trace := call.arrival.trace) is not None:
        headers = [*headers, *trace.header_lines(len(call.attempts) - 1)]
    return UpstreamRequest(
        call.method,
        url_of(channel, path) + call.query,
        headers,
        body,
        limits.connect_timeout_s,
        limits.first_byte_timeout_s,
        limits.idle_timeout_s,
        limits.max_answer_bytes,
        bool(call.stream),
        CONTENT_TYPES[operation.framing],
        channel.route,
    )


def _body(call: Call, attempt: Attempt, vendor: Vendor) -> bytes | None:
    """The body for the upstream; None for a method without one."""
    if call.operation.stored:
        return b"" if call.method == "POST" else None
    assert call.spans is not None and call.peek is not None
    upstream_model = attempt.upstream_model or ""
    spans = _own(call, call.spans, upstream_model) if call.has_foreign else call.spans
    if attempt.without == "reasoning":
        spans = without_reasoning(call, spans, upstream_model)
    make = attempt.pairing.request_body
    return make(spans, call.peek, call.operation, upstream_model, vendor)


def without_reasoning(call: Call, spans: Spans, upstream_model: str) -> Spans:
    """The fields without any opaque reasoning; the same when there is none."""
    codecs = CODECS.get(call.family.name)
    remove = codecs.client.without_reasoning if codecs is not None else None
    body = spans.body if remove is None else remove(spans, upstream_model)
    return spans if body == spans.body else top_level(body)


def _own(call: Call, spans: Spans, upstream_model: str) -> Spans:
    """The fields without what other families' answers have left in the conversation."""
    body = CODECS[call.family.name].client.without_foreign(spans, upstream_model)
    return spans if body == spans.body else top_level(body)
