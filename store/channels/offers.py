"""The offers of groups: each model with its state, its prices after the multiplier, the entries by
which it can be called, and its uptime. For users, so without accounts. For commands and the Hub."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from store.catalog.catalog import Group, Losses, Model, load_groups, load_models
from store.channels.serving import NATIVE, TRANSLATED, Entries, ServingChannel, load_serving
from store.channels.status import AVAILABLE, DEGRADED, Status, of_models, to_public
from store.channels.uptime import Slot, Span, Uptime, empty_uptime, uptime_of
from store.db.database import in_snapshot
from store.values.meters import COLUMN_METERS, METERS
from store.values.pricing import Prices, Rate, format_multiplier
from store.values.usage_record import rfc3339


@dataclass(frozen=True, slots=True)
class Offer:
    """A model for a group. `prices` None: it has none. `uptime` None: it was not requested."""

    group: Group
    status: Status
    prices: Prices | None
    entries: Mapping[str, str]
    uptime: Uptime | None = None

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.status.model

    @property
    def rates(self) -> Sequence[Rate]:
        """Return the model's rates, the plain rate first, or none without prices."""
        return (self.prices.plain, *self.prices.rates) if self.prices else ()

    def price(self, name: str, rate: Rate | None = None) -> str | None:
        """Return the price of a meter after the multiplier, in decimal text. Without a rate, it is
        the plain price."""
        if self.prices is None:
            return None
        return (rate or self.prices.plain).price_text(name, self.group.multiplier_ppm)

    def price_table(self, rate: Rate) -> dict[str, str | None]:
        """Return the prices of a rate by meter: those of a list's columns, and the rate's own."""
        names = (name for name in METERS if name in COLUMN_METERS or name in rate.own)
        return {name: self.price(name, rate) for name in names}


@dataclass(frozen=True, slots=True)
class Offering:
    """The groups, models, channels and statuses at one time."""

    at_ms: int
    groups: Mapping[str, Group]
    models: Mapping[str, Model]
    channels: Sequence[ServingChannel]
    statuses: Sequence[Status]
    losses: Losses = field(repr=False)

    def offers(self, group: str, only: Iterable[str] | None = None) -> list[Offer]:
        """Return the offers of a group, in order of names. `only`: those with these names."""
        names = None if only is None else frozenset(only)
        entries = self._entries(group, names)
        return [
            Offer(
                group=self.groups[group],
                status=status,
                prices=self.models[status.model].prices_at(self.at_ms),
                entries=entries.get(status.model, {}),
            )
            for status in self.statuses
            if status.name == group and (names is None or status.model in names)
        ]

    def callable_offers(self, group: str, only: Collection[str] = ()) -> list[Offer]:
        """Return the offers of a group that some entry can call. `only`: those with these names;
        empty for all. Empty if the group does not exist."""
        if group not in self.groups:
            return []
        return [offer for offer in self.offers(group, only or None) if offer.entries]

    def _entries(
        self, group: str, names: frozenset[str] | None = None
    ) -> dict[str, dict[str, str]]:
        """Return the entries by model (`names`: only these): family of the entry -> native, or the
        family from which it is translated."""
        entries = Entries([self.groups[group]], self.losses)
        by_model: dict[str, dict[str, str]] = {}
        for channel in self.channels:
            if not channel.enabled or group not in channel.groups:
                continue
            models = channel.models.keys() if names is None else channel.models.keys() & names
            for model in models:
                by_family = by_model.setdefault(model, {})
                own = entries.of(
                    channel.family, frozenset((group,)), model, translate=channel.translate
                )
                for family, how in own.items():
                    if how == NATIVE or family not in by_family:
                        by_family[family] = how
        return by_model


@in_snapshot
def load_offering(
    db: peewee.Database,
    at_ms: int,
    groups: Sequence[str] | None,
    losses: Losses,
    figures_of: Sequence[str] | None = None,
) -> Offering:
    """Load the offers of these groups (None: all). `figures_of` is as in `of_models`."""
    known_groups = {
        group.name: group for group in load_groups(db) if groups is None or group.name in groups
    }
    return Offering(
        at_ms=at_ms,
        groups=known_groups,
        models={model.name: model for model in load_models(db)},
        channels=load_serving(db),
        statuses=of_models(db, at_ms, groups, figures_of=figures_of),
        losses=losses,
    )


def native_model(offers: Sequence[Offer], family: str, losses: Losses) -> str | None:
    """Return the first model that a family calls natively, or else with the least loss. Models that
    work now are preferred. None if it can call none."""

    def rank(offer: Offer) -> tuple[int, bool]:
        upstream = offer.entries[family].removeprefix(TRANSLATED)
        loss = 0 if upstream == NATIVE else losses[family, upstream]
        return loss, offer.status.state not in (AVAILABLE, DEGRADED)

    best = min((offer for offer in offers if family in offer.entries), key=rank, default=None)
    return None if best is None else best.model


def with_uptime(db: peewee.Database, offering: Offering, offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers of one group with their uptime."""
    if not offers:
        return []
    group = offers[0].group.name
    models = [offer.model for offer in offers]
    span = Span(min(models), max(models))
    uptimes = uptime_of(db, offering.at_ms, [group], offering.channels, span)
    nothing = empty_uptime(offering.at_ms)
    return [replace(offer, uptime=uptimes.get((group, offer.model), nothing)) for offer in offers]


def to_plain(offer: Offer) -> dict[str, Any]:
    """Return an offer as JSON: a status, and the additional fields of offers."""
    plain = {**to_public(offer.status), "entries": dict(offer.entries)}
    plain["prices"] = offer.prices and offer.price_table(offer.prices.plain)
    plain["rates"] = [
        {"when": dict(rate.when), "prices": offer.price_table(rate)} for rate in offer.rates[1:]
    ]
    if offer.uptime is not None:
        plain["hours"] = _slots(offer.uptime.hours)
        plain["days"] = _slots(offer.uptime.days)
    return plain


def group_to_plain(group: Group, offers: Sequence[Offer]) -> dict[str, Any]:
    """Return a group and its offers."""
    return {
        "name": group.name,
        "multiplier": format_multiplier(group.multiplier_ppm),
        "entries": sorted(group.entries),
        "models": [to_plain(offer) for offer in offers],
    }


def _slots(slots: Sequence[Slot]) -> dict[str, Any]:
    """Return counts in order of time from `since` on. They are lists, since there are many."""
    return {
        "since": rfc3339(slots[0].at_s * 1000),
        "ok": [slot.ok for slot in slots],
        "failed": [slot.failed for slot in slots],
        "probes": [slot.probes for slot in slots],
    }
