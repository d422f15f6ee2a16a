"""Admission: credential, key, entry point, model, bounds of the cost. From memory, pure.

The order of the checks is promised to callers: credential, key, entry point, then (with the body)
JSON, model, fields. The only wait is for a key that has not been used recently. References to
objects stored in upstream accounts are checked afterwards (admit_stored).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from adapters.codecs import CODECS, TRANSLATORS
from adapters.endpoints.endpoint import Endpoint
from adapters.endpoints.form import Form
from adapters.family import Family, Operation, Peek
from adapters.family.asks import NOTHING_ASKED, Ask
from adapters.family.estimate import (
    body_weight,
    input_bound_steps,
    input_bound_tokens,
    tokens_of_weight,
    weight_steps,
)
from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans
from adapters.json.structure import Steps, at_once
from adapters.registry import FAMILIES, VENDORS
from handlers.client_address import is_within
from handlers.relay.call import Admitted, Call, InnerModel, Offer, RequestHead
from handlers.relay.limits.limits import NO_TOKENS, Demand
from store.catalog.catalog import Channel, Group, Model, Snapshot
from store.catalog.key_cache import KeyCache
from store.catalog.keys import KeyEntry
from store.values.errors import StoreUnavailable
from store.values.key_secrets import SECRET_PREFIX
from store.values.pricing import Rate, rounded_up
from store.values.usage import served_tier

DEFAULT_OUTPUT_BOUND_TOKENS = 8192  # when neither the client nor the model sets one
MODEL_NAME_MAX_CHARS = 128  # in a record
_TOO_MUCH = "The bounds of this request (max_tokens, n) are beyond any amount of money."
_KEY_SHAPE = re.compile(r"[\w.-]{16,200}", re.ASCII)  # no part of any other key is shown
_KEY_SHOWN_CHARS = 4
# Marks of a body with pictures, sound or video, or with a reference to something that a vendor
# stores. The last one: a name may be written with escapes.
_MEDIA_MARKS = (
    *(b'"inlineData"', b'"inline_data"', b'"fileData"', b'"file_data"', b'"input_audio"'),
    *(b'"image_url"', b'"video_url"', b'"input_image"', b'"image"', b'"file"', b'"input_file"'),
    *(b'"cachedContent"', b'"cached_content"', b'"previous_response_id"', b'"conversation"'),
    b"\\u00",
)
# Field names that show that the input is more than the body's text.
_OTHER_NAMES = re.compile(
    rb'"(?:inline_?[dD]ata|file(?:_?[dD]ata)?|input_(?:audio|image|file|video)|image(?:_url)?'
    rb'|video(?:_url)?|audio(?:_url)?|document(?:_url)?)"'
)
_OF_SERVICE = frozenset({"", "tier", "speed", "geo", "audio_output", "image_output", "background"})
TEXT_MAX_BYTES = 131_072  # beyond it, four times the bound exceeds most context windows
_SEARCHED_BYTES = 1 << 20  # searched in one step of a large body, which takes a millisecond
LEAST_OUTPUT_TOKENS = 256  # the shortest answer worth starting when little money is left
# Tokens of a picture that a hosted tool makes, in addition to the output that the client limits.
PICTURE_TOKENS = 8192


def credential(header: Callable[[str], str | None], sources: Sequence[str]) -> str:
    """Return the API key of a request. Only the first source that is present counts. `header`
    returns a header's value by its lower-case name. Raises Fault MISSING_KEY,
    MALFORMED_AUTHORIZATION."""
    for source in sources:
        value = header(source)
        if value is None:
            continue
        if source != "authorization":
            if not value:
                raise Fault(Condition.MISSING_KEY)
            return value
        scheme, _, secret = value.partition(" ")
        if scheme.lower() != "bearer" or "," in secret or secret.split() != [secret]:
            raise Fault(Condition.MALFORMED_AUTHORIZATION)
        return secret
    raise Fault(Condition.MISSING_KEY)


async def find_key(keys: KeyCache, secret: str) -> KeyEntry:
    """Return the key of a secret, from the store if it is not in memory. Raises Fault INVALID_KEY,
    UNAVAILABLE."""
    try:
        entry = await keys.get(secret)
    except StoreUnavailable:
        raise Fault(Condition.UNAVAILABLE) from None
    if entry is None:
        raise unknown_key(secret)
    return entry


def unknown_key(secret: str) -> Fault:
    """Return INVALID_KEY, with enough of the key for its owner to recognize it."""
    if _KEY_SHAPE.fullmatch(secret) is None:
        return Fault(Condition.INVALID_KEY)
    head = SECRET_PREFIX if secret.startswith(SECRET_PREFIX) else ""
    return Fault(Condition.INVALID_KEY, detail=f"{head}…{secret[-_KEY_SHOWN_CHARS:]}")


def check_key(key: KeyEntry, client_ip: str, now_ms: int) -> None:
    """Raise Fault KEY_DISABLED, KEY_EXPIRED, IP_NOT_ALLOWED."""
    if key.disabled or key.revoked:
        raise Fault(Condition.KEY_DISABLED)
    for until_ms in (key.expires_ms, key.valid_until_ms):
        if until_ms is not None and until_ms <= now_ms:
            raise Fault(Condition.KEY_EXPIRED)
    if key.networks and not is_within(client_ip, key.networks):
        raise Fault(Condition.IP_NOT_ALLOWED)


def check_entry(snapshot: Snapshot, key: KeyEntry, family: Family, operation: Operation) -> Group:
    """Return the key's group. Raises Fault ENTRY_NOT_ALLOWED if the group lacks the entry point."""
    group = snapshot.groups.get(key.group)
    entry = operation.entry or family.name
    if group is None or group.disabled or entry not in group.entries:
        raise Fault(Condition.ENTRY_NOT_ALLOWED, detail=key.group)
    return group


