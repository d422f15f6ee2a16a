"""Availability of models in groups: the other groups that offer a model, since when it is down, and
similar names for an unknown one. Computed from the offers of groups (``store.channels.offers``),
for `explain` and the Hub.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import peewee

from store.calls.usage_queries import Filters, history
from store.calls.usage_stats import Order, stats
from store.channels.offers import Offering
from store.channels.status import DISABLED, DOWN, Status
from store.hub.own_keys import OwnKey
from store.values.ids import DAY_MS, HOUR_MS
from store.values.texts import closest

NEAREST = 3  # names that are proposed for an unknown one

UNKNOWN, UPSTREAM_NAME, OTHER_GROUP = "unknown", "upstream_name", "other_group"
MODEL_NOT_FOUND = "model_not_found"
UNOFFERED_DAYS = 7
UNOFFERED_ROWS = 100  # most requested pairs of model and key; some may be offered by now
SWITCHED_OFF, IS_DOWN, CALLABLE = "disabled", "down", "callable"


@dataclass(frozen=True, slots=True)
class ModelLookup:
    """The result of looking a model up in a group; `code`:

    unknown        no model has this name; `nearest` are similar names
    upstream_name  channels have it as an upstream name; `nearest` are its public names
    other_group    `elsewhere` are groups that offer it, the cheapest first
    disabled       the model is disabled, or no channel serves it; there may be groups `elsewhere`
    down           all its channels are down; `status` has since when, why, and the next try;
                   there may be groups `elsewhere`
    callable       it can be called
    """

    code: str
    model: str
    group: str
    nearest: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    status: Status | None = None


class Availability:
    """The availability of models in the groups of an offering, which are those that a user
    may see."""

    def __init__(self, offering: Offering) -> None:
        self._offering = offering
        self._statuses = {(status.name, status.model): status for status in offering.statuses}
        self._upstream: dict[str, set[str]] = {}
        for channel in offering.channels:
            if channel.groups & offering.groups.keys():
                for public, upstream in channel.models.items():
                    self._upstream.setdefault(upstream, set()).add(public)

    def status(self, group: str, model: str) -> Status | None:
        """Return the status of a model in a group, or None if it is not offered there."""
        return self._statuses.get((group, model))

    def elsewhere(self, group: str, model: str) -> list[str]:
        """Return the other groups in which a model can be called now, the cheapest first."""
        groups = [
            other
            for name, other in self._offering.groups.items()
            if name != group and self._answers(name, model)
        ]
        groups.sort(key=lambda other: (other.multiplier_ppm, other.name))
        return [other.name for other in groups]

    def look_up(self, group: str, model: str) -> ModelLookup:
        """Look a name up in a group."""
        status = self.status(group, model)
        elsewhere = self.elsewhere(group, model)
        if status is None:
            return self._not_offered(group, model, elsewhere)
        code = {DISABLED: SWITCHED_OFF, DOWN: IS_DOWN}.get(status.state, CALLABLE)
        return ModelLookup(code, model, group, elsewhere=elsewhere, status=status)

    def nearest(self, group: str, model: str) -> list[str]:
        """Return similar names that can be called in the group, or, if there are none, in
        others."""
        return self._like(model, [group]) or self._like(model, self._offering.groups)

    def _not_offered(self, group: str, model: str, elsewhere: Sequence[str]) -> ModelLookup:
        if elsewhere:
            nearest = self._like(model, [group])
            return ModelLookup(OTHER_GROUP, model, group, nearest=nearest, elsewhere=elsewhere)
        if public := self._public_names(group, model):
            return ModelLookup(UPSTREAM_NAME, model, group, nearest=public[:NEAREST])
        return ModelLookup(UNKNOWN, model, group, nearest=self.nearest(group, model))

    def _public_names(self, group: str, upstream: str) -> list[str]:
        names = self._upstream.get(upstream, set()) - {upstream}
        return sorted(name for name in names if self._answers(group, name))

    def _answers(self, group: str, model: str) -> bool:
        status = self.status(group, model)
        return status is not None and status.state not in (DISABLED, DOWN)

    def _like(self, model: str, groups: Iterable[str]) -> list[str]:
        among = frozenset(groups)
        names = sorted({name for group, name in self._statuses if group in among})
        # A date at the end of a name makes it too long to count as similar.
        prefixes = [name for name in names if model.startswith(name) or name.startswith(model)]
        prefixes.sort(key=len, reverse=True)
        return list(dict.fromkeys((*prefixes, *closest(model, names, NEAREST))))[:NEAREST]


def to_plain(why: ModelLookup) -> dict[str, Any]:
    """Return the result as JSON, without the status."""
    return {"code": why.code, "nearest": list(why.nearest), "elsewhere": list(why.elsewhere)}


@dataclass(frozen=True, slots=True)
class UnofferedModel:
    """A model that was requested with a key but is not offered to it: how often, when last, and why
    it was refused."""

    model: str
    key: OwnKey
    calls: int
    last_ms: int | None
    why: ModelLookup


def unoffered_models(
    db: peewee.Database,
    user: str,
    keys: Mapping[str, OwnKey],
    availability: Availability,
    at_ms: int,
    *,
    limit: int,
) -> list[UnofferedModel]:
    """Return the most requested of these models in the last UNOFFERED_DAYS; `keys` by id."""
    since_ms = at_ms - UNOFFERED_DAYS * DAY_MS
    since_ms -= since_ms % HOUR_MS
    filters = Filters(user=user, error_code=MODEL_NOT_FOUND, since_ms=since_ms)
    models: list[UnofferedModel] = []
    for row in stats(db, ("model", "key_id"), filters, Order("calls", UNOFFERED_ROWS)):
        key = keys.get(row["key_id"])
        if key is None or row["model"] is None or len(models) == limit:
            continue
        why = availability.look_up(key.group, row["model"])
        if why.code in (CALLABLE, IS_DOWN):
            continue
        last = history(db, replace(filters, key_id=key.id, model=why.model), 1)
        last_ms = last[0]["started_ms"] if last else None
        models.append(UnofferedModel(why.model, key, row["calls"], last_ms, why))
    return models
