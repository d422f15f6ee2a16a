"""The upstream request of an attempt: address, headers and body for one channel and key."""

from dataclasses import replace

from msgspec import structs

from adapters.codecs import CODECS
from adapters.endpoints.form import Form
from adapters.family import Family, Peek, Vendor
from adapters.json.jsonio import Spans, top_level
from adapters.registry import VENDORS
from conf.settings import UpstreamSettings
from handlers.relay.call import Attempt, Call
from handlers.relay.pump import CONTENT_TYPES
from handlers.relay.upstream.addressing import headers_of, url_of
from handlers.relay.upstream.client import UpstreamRequest
from handlers.relay.upstream.request import with_extra_headers
from handlers.relay.upstream.spool import SpooledBody
from store.catalog.catalog import Channel


def request_of(call: Call, attempt: Attempt, limits: UpstreamSettings) -> UpstreamRequest:
    """Return the request of an attempt, without the part that `attempt.without` names. Raises Fault
    INVALID_FIELD, CHANNEL_MISCONFIGURED if it cannot be made for this channel."""
    head, stream = call.head, bool(call.requested.stream)
    candidate, pairing, client_headers = attempt.candidate, attempt.pairing, head.client_headers
    if pairing.translated:
        client_headers = {}  # they belong to the client's family
    channel, upstream_model = candidate.channel, attempt.upstream_model or ""
    key = channel.keys[candidate.key] if channel.keys else ""
    vendor = VENDORS[channel.vendor]
    if attempt.without == "stream_options":
        vendor = replace(vendor, stream_options=False)
    elif attempt.without == "beta":
        client_headers = {n: v for n, v in client_headers.items() if n != "anthropic-beta"}
    operation = pairing.operation(head.operation, stream)
    path = pairing.upstream.path(operation, upstream_model, head.target)
    url = url_of(channel, path)
    if operation.row and (path := vendor.paths.get(operation.row, "")):
        url = channel.base_url + path
    headers, body = headers_of(channel, vendor, key, client_headers), _body(call, attempt, vendor)
    first_byte_s, idle_s = limits.first_byte_timeout_s, limits.idle_timeout_s
    if channel.has_times:
        first_byte_s, idle_s = channel.times_of(call.requested.model or "", first_byte_s, idle_s)
    if isinstance(call.content.spans, Form):
        content_type = head.client_headers.get("content-type", "")
        headers = with_extra_headers(headers, {"content-type": content_type, "accept": "*/*"})
    if (trace := head.arrival.trace) is not None:
        headers = [*headers, *trace.header_lines(len(call.outcome.attempts) - 1)]
    return UpstreamRequest(
        head.method,
        url + head.query,
        headers,
        body,
        limits.connect_timeout_s,
        first_byte_s,
        idle_s,
        limits.max_answer_bytes,
        stream,
        CONTENT_TYPES[operation.framing],
        channel.route,
    )


def _body(call: Call, attempt: Attempt, vendor: Vendor) -> bytes | SpooledBody | None:
    """Return the body for the upstream; None for a method without a body."""
    head, admitted = call.head, call.admitted
    spans = (attempt.content or call.content).spans
    if head.operation.stored:
        return b"" if head.method == "POST" else None
    assert spans is not None and admitted is not None
    upstream_model = attempt.upstream_model or ""
    if call.content.spool is not None:
        return SpooledBody(call.content.spool, {spans.places["model"]: upstream_model.encode()})
    if admitted.has_foreign and not head.operation.row:
        spans = _without_foreign(head.family, spans, upstream_model)
    if attempt.without == "reasoning":
        spans = without_reasoning(head.family, spans, upstream_model)
    encode, peek = attempt.pairing.request_body, admitted.peek
    if peek.asks.models:
        peek = _with_upstream_names(peek, attempt.candidate.channel)
    return encode(spans, peek, head.operation, upstream_model, vendor)


def _with_upstream_names(peek: Peek, channel: Channel) -> Peek:
    """Return the fields with other models under the channel's names, if it has them."""
    models = tuple(
        structs.replace(ask, name=channel.models.get(ask.name, ask.name))
        for ask in peek.asks.models
    )
    return structs.replace(peek, asks=structs.replace(peek.asks, models=models))


def without_reasoning(family: Family, spans: Spans, upstream_model: str) -> Spans:
    """Return the fields without opaque reasoning; the same object if there is none."""
    codecs = CODECS.get(family.name)
    remove = codecs.client.without_reasoning if codecs is not None else None
    body = spans.body if remove is None else remove(spans, upstream_model)
    return spans if body == spans.body else top_level(body)


def _without_foreign(family: Family, spans: Spans, upstream_model: str) -> Spans:
    """Return the fields without the opaque state of other families' answers."""
    body = CODECS[family.name].client.without_foreign(spans, upstream_model)
    return spans if body == spans.body else top_level(body)