def read_model(head: RequestHead, spans: Spans) -> tuple[str, bool]:
    """Return the model's name and whether a stream is requested, for a request with an invalid
    field. Raises Fault if the model is invalid, too."""
    name = head.family.client.model_name(spans, head.target)
    return name, head.operation.job == "stream" or spans.value("stream") is True


def find_offer(head: RequestHead, name: str) -> Offer:
    """Return the offer of a model to a key. Raises Fault MODEL_NOT_FOUND."""
    key, group, snapshot, family = head.key, head.group, head.snapshot, head.family.name
    assert group is not None
    if key.models is not None and name not in key.models:
        raise Fault(Condition.MODEL_NOT_FOUND, model=name[:MODEL_NAME_MAX_CHARS])
    operation = head.operation
    if operation.row:
        assert isinstance(operation, Endpoint)
        rule = EndpointRule(operation)
        channels = snapshot.capable(group.name, name, rule)
        served = bool(channels) or bool(snapshot.capable(group.name, name, rule, draining=True))
    else:
        channels = snapshot.candidates(group.name, name, family)
        # If all channels are draining there are no candidates, either; the plan reports that.
        served = bool(channels) or snapshot.serves(group.name, name, family)
    if not served:
        elsewhere = _other_entry(snapshot, group, name)
        raise Fault(Condition.MODEL_NOT_FOUND, elsewhere, model=name[:MODEL_NAME_MAX_CHARS])
    model = snapshot.models[name]
    prices = model.prices_at(head.arrival.started_ms)
    assert prices is not None  # an offered model has prices
    return Offer(group, model, prices, channels)


@dataclass(frozen=True, slots=True)
class EndpointRule:
    """The rule of an endpoint beside chat, for `Snapshot.capable`."""

    endpoint: Endpoint

    @property
    def key(self) -> str:
        return self.endpoint.key

    def takes(self, channel: Channel, *, translate: bool) -> bool:
        """Return whether a channel takes the endpoint's calls. `translate`: other families' ones,
        too."""
        vendor, translate = VENDORS[channel.vendor], translate and channel.translate
        return self.endpoint.takes(channel.family, vendor, translate=translate)


