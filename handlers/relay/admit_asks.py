"""Admission of what a request asks for beyond text and functions (`Peek.asks`). From memory, pure.

Imported by the pipeline, for requests that ask for something, when their model is offered.
"""

from adapters.family import Peek
from adapters.faults import Condition, Fault
from handlers.relay.admit import MODEL_NAME_MAX_CHARS
from handlers.relay.call import Offer, RequestHead


def check_asks(head: RequestHead, offer: Offer, peek: Peek) -> None:
    """Check what a request asks for. Raises Fault MODEL_NOT_FOUND for another model inside the
    call that the key may not use or that has no price, UNSUPPORTED for an answer in the background:
    one that is fetched later without a charge cannot be billed."""
    key, snapshot = head.key, head.snapshot
    for ask in peek.asks.models:
        permitted = key.models is None or ask.name in key.models
        if not (permitted and snapshot.permits(offer.group.name, ask.name)):
            name = ask.name[:MODEL_NAME_MAX_CHARS]
            raise Fault(Condition.MODEL_NOT_FOUND, param=ask.path, model=name)
    for feature_ask in peek.asks.features:
        if feature_ask.feature == "background":
            raise Fault(Condition.UNSUPPORTED, param=feature_ask.path, model=peek.model)
