"""Usage: the counts of a call. Families read them, records store them, roll-ups sum them.

Six token counts are fields, since nearly all calls have nothing else. Any other meter is a pair in
`more`. Everybody may import this module.
"""

from collections.abc import Mapping
from itertools import compress
from operator import add

import msgspec
from msgspec.structs import astuple, replace

from store.values.meters import METERS

MAX_TOKENS = 2**31 - 1  # a count above it is a fault of the vendor, not a bill

More = tuple[tuple[str, int], ...]
"""Counts above 0 of meters without a field, in the order of METERS."""


class OtherUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Counts of another model used inside a call, by the vendor's name for it. `feature`: the
    feature by which a request uses it (advisor, fallbacks)."""

    model: str
    usage: "Usage"
    feature: str


class Extras(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rare parts of a vendor's report. `apart_tokens`: input besides the top-level counts, which
    does not affect the choice of the rate (compaction, tools). `vendor_nanos`: the vendor's own
    cost of the call."""

    apart_tokens: int = 0
    other_models: tuple[OtherUsage, ...] = ()
    vendor_nanos: int | None = None


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Counts of a call, disjoint: input without cache, output without reasoning, both without the
    tokens of other modalities, which are in `more`. `extras` is not part of a record."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    more: More = ()
    extras: Extras | None = None

    @property
    def written(self) -> int:
        """Return the tokens written to a cache, for any lifetime."""
        return self.cache_write_tokens + self.cache_write_1h_tokens

    @property
    def inputs(self) -> int:
        """Return the tokens of the whole input."""
        own = self.input_tokens + self.cache_read_tokens
        own += self.cache_write_tokens + self.cache_write_1h_tokens
        for name, count in self.more:
            if name in _MORE_INPUTS:
                own += count
        return own

    @property
    def outputs(self) -> int:
        """Return the tokens of the whole output."""
        own = self.output_tokens + self.reasoning_tokens
        for name, count in self.more:
            if name in _MORE_OUTPUTS:
                own += count
        return own

    def more_of(self, side: str) -> int:
        """Return the tokens in `more` that count to a side of the call (see Meter)."""
        tokens = 0
        for name, count in self.more:
            if METERS[name].side == side:
                tokens += count
        return tokens

    @property
    def summed(self) -> tuple[int, ...]:
        """Return the six counts as in sums, with tokens of other modalities added to their side."""
        counts = astuple(self)[: len(TOKEN_COUNTS)]
        return (*map(add, counts, self.more_tokens), *counts[3:]) if self.more else counts

    @property
    def more_tokens(self) -> list[int]:
        """Return the tokens in `more` of input, output and cache reads, as in MORE_TOKENS."""
        tokens = [0, 0, 0]
        for name, count in self.more:
            if (place := _PLACES.get(name)) is not None:
                tokens[place] += count
        return tokens

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the meters with a count above 0, in the order of `meters`."""
        names = tuple(compress(SIDES, astuple(self)))
        return (*names, *[name for name, _ in self.more]) if self.more else names

    @property
    def meters(self) -> dict[str, int]:
        """Return the counts above 0 by meter, in the order of METERS, except for `call`."""
        counts = zip(SIDES, astuple(self), strict=False)
        return {name: count for name, count in (*counts, *self.more) if count}

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of both without `extras`, each count at most MAX_TOKENS."""
        sums = map(add, astuple(self)[: len(SIDES)], astuple(other))
        more = dict(self.more)
        for name, count in other.more:
            more[name] = more.get(name, 0) + count
        both = Usage(*(min(tokens, MAX_TOKENS) for tokens in sums))
        return replace(both, more=more_counts(more)) if more else both

    def bare(self) -> "Usage":
        """Return the usage as in a record, without `extras`."""
        return self if self.extras is None else replace(self, extras=None)


class Served(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Conditions under which a vendor served a call, as canonical words (`served_word`). Empty: not
    reported."""

    tier: str = ""
    speed: str = ""
    geo: str = ""


NOT_REPORTED = Served()

PLAIN_TIERS = frozenset({"", "auto", "default", "flex", "batch", "offpeak"})
PLAIN_SPEEDS = frozenset({"", "standard"})
PLAIN_GEOS = frozenset({"", "global", "not_available"})
"""Words of served conditions that cost no more than the plain rate. All others need a configured
price."""
PLAIN_WORDS = (PLAIN_TIERS, PLAIN_SPEEDS, PLAIN_GEOS)
"""These sets in the order of the fields of `Served`."""

SIDES = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
"""The meters of the fields of a usage, in their order."""

TOKEN_COUNTS = Usage.__struct_fields__[: len(SIDES)]
"""The names of the counts: also columns of records and roll-ups, and public fields."""

MORE_TOKENS = ("more_input_tokens", "more_output_tokens", "more_cache_read_tokens")
"""Columns of records: tokens in `more` that sums add to input, output and cache_read."""

_ORDER = {name: place for place, name in enumerate(METERS)}
_PLACES = {
    name: SIDES.index(meter.side)
    for name, meter in METERS.items()
    if meter.side and name not in SIDES
}
_MORE_INPUTS = frozenset(name for name, place in _PLACES.items() if SIDES[place] != "output")
_MORE_OUTPUTS = frozenset(_PLACES) - _MORE_INPUTS
"""For token meters in `more`: their side, those of input, and those of output."""
_SAME_TIERS = {"standard": "default", "on_demand": "default", "fast": "priority"}
_WORD_CHARS = 64


def more_counts(counts: Mapping[str, int]) -> More:
    """Return the counts above 0 in the form of `Usage.more`, each at most MAX_TOKENS."""
    names = sorted(counts, key=_ORDER.__getitem__)
    return tuple([(name, min(counts[name], MAX_TOKENS)) for name in names if counts[name] > 0])


def token_count(value: object) -> int | None:
    """Return `value` as a count of tokens, or None if it is not an integer from 0 to MAX_TOKENS.

    A reported zero is a count. An invalid value (true, -1, 1.5, "3", 10**30) counts as not
    reported.
    """
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def served_word(value: object) -> str:
    """Return a reported condition in lower case, empty if it is not a text."""
    return value.lower()[:_WORD_CHARS] if isinstance(value, str) else ""


def served_tier(value: object) -> str:
    """Return a reported or requested service tier under its canonical name."""
    word = served_word(value)
    return _SAME_TIERS.get(word, word)