def _other_entry(snapshot: Snapshot, group: Group, name: str) -> str | None:
    """Return the message about a model that the key may call only at another entry; None if it may
    not call the model at all."""
    paths = [
        family.client.operations["generate"].endpoint
        for family in FAMILIES.values()
        if family.name in group.entries and snapshot.serves(group.name, name, family.name)
    ]
    if not paths:
        return None
    shown_name = name[:MODEL_NAME_MAX_CHARS]
    return f"The model '{shown_name}' is not served at this entry; call it at {paths[0]}."


def admit_body(head: RequestHead, offer: Offer, spans: Spans, peek: Peek, body: bytes) -> Admitted:
    """Check a body whose model is offered. Raises Fault for the client's mistakes."""
    channels, estimated = channels_for(head, offer.channels)
    stored_fields = head.family.client.stored_fields
    refs = at_once(stored_fields.refs(spans)) if stored_fields.may_name(spans) else ()
    codecs = CODECS.get(head.family.name)
    # Not `in`, which internally raises and drops an exception for each bytes object.
    has_foreign = codecs is not None and body.find(codecs.client.foreign_mark) >= 0
    free, bound, weight = head.operation.free, input_bound_tokens(body), body_weight(body)
    estimate, bound, outputs, demand = _bounds(peek, offer.model, bound, weight, free=free)
    facts = (peek, offer, channels, refs, estimated, has_foreign, estimate, bound, outputs, demand)
    prices = offer.prices
    if peek.asks is NOTHING_ASKED and not prices.rates and not prices.own_inputs:  # usual
        return Admitted(*facts, prices.alone)
    rates, meters = reachable_rates(offer, peek, bound), other_meters(offer, peek, body)
    return Admitted(*facts, rates, meters, inner_models(head, offer, peek, bound, outputs))


def admit_large_body(
    head: RequestHead, offer: Offer, spans: Spans, peek: Peek, body: bytes
) -> Steps[Admitted]:
    """Check a body in steps. Raises Fault as `admit_body` does, and INVALID_FIELD for more values
    than a model accepts."""
    channels, estimated = channels_for(head, offer.channels)
    stored_fields, has_foreign = head.family.client.stored_fields, False
    refs: tuple[StoredRef, ...] = ()
    if (yield from stored_fields.may_name_steps(spans)):
        refs = yield from stored_fields.refs(spans)
    if (codecs := CODECS.get(head.family.name)) is not None:
        has_foreign = yield from _contains(body, codecs.client.foreign_mark)
    bound = yield from input_bound_steps(body)
    weight = yield from weight_steps(body, 0, len(body))
    free = head.operation.free
    estimate, bound, outputs, demand = _bounds(peek, offer.model, bound, weight, free=free)
    rates, meters = reachable_rates(offer, peek, bound), other_meters(offer, peek, body)
    return Admitted(
        *(peek, offer, channels, refs, estimated, has_foreign, estimate, bound, outputs, demand),
        *(rates, meters, inner_models(head, offer, peek, bound, outputs)),
    )


def admit_form(head: RequestHead, offer: Offer, form: Form, peek: Peek) -> Admitted:
    """Check a form whose model is offered. The tokens of its files are bounded by a rule."""
    text = "".join(form.texts.values()).encode()
    bound = input_bound_tokens(text) + form.media_tokens
    free, weight = head.operation.free, body_weight(text)
    estimate, bound, outputs, demand = _bounds(peek, offer.model, bound, weight, free=free)
    meters = (*offer.prices.own_inputs, *peek.asks.outputs)
    return Admitted(
        *(peek, offer, offer.channels, (), False, False, estimate, bound, outputs, demand),
        *(reachable_rates(offer, peek, bound), meters),
    )


def _contains(body: bytes, mark: bytes) -> Steps[bool]:
    for at in range(0, len(body), _SEARCHED_BYTES):
        if body.find(mark, at, at + _SEARCHED_BYTES + len(mark) - 1) >= 0:
            return True
        yield False
    return False


def admit_stored_thing(head: RequestHead) -> Admitted:
    """Admit a call about the stored response that its path names."""
    assert head.target is not None
    stream = "stream=true" in head.query[1:].split("&")
    ref = StoredRef("answer", "id", head.target, alone=True)
    return Admitted(Peek("", stream, None, 1, include_usage=True), refs=(ref,))


