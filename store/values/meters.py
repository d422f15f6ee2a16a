"""Meters: the billable things of a call, one row each.

A meter has a name in prices, records and documents, the unit of its price, the meter whose price it
uses if it has none of its own, and the side of the call that its tokens count to. A new meter is a
row here and a line in the readers of the families that report it (pricing.md, section 2). Everybody
may import this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MILLION = 10**6
MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Meter:
    """A meter. `unit`: the count that its price is for. `falls_to`: the meter whose price it uses
    if it has none of its own; None: it is then free. `side`: for tokens, the count of a usage in
    which sums include them (input, cache_read, output), else empty. `unpriced`: records list its
    uses if it has no price of its own."""

    name: str
    unit: int = 1
    falls_to: str | None = None
    side: str = ""
    unpriced: bool = False


def _tokens(name: str, falls_to: str | None, side: str, *, unpriced: bool = False) -> Meter:
    return Meter(name, MILLION, falls_to, side, unpriced)


_ROWS = (
    _tokens("input", None, "input"),
    _tokens("output", None, "output"),
    _tokens("cache_read", "input", "cache_read"),
    _tokens("cache_write", "input", "cache_write"),
    _tokens("cache_write_1h", "cache_write", "cache_write_1h"),
    _tokens("reasoning", "output", "reasoning"),
    Meter("call"),
    _tokens("input_audio", "input", "input"),
    _tokens("input_image", "input", "input"),
    _tokens("input_video", "input", "input"),
    _tokens("cache_read_audio", "cache_read", "cache_read"),
    _tokens("output_audio", "output", "output", unpriced=True),
    _tokens("output_image", "output", "output", unpriced=True),
    Meter("web_search", unpriced=True),
    Meter("web_fetch", unpriced=True),
    Meter("file_search", unpriced=True),
    Meter("code_interpreter", unpriced=True),
    Meter("image_generation", unpriced=True),
    Meter("maps", unpriced=True),
    Meter("image", unpriced=True),
    Meter("audio_second", MS_PER_S, unpriced=True),  # counted in milliseconds
    Meter("character", unpriced=True),
    Meter("page", unpriced=True),
    Meter("search_unit", unpriced=True),
)

METERS: Mapping[str, Meter] = {meter.name: meter for meter in _ROWS}
"""All meters by name, in the order in which they are listed. Targets of `falls_to` come first."""

COLUMN_METERS = tuple(METERS)[:7]
"""Meters with a column of their own in the table of prices."""

TOKEN_METERS = tuple(meter.name for meter in _ROWS if meter.unit == MILLION)
USE_METERS = tuple(meter.name for meter in _ROWS if meter.unit != MILLION)
"""Meters of tokens, and all others."""


def count_in_unit(meter: str, count: int) -> int | float:
    """Return a count in the unit shown next to its price: seconds for audio, which is counted in
    milliseconds. Other counts are unchanged."""
    return count / MS_PER_S if METERS[meter].unit == MS_PER_S else count
