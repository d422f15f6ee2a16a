"""The reading of an upstream's answer: its headers for the client, and whole answers, including
those in another form than requested (stream or object).

Imported by the attempts.
"""

from adapters.family import UpstreamAnswer, UpstreamSide
from adapters.family.codec import AnswerContext
from adapters.faults import Condition, Fault
from adapters.framing.sse import begins_events
from adapters.json.structure import Steps
from adapters.translate import Translation
from handlers.relay.call import Attempt, Call
from handlers.relay.pump import CONTENT_TYPES
from handlers.relay.translations import Translations
from handlers.relay.upstream.client import Exchange


def answer_context(call: Call) -> AnswerContext:
    """Return the facts of a call that a translated answer repeats."""
    admitted, head = call.admitted, call.head
    assert admitted is not None
    return AnswerContext(
        model=admitted.peek.model,
        id=call.id,
        created_s=head.arrival.started_ms // 1000,
        input_tokens=admitted.input_estimate_tokens,
        include_usage=admitted.peek.include_usage,
        framing=head.operation.framing,
        compaction="object" if head.operation.job == "compact" else "",
    )


def read_answer(
    call: Call, attempt: Attempt, body: bytes, translations: Translations, max_event_bytes: int
) -> UpstreamAnswer | Steps[UpstreamAnswer]:
    """Read a whole answer of the upstream, and convert it to the form that the client requested:
    events to one object, or one object to events. That comes in steps, as do large answers. Raises
    Fault if it is not an answer."""
    assert call.admitted is not None
    pairing, operation, stream = attempt.pairing, call.head.operation, call.requested.stream
    public, upstream_model = call.admitted.peek.model, attempt.upstream_model or ""
    is_events = body[:1] != b"{" and operation.job == "generate" and begins_events(body)
    if operation.row and stream:
        raise Fault(Condition.UPSTREAM_INVALID)
    if stream or (is_events and not operation.row):
        if not isinstance(pairing, Translation):
            context = answer_context(call)
            user_id = call.head.key.user_id
            pairing = translations.reframing(attempt.candidate, context, user_id)
        attempt.pairing = pairing
        return pairing.reframe(
            body, upstream_model, operation, max_event_bytes, stream=bool(stream)
        )
    if len(body) <= pairing.at_once_bytes:
        return pairing.read_answer(body, public, upstream_model, operation)
    return pairing.read_large_answer(body, public, upstream_model, operation)


def headers_of_answer(call: Call, attempt: Attempt, exchange: Exchange) -> dict[str, str]:
    """Return the answer's headers: the content type, those that name losses, and those of the
    upstream that the family passes on."""
    head, streamed = call.head, call.requested.stream
    own = CONTENT_TYPES[head.operation.framing] if streamed else "application/json"
    if attempt.pairing.translated:
        return {"Content-Type": own, **dict(attempt.loss_headers)}
    content_type = exchange.content_type
    if not content_type or (streamed and not content_type.lower().startswith(own)):
        content_type = own or "application/octet-stream"
    passed = {"Content-Type": content_type, **dict(attempt.loss_headers)}
    for name in head.family.client.answer_headers:
        value = exchange.header(name)
        if value is not None:
            passed[name] = value
    return passed


def tier_of_head(upstream: UpstreamSide, exchange: Exchange) -> str | None:
    """Return the tier from the answer's headers, for families that report it there; else None."""
    return exchange.header(upstream.tier_header) if upstream.tier_header else None
