"""Prices and rates of a model: as parts of its form, which are converted back to values of the
document, and as columns and texts of lists.

A price's field is named `price.METER`, a rate's `rate.NUMBER.NAME`. A rate without contents is
dropped.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from handlers.hub.web.formats import conditions
from store.values.fields import Integer
from store.values.meters import METERS, TOKEN_METERS, USE_METERS
from store.values.price_fields import MAX_INPUT_OVER, MAX_RATES
from store.values.pricing import CONDITIONS
from store.values.usage import SIDES

PRICE_GROUPS: Mapping[str, Sequence[str]] = {
    "text": SIDES,
    "modalities": [name for name in TOKEN_METERS if name not in SIDES],
    "uses": USE_METERS,
}
"""Meters as grouped in a form. All groups but the first are collapsed while they have no price."""

RATE_PRICES = ("factor", "input", "output", "cache_read")
RATE_FIELDS = (*CONDITIONS, *RATE_PRICES, "more")
"""The fields of a rate. `more` has its other prices, as lines `METER = PRICE`."""

SPARE_RATES = 3  # empty rows in a form
_NEEDED = ("input", "output")
_RATE_FIELD = re.compile(r"rate\.(\d{1,3})\.([a-z_]+)", re.ASCII)
_RATE_PROBLEM = re.compile(r"rate (\d+): (.*)", re.DOTALL)
_REMOVE = "remove"

Submitted = Mapping[str, Sequence[str]]
"""The values of each field of a submitted form."""


@dataclass(frozen=True, slots=True)
class PriceGroup:
    """A group of price fields, with their texts."""

    name: str
    texts: Mapping[str, str]

    @property
    def folded(self) -> bool:
        """Return whether the group is collapsed: rarely needed, and without a price."""
        return self.name != "text" and not any(
            has_price(name, text) for name, text in self.texts.items()
        )


@dataclass(frozen=True, slots=True)
class RateRow:
    """The fields of a rate with their texts; an empty row has none."""

    number: int
    texts: Mapping[str, str]
    problem: str = ""


def has_price(meter: str, text: str | None) -> bool:
    """Return whether the text is a price. The price of a call counts only if it is above 0."""
    return bool(text) and (meter != "call" or text != "0")


def priced_meters(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the columns for a list of prices: the meters that have a price in any table."""
    tables = list(tables)
    return [
        name
        for name in METERS
        if name in _NEEDED or any(has_price(name, table.get(name)) for table in tables)
    ]


def fallback_word(words: Mapping[str, str], meter: str) -> str:
    """Return the text that says what applies to a meter without a price. Empty for required
    prices."""
    return "" if meter in _NEEDED else words[f"meter.as_{METERS[meter].falls_to or 'nothing'}"]


def rate_words(words: Mapping[str, str], rate: Mapping[str, Any]) -> str:
    """Return a short text for a rate of the document: its conditions, and its factor or prices."""
    when = conditions(words, rate["when"])
    if "factor" in rate:
        return f"{when} ×{rate['factor']}"
    prices = (f"{words['meter.' + name]} {rate[name]}" for name in METERS if name in rate)
    return f"{when}: {', '.join(prices)}"


def rate_prices(price: Mapping[str, str], rate: Mapping[str, Any]) -> dict[str, str]:
    """Return the prices of a rate by meter: the model's prices times its factor, or its own
    prices."""
    if "factor" not in rate:
        return {name: rate[name] for name in METERS if name in rate}
    factor = Decimal(rate["factor"])
    return {
        name: format((Decimal(text) * factor).normalize(), "f")
        for name, text in price.items()
        if has_price(name, text)
    }


def price_groups(texts: Mapping[str, str]) -> list[PriceGroup]:
    """Return a form's groups of price fields. `texts`: the texts of meters with a price."""
    return [
        PriceGroup(group, {name: texts.get(name, "") for name in names})
        for group, names in PRICE_GROUPS.items()
    ]


def submitted_texts(submitted: Submitted) -> dict[str, str]:
    """Return the submitted texts of the price fields."""
    fields = {name: submitted.get(f"price.{name}") for name in METERS}
    return {name: texts[0].strip() for name, texts in fields.items() if texts}


def submitted_prices(submitted: Submitted, *, new: bool) -> dict[str, Any]:
    """Return the submitted prices as values of the document, unchecked. An empty field removes a
    stored model's price."""
    texts = submitted_texts(submitted)
    return {name: text or None for name, text in texts.items() if text or not new}


def rate_rows(rates: Sequence[Mapping[str, Any]]) -> list[RateRow]:
    """Return rows for the rates in a document, followed by empty rows."""
    return _with_spares([_texts_of(rate) for rate in rates])


def submitted_rows(submitted: Submitted, problem: str) -> list[RateRow]:
    """Return the rows as submitted, followed by empty rows, with the problem in its row."""
    match = _RATE_PROBLEM.fullmatch(problem)
    at, text = (int(match[1]), match[2]) if match else (0, "")
    return _with_spares(_submitted_rates(submitted) or [], at, text)


def submitted_rates(submitted: Submitted) -> list[dict[str, Any]] | None:
    """Return the submitted rates as values of the document, unchecked. None: the form has no
    rates."""
    rates = _submitted_rates(submitted)
    return None if rates is None else [_rate_of(texts) for texts in rates]


def _with_spares(
    rates: Sequence[Mapping[str, str]], at: int = 0, problem: str = ""
) -> list[RateRow]:
    spares = min(SPARE_RATES, max(MAX_RATES - len(rates), 0))
    return [
        RateRow(number, texts, problem if number == at else "")
        for number, texts in enumerate([*rates, *[{}] * spares], 1)
    ]


def _submitted_rates(submitted: Submitted) -> list[Mapping[str, str]] | None:
    """Return the texts of the non-empty rates, ordered by number."""
    by_number: dict[int, dict[str, str]] = {}
    for field, texts in submitted.items():
        if match := _RATE_FIELD.fullmatch(field):
            by_number.setdefault(int(match[1]), {})[match[2]] = texts[0].strip()
    if not by_number:
        return None
    rates = [by_number[number] for number in sorted(by_number)]
    return [texts for texts in rates if any(texts.values()) and not texts.get(_REMOVE)]


def _texts_of(rate: Mapping[str, Any]) -> dict[str, str]:
    fields = {**rate["when"], **{name: rate[name] for name in rate if name != "when"}}
    lines = [
        f"{name} = {fields.pop(name)}" for name in METERS if name in fields.keys() - RATE_FIELDS
    ]
    return {**{name: str(value) for name, value in fields.items()}, "more": "\n".join(lines)}


def _rate_of(texts: Mapping[str, str]) -> dict[str, Any]:
    when: dict[str, Any] = {name: texts[name] for name in CONDITIONS if texts.get(name)}
    if "input_over" in when:
        when["input_over"] = Integer(0, MAX_INPUT_OVER).from_text(when["input_over"])
    rate: dict[str, Any] = {name: texts[name] for name in RATE_PRICES if texts.get(name)}
    for line in filter(str.strip, texts.get("more", "").splitlines()):
        name, _, price = line.partition("=")
        rate[name.strip()] = price.strip()
    return {**rate, "when": when}
