"""Admission of the features that a request asks for beyond text and functions (`Peek.asks`).

From memory, pure. Imported by the pipeline, for requests with such features whose model is offered.
"""

from msgspec.structs import replace

from adapters.family import Peek
from adapters.family.asks import HOSTED_FEATURES, Ask, Asks
from adapters.family.stored import NO_STORED_FIELDS
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans
from adapters.json.structure import Steps
from handlers.relay.admit import MODEL_NAME_MAX_CHARS
from handlers.relay.call import Offer, RequestHead
from store.values.features import FEATURES, is_priced, needs_price
from store.values.pricing import Prices


def check_asks(head: RequestHead, offer: Offer, peek: Peek, unpriced: str) -> Peek:
    """Check the features that a request asks for. `unpriced`: the setting of that name. Return the
    request's fields, with the tools that the translation must leave out, if any.

    Raises Fault FEATURE_NOT_ALLOWED, FEATURE_UNPRICED, MODEL_NOT_FOUND for another model inside the
    call that the key may not use or that has no price, and UNSUPPORTED for an answer in the
    background: it is fetched later without a charge, so it could not be billed.
    """
    left_out = _check_allowed(head, offer, peek.asks)
    _check_models(head, offer, peek)
    if not head.operation.free:
        _check_priced(head, offer, peek.asks, unpriced)
    if not left_out:
        return peek
    meters = {FEATURES[ask.feature].meter for ask in left_out}
    uses = tuple(use for use in peek.asks.uses if use[0] not in meters)
    paths = frozenset(ask.path for ask in left_out)
    return replace(peek, asks=replace(peek.asks, uses=uses, left_out=paths))


def limits_tools(head: RequestHead, offer: Offer) -> bool:
    """Return whether the tools that a conversation adds to those of its request must be checked: in
    families that have them, for keys that may not use all models or all hosted tools."""
    if head.family.client.inline_tools is NO_STORED_FIELDS:
        return False
    all_models = head.key.models is None and offer.group.models is None
    return not (all_models and offer.group.features >= HOSTED_FEATURES)


def check_inline_tools(head: RequestHead, offer: Offer, spans: Spans) -> Steps[None]:
    """Check, in steps, the tools that a conversation adds. Raises Fault FEATURE_NOT_ALLOWED, and
    UNSUPPORTED for another model, whose name cannot be replaced there."""
    inline = head.family.client.inline_tools
    if not (yield from inline.may_name_steps(spans)):
        return
    for ref in (yield from inline.refs(spans)):
        if ref.id not in offer.group.features:
            raise Fault(Condition.FEATURE_NOT_ALLOWED, param=ref.param, detail=ref.id)
        if ref.id == "advisor":
            raise Fault(Condition.UNSUPPORTED, param=ref.param, model=offer.model.name)


def _check_allowed(head: RequestHead, offer: Offer, asks: Asks) -> list[Ask]:
    """Check the group's features. Return the hosted tools that the translation must leave out:
    those that are not forced, if no channel is of the client's family."""
    allowed, left_out = offer.group.features, []
    native = any(channel.family == head.family.name for channel in offer.channels)
    for ask in asks.features:
        name = ask.feature
        if name in FEATURES and name not in allowed:
            if native or not ask.droppable:
                raise Fault(Condition.FEATURE_NOT_ALLOWED, param=ask.path, detail=name)
            left_out.append(ask)
    return left_out


def _check_models(head: RequestHead, offer: Offer, peek: Peek) -> None:
    key, snapshot = head.key, head.snapshot
    for ask in peek.asks.models:
        permitted = key.models is None or ask.name in key.models
        if not (permitted and snapshot.permits(offer.group.name, ask.name)):
            name = ask.name[:MODEL_NAME_MAX_CHARS]
            raise Fault(Condition.MODEL_NOT_FOUND, param=ask.path, model=name)
    for feature_ask in peek.asks.features:
        if feature_ask.feature == "background":
            raise Fault(Condition.UNSUPPORTED, param=feature_ask.path, model=peek.model)


def _check_priced(head: RequestHead, offer: Offer, asks: Asks, unpriced: str) -> None:
    """Check that each feature that needs a price has one, unless the feature is left out."""
    allowed = offer.group.features
    for ask in asks.features:
        name = ask.feature
        if (ask.droppable and name not in allowed) or not needs_price(name, unpriced):
            continue
        model, prices = _model_at(head, offer, asks, ask.path)
        if not is_priced(name, prices, ask.word):
            if name not in FEATURES:
                name = f"{name}.{ask.word[:MODEL_NAME_MAX_CHARS]}"
            raise Fault(Condition.FEATURE_UNPRICED, param=ask.path, detail=name, model=model)


def _model_at(head: RequestHead, offer: Offer, asks: Asks, path: str) -> tuple[str, Prices]:
    """Return name and prices of the model that a field is about: another model if its name is
    beside the field, as in a list of fallbacks, else the call's own."""
    beside = f"{path.rpartition('.')[0]}.model"
    name = next((ask.name for ask in asks.models if ask.path == beside), "")
    model = head.snapshot.models.get(name)
    prices = model.prices_at(head.arrival.started_ms) if model is not None else None
    return (offer.model.name, offer.prices) if prices is None else (name, prices)