def counts(family: str, channel: Channel) -> bool:
    """Return whether a channel counts tokens for calls of a family."""
    if not VENDORS[channel.vendor].counts:
        return False
    return channel.family == family or TRANSLATORS[family, channel.family].counts


def channels_for(
    head: RequestHead, channels: tuple[Channel, ...]
) -> tuple[tuple[Channel, ...], bool]:
    """Return the channels that can do the operation's job, and whether a token count is estimated:
    that is the case if no vendor counts and some channel is of another family. Raises Fault
    UNKNOWN_PATH if no vendor counts and all channels are of the client's family."""
    job, family = head.operation.job, head.family.name
    if not channels or job not in ("count", "compact"):
        return channels, False
    if job == "compact":  # done by the vendor if possible, else the model writes a summary
        native = tuple(channel for channel in channels if channel.family == family)
        return native or channels, False
    counting = tuple(channel for channel in channels if counts(family, channel))
    if counting:
        return counting, False
    if all(channel.family == family for channel in channels):
        raise Fault(Condition.UNKNOWN_PATH, "No channel of this model counts tokens.")
    return channels, True


def _bounds(
    peek: Peek, model: Model, bound: int, weight: int, *, free: bool
) -> tuple[int, int, int, Demand]:
    """Return (input estimate, bound of input tokens, bound of output tokens, demand of token
    limits) of a call. The bounds are for the hold and against absurd reports."""
    window, estimate = model.context_tokens, tokens_of_weight(weight)
    if window and window < bound:
        bound = window
    # Estimated now, by the cheap rule: the body is freed when an answer is accepted, and only the
    # answer's end shows whether usage is reported.
    estimate = estimate if estimate < bound else bound  # quicker than min(), as below
    outputs = output_bound(peek, model)
    return estimate, bound, outputs, NO_TOKENS if free else demand_of(peek, estimate, outputs)


def output_bound(peek: Peek, model: Model) -> int:
    """Return the upper bound of the tokens of all answers to a request."""
    outputs, most = peek.max_output_tokens, model.max_output_tokens
    if outputs is None or (most is not None and most < outputs):
        outputs = DEFAULT_OUTPUT_BOUND_TOKENS if most is None else most
    return outputs * peek.choices


def admitted_as_sent(
    head: RequestHead, offer: Offer, admitted: Admitted, peek: Peek, body: bytes, *, bound: int
) -> Admitted:
    """Return an admitted call with the fields (`peek`), the rates and the bounds of a body that a
    channel gets instead of the client's. `bound`: of that body's tokens. The demand of limits is
    unchanged."""
    inputs = max(admitted.input_bound_tokens, min(bound, offer.model.context_tokens or bound))
    outputs = output_bound(peek, offer.model)
    return replace(
        admitted,
        peek=peek,
        input_bound_tokens=inputs,
        output_bound_tokens=outputs,
        rates=reachable_rates(offer, peek, inputs),
        other_meters=other_meters(offer, peek, body),
        inner_models=inner_models(head, offer, peek, inputs, outputs),
    )


def demand_of(peek: Peek, inputs: int, outputs: int) -> Demand:
    """Return the demand of token limits of a paid call. A client that sets no bound on its answer
    does not expect the longest one possible."""
    most = DEFAULT_OUTPUT_BOUND_TOKENS * peek.choices
    if peek.max_output_tokens is None and most < outputs:
        outputs = most
    least = outputs if outputs < LEAST_OUTPUT_TOKENS else LEAST_OUTPUT_TOKENS
    return Demand(inputs, inputs + outputs, inputs + least)


def reachable_rates(offer: Offer, peek: Peek, input_tokens: int) -> tuple[Rate, ...]:
    """Return the rates at which a call with at most `input_tokens` can be charged."""
    prices = offer.prices
    if not prices.rates:  # the usual case
        return prices.alone
    return prices.reachable(peek.asks.conditions, input_tokens, _default_tiers(offer.channels))


def _default_tiers(channels: Sequence[Channel]) -> set[str]:
    """Return the tiers that channels serve if a request names none."""
    options = (channel.options.get("default_tier") for channel in channels)
    return {served_tier(option) for option in options if option is not None}


