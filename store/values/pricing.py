"""Money arithmetic: amounts, prices, multipliers and the cost of a call.

Pure functions on Python integers: no database, no clock, no rounding but the one at the end of
`cost_nanos`. Money is nano-units of the account currency, a price is nano-units for a million
tokens, a multiplier is parts per million. Outside the process all three are decimal strings,
canonical and without exponent. Everybody may import this module.
"""

import re
from dataclasses import dataclass, field

import msgspec

from store.values.usage import Usage

NANOS_PER_UNIT = 10**9
PPM_PER_ONE = 10**6
TOKENS_PER_PRICE = 10**6
MONEY_DECIMALS = 9
MULTIPLIER_DECIMALS = 6

MAX_BIGINT = 2**63 - 1
"""The greatest amount, price or multiplier: what a BIGINT column carries."""

PRICE_NAMES = (
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "reasoning",
    "call",
)

_DECIMAL = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,30}))?", re.ASCII)
_COST_DIVISOR = TOKENS_PER_PRICE * PPM_PER_ONE


class AmountError(ValueError):
    """A decimal string is no amount, price or multiplier; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one model from one moment on: nanos per million tokens, `call` nanos per call.

    Made once from the others: `text`, for a line of the journal (the amounts in the order of
    PRICE_NAMES, between them blanks), `json`, for the row of a record, and the dearest price of any
    kind of input and of output.
    """

    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int
    reasoning: int
    call: int
    text: str = field(init=False, repr=False, compare=False)
    json: str = field(init=False, repr=False, compare=False)
    dearest_input: int = field(init=False, repr=False, compare=False)
    dearest_output: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        amounts = {name: getattr(self, name) for name in PRICE_NAMES}
        for name, nanos in amounts.items():
            if not 0 <= nanos <= MAX_BIGINT:
                raise AmountError(f"price {name} is out of range: {nanos}")
        texts = {name: format_money(nanos) for name, nanos in amounts.items()}
        object.__setattr__(self, "text", " ".join(texts.values()))
        object.__setattr__(self, "json", msgspec.json.encode(texts).decode())
        inputs = (self.input, self.cache_read, self.cache_write, self.cache_write_1h)
        object.__setattr__(self, "dearest_input", max(inputs))
        object.__setattr__(self, "dearest_output", max(self.output, self.reasoning))


def prices_from_json(text: str) -> Prices:
    """Read back what `Prices.json` wrote; raises AmountError when it is anything else."""
    try:
        amounts = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise AmountError(f"prices are no object of decimal strings: {error}") from error
    if sorted(amounts) != sorted(PRICE_NAMES):
        raise AmountError(f"prices need exactly the names {', '.join(PRICE_NAMES)}")
    return Prices(**{name: parse_price(amounts[name]) for name in PRICE_NAMES})


def prices_from_text(text: str) -> Prices:
    """Read back what `Prices.text` wrote; raises AmountError when it is anything else."""
    amounts = text.split(" ")
    if len(amounts) != len(PRICE_NAMES):
        raise AmountError(f"prices need {len(PRICE_NAMES)} amounts: {text[:80]!r}")
    return Prices(*map(parse_price, amounts))


def cost_nanos(usage: Usage, prices: Prices, multiplier_ppm: int) -> int:
    """Return the cost of a call in nanos, rounded up once.

    Raises OverflowError when the cost does not fit a BIGINT and ValueError when it is negative,
    which only negative counts or a negative multiplier can make it.
    """
    return _rounded_up(
        usage.input_tokens * prices.input
        + usage.output_tokens * prices.output
        + usage.cache_read_tokens * prices.cache_read
        + usage.cache_write_tokens * prices.cache_write
        + usage.cache_write_1h_tokens * prices.cache_write_1h
        + usage.reasoning_tokens * prices.reasoning
        + prices.call * TOKENS_PER_PRICE,
        multiplier_ppm,
    )


def bound_nanos(input_tokens: int, output_tokens: int, prices: Prices, multiplier_ppm: int) -> int:
    """Return the most that a call of so many tokens can cost, of whatever kinds they are.

    Raises the same as `cost_nanos`.
    """
    return _rounded_up(
        input_tokens * prices.dearest_input
        + output_tokens * prices.dearest_output
        + prices.call * TOKENS_PER_PRICE,
        multiplier_ppm,
    )


def affordable_tokens(nanos: int, price: int, multiplier_ppm: int) -> int:
    """Return how many tokens at a price an amount pays for: MAX_BIGINT when they cost nothing,
    below 0 for a debt."""
    each = price * multiplier_ppm
    return nanos * _COST_DIVISOR // each if each else MAX_BIGINT


def _rounded_up(price_units: int, multiplier_ppm: int) -> int:
    cost = -(-price_units * multiplier_ppm // _COST_DIVISOR)
    if cost > MAX_BIGINT:
        raise OverflowError(f"the cost of a call is beyond a BIGINT: {cost} nanos")
    if cost < 0:
        raise ValueError(f"the cost of a call is negative: {cost} nanos")
    return cost


def parse_money(text: str) -> int:
    """Return the nanos of an amount such as "12.5": at most 9 decimals, never negative.

    Raises AmountError.
    """
    return _parse_decimal(text, MONEY_DECIMALS, "amount")


def parse_price(text: str) -> int:
    """Return the nanos (per million tokens, or per call) of a price; raises AmountError."""
    return _parse_decimal(text, MONEY_DECIMALS, "price")


def parse_multiplier(text: str) -> int:
    """Return the parts per million of a multiplier: at most 6 decimals; raises AmountError."""
    return _parse_decimal(text, MULTIPLIER_DECIMALS, "multiplier")


def format_money(nanos: int) -> str:
    """Return the canonical decimal string of an amount or a price: no exponent, no spare zeros."""
    if 0 < nanos < NANOS_PER_UNIT:  # as most costs are: two thirds of the work
        return "0." + str(NANOS_PER_UNIT + nanos)[1:].rstrip("0")
    return _format_decimal(nanos, NANOS_PER_UNIT, MONEY_DECIMALS)


def format_price_after(nanos: int, multiplier_ppm: int) -> str:
    """A price after a group's multiplier, exact, as decimal text."""
    decimals = MONEY_DECIMALS + MULTIPLIER_DECIMALS
    return _format_decimal(nanos * multiplier_ppm, NANOS_PER_UNIT * PPM_PER_ONE, decimals)


def format_multiplier(ppm: int) -> str:
    """Return the canonical decimal string of a multiplier."""
    return _format_decimal(ppm, PPM_PER_ONE, MULTIPLIER_DECIMALS)


def _parse_decimal(text: str, decimals: int, what: str) -> int:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        if _DECIMAL.fullmatch(text.removeprefix("-")):
            raise AmountError(f"{what} {text} must not be negative")
        raise AmountError(f"{text!r} is no {what}: write digits and at most one point, like 12.50")
    whole, fraction = match[1], match[2] or ""
    if len(fraction) > decimals:
        raise AmountError(f"{what} {text} has more than {decimals} decimals")
    value = int(whole + fraction.ljust(decimals, "0"))
    if value > MAX_BIGINT:
        raise AmountError(f"{what} {text} is too large")
    return value


def _format_decimal(value: int, one: int, decimals: int) -> str:
    whole, fraction = divmod(abs(value), one)
    sign = "-" if value < 0 else ""
    if not fraction:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{str(fraction).zfill(decimals).rstrip('0')}"
