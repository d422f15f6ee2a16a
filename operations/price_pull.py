"""Prices pulled from a public list into the store: the comparison with our models, and the change.

A price never becomes zero, nothing is removed, and a rise above MAX_RISE_PERCENT is refused unless
it is accepted. Refused prices are reported, the others are stored.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import peewee

from operations.price_sources import ListedModel, maker_of, vendor_word
from store.admin import price_list
from store.admin.apply import Editor
from store.admin.export import list_objects
from store.db import versions
from store.values.errors import Conflict, Refused
from store.values.meters import METERS
from store.values.texts import nearest

MAX_RISE_PERCENT = 50
_ORDER = ("factor", *METERS)
_ANY_VENDOR = frozenset({"", "openai-compatible", "ollama", "demo"})
"""Vendors of channels that do not tell whose models they have."""


@dataclass(frozen=True, slots=True)
class PriceDifference:
    """One price that a list would change. `rate`: conditions like `tier=flex`, empty for the plain
    rate; `before`: None if there was none; `refused`: why it is refused, empty if it is accepted.
    """

    model: str
    listed: str
    rate: str
    meter: str
    before: str | None
    after: str
    refused: str = ""

    @property
    def key(self) -> "Tick":
        """Return the change that is ticked. It is valid only while both prices stay the same."""
        return (self.model, self.rate, self.meter, self.before or "", self.after)

    @property
    def steep(self) -> bool:
        """Return whether the price rises by more than MAX_RISE_PERCENT."""
        old = Decimal(self.before or 0)
        rises = self.before is not None and Decimal(self.after) > old
        return rises and (Decimal(self.after) - old) * 100 > MAX_RISE_PERCENT * old

    @property
    def possible(self) -> bool:
        """Return whether the change is possible at all: no price becomes zero."""
        return Decimal(self.after) > 0


Tick = tuple[str, str, str, str, str]
"""A chosen change: model, rate, meter, price before ("" for none) and after."""
Ticks = Mapping[Tick, bool]
"""Chosen changes, and whether a steep rise of each is accepted."""
NOT_TICKED = "not chosen"


@dataclass(frozen=True, slots=True)
class Pull:
    """The result of a pull. `unmatched`: our models that the list does not have, and why."""

    source: str
    differences: Sequence[PriceDifference]
    unmatched: Mapping[str, str]

    @property
    def changes(self) -> list[PriceDifference]:
        """Return the changes that are, or would be, in force."""
        return [difference for difference in self.differences if not difference.refused]

    @property
    def refused(self) -> list[PriceDifference]:
        """Return the refused changes."""
        return [difference for difference in self.differences if difference.refused]


class ListIndex:
    """An index of a list by the names under which its models are found."""

    def __init__(self, models: Sequence[ListedModel]) -> None:
        self._by_key = {model.key.lower(): model for model in reversed(models)}
        self._by_vendor: dict[tuple[str, str], ListedModel] = {}
        self._by_name: dict[str, list[ListedModel]] = {}
        for model in models:
            for name in {name.lower() for name in (model.name, *model.aliases)}:
                self._by_vendor.setdefault((model.vendor, name), model)
                self._by_name.setdefault(name, []).append(model)

    def find(self, vendor: str, name: str) -> ListedModel | str:
        """Return the model with a vendor's name for it, or why there is none. For a vendor that
        does not tell whose models it has: the maker's, or one of that name if all have the same
        price."""
        name = name.lower()
        if model := self._by_vendor.get((vendor, name)):
            return model
        if "/" in name and (model := self._by_key.get(name)):
            return model
        if vendor not in _ANY_VENDOR:
            return "is not in the list"
        matching = self._by_name.get(name, [])
        matching = [m for m in matching if m.vendor == maker_of(name)] or matching
        if not matching:
            return "is not in the list"
        if any((m.price, m.rate) != (matching[0].price, matching[0].rate) for m in matching):
            vendors = ", ".join(sorted({model.vendor for model in matching})[:5])
            return f"several vendors offer it at different prices: {vendors}"
        return matching[0]


def _names_of(model: str, channels: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the vendor and name of a model at each channel that serves it, then its public name."""
    for channel in sorted(channels, key=lambda channel: not channel["enabled"]):
        if model in channel["models"]:
            yield vendor_word(channel["vendor"]), channel["models"][model]
    yield "", model