def inner_models(
    head: RequestHead, offer: Offer, peek: Peek, input_tokens: int, output_tokens: int
) -> tuple[InnerModel, ...]:
    """Return the other models that may run inside a call with at most so many tokens; none if all
    channels are of other families. A fallback reads the input of the call's own model; an advisor
    reads the answer, too."""
    asks = peek.asks
    if not asks.models or all(channel.family != head.family.name for channel in offer.channels):
        return ()
    models: list[InnerModel] = []
    for ask in asks.models:
        model = head.snapshot.models[ask.name]
        prices = model.prices_at(head.arrival.started_ms)
        assert prices is not None  # a permitted model has prices
        inputs, outputs = input_tokens, ask.max_output_tokens or output_tokens
        if ask.is_advisor:
            inputs += output_tokens
            most = model.max_output_tokens or DEFAULT_OUTPUT_BOUND_TOKENS
            outputs = ask.max_output_tokens or most
        tiers = _default_tiers(head.snapshot.channels_of(ask.name))
        rates = prices.reachable(asks.conditions, inputs, tiers)
        models.append(InnerModel(rates, ask.uses, inputs, outputs))
    return tuple(models)


def is_text_alone(call: Call) -> bool:
    """Return whether the input of a call is only the text of its body: it names nothing stored and
    no tool of the vendor, and has no media. To be called while the body is in memory. Returns False
    without a check for a model whose context window is configured, and for a large body."""
    admitted, body = call.admitted, call.content.body
    if admitted is None or admitted.offer is None or admitted.refs or not body:
        return False
    if call.head.operation.row == "rerank":  # the query counts with each document
        return False
    if admitted.offer.model.context_tokens is not None or len(body) > TEXT_MAX_BYTES:
        return False
    asks = admitted.peek.asks
    if asks is not NOTHING_ASKED and any(map(_adds_input, asks.features)):
        return False
    return b"\\u00" not in body and _OTHER_NAMES.search(body) is None


def _adds_input(ask: Ask) -> bool:
    return ask.feature.partition(".")[0] not in _OF_SERVICE


def other_meters(offer: Offer, peek: Peek, body: bytes) -> tuple[str, ...]:
    """Return the meters of other modalities by which a call may be charged. Those of the input are
    included only if they have separate prices and the body may have such parts. Large bodies are
    not searched for them."""
    outputs, priced = peek.asks.outputs, offer.prices.own_inputs
    if not priced:
        return outputs
    if len(body) > _SEARCHED_BYTES:
        return (*priced, *outputs)
    for mark in _MEDIA_MARKS:
        if body.find(mark) >= 0:
            return (*priced, *outputs)
    return outputs


def hold_bound(offer: Offer, admitted: Admitted, output_tokens: int, *, least: bool = False) -> int:
    """Return the nanos to hold for a call with at most `output_tokens`: at the most expensive rate
    that it can reach, with all uses of priced tools and of other models that it allows. `least`:
    with one use of each, and a short answer of other models. Raises Fault INVALID_FIELD if no
    amount of money covers it."""
    inputs, meters = admitted.input_bound_tokens, admitted.other_meters
    fractions = 0
    for rate in admitted.rates:
        cost = rate.bound(inputs, output_tokens, meters)
        for meter, count in admitted.peek.asks.uses:
            each = rate.fractions(meter)
            if meter == "image_generation":
                each += rate.fractions("output_image") * PICTURE_TOKENS
            cost += each * (1 if least else count)
        fractions = cost if cost > fractions else fractions
    for inner in admitted.inner_models:
        outputs = min(inner.output_tokens, LEAST_OUTPUT_TOKENS) if least else inner.output_tokens
        each = max(rate.bound(inner.input_tokens, outputs) - rate.call for rate in inner.rates)
        fractions += each * (1 if least else inner.uses)
    try:
        return rounded_up(fractions, offer.group.multiplier_ppm)
    except OverflowError:
        raise Fault(Condition.INVALID_FIELD, _TOO_MUCH) from None
