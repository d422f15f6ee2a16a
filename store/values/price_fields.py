"""Types of the document's prices: the plain rate, rates with conditions, future prices.

They extend the types of `fields`. All raise ValueError with the fact and the remedy. Pure.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from store.values import texts
from store.values.fields import (
    MAX_LIST_LENGTH,
    FieldType,
    Instant,
    Integer,
    OptionMap,
    decimal_text,
    list_of,
    pairs_of,
    table_of,
    within,
)
from store.values.meters import METERS
from store.values.pricing import (
    CONDITIONS,
    format_money,
    format_multiplier,
    parse_multiplier,
    parse_price,
)
from store.values.texts import nearest
from store.values.usage import served_tier

MAX_PRICE_CHANGES = 100
MAX_RATES = 100
MAX_INPUT_OVER = 10**9
PriceFrom = tuple[int, dict[str, int], list[dict[str, Any]]]
"""A time in ms, and the prices and rates in force from then on."""
_CONDITION = re.compile(r"[a-z0-9._:-]{1,64}")


@dataclass(frozen=True, slots=True)
class PriceTable(FieldType):
    """The prices of a table, in nanos. null restores the default of a price."""

    @property
    def form(self) -> str:
        return "a table of meters (money.md)"

    def parse(self, value: object) -> dict[str, int]:
        prices = _prices(value)
        for name in ("input", "output"):
            if name not in prices:
                raise ValueError(f"{name} is missing")
        return {"call": 0, **prices}

    def plain(self, value: Any) -> dict[str, str]:
        return {name: format_money(value[name]) for name in METERS if name in value}


def _prices(value: object) -> dict[str, int]:
    """Return the prices of a table by meter, in the order of METERS."""
    if not isinstance(value, dict):
        raise ValueError("must be a table")
    prices: dict[str, int] = {}
    for name, amount in value.items():
        if name not in METERS:
            raise ValueError(f'has no meter "{name}"{nearest(name, METERS)}')
        if amount is not None:
            with within(f"{name}:"):
                prices[name] = parse_price(decimal_text(amount))
    return {name: prices[name] for name in METERS if name in prices}


@dataclass(frozen=True, slots=True)
class RateList(FieldType):
    """Rates: the conditions of each (`when`), and a `factor` in parts per million or `prices`."""

    form: ClassVar[str] = "a list of tables, each `when` and `factor`, or `when` and prices"

    def parse(self, value: object) -> list[dict[str, Any]]:
        rates = []
        for index, table in enumerate(list_of(value, "must be a list of tables", MAX_RATES), 1):
            with within(f"rate {index}:"):
                rates.append(self._rate(table))
        return rates

    def _rate(self, table: object) -> dict[str, Any]:
        if not isinstance(table, dict) or not isinstance(table.get("when"), dict):
            raise ValueError("must be a table with `when`, a table of conditions")
        when = _conditions(table["when"])
        rest = {name: value for name, value in table.items() if name != "when"}
        if "factor" not in rest:
            prices = _prices(rest)
            for name in ("input", "output"):
                if name not in prices:
                    raise ValueError(f"{name} is missing: a rate has it, or a factor")
            return {"when": when, "prices": prices}
        if len(rest) > 1:
            raise ValueError("has a factor and prices; a rate has one or the other")
        with within("factor:"):
            return {"when": when, "factor": parse_multiplier(decimal_text(rest["factor"]))}

    def plain(self, value: Any) -> list[dict[str, Any]]:
        return [
            {"when": rate["when"], "factor": format_multiplier(rate["factor"])}
            if "factor" in rate
            else {"when": rate["when"], **PriceTable().plain(rate["prices"])}
            for rate in value
        ]

    def from_text(self, text: str) -> object:
        return text if text.strip() else []


def _conditions(when: dict[Any, Any]) -> dict[str, str | int]:
    if not when:
        raise ValueError(f"when needs a condition: {', '.join(CONDITIONS)}")
    for name in when:
        if name not in CONDITIONS:
            raise ValueError(f'when has no condition "{name}"{nearest(str(name), CONDITIONS)}')
    conditions: dict[str, str | int] = {}
    for name in CONDITIONS:
        if name not in when:
            continue
        with within(f"when: {name}"):
            if name == "input_over":
                conditions[name] = Integer(0, MAX_INPUT_OVER).parse(when[name])
                continue
            word = when[name]
            if not isinstance(word, str) or not _CONDITION.fullmatch(word.lower()):
                raise ValueError("must be a word of a-z 0-9 . _ : -")
            conditions[name] = served_tier(word) if name == "tier" else word.lower()
    return conditions


@dataclass(frozen=True, slots=True)
class PriceChanges(FieldType):
    """Complete prices and the times from which they apply, earliest first: (ms, prices, rates)."""

    form: ClassVar[str] = "a list of tables, each a `from` (a time), prices, and a list `rate`"

    def parse(self, value: object) -> list[PriceFrom]:
        tables = list_of(value, "must be a list of tables", MAX_PRICE_CHANGES)
        changes: dict[int, PriceFrom] = {}
        for index, table in enumerate(tables, 1):
            with within(f"element {index}"):
                change = self._change(table)
                if change[0] in changes:
                    raise ValueError("has the same `from` as another one")
                changes[change[0]] = change
        return [changes[at_ms] for at_ms in sorted(changes)]

    def _change(self, table: object) -> PriceFrom:
        if not isinstance(table, dict) or "from" not in table:
            raise ValueError("must be a table with `from` and prices")
        with within("from:"):
            at_ms = Instant().parse(table["from"])
        rest = {name: price for name, price in table.items() if name not in ("from", "rate")}
        return at_ms, PriceTable().parse(rest), RateList().parse(table.get("rate", []))

    def plain(self, value: Any) -> list[dict[str, Any]]:
        return [
            {
                "from": Instant().plain(at_ms),
                **PriceTable().plain(prices),
                **({"rate": RateList().plain(rates)} if rates else {}),
            }
            for at_ms, prices, rates in value
        ]

    def from_text(self, text: str) -> object:
        return text if text.strip() else []


@dataclass(frozen=True, slots=True)
class CostMap(OptionMap):
    """Public name of a model -> what the operator pays for it: a table of prices, in nanos."""

    form: ClassVar[str] = "a table of model = a table of prices, like those of a model"

    def parse(self, value: object) -> dict[str, Any]:
        costs = {}
        for name, prices in table_of(value, "must be a table of models", MAX_LIST_LENGTH).items():
            with within(f'entry "{name}"'):
                costs[texts.model_name(name)] = PriceTable().parse(prices)
        return costs

    def plain(self, value: Any) -> dict[str, Any]:
        return {name: PriceTable().plain(prices) for name, prices in value.items()}

    def from_text(self, text: str) -> object:
        return text if text.strip() else {}

    def value_from_text(self, text: str) -> object:
        """Return the prices of a model: `input=1,output=5`."""
        return {name.strip(): price.strip() for name, _, price in pairs_of(text)}
