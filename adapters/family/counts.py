"""Counts in a vendor's usage report, as far as the families share them: disjoint counts from wholes
and their parts, the conditions of service, and the vendor's own cost of a call.

A part is never larger than its whole, whatever a vendor reports. Imported by the families.
"""

import functools
from collections.abc import Mapping
from typing import Any

from adapters.json.jsonio import Struct
from store.values.usage import (
    NOT_REPORTED,
    Extras,
    OtherUsage,
    Served,
    Usage,
    more_counts,
    served_tier,
    served_word,
    token_count,
)

Kinds = Mapping[str, int]
"""Tokens by kind of content: image, video, audio. All other tokens are text."""

KINDS = ("image", "video", "audio")
INPUT_KINDS = ("audio", "image", "video")  # in the order of their meters
OUTPUT_KINDS = ("audio", "image")
_KIND_FIELDS = tuple((kind, f"{kind}_tokens") for kind in KINDS)
COST_FIELDS = ("cost", "cost_in_usd_ticks")
NO_KINDS: Kinds = {}
NO_USES: Mapping[str, int] = {}
MAX_USES = 1000
"""Plausible limit of uses of a hosted tool in one answer."""
MAX_COST = 10**6
"""Plausible limit of a call's cost as a vendor reports it, in units of currency."""

_TEXT_FIRST = ("text", *KINDS)
_NANOS_PER_UNIT = 10**9
_TICKS_PER_NANO = 10  # xAI reports its cost in units of 10^-10 dollars


class Tokens(Struct, frozen=True, gc=False):
    """Counts as vendors report them. ``prompt`` and ``completion`` are wholes, all others are parts
    of them."""

    prompt: int
    completion: int
    cached: int = 0
    written: int = 0
    written_1h: int = 0
    reasoning: int = 0
    input_kinds: Kinds = NO_KINDS
    cached_kinds: Kinds = NO_KINDS  # of input_kinds; cached tokens without a kind are text first
    output_kinds: Kinds = NO_KINDS

    def usage(self, uses: Mapping[str, int] = NO_USES, extras: Extras | None = None) -> Usage:
        """Return the disjoint counts. ``uses``: of hosted tools, by meter."""
        cached, written, written_1h = self.cached, self.written, self.written_1h
        text = self.prompt - cached - written - written_1h
        if text < 0:  # as no vendor should report
            cached = min(cached, self.prompt)
            written = min(written, self.prompt - cached)
            written_1h = min(written_1h, self.prompt - cached - written)
            text = self.prompt - cached - written - written_1h
        reasoning = self.reasoning if self.reasoning < self.completion else self.completion
        output = self.completion - reasoning
        if not (uses or self.input_kinds or self.output_kinds):  # nearly always
            return Usage(text, output, cached, written, written_1h, reasoning, (), extras)
        more: list[tuple[str, int]] = []  # in the order of meters
        if self.input_kinds:
            left, audio = self.input_kinds, 0
            if self.cached_kinds or sum(left.values()) > text:  # rare
                left = _parts(self.prompt, left)
                audio = _take_kinds(left, cached, self.cached_kinds)
                _take_text_first(left, written + written_1h)
                cached, text = cached - audio, left["text"]
            else:
                text -= sum(left.values())
            more = [(f"input_{kind}", left[kind]) for kind in INPUT_KINDS if left.get(kind)]
            if audio:
                more.append(("cache_read_audio", audio))
        if self.output_kinds:
            left = _parts(output, self.output_kinds)
            output = left["text"] + left["video"]  # video has no meter
            more += [(f"output_{kind}", left[kind]) for kind in OUTPUT_KINDS if left[kind]]
        counted = (*more, *more_counts(uses)) if uses else tuple(more)
        return Usage(text, output, cached, written, written_1h, reasoning, counted, extras)


def _parts(whole: int, kinds: Kinds) -> dict[str, int]:
    """Return the tokens of each kind and of text, which add up to the whole."""
    parts = {"text": whole, "image": 0, "video": 0, "audio": 0}
    for kind in kinds if len(kinds) == 1 else KINDS:
        if tokens := min(kinds.get(kind, 0), parts["text"]):
            parts[kind] = tokens
            parts["text"] -= tokens
    return parts


def _take_kinds(left: dict[str, int], tokens: int, kinds: Kinds) -> int:
    """Take ``tokens`` from ``left``: of each kind as many as ``kinds`` says, then the rest, text
    first. Return the audio tokens among them."""
    audio = 0
    for kind in KINDS:
        count = min(kinds.get(kind, 0), left[kind], tokens)
        left[kind] -= count
        tokens -= count
        audio = count if kind == "audio" else audio
    return audio + _take_text_first(left, tokens)


def _take_text_first(left: dict[str, int], tokens: int) -> int:
    """Take ``tokens`` from ``left``, text first. Return the audio tokens among them."""
    count = 0
    for kind in _TEXT_FIRST:  # audio is the last
        count = min(left[kind], tokens)
        left[kind] -= count
        tokens -= count
    return count


def kinds_of(details: Mapping[str, Any]) -> Kinds:
    """Return the tokens by kind from OpenAI's details of prompt or completion."""
    get = details.get
    if not (get("audio_tokens") or get("image_tokens") or get("video_tokens")):
        return NO_KINDS  # nearly always
    return {kind: tokens for kind, name in _KIND_FIELDS if (tokens := token_count(get(name)))}


def fields_in(holder: object, name: str) -> Mapping[str, Any]:
    """Return the object in a field; an empty one if it is missing."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def extras_of(
    usage: Mapping[str, Any], apart_tokens: int = 0, other_models: tuple[OtherUsage, ...] = ()
) -> Extras | None:
    """Return the rare parts of a report, such as the vendor's own cost; None if there are none."""
    nanos = None if usage.keys().isdisjoint(COST_FIELDS) else _vendor_nanos(usage)
    if nanos is None and not apart_tokens and not other_models:
        return None
    return Extras(apart_tokens, other_models, nanos)


def _vendor_nanos(usage: Mapping[str, Any]) -> int | None:
    """Return the cost that a vendor reports. OpenRouter reports a number, and separately the cost
    of the operator's own key at the provider; Perplexity an object with a total; xAI ticks."""
    ticks = usage.get("cost_in_usd_ticks")
    if type(ticks) is int and 0 <= ticks < MAX_COST * _NANOS_PER_UNIT * _TICKS_PER_NANO:
        return -(-ticks // _TICKS_PER_NANO)
    cost = usage.get("cost")
    nanos = _nanos(cost.get("total_cost") if isinstance(cost, dict) else cost)
    if nanos is not None and usage.get("is_byok") is True:
        nanos += _nanos(fields_in(usage, "cost_details").get("upstream_inference_cost")) or 0
    return nanos


def _nanos(amount: object) -> int | None:
    """Return an amount in nanos; None if it is no number, or out of range."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        return None
    return round(amount * _NANOS_PER_UNIT) if 0 <= amount < MAX_COST else None


def served_of(tier: object, speed: object = None, geo: object = None) -> Served:
    """Return conditions as a vendor reports them; NOT_REPORTED itself if there are none."""
    if tier is speed is geo is None:  # most vendors
        return NOT_REPORTED
    words = [word if isinstance(word, str) else "" for word in (tier, speed, geo)]
    return _served(*words)


@functools.lru_cache(maxsize=256)
def _served(tier: str, speed: str, geo: str) -> Served:
    words = served_tier(tier), served_word(speed), served_word(geo)
    return Served(*words) if any(words) else NOT_REPORTED
