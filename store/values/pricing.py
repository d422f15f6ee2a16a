"""Money arithmetic: amounts, prices, rates, multipliers and the cost of a call.

Pure functions on Python integers: no database, no clock, no rounding except the one at the end of
`rounded_up`. Money is nano-units of the account currency, a price is nano-units for the unit of its
meter (a million tokens, a call, a use), a multiplier is parts per million. Before the multiplier, a
cost is counted in fractions, of which a nano has FRACTIONS_PER_NANO. In fractions, every price of
one token is an integer, even one by a factor. Outside the process, all of these are decimal
strings, canonical and without exponent. Everybody may import this module.
"""

import functools
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec
from msgspec.structs import astuple, replace

from store.values.meters import COLUMN_METERS, METERS, MILLION, TOKEN_METERS
from store.values.usage import NOT_REPORTED, PLAIN_WORDS, SIDES, Served, Usage

NANOS_PER_UNIT = 10**9
PPM_PER_ONE = 10**6
MONEY_DECIMALS = 9
MULTIPLIER_DECIMALS = 6
FRACTIONS_PER_NANO = MILLION * PPM_PER_ONE
FRACTION_DECIMALS = MONEY_DECIMALS + 12

MAX_BIGINT = 2**63 - 1
"""The greatest amount, price or multiplier: the maximum of a BIGINT column."""

CONDITIONS = ("tier", "speed", "geo", "input_over")
"""Names of the conditions of a rate."""

MEMO_MAX = 256  # selections of rates that prices cache

_DECIMAL = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,30}))?", re.ASCII)
_COST_DIVISOR = FRACTIONS_PER_NANO * PPM_PER_ONE
_CALL = "call"
_INPUT_MODALITIES = ("input_audio", "input_image", "input_video", "cache_read_audio")

When = tuple[tuple[str, str | int], ...]
"""Conditions of a rate, name and word or number, in the order of CONDITIONS."""


