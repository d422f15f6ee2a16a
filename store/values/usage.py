"""Usage: the token counts of a call; families read them, records keep them, roll-ups sum them.

Adding a count is a field here and its price in pricing. Everybody may import this module.
"""

from operator import add

import msgspec
from msgspec.structs import astuple

MAX_TOKENS = 2**31 - 1  # a count above it is a fault of the vendor, not a bill


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens of one call, disjoint: input without cache, output without reasoning."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def written(self) -> int:
        """Tokens written to a cache, for whatever time."""
        return self.cache_write_tokens + self.cache_write_1h_tokens

    @property
    def inputs(self) -> int:
        """Tokens of the whole input."""
        return self.input_tokens + self.cache_read_tokens + self.written

    @property
    def outputs(self) -> int:
        """Tokens of the whole output."""
        return self.output_tokens + self.reasoning_tokens

    def plus(self, other: "Usage") -> "Usage":
        """Return both together, each count at most MAX_TOKENS."""
        sums = map(add, astuple(self), astuple(other))
        return Usage(*(min(tokens, MAX_TOKENS) for tokens in sums))


TOKEN_COUNTS = Usage.__struct_fields__
"""The names of the counts: also columns of records and roll-ups, and public fields."""


def token_count(value: object) -> int | None:
    """Return ``value`` as a count of tokens; None when it is not an integer from 0 to MAX_TOKENS.

    A reported zero is a number; what cannot be meant (true, -1, 1.5, "3", 10**30) was not reported.
    """
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None
