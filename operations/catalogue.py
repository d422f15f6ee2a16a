"""The catalogue of current models, conf/catalogue.toml: bounds, meters and rates as facts with
their source and date.

Its key is VENDOR/NAME, where NAME is the model's name in that vendor's API, since several vendors
may offer one model. tools/catalogue.py writes the file.
"""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peewee

from operations.price_sources import ListedModel, maker_of, vendor_word
from store.calls.reading.unpriced import recent_unpriced
from store.values.errors import NotFound, Refused
from store.values.meters import METERS
from store.values.pricing import parse_money
from store.values.texts import nearest

DEMO_PRICES = {"input": "1.00", "output": "4.00"}  # for any model of the demo vendor
CATALOGUE_FILE = Path(__file__).parents[1] / "conf" / "catalogue.toml"


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A model as one vendor offers it. `price` and `rate` are as in the document; `date`: the day
    on which the source was read."""

    name: str
    vendor: str
    context_tokens: int
    max_output_tokens: int
    price: Mapping[str, str]
    source: str
    date: str
    rate: Sequence[Mapping[str, Any]] = ()

    @property
    def key(self) -> str:
        """Return VENDOR/NAME."""
        return f"{self.vendor}/{self.name}"

    @property
    def of_maker(self) -> bool:
        """Return whether the vendor made the model."""
        return maker_of(self.name) == self.vendor

    def fields(self) -> dict[str, Any]:
        """Return the model's fields for the document."""
        fields: dict[str, Any] = {
            "context_tokens": self.context_tokens,
            "max_output_tokens": self.max_output_tokens,
            "price": dict(self.price),
            "price_source": f"catalogue {self.date} ({self.source})",
        }
        return {**fields, "rate": list(self.rate)} if self.rate else fields


@functools.cache
def entries() -> tuple[CatalogueEntry, ...]:
    """Return the whole catalogue in the order of the file, which is read once."""
    content = tomllib.loads(CATALOGUE_FILE.read_text(encoding="utf-8"))
    return tuple(CatalogueEntry(**entry) for entry in content["model"])


def listed_models() -> list[ListedModel]:
    """Return the whole catalogue as a list of prices."""
    return [
        ListedModel(
            *(entry.key, entry.vendor, entry.name, entry.price, entry.rate),
            *(entry.context_tokens, entry.max_output_tokens),
        )
        for entry in entries()
    ]


def list_word() -> str:
    """Return the word that is stored as the source of its prices, with the newest date."""
    return f"catalogue {max(entry.date for entry in entries())}"


def find(name: str, key: str = "") -> CatalogueEntry:
    """Return the entry of a model: the one with the key, else the maker's, else the only one.
    Raises NotFound; Refused if several vendors offer it and none of them made it."""
    if key:
        by_key = {entry.key.lower(): entry for entry in entries()}
        if key.lower() not in by_key:
            raise NotFound(f'the catalogue has no "{key}"{nearest(key, by_key)}')
        return by_key[key.lower()]
    matching = offered(name)
    if not matching:
        names = [entry.name for entry in entries()]
        raise NotFound(f'the catalogue has no model "{name}"{nearest(name, names)}')
    best = [entry for entry in matching if entry.of_maker] or matching
    if len(best) > 1:
        choices = " or ".join(f"--from-catalogue={entry.key}" for entry in best)
        raise Refused([f'several vendors offer "{name}", and none of them made it: {choices}'])
    return best[0]


def offered(name: str) -> list[CatalogueEntry]:
    """Return the entries of a name, with or without the maker before it, as in groq's
    `openai/gpt-oss-20b`. A name with a maker matches only the same full name."""
    lower = name.lower()
    whole = [entry for entry in entries() if entry.name.lower() == lower]
    parts = [entry for entry in entries() if entry.name.lower().rpartition("/")[2] == lower]
    return whole if "/" in lower else parts


def list_cost(name: str, meter: str, count: int) -> int | None:
    """Return the cost in nanos of uses of a meter at the list price of the model's maker, else of
    the first vendor that has a price; None if there is none."""
    if meter not in METERS:
        return None
    matching = sorted(offered(name), key=lambda entry: not entry.of_maker)
    prices = [entry.price[meter] for entry in matching if meter in entry.price]
    return parse_money(prices[0]) * count // METERS[meter].unit if prices else None


@dataclass(frozen=True, slots=True)
class UnpricedLine:
    """Uses without a price. `cost`: at the list price of the catalogue, None if it has none."""

    model: str
    meter: str
    count: int
    cost_nanos: int | None


def unpriced_uses(db: peewee.Database) -> list[UnpricedLine]:
    """Return recent uses without a price, the most frequent first."""
    return [
        UnpricedLine(use.model, use.meter, use.count, list_cost(use.model, use.meter, use.count))
        for use in recent_unpriced(db)
    ]


def of_channel(vendor: str, upstream: str) -> CatalogueEntry | None:
    """Return the entry for a model of a channel: its vendor's or, if the catalogue does not have
    that vendor, the maker's. None if there is no entry or the match is uncertain."""
    matching = offered(upstream)
    own = [entry for entry in matching if entry.vendor == vendor]
    if own or any(entry.vendor == vendor for entry in entries()):
        return own[0] if own else None
    return next((entry for entry in matching if entry.of_maker), None)


def listed_fields(vendor: str, model: str) -> dict[str, Any] | None:
    """Return the bounds, prices and rates that the catalogue has for a vendor's model; None if it
    has no entry."""
    if vendor == "demo":
        return {"price": DEMO_PRICES}
    entry = of_channel(vendor_word(vendor), model)
    return entry.fields() if entry is not None else None