class AmountError(ValueError):
    """A decimal string that is not an amount, price or multiplier. The message says what is
    wrong."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The prices that apply if all conditions in `when` are met. The plain rate has no conditions.

    `prices`: nanos for the unit of each meter that has a price, including inherited ones,
    multiplied by `scale`, which is 1, or parts per million for a rate by a factor. `own`: meters
    with a price of their own. From these are computed: fractions for each count of a meter
    (`per_count`), for each token of the fields of a usage (`each`), for each call, and for each
    token of the most expensive kind of text; and the meters whose counts records list as unpriced.
    `text`: for a line of the journal.
    """

    prices: Mapping[str, int]
    own: frozenset[str]
    when: When = ()
    scale: int = 1
    text: str = field(default="", compare=False)
    per_count: Mapping[str, int] = field(init=False, repr=False, compare=False)
    unpriced: frozenset[str] = field(init=False, repr=False, compare=False)
    each: tuple[int, ...] = field(init=False, repr=False, compare=False)
    call: int = field(init=False, repr=False, compare=False)
    dearest_input: int = field(init=False, repr=False, compare=False)
    dearest_output: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, nanos in self.prices.items():
            if not 0 <= nanos <= MAX_BIGINT * self.scale:
                raise AmountError(f"price {name} is out of range: {nanos}")
        per_count = {
            name: nanos * FRACTIONS_PER_NANO // (METERS[name].unit * self.scale)
            for name, nanos in self.prices.items()
        }
        unpriced = {name for name, meter in METERS.items() if meter.unpriced} - self.own
        object.__setattr__(self, "per_count", per_count)
        object.__setattr__(self, "unpriced", frozenset(unpriced))
        each = tuple(self.fractions(name) for name in SIDES)
        input_, output, read, written, written_1h, reasoning = each
        object.__setattr__(self, "each", each)
        object.__setattr__(self, "call", self.fractions(_CALL))
        object.__setattr__(self, "dearest_input", max(input_, read, written, written_1h))
        object.__setattr__(self, "dearest_output", max(output, reasoning))

    def fractions(self, meter: str) -> int:
        """Return the fractions of a nano that one count of a meter costs, 0 without a price."""
        return self.per_count.get(meter, 0)

    def price_text(self, meter: str, multiplier_ppm: int = PPM_PER_ONE) -> str:
        """Return the price of a meter, after a group's multiplier, as an exact decimal string."""
        factors = 2 if self.scale > 1 else 1
        return _format_decimal(
            self.prices.get(meter, 0) * multiplier_ppm,
            NANOS_PER_UNIT * PPM_PER_ONE**factors,
            MONEY_DECIMALS + MULTIPLIER_DECIMALS * factors,
        )

    def cost(self, usage: Usage) -> int:
        """Return the fractions that a usage costs, before the multiplier."""
        input_, output, read, written, written_1h, reasoning = self.each
        cost = (
            usage.input_tokens * input_
            + usage.output_tokens * output
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * written
            + usage.cache_write_1h_tokens * written_1h
            + usage.reasoning_tokens * reasoning
            + self.call
        )
        for name, count in usage.more:
            cost += count * self.per_count.get(name, 0)
        return cost

    def bound(self, input_tokens: int, output_tokens: int, modalities: Sequence[str] = ()) -> int:
        """Return the maximum fractions that these numbers of text tokens, of any kind, and one call
        cost. `modalities`: meters of other modalities that the tokens may be of."""
        of_input, of_output = self.dearest_input, self.dearest_output
        for name in modalities:
            if METERS[name].side == "output":
                of_output = max(of_output, self.fractions(name))
            else:
                of_input = max(of_input, self.fractions(name))
        return input_tokens * of_input + output_tokens * of_output + self.call

    def meets(self, inputs: int, served: Served) -> bool:
        """Return whether all conditions are met."""
        return all(
            inputs > value if isinstance(value, int) else getattr(served, name) == value
            for name, value in self.when
        )


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a model from a time on: the plain rate, and other rates in the document's order.
    `own_inputs`: meters of non-text input that have a price of their own."""

    plain: Rate
    rates: tuple[Rate, ...] = ()
    source: str | None = field(default=None, compare=False)
    alone: tuple[Rate, ...] = field(init=False, repr=False, compare=False)
    own_inputs: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _steps: Sequence[int] = field(init=False, repr=False, compare=False)
    _memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alone", (self.plain,))
        own = tuple(name for name in _INPUT_MODALITIES if self.has_price(name))
        object.__setattr__(self, "own_inputs", own)
        steps = {word for rate in self.rates for _, word in rate.when if isinstance(word, int)}
        object.__setattr__(self, "_steps", sorted(steps))

    def rate_for(self, usage: Usage, served: Served = NOT_REPORTED) -> Rate:
        """Return the rate of a call: of the rates whose conditions are all met, the one with the
        most conditions. Among equals, the one that makes the call more expensive, then the
        first."""
        if not self.rates:
            return self.plain
        inputs = usage.inputs - (usage.extras.apart_tokens if usage.extras else 0)
        key = (served, bisect_left(self._steps, inputs))
        candidates: Sequence[Rate] = self._memo.get(key) or self._remember(
            key, self._candidates(served, inputs)
        )
        if len(candidates) == 1:
            return candidates[0]
        return max(candidates, key=lambda rate: rate.cost(usage))

    def _candidates(self, served: Served, inputs: int) -> Sequence[Rate]:
        fitting = [rate for rate in self.rates if rate.meets(inputs, served)]
        most = max((len(rate.when) for rate in fitting), default=0)
        return [rate for rate in fitting if len(rate.when) == most] or self.alone

    def _remember(self, key: Any, value: Any) -> Any:
        if len(self._memo) >= MEMO_MAX:  # vendors may report any words
            self._memo.clear()
        self._memo[key] = value
        return value

    def reachable(
        self, conditions: Served, input_tokens: int, tiers: Collection[str]
    ) -> tuple[Rate, ...]:
        """Return the rates at which a call can be charged, with this much input, under the
        conditions that it requests or with the default tier. `tiers`: other tiers that the vendor
        may use by default if the call requests none."""
        if not self.rates:
            return self.alone
        tiers = () if conditions.tier else tuple(sorted(tiers))
        key = (conditions, bisect_left(self._steps, input_tokens), tiers)
        rates: tuple[Rate, ...] | None = self._memo.get(key)
        if rates is not None:
            return rates
        served = [conditions, *(replace(conditions, tier=tier) for tier in ("default", *tiers))]
        fitting = [r for r in self.rates if any(r.meets(input_tokens, way) for way in served)]
        reached: tuple[Rate, ...] = self._remember(key, (self.plain, *fitting))
        return reached

    def unpriced_conditions(self, served: Served) -> tuple[tuple[str, int], ...]:
        """Return the features of service conditions that may cost more and have no rate, each with
        a count of 1."""
        key = ("unpriced", served)
        features: tuple[tuple[str, int], ...] | None = self._memo.get(key)
        if features is not None:
            return features
        words = zip(Served.__struct_fields__, astuple(served), PLAIN_WORDS, strict=True)
        missing = [
            name if name == "geo" else f"{name}.{word}"
            for name, word, plain in words
            if word not in plain and not self.names(name, word)
        ]
        named: tuple[tuple[str, int], ...] = self._remember(key, tuple((m, 1) for m in missing))
        return named

    def names(self, condition: str, word: str | None = None) -> bool:
        """Return whether a rate has this condition with this word; without a word, with any."""
        conditions = (pair for rate in self.rates for pair in rate.when)
        return any(name == condition and word in (None, value) for name, value in conditions)

    def has_price(self, meter: str) -> bool:
        """Return whether a meter has a price of its own in any rate."""
        return any(meter in rate.own for rate in (self.plain, *self.rates))


def plain_rate(prices: Mapping[str, int]) -> Rate:
    """Return the plain rate from a model's prices: nanos by meter, including `input` and `output`.
    Raises AmountError."""
    words = [f"{name}={format_money(nanos)}" for name, nanos in prices.items()]
    return Rate(_chained(prices), frozenset(prices), text=" ".join(words))


def conditional_rate(plain: Rate, when: When, prices: Mapping[str, int] | int) -> Rate:
    """Return a rate with its own prices (nanos by meter), or with a factor (parts per million) of
    the plain rate's token prices. Uses without a price of their own have that of the plain rate.
    Raises AmountError."""
    if isinstance(prices, int):
        amounts = {
            name: nanos * (prices if name in TOKEN_METERS else PPM_PER_ONE)
            for name, nanos in plain.prices.items()
        }
        words, own, scale = [f"*{format_multiplier(prices)}", plain.text], plain.own, PPM_PER_ONE
    else:
        uses = {name: nanos for name, nanos in plain.prices.items() if name not in TOKEN_METERS}
        own = frozenset({*prices, *(plain.own & uses.keys())})
        amounts, scale = _chained({**uses, **prices}), 1
        words = [f"{name}={format_money(amounts[name])}" for name in amounts if name in own]
    words += [f"?{name}={value}" for name, value in when]
    return Rate(amounts, own, when, scale, " ".join(words))


def _chained(prices: Mapping[str, int]) -> dict[str, int]:
    """Return prices including those inherited along the chains, in the order of METERS. Includes
    meters that are charged as another but listed as unpriced."""
    resolved: dict[str, int] = {}
    for name, meter in METERS.items():
        if name in prices:
            resolved[name] = prices[name]
        elif meter.falls_to is not None:
            resolved[name] = resolved[meter.falls_to]
    return resolved


@functools.lru_cache(maxsize=1024)
def rate_of_text(text: str) -> Rate:
    """Parse a text of `Rate.text`. Raises AmountError for anything else."""
    prices: dict[str, int] = {}
    factor: int | None = None
    when: dict[str, str | int] = {}
    words = text.split()
    if text and "=" not in text and len(words) == len(COLUMN_METERS):  # in journals of git-4ce62c7
        words = [f"{name}={word}" for name, word in zip(COLUMN_METERS, words, strict=True)]
    for word in words:
        name, sign, value = word.partition("=")
        if word.startswith("*"):
            factor = parse_multiplier(word[1:])
        elif sign and name[1:] in CONDITIONS and name.startswith("?"):
            when[name[1:]] = int(value) if name == "?input_over" and value.isdigit() else value
        elif sign and name in METERS:
            prices[name] = parse_price(value)
        else:
            raise AmountError(f"no price or condition: {word[:80]!r}")
    if not {"input", "output"} <= prices.keys():
        raise AmountError(f"prices need input and output: {text[:80]!r}")
    plain = plain_rate(prices)
    conditions = tuple((name, when[name]) for name in CONDITIONS if name in when)
    if factor is None and not conditions:
        return plain
    return conditional_rate(plain, conditions, prices if factor is None else factor)


def prices_json(rate: Rate, meters: Iterable[str]) -> str:
    """Return the JSON text of the prices of these meters, and of a call unless it is free."""
    names = {*meters, _CALL} if rate.call else {*meters}
    texts = {name: rate.price_text(name) for name in METERS if name in names}
    return msgspec.json.encode(texts).decode()


def cost_nanos(usage: Usage, rate: Rate, multiplier_ppm: int, added: int = 0) -> int:
    """Return the cost of a call in nanos, rounded up once. `added`: the cost of other models inside
    it, in fractions.

    Raises OverflowError if the cost does not fit a BIGINT, and ValueError if it is negative, which
    only negative counts or a negative multiplier can cause.
    """
    cost = -(-(rate.cost(usage) + added) * multiplier_ppm // _COST_DIVISOR)
    return cost if 0 <= cost <= MAX_BIGINT else _refuse(cost)


def affordable_tokens(nanos: int, fractions: int, multiplier_ppm: int) -> int:
    """Return the number of tokens, of this many fractions each, that an amount pays for: MAX_BIGINT
    if they are free, below 0 for a debt."""
    each = fractions * multiplier_ppm
    return nanos * _COST_DIVISOR // each if each else MAX_BIGINT


def rounded_up(fractions: int, multiplier_ppm: int) -> int:
    """Return fractions after the multiplier in nanos. Raises OverflowError, ValueError."""
    cost = -(-fractions * multiplier_ppm // _COST_DIVISOR)
    return cost if 0 <= cost <= MAX_BIGINT else _refuse(cost)


def _refuse(cost: int) -> NoReturn:
    if cost < 0:
        raise ValueError(f"the cost of a call is negative: {cost} nanos")
    raise OverflowError(f"the cost of a call is beyond a BIGINT: {cost} nanos")


def nanos_up(fractions: int, multiplier_ppm: int = PPM_PER_ONE) -> int:
    """Return fractions after a multiplier in nanos, rounded up, without a limit."""
    return -(-fractions * multiplier_ppm // _COST_DIVISOR)


def format_fractions(fractions: int) -> str:
    """Return fractions of a nano as a decimal string of the account currency, exact."""
    return _format_decimal(fractions, NANOS_PER_UNIT * FRACTIONS_PER_NANO, FRACTION_DECIMALS)


def parse_fractions(text: str) -> int:
    """Parse a text of `format_fractions`. Raises AmountError."""
    return _parse_decimal(text, FRACTION_DECIMALS, "amount", MAX_BIGINT * FRACTIONS_PER_NANO)


def parse_money(text: str) -> int:
    """Return the nanos of an amount such as "12.5": at most 9 decimals, never negative.

    Raises AmountError.
    """
    return _parse_decimal(text, MONEY_DECIMALS, "amount")


def parse_price(text: str) -> int:
    """Return the nanos (per million tokens, or per call) of a price. Raises AmountError."""
    return _parse_decimal(text, MONEY_DECIMALS, "price")


def parse_multiplier(text: str) -> int:
    """Return the parts per million of a multiplier, which has at most 6 decimals. Raises
    AmountError."""
    return _parse_decimal(text, MULTIPLIER_DECIMALS, "multiplier")


def format_money(nanos: int) -> str:
    """Return the canonical decimal string of an amount or a price: no exponent, no spare zeros."""
    if 0 < nanos < NANOS_PER_UNIT:  # as most costs are: saves two thirds of the work
        return "0." + str(NANOS_PER_UNIT + nanos)[1:].rstrip("0")
    return _format_decimal(nanos, NANOS_PER_UNIT, MONEY_DECIMALS)


def format_multiplier(ppm: int) -> str:
    """Return the canonical decimal string of a multiplier."""
    return _format_decimal(ppm, PPM_PER_ONE, MULTIPLIER_DECIMALS)


def _parse_decimal(text: str, decimals: int, what: str, most: int = MAX_BIGINT) -> int:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        if _DECIMAL.fullmatch(text.removeprefix("-")):
            raise AmountError(f"{what} {text} must not be negative")
        raise AmountError(f"{text!r} is no {what}: write digits and at most one point, like 12.50")
    whole, fraction = match[1], match[2] or ""
    if len(fraction) > decimals:
        raise AmountError(f"{what} {text} has more than {decimals} decimals")
    value = int(whole + fraction.ljust(decimals, "0"))
    if value > most:
        raise AmountError(f"{what} {text} is too large")
    return value


def _format_decimal(value: int, one: int, decimals: int) -> str:
    whole, fraction = divmod(abs(value), one)
    sign = "-" if value < 0 else ""
    if not fraction:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{str(fraction).zfill(decimals).rstrip('0')}"
