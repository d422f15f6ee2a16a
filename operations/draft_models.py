"""The models of a new channel: proposals for a vendor's list, prices as they are typed, and
problems with them. Pure, except that the catalogue is a file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from operations.catalogue import listed_fields
from operations.price_sources import CURRENCY
from store.values import texts
from store.values.errors import Refused
from store.values.pricing import AmountError, format_multiplier, parse_multiplier, parse_price

CELLS = ("input", "cache_read", "output")
NEEDED = ("input", "output")
CHAT = "chat"
MAX_FACTOR = 1000

_KINDS = {
    "embeddings": r"embed|bge-|e5-",
    "rerank": r"rerank",
    "transcriptions": r"whisper|transcri|-asr",
    "speech": r"tts|speech",
    "images": r"dall-e|image|flux|stable-diffusion|imagen|seedream|wanx",
    "moderations": r"moderation|guard",
    "documents": r"\bocr\b",
    "videos": r"sora|veo-|video",
}
_KIND = re.compile("|".join(f"(?P<{kind}>{names})" for kind, names in _KINDS.items()), re.I)
_UNFIT = re.compile(r"[^A-Za-z0-9._:/@-]+")


@dataclass(slots=True)
class DraftModel:
    """A model of the vendor's list.

    `kind`: chat, or the endpoint that its name indicates; `prices`: texts of the cells; `listed`:
    the catalogue's fields for it, as of `date`, empty without an entry; `test`: the result of its
    last test; `cost`: what the operator pays.
    """

    upstream: str
    name: str
    chosen: bool = False
    kind: str = CHAT
    prices: dict[str, str] = field(default_factory=dict)
    listed: dict[str, Any] = field(default_factory=dict)
    date: str = ""
    test: dict[str, Any] | None = None
    cost: dict[str, str] = field(default_factory=dict)

    @property
    def listed_prices(self) -> dict[str, str]:
        """Return the catalogue's values of the cells."""
        price = self.listed.get("price", {})
        return {name: price[name] for name in CELLS if name in price}

    @property
    def is_listed(self) -> bool:
        """Return whether the prices are the catalogue's."""
        return bool(self.listed) and _same(self.prices, self.listed_prices)

    @property
    def works(self) -> bool:
        """Return whether it answered its last test."""
        return bool(self.test and self.test["ok"])

    def take_list(self) -> None:
        """Set the prices to the catalogue's, if it has an entry."""
        if self.listed:
            self.prices = self.listed_prices

    def price(self) -> dict[str, Any]:
        """Return price, rates and bounds as fields of a model. What has no cell comes from the
        catalogue, unless the model is free. Raises AmountError."""
        cells = {name: text for name, text in self.prices.items() if text}
        free = all(parse_price(cells[name]) == 0 for name in NEEDED)
        further = {
            name: text
            for name, text in self.listed.get("price", {}).items()
            if name not in CELLS and not free
        }
        fields = {**self.listed, "price": {**further, **cells}}
        if free:
            fields.pop("rate", None)
        if not self.is_listed:
            fields.pop("price_source", None)
        return fields


def public_names(upstream: str) -> tuple[str, str]:
    """Return possible names for a model here: the vendor's own, and the same without the maker."""
    name = _UNFIT.sub("-", upstream)[: texts.MAX_NAME_CHARS]
    return name, name.rpartition("/")[2] or name


def propose(vendor: str, upstream: str, existing: set[str], currency: str) -> DraftModel:
    """Return a model of a vendor's list, not chosen, with the catalogue's prices if `currency` is
    the catalogue's."""
    whole, short = public_names(upstream)
    match = _KIND.search(upstream)
    kind = str(match.lastgroup) if match else CHAT
    fields = listed_fields(vendor, upstream) if currency == CURRENCY or vendor == "demo" else None
    name = short if whole not in existing and short in existing else whole
    model = DraftModel(upstream, name, kind=kind, listed=dict(fields or {}))
    if match and model.listed:
        model.kind = kind = CHAT  # the catalogue has only chat models
    source = re.match(r"catalogue (\S+)", model.listed.get("price_source", ""))
    model.date = source[1] if source else ""
    model.take_list()
    return model


def times(model: DraftModel, factor: str) -> None:
    """Multiply the prices of a model. Raises Refused."""
    try:
        by = Decimal(factor)
        if not Decimal(0) < by <= MAX_FACTOR:
            raise InvalidOperation
        prices = {
            name: format((Decimal(text) * by).quantize(Decimal("1e-9")).normalize(), "f")
            for name, text in model.prices.items()
            if text
        }
    except InvalidOperation:
        raise Refused(["the factor must be a number above 0, like 1.2"], ["factor"]) from None
    model.prices = prices


def factor_text(text: str) -> str:
    """Return a factor of the list price in its stored form. Raises ValueError."""
    return format_multiplier(parse_multiplier(text))


def _same(prices: Mapping[str, str], listed: Mapping[str, str]) -> bool:
    return {name: _amount(text) for name, text in prices.items() if text} == {
        name: _amount(text) for name, text in listed.items()
    }


def _amount(text: str) -> int | str:
    try:
        return parse_price(text)
    except AmountError:
        return text


def problems(models: Sequence[DraftModel], existing: set[str]) -> dict[str, dict[str, str]]:
    """Return the problems of the chosen models, by their names at the vendor and by field: the name
    or a cell. An empty text means that a price is missing."""
    wrong: dict[str, dict[str, str]] = {}
    names: set[str] = set()
    for model in models:
        own: dict[str, str] = {}
        try:
            texts.model_name(model.name)
        except ValueError as error:
            own["name"] = str(error)
        if model.name in names:
            own["name"] = f'"{model.name}" is the name of two chosen models'
        names.add(model.name)
        if model.name not in existing:
            own |= price_problems(model.prices)
        if own:
            wrong[model.upstream] = own
    return wrong


def price_problems(prices: Mapping[str, str]) -> dict[str, str]:
    """Return the problems of the cells of a model that needs prices; "": missing."""
    wrong = {}
    for cell in CELLS:
        text = prices.get(cell, "")
        if not text and cell in NEEDED:
            wrong[cell] = ""
        if text:
            try:
                parse_price(text)
            except AmountError as error:
                wrong[cell] = str(error)
    return wrong
