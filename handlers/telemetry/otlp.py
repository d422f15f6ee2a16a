"""Calls as OpenTelemetry spans, sent over OTLP/HTTP.

The only module that uses opentelemetry, an extra (requirements-otel.txt). It is imported by name if
`telemetry.otlp_endpoint` is set. A call is a SERVER span, and each of its attempts a CLIENT span
below it, with the gen_ai names of the semantic conventions. Spans contain no prompt, answer, key or
user.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from handlers.telemetry.spans import Traced
from handlers.telemetry.trace import AttemptSpan
from store.values.usage_record import UsageRecord

PATH = "/v1/traces"
TIMEOUT_S = 5
_NS_PER_MS = 1_000_000

# By the family of an upstream or a client.
_PROVIDERS = {
    "chat_completions": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "generate_content": "gcp.gemini",
}
_OPERATIONS = {"generate_content": "generate_content"}  # all others: chat
_CHAT = "chat"

Attributes = dict[str, str | int | bool]


class OtlpExporter:
    """The exporter of calls to `endpoint`, a collector's address with or without PATH."""

    def __init__(self, endpoint: str, version: str, node: str) -> None:
        # It would log a traceback for each batch that is refused.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        url = endpoint if endpoint.endswith(PATH) else endpoint.rstrip("/") + PATH
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_S)
        named = {"service.name": "sluice", "service.version": version, "service.instance.id": node}
        self._resource = Resource.create(named)
        self._scope = InstrumentationScope("sluice", version)

    def export(self, calls: Sequence[Traced]) -> bool:
        """Send all spans of these calls. Return False if they are lost."""
        spans = [span for call in calls for span in self._spans_of(call)]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Stop exporting."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _spans_of(self, call: Traced) -> Iterator[ReadableSpan]:
        record, trace = call.record, call.trace
        begun_ns = record.call.started_ms * _NS_PER_MS
        ended_ns = begun_ns + (record.duration_ms or 0) * _NS_PER_MS
        own = _context(trace.trace_id, trace.span_id)
        parent = _context(trace.trace_id, trace.parent_id, remote=True) if trace.parent_id else None
        yield ReadableSpan(
            name=_name(record),
            context=own,
            parent=parent,
            resource=self._resource,
            attributes=_of_call(record),
            kind=SpanKind.SERVER,
            status=_status(record.error_code),
            start_time=begun_ns,
            end_time=max(begun_ns, ended_ns),
            instrumentation_scope=self._scope,
        )
        for attempt in trace.attempts:
            if attempt.place < len(record.attempts):
                yield self._attempt(record, attempt, own)

    def _attempt(self, record: UsageRecord, span: AttemptSpan, parent: SpanContext) -> ReadableSpan:
        attempt = record.attempts[span.place]
        last = span.place == len(record.attempts) - 1
        attributes: Attributes = {
            **_gen_ai(record.upstream_family or record.call.family, record),
            "sluice.channel": attempt.channel,
        }
        if attempt.status is not None:
            attributes["http.response.status_code"] = attempt.status
        error = attempt.error or (record.error_code if last else None)
        if error:
            attributes["error.type"] = error
        if last:
            attributes |= _usage(record)
        return ReadableSpan(
            name=_name(record),
            context=_context(f"{parent.trace_id:032x}", span.span_id),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=SpanKind.CLIENT,
            status=_status(error),
            start_time=span.begun_ns,
            end_time=span.begun_ns + attempt.ms * _NS_PER_MS,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str, *, remote: bool = False) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), remote, flags)


def _name(record: UsageRecord) -> str:
    """Return the operation and, if it is known, the model: names of spans must not be arbitrary."""
    operation = _OPERATIONS.get(record.call.family, _CHAT)
    return f"{operation} {record.call.model}" if record.attempts else operation


def _gen_ai(family: str, record: UsageRecord) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": _OPERATIONS.get(record.call.family, _CHAT),
        "gen_ai.provider.name": _PROVIDERS.get(family, family),
    }
    if record.call.model is not None and record.attempts:
        attributes["gen_ai.request.model"] = record.call.model
    return attributes


def _usage(record: UsageRecord) -> Attributes:
    attributes: Attributes = {}
    if record.upstream_model:
        attributes["gen_ai.response.model"] = record.upstream_model
    if record.usage_source != "none":
        attributes["gen_ai.usage.input_tokens"] = record.usage.inputs
        attributes["gen_ai.usage.output_tokens"] = record.usage.outputs
    return attributes


def _of_call(record: UsageRecord) -> Mapping[str, str | int | bool]:
    call = record.call
    attributes: Attributes = {
        **_gen_ai(record.upstream_family or call.family, record),
        **_usage(record),
        "http.route": call.endpoint,
        "sluice.request_id": record.id,
        "sluice.group": call.group,
        "sluice.outcome": record.outcome,
        "sluice.attempts": len(record.attempts),
    }
    optional: dict[str, str | int | bool | None] = {
        "http.response.status_code": record.status,
        "error.type": record.error_code,
        "sluice.stream": call.stream,
        "sluice.channel": record.channel,
        "sluice.ttft_ms": record.ttft_ms,
        "sluice.tier": record.receipt.served.tier or None,
    }
    attributes.update({name: value for name, value in optional.items() if value is not None})
    return attributes


def _status(error: str | None) -> Status:
    return Status(StatusCode.ERROR if error else StatusCode.UNSET)
