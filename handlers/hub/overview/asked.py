"""Names of models that a user's calls asked for and that nobody offers to the key that asked."""

from collections.abc import Mapping
from dataclasses import dataclass

import peewee

from handlers.operations.availability import CALLABLE, IS_DOWN, Availability, Why
from store.calls import usage_stats
from store.calls.usage_queries import Filters, history
from store.calls.usage_stats import Order
from store.hub.own_keys import OwnKey
from store.values.ids import DAY_MS, HOUR_MS

ASKED_DAYS = 7
REFUSED = "refused"
REFUSED_NAMES = 200  # pairs of name and key with the most refusals: of these some are not offered


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
    """Those of the last ASKED_DAYS that were asked for the most often.

    Of refused calls the roll-ups tell model and key; a call is refused for its model's name before
    anything that is the model's fault.
    """
    since_ms = at_ms - ASKED_DAYS * DAY_MS
    since_ms -= since_ms % HOUR_MS
    filters = Filters(user=user, outcome=REFUSED, since_ms=since_ms)
    order = Order("calls", REFUSED_NAMES)
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
            Filters(user=user, key_id=key.id, model=why.model, outcome=REFUSED, since_ms=since_ms),
            1,
        )
        last_ms = last[0]["started_ms"] if last else None
        found.append(AskedFor(why.model, key, row["calls"], last_ms, why))
    return found
