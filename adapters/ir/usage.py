"""Usage: the counts of tokens that families have in common, free of any wire format.

Imported by every family, the relay and (by shape, not by import) pricing.
"""

from adapters.json.jsonio import Struct

MAX_TOKENS = 2**31 - 1  # a count above it is a fault of the vendor, not a bill


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one call, disjoint: input without cache, output without reasoning."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0


def token_count(value: object) -> int | None:
    """Return ``value`` as a count of tokens; None when it is not an integer from 0 to MAX_TOKENS.

    A reported zero is a number; what cannot be meant (true, -1, 1.5, "3", 10**30) was not reported.
    """
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None
