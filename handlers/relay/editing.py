"""The body of an attempt for its channel: with the channel's own edits, and without fields that the
upstream does not know.

Both kinds of edits are in the channel's family; for a translated request they edit the translation.
The call is admitted again with the edited body before its money is held. Imported by the attempts.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from adapters.family import Peek
from adapters.family.estimate import input_bound_steps
from adapters.json.edits import edited, without_fields
from adapters.json.jsonio import Spans, top_level, top_level_steps
from adapters.json.structure import Steps, T, at_once
from adapters.registry import FAMILIES
from adapters.translate import Translation
from adapters.upstream_errors.refused_fields import REFUSED_FIELDS
from handlers.relay.admit import admitted_as_sent
from handlers.relay.admit_asks import check_asks
from handlers.relay.call import Attempt, Call, Content
from handlers.relay.running import LARGE_BYTES, run_in_slices

REMEMBERED_S = 3600


class RefusedFields:
    """The fields that upstreams refused within the last hour, by channel, for one worker."""

    def __init__(self) -> None:
        self.until_s: dict[str, dict[str, float]] = {}  # end of each field's hour, by channel

    def of(self, channel_id: str, now_s: float) -> tuple[str, ...]:
        """Return the names of the fields to leave out of a channel's requests."""
        fields = self.until_s.get(channel_id)
        if fields is None:
            return ()
        names = tuple(name for name, until_s in fields.items() if until_s > now_s)
        if not names:
            del self.until_s[channel_id]
        return names

    def remember(self, channel_id: str, names: Iterable[str], now_s: float) -> None:
        fields = self.until_s.setdefault(channel_id, {})
        fields |= dict.fromkeys(names, now_s + REMEMBERED_S)


async def fit(call: Call, attempt: Attempt, refused: Iterable[str]) -> bool:
    """Give an attempt its channel's body, without the `refused` fields, which are names of
    REFUSED_FIELDS. Return whether the channel's own edits changed it. Raises Fault INVALID_FIELD,
    Interrupt."""
    pairing, content = attempt.pairing, call.content
    if content.spans is None:  # a stored response is requested
        return False
    spans = content.spans
    if isinstance(pairing, Translation):
        spans = await _spans_of(call, pairing.body)
    before = spans.body
    body = edited(spans, attempt.candidate.channel.body)
    has_edits = body is not before
    paths = {path: name for name in refused for path in REFUSED_FIELDS[name]}
    if paths:
        spans = await _spans_of(call, body) if has_edits else spans
        body, removed = without_fields(spans, paths)
        names = dict.fromkeys((*attempt.refused, *(paths[path] for path in removed)))
        attempt.refused = tuple(names)
    if isinstance(pairing, Translation):
        pairing.replace_body(body)
    elif body is not before:
        attempt.content = Content(body, await _spans_of(call, body))
    return has_edits


async def admit_as_sent(call: Call, attempt: Attempt, unpriced: str, *, edits: bool) -> None:
    """Admit a call again with the body of an attempt. `edits`: the body is not the client's own.
    Raises Fault as `check_asks` does, Interrupt."""
    head, admitted, offer = call.head, call.admitted, call.offer
    assert admitted is not None and offer is not None
    peek, content = admitted.peek, attempt.content or call.content
    body = content.body
    if edits:
        peek, body = await _peek_of(call, attempt, peek, content)
    if peek.asks.features or peek.asks.models:
        peek = check_asks(head, offer, peek, unpriced)
    bound = await result_of(call, input_bound_steps(body))
    call.as_received = call.as_received or admitted
    call.admitted = admitted_as_sent(head, offer, admitted, peek, body, bound=bound)


def check_received(call: Call, unpriced: str) -> None:
    """Check the features of the request as received, since that is what is translated. Raises
    Fault."""
    admitted, offer = call.admitted, call.offer
    assert admitted is not None and offer is not None
    peek = check_asks(call.head, offer, admitted.peek, unpriced)
    call.as_received = call.as_received or admitted
    call.admitted = replace(admitted, peek=peek)


async def _peek_of(
    call: Call, attempt: Attempt, received: Peek, content: Content
) -> tuple[Peek, bytes]:
    """Return the fields of an edited body, and that body. For a translated body only the fields
    that determine the hold and the features are read from it."""
    head, pairing, channel = call.head, attempt.pairing, attempt.candidate.channel
    if not isinstance(pairing, Translation):
        assert content.spans is not None
        return head.family.client.peek(content.spans, head.operation, head.target), content.body
    client = FAMILIES[channel.family].client
    operation = client.operations["stream" if "stream" in client.operations else "generate"]
    spans = await _spans_of(call, pairing.body)
    peek = client.peek(spans, operation, channel.models.get(received.model))
    bounds = {"max_output_tokens": peek.max_output_tokens, "asks": peek.asks}
    return replace(received, **bounds), pairing.body


async def _spans_of(call: Call, body: bytes) -> Spans:
    if len(body) > LARGE_BYTES:
        return await run_in_slices(top_level_steps(body), call.running)
    return top_level(body)


async def result_of(call: Call, steps: Steps[T]) -> T:
    """Return the result of steps over a call's request, run in slices if the body is large."""
    if len(call.content.body) > LARGE_BYTES:
        return await run_in_slices(steps, call.running)
    return at_once(steps)