def matching(
    index: ListIndex, model: str, channels: Sequence[Mapping[str, Any]]
) -> ListedModel | str:
    """Return the list's model that matches ours, or why there is none."""
    reasons = []
    for vendor, name in _names_of(model, channels):
        listed = index.find(vendor, name)
        if isinstance(listed, ListedModel):
            return listed
        reasons.append(listed)
    return max(reasons, key=len)  # the more informative one


# ---- what differs


def _conditions(when: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={when[name]}" for name in sorted(when))


def _why_not(before: str | None, after: str, accepted: Decimal) -> str:
    """Return why a price is refused; empty if it is accepted."""
    old, new = Decimal(before or 0), Decimal(after)
    if not new:
        return "never to zero"
    if before is None or new <= old:
        return ""
    if not old:
        return "is free here"
    percent = (new - old) * 100 / old
    if percent > max(accepted, Decimal(MAX_RISE_PERCENT)):
        return (
            f"rises by {percent:.0f} %: --accept-rises {percent.to_integral_value('ROUND_CEILING')}"
        )
    return ""


@dataclass(slots=True)
class ModelComparison:
    """A model of ours compared with one of a list. `price`, `rates`: its prices, changed by
    `compare`."""

    name: str
    listed: ListedModel
    price: dict[str, str]
    rates: list[dict[str, Any]]
    accepted: Decimal
    ticks: Ticks | None = None
    differences: list[PriceDifference] = field(default_factory=list)

    def compare(self) -> None:
        """Apply the accepted changes, and record all of them in `differences`."""
        plain = dict(self.price)
        self._merge("", self.price, self.listed.price)
        by_conditions = {_conditions(rate["when"]): rate for rate in self.rates}
        for rate in self.listed.rate:
            conditions = _conditions(rate["when"])
            prices = {name: text for name, text in rate.items() if name != "when"}
            own = by_conditions.get(conditions)
            zeros = {name: text for name, text in prices.items() if not Decimal(text)}
            if own is None and zeros:
                for name, text in zeros.items():
                    self._judged(conditions, name, None, text)
            elif own is None:
                if self._together(conditions, {}, prices):
                    self.rates.append({"when": dict(rate["when"]), **prices})
            elif ("factor" in own) == ("factor" in prices):
                self._merge(conditions, own, prices)
            else:
                self._replace(conditions, own, prices, plain)

    def _merge(self, rate: str, prices: dict[str, Any], listed: Mapping[str, str]) -> None:
        for meter in sorted(listed, key=_ORDER.index):
            before, after = prices.get(meter), listed[meter]
            if before is None and Decimal(after) in (0, Decimal(_chained(prices, meter))):
                continue  # it holds already
            if self._judged(rate, meter, before, after):
                prices[meter] = after

    def _replace(
        self,
        rate: str,
        own: dict[str, Any],
        listed: Mapping[str, str],
        plain: Mapping[str, str],
    ) -> None:
        """Replace a factor by whole prices, or the other way round; all or nothing."""
        before, after = (
            {m: _times(plain[m], p["factor"]) for m in ("input", "output")} if "factor" in p else p
            for p in (own, listed)
        )
        names = ("input", "output") if "factor" in listed else tuple(after)
        if self._together(rate, before, {name: after[name] for name in names}):
            when = own["when"]
            own.clear()
            own |= {"when": when, **listed}

    def _together(self, rate: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Judge prices of a rate that are changed all or not at all, and note the differences."""
        first = len(self.differences)
        allowed = [self._judged(rate, name, before.get(name), after[name]) for name in after]
        chosen = [row.refused != NOT_TICKED for row in self.differences[first:]]
        if self.ticks is not None and any(chosen) and not all(chosen):
            raise Refused([f'model "{self.name}": the prices of {rate} are taken together'])
        return all(allowed)

    def _judged(self, rate: str, meter: str, before: str | None, after: str) -> bool:
        """Judge the change of a price, and note the difference. Return whether it is accepted."""
        if before is not None and Decimal(before) == Decimal(after):
            return True
        difference = PriceDifference(self.name, self.listed.key, rate, meter, before, after)
        refused = _why_not(before, after, self.accepted)
        if self.ticks is not None:
            refused = self._why_not_ticked(difference, refused)
        self.differences.append(replace(difference, refused=refused))
        return not refused

    def _why_not_ticked(self, difference: PriceDifference, refused: str) -> str:
        ticks = self.ticks or {}
        if difference.key not in ticks:
            return NOT_TICKED
        return "" if ticks[difference.key] and difference.possible else refused


def _own_price(price: Mapping[str, str]) -> dict[str, str]:
    """Return the prices of a model without the free price of a call that every model has."""
    return {meter: text for meter, text in price.items() if (meter, text) != ("call", "0")}


def _chained(prices: Mapping[str, str], meter: str) -> str:
    """Return the price that applies to a meter without a price of its own; "0" if its uses count as
    unpriced."""
    row = METERS.get(meter)
    while row is not None and row.falls_to is not None and not row.unpriced:
        if row.falls_to in prices:
            return prices[row.falls_to]
        row = METERS[row.falls_to]
    return "0"


def _times(price: str, factor: str) -> str:
    return format((Decimal(price) * Decimal(factor)).normalize(), "f")


# ---- all of it


def pull(
    db: peewee.Database,
    editor: Editor,
    listed: Sequence[ListedModel],
    source: str,
    *,
    only: Collection[str] = (),
    accepted: Decimal = Decimal(0),
    ticks: Ticks | None = None,
    dry_run: bool = False,
) -> Pull:
    """Set the prices of our models (`only`: of these) to a list's, or only report the changes.

    `source`: is stored with the prices; `accepted`: percent by which a price may rise; `ticks`:
    only these changes. Raises Refused; Conflict if a price of a tick has changed; Outdated if it
    changes meanwhile.
    """
    begun_on = {
        name: versions.version_of(db, price_list.MODEL, name)
        for name in {tick[0] for tick in ticks or ()}
    }
    models, channels = list_objects(db, "model"), list_objects(db, "channel")
    names = [model["name"] for model in models]
    faults = [
        f'there is no model "{name}"{nearest(name, names)}' for name in only if name not in names
    ]
    if faults:
        raise Refused(faults)
    index, unmatched, rows = ListIndex(listed), {}, []
    differences: list[PriceDifference] = []
    for model in models:
        name = model["name"]
        if only and name not in only:
            continue
        match = matching(index, name, channels)
        if isinstance(match, str):
            unmatched[name] = match
            continue
        comparison = ModelComparison(
            *(name, match, _own_price(model["price"]), list(map(dict, model["rate"]))),
            *(accepted, ticks),
        )
        comparison.compare()
        differences += comparison.differences
        if any(not difference.refused for difference in comparison.differences):
            prices = {**comparison.price, "rate": comparison.rates, "price_source": source}
            version = {"version": begun_on[name]} if name in begun_on else {}
            rows.append({"model": name, **prices, **version})
    stale = set(ticks or ()) - {difference.key for difference in differences}
    if stale:
        names_of_stale = ", ".join(sorted({tick[0] for tick in stale}))
        raise Conflict(f"prices have changed since this comparison: {names_of_stale}")
    if rows:
        price_list.take(db, editor, rows, dry_run=dry_run)
    return Pull(source, differences, unmatched)
