"""Features: what a request may use beyond text and functions, and a group may disallow.

One row each (pricing.md, section 6). Everybody may import this module.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from store.values.meters import METERS
from store.values.pricing import Prices
from store.values.texts import nearest

ALL = "*"
DEFAULT_FEATURES = (ALL, "-fallbacks.default")
"""The features of a group that names none."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature. `meter` counts its uses or its tokens. `dearer`: a client requests it by name, and
    it can cost more than the plain rate."""

    name: str
    about: str
    meter: str | None = None
    dearer: bool = False


_ROWS = (
    Feature("tier.flex", "Cheaper, slower service (`service_tier`)"),
    Feature("tier.priority", "Faster service at a higher price (`service_tier`)", dearer=True),
    Feature("tier.ultrafast", "The fastest service (`service_tier`)", dearer=True),
    Feature("speed.fast", "Fast output at a higher price (`speed`)", dearer=True),
    Feature("geo", "Inference in one region (`inference_geo`)", dearer=True),
    Feature("audio_output", "Spoken answers", "output_audio", dearer=True),
    Feature("image_output", "Images in answers", "output_image", dearer=True),
    Feature("web_search", "Web searches by the vendor", "web_search"),
    Feature("web_fetch", "Web pages that the vendor fetches", "web_fetch"),
    Feature("file_search", "Searches in files that the vendor stores", "file_search"),
    Feature("code_execution", "Code in the vendor's containers", "code_interpreter"),
    Feature("image_generation", "Images from a tool of the vendor", "image_generation"),
    Feature("computer", "Control of a computer"),
    Feature("mcp", "Remote MCP servers that the vendor calls"),
    Feature("maps", "Map data from the vendor", "maps"),
    Feature("advisor", "Another model that advises (`advisor_*` tools)"),
    Feature("fallbacks", "Other models that may answer (`fallbacks`)"),
    Feature("fallbacks.default", "Fallback models that the vendor chooses"),
    Feature("background", "Answers produced in the background"),
    Feature("threads", "Conversations that the vendor keeps (`thread`)"),
    Feature("stored", "Answers that the vendor keeps (`store`)"),
    Feature("any_other_tool", "Any other hosted tool"),
)

FEATURES: Mapping[str, Feature] = {feature.name: feature for feature in _ROWS}
"""All features by name, in the order in which they are listed."""


CONDITION_FEATURES = frozenset({"tier", "speed", "geo"})
"""Conditions of service that a request names. As features they have a value (`tier.flex`); the name
alone stands for any value."""


def feature_word(text: str) -> str:
    """Check a word of a group's list: `*`, NAME or `-NAME`. Return it. Raises ValueError."""
    name = text.removeprefix("-")
    if text != ALL and name not in FEATURES:
        raise ValueError(f'there is no feature "{name}"{nearest(name, FEATURES)}')
    return text


def allowed_features(words: Iterable[str]) -> frozenset[str]:
    """Return the features that a list allows: names, `*` for all, `-NAME` to remove one."""
    names, removed = set[str](), set[str]()
    for word in words:
        if word == ALL:
            names |= FEATURES.keys()
        elif word.startswith("-"):
            removed.add(word[1:])
        else:
            names.add(word)
    return frozenset(names - removed)


def words_of(names: Collection[str]) -> list[str]:
    """Return the list that allows these features. If they include `*`, the missing ones are removed
    from all, so that the list also allows features of later versions."""
    if ALL in names:
        return [ALL, *(f"-{name}" for name in FEATURES if name not in names)]
    return [name for name in FEATURES if name in names]


def needs_price(name: str, policy: str) -> bool:
    """Return whether a call may use a feature only if it has a price, by `money.unpriced`:
    refuse_dearer, refuse, serve."""
    feature = FEATURES.get(name)
    if feature is None or feature.dearer:  # unknown service words count as dearer
        return policy != "serve"
    return policy == "refuse" and feature.meter is not None


def is_priced(name: str, prices: Prices, word: str = "") -> bool:
    """Return whether there is a price for a feature, or for a meter that records list as unpriced.
    `word` is the value of a condition of service; without it, the value in the name; without both,
    any value."""
    condition, _, suffix = name.partition(".")
    if condition in CONDITION_FEATURES:
        word = word or suffix
        return prices.names(condition, word or None)
    meter = (FEATURES[name].meter or "") if name in FEATURES else name
    return meter in METERS and prices.has_price(meter)
