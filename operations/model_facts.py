"""The facts of a model for its callers: what it accepts and returns, which features its group
refuses, and similar models. Computed from the offers of groups (``store.channels.offers``) and the
table of models, for the Hub.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.family.traits import Traits
from adapters.json.jsonio import replace_fields
from adapters.models import traits_of
from store.channels.offers import Offer, Offering
from store.channels.serving import NATIVE, ServingChannel
from store.channels.status import AVAILABLE, DEGRADED
from store.values.features import DEFAULT_FEATURES, FEATURES, allowed_features
from store.values.pricing import Prices

TEXT, IMAGE, PDF, AUDIO = TAKES = ("text", "image", "pdf", "audio")
"""Kinds of content that requests may contain."""
TOOLS, SCHEMA = "tools", "schema"
LIKE_IT = 4
_DEFAULT = allowed_features(DEFAULT_FEATURES)
_LEAST_PRICE = 0.01  # used in a ratio, so that a free model is close to the cheapest ones
UNLIKE = math.log(16)  # the distance of two contexts if one is unknown


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The content that a model accepts (of TAKES) and returns, and its levels of reasoning.
    `sampling`: it accepts temperature and top p."""

    takes: Sequence[str]
    gives: Sequence[str]
    efforts: Sequence[str]
    sampling: bool


def facts_of(world: Offering, model: str, group: str) -> ModelFacts:
    """Return the facts of a model, from a channel of the group if there is one, else of any
    group."""
    channels = [channel for channel in world.channels if model in channel.models]
    channels.sort(key=lambda channel: (not channel.enabled, group not in channel.groups))
    if not channels:
        return ModelFacts((TEXT,), (TEXT,), (), sampling=True)
    traits = _own_traits(channels[0], model)
    accepted = {IMAGE: traits.images, PDF: traits.documents, AUDIO: traits.audio}
    takes = (TEXT, *(name for name in TAKES if accepted.get(name)))
    prices = world.models[model].prices_at(world.at_ms) if model in world.models else None
    gives = (TEXT, *_spoken(prices), TOOLS, *([SCHEMA] if traits.structured != "none" else []))
    efforts = () if traits.thinking == "none" else traits.efforts
    return ModelFacts(takes, gives, efforts, traits.sampling)


def _spoken(prices: Prices | None) -> list[str]:
    """Return the kinds of output other than text for which a model has a price."""
    pairs = ((IMAGE, "output_image"), (AUDIO, "output_audio"))
    return [kind for kind, meter in pairs if prices is not None and prices.has_price(meter)]


def _own_traits(channel: ServingChannel, model: str) -> Traits:
    return traits_of(channel.vendor, channel.family, channel.models[model])


def traits_at(world: Offering, offer: Offer, entry: str) -> Traits:
    """Return the traits of a model in the words of its entry, from a channel of this family if
    there is one."""
    channels = [
        channel
        for channel in world.channels
        if channel.enabled and offer.group.name in channel.groups and offer.model in channel.models
    ]
    channels.sort(key=lambda channel: channel.family != entry)
    if not channels:
        return Traits()
    traits = _own_traits(channels[0], offer.model)
    if channels[0].family == entry:
        return traits
    return replace_fields(
        Traits(openai_extras=True, search=True),
        thinking="none" if traits.thinking == "none" else "effort",
        efforts=traits.efforts,
        sampling=traits.sampling,
    )


def native_entry(offer: Offer) -> str | None:
    """Return the best entry for calling a model, a native one if possible; None if it has
    no entry."""
    natively = [family for family, how in offer.entries.items() if how == NATIVE]
    return next(iter((*natively, *offer.entries)), None)


def refused_features(offer: Offer) -> list[str]:
    """Return the default features that the group of an offer takes away."""
    return [name for name in FEATURES if name in _DEFAULT - offer.group.features]


def like_it(world: Offering, offers: Sequence[Offer], offer: Offer) -> list[Offer]:
    """Return the offers of its group that can be called and are nearest in price and context."""
    candidates = [
        other
        for other in offers
        if other.model != offer.model
        and other.entries
        and other.status.state in (AVAILABLE, DEGRADED)
    ]
    candidates.sort(key=lambda other: (_distance(world, offer, other), other.model))
    return candidates[:LIKE_IT]


def _distance(world: Offering, offer: Offer, other: Offer) -> float:
    prices = (_factor(_price(offer, name), _price(other, name)) for name in ("input", "output"))
    contexts = [world.models[name].context_tokens for name in (offer.model, other.model)]
    sizes = [context for context in contexts if context]
    context = _factor(sizes[0], sizes[1]) if len(sizes) == len(contexts) else UNLIKE
    return sum(prices) + context


def _price(offer: Offer, name: str) -> float:
    return max(float(offer.price(name) or 0), _LEAST_PRICE)


def _factor(first: float, second: float) -> float:
    """Return the distance of two values, as a logarithm of their ratio."""
    return abs(math.log(first / second))
