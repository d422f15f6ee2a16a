"""Names of models that a user's calls asked for and that nobody offers to the key that asked."""

from collections.abc import Mapping
from dataclasses import dataclass

import peewee

from operations.availability import CALLABLE, IS_DOWN, Availability, Why
from store.calls import usage_stats
from store.calls.usage_queries import Filters, history
from store.calls.usage_stats import Order
from store.hub.own_keys import OwnKey
from store.values.ids import DAY_MS, HOUR_MS

ASKED_DAYS = 7
NOT_FOUND = "model_not_found"
NAMES = 100  # pairs of name and key that asked the most: some of these are offered by now


@dataclass(frozen=True, slots=True)
class AskedFor:
    """A name, the key that asked for it, how often, when last, and why it was refused."""

    model: str
    key: OwnKey
    calls: int
    last_ms: int | None
    why: Why


def asked_for(
    db: peewee.Database,
    user: str,
    keys: Mapping[str, OwnKey],
    able: Availability,
    at_ms: int,
    *,
    most: int,
) -> list[AskedFor]:
    """Those of the last ASKED_DAYS that were asked for the most often."""
    since_ms = at_ms - ASKED_DAYS * DAY_MS
    since_ms -= since_ms % HOUR_MS
    filters = Filters(user=user, error_code=NOT_FOUND, since_ms=since_ms)
    order = Order("calls", NAMES)
    found: list[AskedFor] = []
    for row in usage_stats.stats(db, ("model", "key_id"), filters, order):
        key = keys.get(row["key_id"])
        if key is None or row["model"] is None or len(found) == most:
            continue
        why = able.why(key.group, row["model"])
        if why.code in (CALLABLE, IS_DOWN):
            continue
        last = history(
            db,
            Filters(
                user=user, key_id=key.id, model=why.model, error_code=NOT_FOUND, since_ms=since_ms
            ),
            1,
        )
        last_ms = last[0]["started_ms"] if last else None
        found.append(AskedFor(why.model, key, row["calls"], last_ms, why))
    return found
